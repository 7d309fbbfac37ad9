"""Measure what users wait for in one run, beside the best peer or floor, and write it to docs/benchmarks.md.

    python -m benchmarks.end_to_end GOLFDB [--skip recursion …]   # ten minutes

Every part is a benchmark of its own and runs in its own process, one after the other. On a CPU: the start of the
command line, pose beside MediaPipe, image networks beside torch, the first alignment and the second, the data loader
beside plain PyAV, pairs of a corpus on every engine, how a corpus grows, the recursion beside its peers. On a GPU:
embedding beside its parts, the paper's training step, training from a frame store, pairs of a corpus on every engine,
the recursion beside dDTW. The page is written after each. A part that fails is named with its error.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.first_use import processor_seconds
from benchmarks.timing import machine, write_block

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
LONGEST = 1200  # seconds of one part
CLIPS = ("videos/0002.mp4", "videos/0004.mp4")


def parts(golfdb: Path, *, cuda: bool) -> dict[str, tuple[str, list[str]]]:
    """Return the title and the arguments of each benchmark, by name."""
    pairs = ("All pairs of a corpus", ["--videos", "200" if cuda else "300", "--frames", "100"])
    if cuda:
        return {
            "embedding": ("Embedding by image", [str(golfdb)]),
            "step": ("The paper's training step", []),
            "training": ("Training the paper's network from a frame store", [str(golfdb)]),
            "pair_engines": pairs,
        }
    clips = [str(golfdb / clip) for clip in CLIPS]
    return {
        "start": ("The start of the command line, beside an empty Python", []),
        "pose": ("Pose beside MediaPipe, one thread", ["cost", str(golfdb / "videos"), "24"]),
        "image_runtime": ("Image networks by torch and by OpenVINO, one thread", []),
        "first_use": ("The first alignment of two clips: 4 seconds of 1080p at 60 frames/s", ["--enlarge", *clips]),
        "loading": ("Frames for training, beside plain PyAV", [str(golfdb)]),
        "pair_engines": pairs,
        "scale": ("The growth of a corpus", ["growth", "--most", "1000"]),
    }


def measure_start() -> str:
    """Return a table of the CPU seconds that each command takes to start, the least of eight runs."""
    commands = {
        "an empty Python": ["-c", "pass"],
        "import inphase": ["-c", "import inphase"],
        "inphase --help": ["-m", "inphase", "--help"],
        "inphase align --help": ["-m", "inphase", "align", "--help"],
    }
    lines = ["| command | CPU, s |", "|---|---|"]
    for name, words in commands.items():
        least = min(processor_seconds([sys.executable, *words], {**os.environ}) for _ in range(8))
        lines.append(f"| {name} | {least:.3f} |")
    return "\n".join(lines)


def run(name: str, *words: str) -> str:
    """Run a benchmark and return what it prints, or why it ended without a result."""
    print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
    if name == "start":
        return measure_start()
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    one_thread = {"OMP_NUM_THREADS": "1"} if name in ("pose", "image_runtime") else {}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST, env={**os.environ, **one_thread}
        )
    except subprocess.TimeoutExpired:
        return f"Not measured: `{name}` took more than {LONGEST} s."
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return f"Not measured: `{name}` ended with {reason!r}."
    text = re.sub(r"(?m)^([^|\n].*)\n\|", r"\1\n\n|", done.stdout.strip())  # a table needs an empty line before it
    return text if "|---" in text else f"```\n{text}\n```"


def main() -> None:
    """Run every part that is not skipped, and write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golfdb", type=Path)
    parser.add_argument("--skip", nargs="*", default=[], help="parts to leave out, such as recursion")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = machine(device)  # before the run adds its own load
    texts = []
    for name, (title, words) in parts(given.golfdb, cuda=device == "cuda").items():
        if name not in given.skip:
            texts.append(f"### {title}\n\n{run(name, *words)}")
            write_block(PAGE, f"end-to-end-{device}", "\n\n".join([*texts, f"Measured on {where}."]))
    if "recursion" not in given.skip:
        print(run("recursion", "--device", device, "--write"), flush=True)


if __name__ == "__main__":
    main()
