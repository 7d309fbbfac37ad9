"""Measure pairs per second of `align-all` on each engine: one thread, one per core, a GPU, actors on Ray.

    python -m benchmarks.pair_engines [--videos 400] [--frames 50 100 200]

Seconds are wall time of the second of two passes, which excludes compilation and the start of actors. The distances of
every engine are first compared with those of one thread. Engines that this machine lacks are skipped.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from inphase.corpus.engines import Engine, RayCluster, Threads
from inphase.corpus.pairs import Values, fill_matrix, pack

DIMENSION = 128


def engines() -> dict[str, Engine]:
    """Name the engines of this machine."""
    cores = os.cpu_count() or 1
    found: dict[str, Engine] = {
        "one thread": Threads(workers=1, device="cpu"),
        f"{cores} threads": Threads(workers=cores, device="cpu"),
    }
    if torch.cuda.is_available():
        found[torch.cuda.get_device_name()] = Threads(workers=2, device="cuda")
    if find_spec("ray"):
        found[f"Ray, {cores} cores"] = RayCluster("local")
    return found


def drawn(videos: int, frames: int) -> Iterator[tuple[int, Values]]:
    """Draw performances of one action at varying speed."""
    rng = np.random.default_rng(0)
    curve = rng.standard_normal((frames, DIMENSION)).cumsum(0)
    for number in range(videos):
        at = (np.linspace(0, 1, frames) ** rng.uniform(0.7, 1.4) * (frames - 1)).astype(int)
        values = curve[at] + rng.normal(0, 1, (frames, DIMENSION))
        yield number, (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def measure(engine: Engine, folder: Path, videos: int) -> tuple[float, np.ndarray]:
    """Return the pairs per second of a second pass, and the distances."""
    for _ in range(2):
        began = time.perf_counter()
        pairs = fill_matrix(folder / "distances.npy", folder, videos, engine=engine)
        taken = time.perf_counter() - began
    return pairs / taken, np.load(folder / "distances.npy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=400)
    parser.add_argument("--frames", type=int, nargs="+", default=[50, 100, 200])
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, list[str]] = {}
    for frames in given.frames:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            pack(folder, [frames] * given.videos, drawn(given.videos, frames))
            expected = None
            for name, engine in engines().items():
                speed, distances = measure(engine, folder, given.videos)
                expected = distances if expected is None else expected
                np.testing.assert_allclose(distances, expected, atol=1e-3)
                rows.setdefault(name, []).append(f"{speed:,.0f}")
    print(f"pairs per second, {given.videos} videos, {DIMENSION} dimensions")
    print("| | " + " | ".join(f"{frames} frames" for frames in given.frames) + " |")
    print("|---" * (1 + len(given.frames)) + "|")
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
