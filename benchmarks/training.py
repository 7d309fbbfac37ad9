"""Measure `inphase train paper_gta` on a GPU: milliseconds per step, images per second, and how busy the GPU is.

    python -m benchmarks.training GOLFDB [--steps 400]

The network of the paper from random weights, in bfloat16, compiled, on frames of GolfDB's training clips: 4 videos ×
20 frames × 2 context frames of 224 × 224 pixels per step, read from a frame store. The first half of the steps, in
which the network is compiled, is not counted. Wall time; `nvidia-smi` reports five times a second how busy the GPU is.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.timing import lay_out
from inphase.data import golfdb
from inphase.data.frame_source import sources
from inphase.media.frame_store import fill_store
from inphase.training.loop import train
from inphase.training.recipe import read_recipe

IMAGES = 4 * 20 * 2  # of a step
GPU_LOAD = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=200")


class Marks:
    """The time of each step reported, and the load of the GPU between the first mark and the last one."""

    def __init__(self, begin: int) -> None:
        self.begin, self.times = begin, dict[int, float]()
        self.load: subprocess.Popen[str] | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != "training" or done < self.begin:
            return
        self.times[done] = time.perf_counter()
        if self.load is None:
            self.load = subprocess.Popen(GPU_LOAD, stdout=subprocess.PIPE, text=True)
        elif done == total:
            self.load.terminate()

    def read(self) -> tuple[float, list[float]]:
        """Return the seconds of a step, and the percentages that the GPU was busy."""
        if self.load is None or len(self.times) < 2:
            raise SystemExit("too few steps were reported")
        first, last = min(self.times), max(self.times)
        printed, _ = self.load.communicate()
        busy = [float(line) for line in printed.split()]
        return (self.times[last] - self.times[first]) / (last - first), busy[1:]  # the first covers time before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golfdb", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.training needs a CUDA device")
    with tempfile.TemporaryDirectory() as place:
        store = Path(place) / "frames"
        fill_store(store, sources(golfdb.load(given.golfdb, split="train")), size=(224, 224), workers=8)
        changes = ["data.name=golfdb", f"data.root={given.golfdb}", f"data.store={store}", "encoder.weights=saved"]
        recipe = read_recipe("paper_gta", changes=[*changes, f"run.steps={given.steps}", "run.accelerator=cuda"])
        marks = Marks(given.steps // 2)
        train(recipe, Path(place) / "run", progress=marks)
    seconds, busy = marks.read()
    print(
        lay_out(
            ["", "measured", "goal"],
            [
                ["a step, ms", f"{seconds * 1000:.1f}", "20"],
                ["images/s", f"{IMAGES / seconds:,.0f}", ""],
                [f"GPU busy, mean of {len(busy)} samples", f"{statistics.mean(busy):.0f} %", "95 %"],
            ],
        )
    )


if __name__ == "__main__":
    main()
