"""Align every video of an action with one of them, some at a time, into a table that other programs read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from inphase.align.path import seconds_along
from inphase.corpus.catalogue import Fact
from inphase.corpus.groups import limit
from inphase.corpus.pair_engines import Item, PairEngine, Work
from inphase.corpus.pairs import align_pairs
from inphase.corpus.shard import SUFFIX, read_rows
from inphase.corpus.store import Store
from inphase.media.atomic import atomic_write

# Videos read at a time, at most, and numbers in their embeddings, unless one alone has more.
WINDOW, NUMBERS = 256, 2**22
# Videos named that are farthest from the reference, and distances that tell how far is too far.
FARTHEST, KEPT = 200, 2**16


def find_reference(store: Store, action: str, name: str) -> Fact:
    """Find the video of an action that a name means: its id, or the end of it that no other has."""
    ending: Fact | None = None
    count = 0
    for fact in store.catalogue.current(action=action):
        if fact.id == name:
            return fact
        if fact.id.endswith("/" + name):
            ending, count = fact, count + 1
    if ending is None or count > 1:
        said = f"{count:,} videos are called {name!r}" if count else f"no video is called {name!r}"
        raise ValueError(f"{said} among those of {action!r}: name one by its id, as in videos.csv")
    return ending


def align_with(
    store: Store,
    action: str,
    reference: Fact,
    file: Path,
    *,
    engine: PairEngine,
    progress: Callable[[int], None] | None = None,
) -> list[tuple[Fact, float]]:
    """Align every video of an action with a reference into a Parquet file; give those farther away than fits.

    A row has the video's id, its distance, and for each frame of the reference the second of the video that goes with
    it, which a viewer or a spreadsheet can use as it is. Memory: the windows under way, whatever the number of videos.
    """
    schema = pa.schema(
        [("id", pa.string()), ("distance", pa.float32()), ("seconds", pa.large_list(pa.float64()))],
        metadata={b"reference": reference.id.encode()},
    )
    spread = Spread()
    worst: list[tuple[float, str]] = []
    begin = partial(aligning, store.shards, reference.shard, reference.row)
    with atomic_write(file) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for found in engine(begin, windows(store, action)):
            ids, distances = [str(id) for id in found["ids"]], np.asarray(found["distances"], np.float32)
            offsets = np.arange(len(ids) + 1) * reference.frames
            seconds = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(np.asarray(found["seconds"])))
            writer.write_table(pa.table([pa.array(ids), pa.array(distances), seconds], schema=schema))
            spread.add(distances)
            worst = sorted([*worst, *zip(distances.tolist(), ids, strict=True)], key=lambda each: -each[0])[:FARTHEST]
            if progress is not None:
                progress(spread.total)
    bound = spread.bound()
    far = ((store.catalogue.find(id), distance) for distance, id in worst if distance > bound)
    return [(fact, distance) for fact, distance in far if fact is not None]


@dataclass
class Spread:
    """How far videos are from a reference: every distance, or of very many every second, fourth, …"""

    total: int = 0
    every: int = 1
    kept: list[float] = field(default_factory=list)

    def add(self, distances: NDArray[np.float32]) -> None:
        """Note the distances of some videos."""
        self.kept += distances[-self.total % self.every :: self.every].tolist()
        self.total += len(distances)
        if len(self.kept) > KEPT:
            self.kept, self.every = self.kept[::2], 2 * self.every

    def bound(self) -> float:
        """Give the distance beyond which a video does not fit."""
        return limit(np.asarray(self.kept, np.float64))


def windows(store: Store, action: str) -> Iterator[Item]:
    """Cut the videos of an action into windows, each of one shard.

    The catalogue is asked shard by shard: an open question would keep other processes from writing to it.
    """
    shards = sorted(store.catalogue.shards())
    for shard in shards:
        rows: list[int] = []
        numbers = 0
        for fact in list(store.catalogue.current(shard=shard, action=action)):
            size = fact.frames * fact.dimension
            if rows and (len(rows) == WINDOW or numbers + size > NUMBERS):
                yield {"shard": shard, "rows": rows}
                rows, numbers = [], 0
            rows.append(fact.row)
            numbers += size
        if rows:
            yield {"shard": shard, "rows": rows}
    store.require_shards(shards)


def aligning(shards: Path, shard: str, row: int, device: str) -> Work:
    """Read the reference; what comes back aligns the videos of a window with it, in the order of their lengths."""
    (reference,) = read_rows(shards / (shard + SUFFIX), [row])
    middle = reference.embedding
    assert middle is not None

    def align(item: Item) -> Item:
        numbers = [int(number) for number in item["rows"]]
        read = read_rows(shards / (item["shard"] + SUFFIX), numbers)
        seen = [(found.id, found.embedding) for found in read if found.embedding is not None]
        seen.sort(key=lambda each: len(each[1]))
        aligned = list(align_pairs([(middle.values, other.values) for _, other in seen], device=device))
        seconds = [
            seconds_along(torch.from_numpy(each.path), middle.times, other.times)
            for each, (_, other) in zip(aligned, seen, strict=True)
        ]
        return {
            "ids": [id for id, _ in seen],
            "distances": np.array([each.distance for each in aligned], np.float32),
            "seconds": np.concatenate(seconds),
        }

    return align
