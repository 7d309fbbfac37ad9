"""Measure what users wait for in one run, beside the best peer or floor, and write it to docs/benchmarks.md.

    python -m benchmarks.end_to_end A.mp4 B.mp4    # two clips of one action; ten minutes on two cores

The recursion beside its peers (`benchmarks.recursion`), image networks beside torch (`benchmarks.image_runtime`), the
first alignment and the second of the two clips (`benchmarks.first_use`), and pairs of a corpus on every engine
(`benchmarks.pair_engines`). Each runs in a process of its own, one after the other.
"""

import subprocess
import sys
from pathlib import Path

from benchmarks.timing import write_block

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def run(name: str, *words: str) -> str:
    """Run a benchmark and return what it prints."""
    print(f"benchmarks.{name}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(clips: list[str]) -> None:
    if len(clips) != 2:
        raise SystemExit("name two clips of one action: python -m benchmarks.end_to_end A.mp4 B.mp4")
    run("recursion", "--write")
    parts = {
        "Image networks by torch and by OpenVINO, one thread": run("image_runtime"),
        "The first alignment of two clips, enlarged to 4 seconds of 1080p at 60 frames/s": run(
            "first_use", "--enlarge", *clips
        ).replace("\n", ", "),
        "All pairs of a corpus": run("pair_engines", "--videos", "96", "--frames", "100"),
    }
    write_block(PAGE, "end-to-end", "\n\n".join(f"### {title}\n\n{text}" for title, text in parts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
