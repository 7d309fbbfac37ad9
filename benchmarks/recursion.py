"""Measure the recursion beside its peers: `make bench`.

    python -m benchmarks.recursion [--device cpu|cuda] [--write]

Results are checked first. All times are forward + backward. inphase returns the whole table and takes a gradient in
every cell of it; the peers return one number per pair. `--write` puts the tables into docs/benchmarks.md.
"""

import argparse
from pathlib import Path

import torch

from benchmarks import on_cpu, on_cuda
from benchmarks.timing import machine, write_block

MEASURES = {"cpu": on_cpu.measure, "cuda": on_cuda.measure}


def main() -> None:
    """Measure on every available device and print the tables of docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description="Measure the recursion beside its peers.")
    parser.add_argument("--device", choices=tuple(MEASURES), help="measure on this device only; default: all available")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device on this machine; use --device cpu")
    present = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    for device in [arguments.device] if arguments.device else present:
        where = machine(device)  # before the run adds its own load
        report = f"{MEASURES[device]()}\n\nMeasured on {where}."
        print(report, end="\n\n")
        if arguments.write:
            write_block(Path(__file__).parents[1] / "docs" / "benchmarks.md", device, report)


if __name__ == "__main__":
    main()
