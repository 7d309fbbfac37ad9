"""Measure frames per second of `inphase embed --modality image` on a GPU: the network, decoding and the whole command.

    python -m benchmarks.embedding GOLFDB [--videos 400]

Wall time. The network takes random images of 112 × 112 pixels in batches of 256; its weights are random, which does not
change the time. Decoding reads the videos at that size, by one process and by one per core; the decoder of a GPU
(NVDEC, by PyAV) reads every eighth of them, by one process and by four, without scaling. The whole command includes the
start of its processes and the store that it writes.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.timing import lay_out
from inphase.corpus.embed_corpus import embed_corpus
from inphase.media.frames import stream_clips
from inphase.models import save_encoder
from inphase.models.encoder import compute_maps
from inphase.models.motion_encoder import PooledFeatures

SIZE, BATCH = 112, 256


def frames_per_second(call: Callable[[], object], *, seconds: float = 2.0) -> float:
    """Time calls on batches in a row."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            call()
        torch.cuda.synchronize()
        calls += 10
    return calls * BATCH / (time.perf_counter() - began)


@torch.inference_mode()
def measure_network() -> dict[str, float]:
    encoder = PooledFeatures(size=SIZE, weights=None).cuda().eval()
    stored = torch.randint(0, 256, (BATCH, SIZE, SIZE, 3), dtype=torch.uint8, device="cuda")
    images = encoder.prepare(stored)
    plain = images.movedim(-1, 1)
    return {
        "the network alone: torch, single precision": frames_per_second(lambda: encoder.backbone(plain)),
        "… as `inphase embed` runs it": frames_per_second(lambda: compute_maps(encoder.backbone, images)),
        "… from bytes to pooled features": frames_per_second(lambda: encoder.features(encoder.prepare(stored))),
    }


def count_frames(path: Path) -> int:
    """Decode a video at the size of the network, and count its frames."""
    return sum(len(clip.frames) for clip in stream_clips(path, length=BATCH, size=(SIZE, SIZE), fps=None))


def count_frames_on_gpu(path: Path) -> int:
    """Decode a video on the decoder of the GPU, and count its frames."""
    import av
    from av.codec.hwaccel import HWAccel

    accelerated = HWAccel(device_type="cuda", allow_software_fallback=False)
    with av.open(str(path), hwaccel=accelerated) as container:
        return sum(1 for frame in container.decode(video=0) if frame.to_ndarray().size)


def measure_decoding(clips: Sequence[Path], count: Callable[[Path], int], processes: int) -> float:
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(count, clips[:processes]))  # the start of the processes is not counted
        began = time.perf_counter()
        frames = sum(pool.map(count, clips, chunksize=4))
        return frames / (time.perf_counter() - began)


def measure_command(folder: Path, clips: int) -> dict[str, float]:
    """Embed a folder into a new store, by the default number of processes."""
    model = folder.parent / "model.safetensors"
    save_encoder(model, PooledFeatures(size=SIZE, weights=None))
    began = time.perf_counter()
    found = embed_corpus(folder, folder.parent / "store", model=model, device="cuda", cache=folder.parent / "cache")
    seconds = time.perf_counter() - began
    print(f"{clips} videos, {found.frames:,} frames in {seconds:.1f} s")
    return {"the whole command": found.frames / seconds}


def copy_clips(source: Path, folder: Path, number: int) -> list[Path]:
    """Copy clips until there are enough, each with bytes of its own, since files of equal bytes are embedded once."""
    clips = sorted((source / "videos").glob("*.mp4"))
    folder.mkdir()
    made = []
    for k in range(number):
        path = folder / f"{k:04}.mp4"
        shutil.copyfile(clips[k % len(clips)], path)
        with path.open("ab") as opened:  # an MP4 box that readers skip
            opened.write((16).to_bytes(4) + b"free" + k.to_bytes(8))
        made.append(path)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golfdb", type=Path)
    parser.add_argument("--videos", type=int, default=400)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.embedding needs a CUDA device")
    cores = os.cpu_count() or 1
    rows = measure_network()
    with tempfile.TemporaryDirectory() as place:
        clips = copy_clips(given.golfdb, Path(place) / "clips", given.videos)
        few = clips[::8]  # opening a decoder on a GPU takes longer than decoding a clip on a core
        for name, count, processes, some in (
            ("decoding alone, one process", count_frames, 1, clips),
            (f"decoding alone, {cores} processes", count_frames, cores, clips),
            ("NVDEC alone, one process", count_frames_on_gpu, 1, few),
            ("NVDEC alone, 4 processes", count_frames_on_gpu, 4, few),
        ):
            try:
                rows[name] = measure_decoding(some, count, processes)
            # PyAV without NVDEC, or a machine without its library: each version raises errors of its own.
            except Exception as error:
                print(f"not measured: {name} ({type(error).__name__}: {error})")
        rows |= measure_command(Path(place) / "clips", given.videos)
    print("\n" + lay_out(["", "frames/s"], [[name, f"{value:,.0f}"] for name, value in rows.items()]))


if __name__ == "__main__":
    main()
