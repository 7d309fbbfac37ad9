"""Measure the frames per second of the data loader, beside plain PyAV and beside the demand of a training step.

    python -m benchmarks.loading [FOLDER_OF_GOLFDB]

One step is 4 videos × 20 frames × 2 context frames of 224 × 224 pixels, as bytes. Without a folder the videos are the
stage's, written as mp4. `CPU` is frames per second of CPU time, summed over processes: the
throughput of one idle core. Sixteen times that is an upper bound, since cores share their memory. Training on one H200
consumes 160 frames in 42 ms (float32) to 20 ms (bf16, 168 px).
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import av
import numpy as np
import torch
from torch.utils.data import DataLoader

from inphase.data import golfdb, stage_videos
from inphase.data.batches import augment_images, sample_image_augmentation
from inphase.data.frame_source import read_stored, sources
from inphase.data.stream import Batch, GroupStream, prefetch
from inphase.data.video import RenderedFrames, Video, measured_length, read_images, read_pose
from inphase.media.frame_store import FrameStore, fill_store

SIZE = (224, 224)
CONSUMED = (3800, 8000)  # frames per second of a training step, float32 and bf16
CORES = 16  # of the machine that trains


def check(decoded: GroupStream, stored: GroupStream, *, store: FrameStore) -> None:
    """Check that decoded, cached, multi-process and multi-threaded reading deliver the same frames."""
    for step in range(2):
        (one,), (other,) = decoded[step].groups, stored[step].groups
        assert one.ids == other.ids
        assert torch.equal(one.frames, other.frames)
        assert torch.equal(one.values, other.values), "decoded and cached images differ"
        row = store[other.ids[0]].frames[other.frames[0].numpy()]
        assert np.array_equal(other.values[0, :, 1].numpy(), row), "a frame is not the sampled one"
    for batches in (loaded(stored, 2, steps=3), prefetch(stored, range(3), threads=2)):
        for batch in batches:
            assert torch.equal(batch.groups[0].values, stored[batch.step].groups[0].values), "workers change the values"


def loaded(stream: GroupStream, workers: int, *, steps: int) -> Iterator[Batch]:
    return iter(DataLoader(stream, sampler=range(steps), batch_size=None, num_workers=workers))


def measure(batches: Callable[[], Iterator[Batch]], *, warm: int) -> tuple[float, float]:
    """Return frames per second of wall time and of CPU time, after `warm` steps."""
    frames, begin, spent = 0, 0.0, cpu_seconds()
    for number, batch in enumerate(batches()):
        if number == warm:
            begin = time.perf_counter()
        frames += (number >= warm) * sum(int(np.prod(group.values.shape[:3])) for group in batch.groups)
    rate = frames / (time.perf_counter() - begin)
    every = frames * (number + 1) / (number + 1 - warm)
    return rate, every / (cpu_seconds() - spent)


def cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def plain(paths: list[Path]) -> float:
    """Decode whole files as PyAV's documentation does, scaled to the same size."""
    begin, frames = time.perf_counter(), 0
    for path in paths:
        with av.open(str(path)) as container:
            for frame in container.decode(video=0):
                frame.to_ndarray(format="rgb24", height=SIZE[0], width=SIZE[1])
                frames += 1
    return frames / (time.perf_counter() - begin)


def table(name: str, stream: GroupStream, *, steps: int, warm: int = 4) -> None:
    ways: dict[str, Callable[[], Iterator[Batch]]] = {
        "0 workers": partial(loaded, stream, 0, steps=steps + warm),
        "1 worker": partial(loaded, stream, 1, steps=steps + warm),
        "2 workers": partial(loaded, stream, 2, steps=steps + warm),
        "1 thread": partial(prefetch, stream, range(steps + warm), threads=1),
        "2 threads": partial(prefetch, stream, range(steps + warm), threads=2),
    }
    for way, batches in ways.items():
        rate, core = measure(batches, warm=warm)
        print(f"{name:<34}{way:>10}{rate:>12,.0f}{core:>12,.0f}{CORES * core:>14,.0f}")


def main(folder: Path | None, scratch: Path) -> None:
    torch.set_num_threads(1)
    if folder is None:
        stage_videos.write(scratch / "stage", split="train", actions=("golf_swing", "kick"), videos=8, size=SIZE[0])
        videos = stage_videos.load(scratch / "stage", split="train")
    else:
        videos = golfdb.load(folder, split="train")[:60]
    fill_store(scratch / "store", sources(videos), size=SIZE)
    store = FrameStore(scratch / "store")
    drawn = stage_videos.load(split="train", actions=("golf_swing", "kick"), videos=8, size=SIZE[0])

    def stored_length(video: Video) -> int:
        return store.frames(video.id)

    read = partial(read_stored, store=store)
    decoded = GroupStream(videos, read=partial(read_images, size=SIZE), frame_count=measured_length)
    stored = GroupStream(videos, read=read, frame_count=stored_length, augmentation=sample_image_augmentation)
    check(decoded, stored, store=store)
    print(f"a training step on an H200 consumes {CONSUMED[0]:,} to {CONSUMED[1]:,} frames/s")
    print(f"PyAV, all frames in order, one process: {plain([v.path for v in videos if v.path]):,.0f} frames/s\n")
    print(f"{'groups of':<34}{'read by':>10}{'frames/s':>12}{'CPU':>12}{f'{CORES} cores':>14}")
    table("random frames of mp4, decoded", decoded, steps=6, warm=1)
    table("cached frames, bytes", stored, steps=60)
    table(
        "cached frames, augmented, as floats", GroupStream(videos, read=read, prepare=augment_images), steps=12, warm=2
    )
    table(
        "stage, drawn and cached",
        GroupStream(drawn, read=RenderedFrames(), augmentation=sample_image_augmentation),
        steps=60,
        warm=16,
    )
    table("poses", GroupStream(drawn, read=read_pose), steps=200)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else None, Path(folder))
