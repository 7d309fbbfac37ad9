"""Measure what users wait for in one run, beside the best peer or floor, and write it to docs/benchmarks.md.

    python -m benchmarks.end_to_end A.mp4 B.mp4 [--skip recursion …]   # two clips of one action; fifteen minutes

The recursion beside its peers and with drops (`benchmarks.recursion`), image networks beside torch
(`benchmarks.image_runtime`), the first alignment and the second of the two clips (`benchmarks.first_use`), pairs of a
corpus on every engine (`benchmarks.pair_engines`), on a GPU the paper's training step (`benchmarks.step`). Each runs
in a process of its own, one after the other, and is written when it ends. A part that fails is named with its error.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.timing import machine, write_block

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
LONGEST = 1200  # seconds of one part


def run(name: str, *words: str) -> str:
    """Run a benchmark and return what it prints, or why it ended without a result."""
    print(f"benchmarks.{name}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return f"Not measured: `{name}` took more than {LONGEST} s."
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return f"Not measured: `{name}` ended with {reason!r}."
    return done.stdout.strip()


def main() -> None:
    """Run every part that is not skipped, and write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs=2, metavar="CLIP")
    parser.add_argument("--skip", nargs="*", default=[], help="parts to leave out, such as recursion")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = machine(device)  # before the run adds its own load
    parts = {
        "image_runtime": ("Image networks by torch and by OpenVINO, one thread", []),
        "first_use": (
            "The first alignment of two clips, enlarged to 4 seconds of 1080p at 60 frames/s",
            ["--enlarge", *given.clips],
        ),
        "pair_engines": ("All pairs of a corpus", ["--videos", "96", "--frames", "100"]),
    }
    if device == "cuda":
        parts["step"] = ("The paper's training step", [])
    if "recursion" not in given.skip:
        print(run("recursion", "--write"), flush=True)
    texts = []
    for name, (title, words) in parts.items():
        if name not in given.skip:
            texts.append(f"### {title}\n\n{run(name, *words)}")
            write_block(PAGE, "end-to-end", "\n\n".join([*texts, f"Measured on {where}."]))


if __name__ == "__main__":
    main()
