"""Measure frames per second of decoding, of the frame store and of random access, beside plain PyAV.

python benchmarks/media.py FOLDER_OF_VIDEOS [COUNT]
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np

from inphase.media.frame_store import FrameStore, Source, fill_store
from inphase.media.frames import read_clip

SIZE = (224, 224)
DRAWN = 20


def plain(path: Path, *, size: tuple[int, int] | None = None) -> int:
    """Decode a file as PyAV's documentation does."""
    height, width = size or (None, None)
    with av.open(str(path)) as container:
        return len(
            [frame.to_ndarray(format="rgb24", height=height, width=width) for frame in container.decode(video=0)]
        )


def plain_random(path: Path, wanted: list[int]) -> int:
    """Seek to each wanted frame with PyAV and decode up to it."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.time_base is not None
        assert stream.average_rate is not None
        for index in wanted:
            stamp = round(index / stream.average_rate / stream.time_base)
            container.seek(stamp, stream=stream)
            frame = next(frame for frame in container.decode(stream) if frame.pts is not None and frame.pts >= stamp)
            frame.to_ndarray(format="rgb24", height=SIZE[0], width=SIZE[1])
    return len(wanted)


def measure(name: str, work: Callable[[], int]) -> None:
    begin = time.perf_counter()
    frames = work()
    print(f"{name:<52}{frames / (time.perf_counter() - begin):>12,.0f} frames/s")


def main(folder: Path, count: int) -> None:
    files = sorted(folder.glob("*.mp4"))[:count]
    rng = np.random.default_rng(0)
    for path in files[:5]:  # the gate: both must decode the same frames
        with av.open(str(path)) as container:
            truth = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
        np.testing.assert_array_equal(read_clip(path).frames, truth)
    wanted = [np.sort(rng.choice(len(read_clip(path)), DRAWN, replace=False)) for path in files]
    measure("PyAV, all frames, own size", lambda: sum(plain(path) for path in files))
    measure("read_clip, all frames, own size", lambda: sum(len(read_clip(path)) for path in files))
    measure("PyAV, all frames, 224 px", lambda: sum(plain(path, size=SIZE) for path in files))
    measure("read_clip, all frames, 224 px", lambda: sum(len(read_clip(path, size=SIZE)) for path in files))
    measure(
        f"PyAV, {DRAWN} random frames per video, 224 px",
        lambda: sum(plain_random(path, chosen.tolist()) for path, chosen in zip(files, wanted, strict=True)),
    )
    measure(
        f"read_clip, {DRAWN} random frames per video, 224 px",
        lambda: sum(len(read_clip(path, indices=i, size=SIZE)) for path, i in zip(files, wanted, strict=True)),
    )
    with tempfile.TemporaryDirectory() as store_folder:
        sources = {path.stem: Source(path) for path in files}
        measure("fill_store, 224 px", lambda: fill_store(store_folder, sources, size=SIZE).frames)
        store = FrameStore(store_folder)
        measure(
            f"FrameStore, {DRAWN} random frames per video, 224 px",
            lambda: sum(len(store[path.stem].frames[i]) for path, i in zip(files, wanted, strict=True)),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60)
