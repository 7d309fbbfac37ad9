"""Measure the first alignment of two videos on a machine, and the same again: processor time of the whole command.

    python -m benchmarks.first_use A.mp4 B.mp4           # two clips of one's own
    python -m benchmarks.first_use --enlarge A.mp4 B.mp4 # enlarged first: 4 seconds of 1080p at 60 frames/s

Caches and kernels lie in new folders; Python files are compiled by an earlier command.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from inphase.media.frames import read_clip
from inphase.media.render import write_mp4

SECONDS, FPS, HEIGHT, WIDTH = 4, 60, 1080, 1920


def enlarge(source: Path, target: Path) -> Path:
    """Write a clip of `SECONDS` with images blended between those of the source, in the middle of a gray background."""
    frames = read_clip(source).frames

    def images() -> "list[np.ndarray]":
        made = []
        for place in np.linspace(0, len(frames) - 1, SECONDS * FPS):
            low, part = int(place), place % 1
            blended = (1 - part) * frames[low] + part * frames[min(low + 1, len(frames) - 1)]
            canvas = np.full((HEIGHT, WIDTH, 3), 118, np.uint8)
            square = Image.fromarray(blended.astype(np.uint8)).resize((HEIGHT, HEIGHT), Image.Resampling.BICUBIC)
            canvas[:, (WIDTH - HEIGHT) // 2 : (WIDTH + HEIGHT) // 2] = np.asarray(square)
            made.append(canvas)
        return made

    write_mp4(target, images(), fps=FPS, quality=18)
    return target


def processor_seconds(command: list[str], environment: dict[str, str]) -> float:
    """Run a command and return the time of the processor that it and its threads took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path, nargs=2)
    parser.add_argument("--enlarge", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, videos = Path(place), given.videos
        if given.enlarge:
            videos = [enlarge(video, folder / f"{name}.mp4") for video, name in zip(videos, "ab", strict=True)]
        caches = {"NUMBA_CACHE_DIR": folder / "numba", "XDG_CACHE_HOME": folder / "cache"}
        caches["PYTHONPYCACHEPREFIX"] = folder / "python"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment |= {key: str(value) for key, value in caches.items()}
        command = [sys.executable, "-m", "inphase", "align", *map(str, videos), "--out", str(folder / "out")]
        processor_seconds(command, {**environment, "NUMBA_CACHE_DIR": place, "XDG_CACHE_HOME": place})
        for file in (folder / "out").iterdir():
            if file.is_file():
                file.unlink()
        for name in ("first", "again"):
            print(f"{name}: {processor_seconds(command, environment):.1f} s of the processor", flush=True)


if __name__ == "__main__":
    main()
