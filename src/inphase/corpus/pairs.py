"""Compare all pairs of videos of an action: blocks of pairs, and the matrix of their distances on disk."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.align.matching import match_many
from inphase.corpus.pair_engines import Item, PairEngine, Work
from inphase.storage.files import atomic_write, explain_os_errors

# Videos on the side of a block of pairs.
SIDE = 32

Values = NDArray[np.float32]


class Packed:
    """Embeddings of some videos in two files, in the order of their lengths, mapped into memory."""

    def __init__(self, folder: Path) -> None:
        """Open what `pack` wrote."""
        self._begins = np.load(folder / "begins.npy", allow_pickle=False)
        self._values = np.load(folder / "values.npy", mmap_mode="r", allow_pickle=False)

    def __len__(self) -> int:
        """Count the videos."""
        return len(self._begins) - 1

    def __getitem__(self, number: int) -> Values:
        """Read the unit vectors [T, D] of a video."""
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} videos, no number {number}")
        values = np.asarray(self._values[self._begins[number] : self._begins[number + 1]], np.float32)
        return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12))


def pack(folder: Path, lengths: Sequence[int], dimension: int, embeddings: Iterator[tuple[int, Values]]) -> Packed:
    """Write embeddings, which come as (number, values) in any order, to where each belongs."""
    begins = np.cumsum([0, *lengths])
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "begins.npy", begins, allow_pickle=False)
    values = reserve(folder / "values.npy", np.float16, (int(begins[-1]), dimension))
    for number, found in embeddings:
        values[begins[number] : begins[number + 1]] = found
    values.flush()
    return Packed(folder)


@dataclass(frozen=True)
class PairBlock:
    """Pairs of the videos `rows` with the videos `columns`, of which only those above the diagonal count."""

    rows: range
    columns: range

    def pairs(self) -> list[tuple[int, int]]:
        """List the pairs i < j."""
        return [(i, j) for i in self.rows for j in self.columns if i < j]

    def item(self) -> Item:
        """Write the block as numbers that another machine can be sent."""
        return {"ends": [self.rows.start, self.rows.stop, self.columns.start, self.columns.stop]}

    @classmethod
    def of(cls, item: Item) -> "PairBlock":
        """Read what `item` wrote."""
        first, second, third, fourth = (int(end) for end in item["ends"])
        return cls(range(first, second), range(third, fourth))


def blocks(count: int, *, side: int = SIDE) -> Iterator[PairBlock]:
    """Cut all pairs of so many videos into blocks."""
    parts = [range(begin, min(begin + side, count)) for begin in range(0, count, side)]
    for k, rows in enumerate(parts):
        for columns in parts[k:]:
            if len(rows) > 1 or columns is not rows:
                yield PairBlock(rows, columns)


def comparing(folder: Path, device: str) -> Work:
    """Open a packed folder; what comes back aligns the pairs of a block and gives their distances in their order."""
    packed = Packed(folder)

    def compare(item: Item) -> Item:
        block = PairBlock.of(item)
        videos = {number: packed[number] for number in {*block.rows, *block.columns}}
        pairs = [(videos[i], videos[j]) for i, j in block.pairs()]
        distances = np.array([each.distance for each in match_many(pairs, device=device)], np.float32)
        return item | {"distances": distances}

    return compare


def fill_matrix(file: Path, folder: Path, count: int, *, engine: PairEngine, progress: Any = None) -> int:
    """Write the distances of all pairs of a packed folder as a symmetric matrix in a .npy file; count the pairs."""
    total, done = count * (count - 1) // 2, 0
    with atomic_write(file) as part:
        matrix = reserve(part, np.float32, (count, count))
        for result in engine(partial(comparing, folder), (block.item() for block in blocks(count))):
            i, j = np.array(PairBlock.of(result).pairs()).T
            matrix[i, j] = matrix[j, i] = result["distances"]
            done += len(i)
            if progress is not None:
                progress(done, total)
        matrix.flush()
    return done


def reserve(file: Path, kind: type[np.floating[Any]], shape: tuple[int, int]) -> "np.memmap[Any, Any]":
    """Map a new array of a file into memory; a disk too full for it says so now, and does not end the process later."""
    with explain_os_errors(file.parent):
        mapped = np.lib.format.open_memmap(file, mode="w+", dtype=kind, shape=shape)
        if hasattr(os, "posix_fallocate"):
            with file.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, mapped.offset + mapped.nbytes)
    return mapped
