"""Align every video of an action with one reference, and all pairs of them, as far as they can be many."""

import csv
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.corpus.catalogue import Fact
from inphase.corpus.groups import arrange, limit, medoid, typical
from inphase.corpus.pair_engines import PairEngine
from inphase.corpus.pairs import Values, fill_matrix, pack
from inphase.corpus.reference import align_with, find_reference
from inphase.corpus.store import Store
from inphase.media.atomic import atomic_write, explained

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
    with explained(out):
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


def _numbered(store: Store, facts: list[Fact]) -> Iterator[tuple[int, Values]]:
    """Read embeddings in the order of the shards, each with its number among `facts`."""
    places = sorted(range(len(facts)), key=lambda k: (facts[k].shard, facts[k].row))
    for place, row in zip(places, store.read(facts[k] for k in places), strict=True):
        assert row.embedding is not None
        yield place, row.embedding.values
