"""Align every video of an action with one reference, and all pairs of them, as far as they can be many."""

import csv
import random
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from inphase.align.path import seconds_along
from inphase.corpus.catalogue import Fact
from inphase.corpus.groups import arrange, limit, medoid, typical
from inphase.corpus.pairs import PairEngine, Values, align_pairs, fill_matrix, pack
from inphase.corpus.store import Store
from inphase.media.atomic import atomic_write, explained
from inphase.models.embed import Embedding

# Videos read at a time to be aligned with the reference, and those named that are farthest from it.
WINDOW, FARTHEST = 256, 200

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
    store: Store,
    action: str,
    out: Path,
    *,
    engine: PairEngine,
    reference: str | None = None,
    most: int = 2000,
    device: str = "cpu",
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
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    facts, total = draw(store, action, most)
    facts.sort(key=lambda fact: (fact.frames, fact.id))
    began = time.perf_counter()
    scratch = Path(tempfile.mkdtemp(dir=out, prefix=".packed-"))
    try:
        pack(scratch, [fact.frames for fact in facts], facts[0].dimension, _numbered(store, facts))
        pairs = fill_matrix(
            out / "distances.npy",
            scratch,
            len(facts),
            engine=engine,
            progress=lambda done, count: tell("comparing pairs", done, count),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    pair_seconds = time.perf_counter() - began
    distances: NDArray[np.float32] = np.load(out / "distances.npy", mmap_mode="r", allow_pickle=False)
    scores = typical(distances)
    bound = limit(scores)
    order, clusters = arrange(distances, apart=bound)
    chosen = facts[medoid(distances)] if reference is None else find_reference(store, action, reference)
    began = time.perf_counter()
    far = align_with(store, action, chosen, out / "alignments.parquet", device=device, total=total, tell=tell)
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


def draw(store: Store, action: str, most: int) -> tuple[list[Fact], int]:
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


def find_reference(store: Store, action: str, name: str) -> Fact:
    """Find the video of an action that a name means: its id, or the end of it that no other has."""
    found = [fact for fact in store.catalogue.current(action=action) if ("/" + fact.id).endswith("/" + name)]
    exact = [fact for fact in found if fact.id == name]
    if len(exact or found) != 1:
        said = f"{len(found)} videos are called {name!r}" if found else f"no video is called {name!r}"
        raise ValueError(f"{said} among those of {action!r}: name one by its id, as in videos.csv")
    return (exact or found)[0]


def align_with(
    store: Store, action: str, reference: Fact, file: Path, *, device: str, total: int, tell: Tell
) -> list[tuple[Fact, float]]:
    """Align every video of an action with a reference into a Parquet file; give those farther away than fits.

    A row has the video's id, its distance, and for each frame of the reference the second of the video that goes with
    it, which a viewer or a spreadsheet can use as it is.
    """
    (row,) = store.read([reference])
    assert row.embedding is not None
    schema = pa.schema(
        [("id", pa.string()), ("distance", pa.float32()), ("seconds", pa.large_list(pa.float64()))],
        metadata={b"reference": reference.id.encode()},
    )
    all_distances = array("f")  # four bytes a video
    worst: list[tuple[Fact, float]] = []
    with atomic_write(file) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for window in _windows(store, action):
            facts = [fact for fact, _ in window]
            found = _align_window(row.embedding, window, device=device)
            distances = [distance for distance, _ in found]
            columns = {"id": [fact.id for fact in facts], "distance": distances, "seconds": [each for _, each in found]}
            writer.write_table(pa.table(columns, schema=schema))
            all_distances.extend(distances)
            worst = sorted([*worst, *zip(facts, distances, strict=True)], key=lambda each: -each[1])[:FARTHEST]
            tell("aligning with the reference", len(all_distances), total)
    bound = limit(np.asarray(all_distances, np.float64))
    return [(fact, distance) for fact, distance in worst if distance > bound]


def _windows(store: Store, action: str) -> Iterator[list[tuple[Fact, Embedding]]]:
    """Read the videos of an action some at a time, in the order of their lengths within that."""
    facts = store.catalogue.current(action=action)
    while window := list(islice(facts, WINDOW)):
        read = [(fact, row.embedding) for fact, row in zip(window, store.read(window), strict=True)]
        yield sorted(((fact, seen) for fact, seen in read if seen is not None), key=lambda each: len(each[1]))


def _align_window(
    reference: Embedding, window: list[tuple[Fact, Embedding]], *, device: str
) -> list[tuple[float, NDArray[np.float64]]]:
    pairs = [(reference.values, seen.values) for _, seen in window]
    return [
        (each.distance, seconds_along(torch.from_numpy(each.path), reference.times, seen.times))
        for each, (_, seen) in zip(align_pairs(pairs, device=device), window, strict=True)
    ]


def _numbered(store: Store, facts: list[Fact]) -> Iterator[tuple[int, Values]]:
    """Read embeddings in the order of the shards, each with its number among `facts`."""
    places = sorted(range(len(facts)), key=lambda k: (facts[k].shard, facts[k].row))
    for place, row in zip(places, store.read(facts[k] for k in places), strict=True):
        assert row.embedding is not None
        yield place, row.embedding.values
