"""Align every video of an action with one of them, some at a time, into a table that other programs read."""
# MERGED: What a matrix of distances says: which videos belong together, which is in the middle, which fit nowhere.
# MERGED: Align every video of an action with one reference, and all pairs of them, as far as they can be many.

import csv
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

from inphase.align.matching import match_many
from inphase.corpus.embedding_store import EmbeddingStore, Fact
from inphase.corpus.pair_engines import Item, PairEngine, Work
from inphase.corpus.pairs import Values, fill_matrix, pack
from inphase.corpus.shards import SUFFIX, read_rows
from inphase.storage.files import atomic_write, explain_os_errors, scratch_folder

# Videos read at a time, at most, and numbers in their embeddings, unless one alone has more.
WINDOW, NUMBERS = 256, 2**22
# Videos named that are farthest from the reference, and distances that tell how far is too far.
FARTHEST, KEPT = 200, 2**16


def find_reference(store: EmbeddingStore, action: str, name: str) -> Fact:
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
    store: EmbeddingStore,
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


def windows(store: EmbeddingStore, action: str) -> Iterator[Item]:
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
        aligned = list(match_many([(middle.values, other.values) for _, other in seen], device=device))
        seconds = [each.time_map(middle.times, other.times) for each, (_, other) in zip(aligned, seen, strict=True)]
        return {
            "ids": [id for id, _ in seen],
            "distances": np.array([each.distance for each in aligned], np.float32),
            "seconds": np.concatenate(seconds),
        }

    return align


# Beyond so many deviations of the median a video does not fit; below so many videos nothing can be said.
DEVIATIONS, FEW = 3.5, 4
# Turning branches so that neighbours are alike takes n³ in the worst case.
TURNED = 500

Distances = NDArray[np.float32]


def medoid(distances: Distances) -> int:
    """Give the video that is nearest to all others."""
    return int(np.asarray(distances.sum(1)).argmin())


def typical(distances: Distances) -> NDArray[np.float64]:
    """Give the median distance of every video to the others, [n]: a few that are alike do not hide each other."""
    count = len(distances)
    if count < 2:
        return np.zeros(count)
    return np.array([np.median(np.delete(row, k)) for k, row in enumerate(distances)])


def limit(scores: NDArray[np.float64]) -> float:
    """Give the score beyond which one does not fit: 3.5 robust deviations above the median of all."""
    if len(scores) < FEW:
        return float("inf")
    middle = float(np.median(scores))
    deviation = 1.4826 * float(np.median(np.abs(scores - middle)))
    # Videos that are all the same differ by rounding.
    return middle + DEVIATIONS * max(deviation, 0.02 * middle, 1e-4)


def arrange(distances: Distances, *, apart: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order videos so that those alike are neighbours, [n], and number the clusters farther `apart` than that, [n]."""
    count = len(distances)
    if count < 2:
        return np.arange(count), np.zeros(count, np.int64)
    tree = linkage(squareform(np.asarray(distances), checks=False), "average", optimal_ordering=count <= TURNED)
    order = np.asarray(leaves_list(tree), np.int64)
    labels = fcluster(tree, apart, "distance") if np.isfinite(apart) else np.ones(count)
    # Numbered in the order in which the page shows them.
    _, first = np.unique(labels[order], return_index=True)
    rank = {label: number for number, label in enumerate(labels[order][np.sort(first)])}
    return order, np.array([rank[label] for label in labels], np.int64)


Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Compared:
    """Videos of an action compared with each other; arrays are in the order of `facts`.

    `facts` [n], of `total` videos of the action; `distances` [n, n] on disk; `scores` [n] the median distance of each
    to the others, which beyond `bound` means that it does not fit; `order` [n] in which those alike are neighbours;
    `clusters` [n]; `reference` the video that all of the action were aligned with, and `far` those too far from it,
    the farthest first; `pairs` compared in `pair_seconds`, and all aligned in `align_seconds`.
    """

    action: str
    total: int
    facts: list[Fact]
    distances: NDArray[np.float32]
    scores: NDArray[np.float64]
    bound: float
    order: NDArray[np.int64]
    clusters: NDArray[np.int64]
    reference: Fact
    far: list[tuple[Fact, float]]
    pairs: int
    pair_seconds: float
    align_seconds: float

    @property
    def misfits(self) -> list[tuple[Fact, float]]:
        """List the compared videos that do not fit, the worst first."""
        worst = np.argsort(-self.scores)
        return [(self.facts[k], float(self.scores[k])) for k in worst if self.scores[k] > self.bound]


def align_action(
    store: EmbeddingStore,
    action: str,
    out: Path,
    *,
    engine: PairEngine,
    reference: str | None = None,
    most: int = 2000,
    progress: Tell | None = None,
) -> Compared:
    """Compare the videos of an action and align each with a reference: the one named, or the one nearest to all.

    All pairs of up to `most` videos are aligned, drawn at random where there are more; with the reference every one is.
    Writes distances.npy, videos.csv and alignments.parquet into `out`. Time: most² pairs + one a video; memory: some
    videos, and `most`² numbers.
    """
    store.model()
    store.require_action(action)
    if most < 2:
        raise ValueError(f"at least 2 videos are compared, got {most}")
    tell = progress or (lambda doing, done, total: None)
    with explain_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    facts, total = draw(store, action, most)
    facts.sort(key=lambda fact: (fact.frames, fact.id))
    began = time.perf_counter()
    with scratch_folder(out) as scratch:
        pack(scratch, [fact.frames for fact in facts], facts[0].dimension, _numbered(store, facts))
        pairs = fill_matrix(
            out / "distances.npy",
            scratch,
            len(facts),
            engine=engine,
            progress=lambda done, count: tell("comparing pairs", done, count),
        )
    pair_seconds = time.perf_counter() - began
    distances: NDArray[np.float32] = np.load(out / "distances.npy", mmap_mode="r", allow_pickle=False)
    scores = typical(distances)
    bound = limit(scores)
    order, clusters = arrange(distances, apart=bound)
    chosen = facts[medoid(distances)] if reference is None else find_reference(store, action, reference)
    began = time.perf_counter()
    far = align_with(
        store,
        action,
        chosen,
        out / "alignments.parquet",
        engine=engine,
        progress=lambda done: tell("aligning with the reference", done, total),
    )
    compared = Compared(
        action=action,
        total=total,
        facts=facts,
        distances=distances,
        scores=scores,
        bound=bound,
        order=order,
        clusters=clusters,
        reference=chosen,
        far=far,
        pairs=pairs,
        pair_seconds=pair_seconds,
        align_seconds=time.perf_counter() - began,
    )
    write_videos(compared, out / "videos.csv")
    return compared


def write_videos(compared: Compared, file: Path) -> None:
    """Write a table of the compared videos; row k is row k and column k of the distances."""
    with atomic_write(file) as part, part.open("w", encoding="utf-8", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(["id", "path", "frames", "median_distance", "fits", "cluster"])
        for fact, score, cluster in zip(compared.facts, compared.scores, compared.clusters, strict=True):
            fits = "yes" if score <= compared.bound else "no"
            table.writerow([fact.id, fact.path, fact.frames, f"{score:.5f}", fits, int(cluster)])


def draw(store: EmbeddingStore, action: str, most: int) -> tuple[list[Fact], int]:
    """Draw at most so many videos of an action, each equally likely and the same every time; count all."""
    chance = random.Random(0)
    kept: list[Fact] = []
    total = 0
    for fact in store.catalogue.current(action=action):
        total += 1
        if len(kept) < most:
            kept.append(fact)
        elif (place := chance.randrange(total)) < most:
            kept[place] = fact
    return kept, total


def _numbered(store: EmbeddingStore, facts: list[Fact]) -> Iterator[tuple[int, Values]]:
    """Read embeddings in the order of the shards, each with its number among `facts`."""
    places = sorted(range(len(facts)), key=lambda k: (facts[k].shard, facts[k].row))
    for place, row in zip(places, store.read(facts[k] for k in places), strict=True):
        assert row.embedding is not None
        yield place, row.embedding.values
