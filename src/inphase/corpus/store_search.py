"""Find moments and videos in a store: an index proposes, exact comparison decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.apps.search import APART, VideoHit, nearest_recordings
from inphase.corpus.embedding_store import EmbeddingStore, Fact
from inphase.corpus.shards import read_times
from inphase.corpus.vector_index import Candidate, Index
from inphase.models.embedding import Embedding

# Frames of a query that ask for videos, neighbours each asks for, and videos aligned for every one wanted.
FRAMES, EACH, PROPOSED = 16, 64, 4


@dataclass(frozen=True)
class FoundMoment:
    """A moment of a video in a store: its second, and how alike, −1 to 1."""

    fact: Fact
    second: float
    score: float


def find_moments(
    store: EmbeddingStore,
    index: Index,
    moment: NDArray[np.float32],
    *,
    top: int = 10,
    action: str | None = None,
    apart: float = APART,
    file: Path | None = None,
) -> list[FoundMoment]:
    """Find the moments most like one [D], best first, no two of a video within `apart` seconds.

    The `file` the moment is of, as `Path.resolve` gives it, is left out.
    """
    store.require_action(action)

    @cache
    def times(fact: Fact) -> NDArray[np.float64]:
        return read_times(store.file(fact.shard), fact.row)

    k = 8 * top
    while True:
        (candidates,) = index.nearest(moment[None], k=k, action=action)
        chosen: list[FoundMoment] = []
        for each in candidates:
            if Path(each.fact.path) == file:
                continue
            second = float(times(each.fact)[each.frame])
            near = (kept for kept in chosen if kept.fact.id == each.fact.id and abs(kept.second - second) < apart)
            if next(near, None) is None:
                chosen.append(FoundMoment(each.fact, second, each.score))
        if len(chosen) >= top or len(candidates) < k:
            return chosen[:top]
        k *= 4


def find_videos(
    store: EmbeddingStore,
    index: Index,
    query: Embedding,
    *,
    top: int = 10,
    action: str | None = None,
    subsequence: bool = False,
    file: Path | None = None,
) -> tuple[list[VideoHit], dict[str, tuple[Fact, Embedding]]]:
    """Find the videos a query goes with best, and what was seen of each that was aligned with it.

    Frames of the query vote for videos by their likeness to the nearest frame of each; the best of these are aligned.
    The `file` the query is of is left out.
    """
    store.require_action(action)
    asking = query.values[np.unique(np.linspace(0, len(query) - 1, FRAMES).astype(int))]
    voted = vote(index.nearest(asking, k=EACH * max(1, top // 4), action=action))
    proposed = [fact for fact in voted if Path(fact.path) != file][: max(32, PROPOSED * top)]
    proposed.sort(key=lambda fact: (fact.shard, fact.row))
    seen: dict[str, tuple[Fact, Embedding]] = {}
    for fact, row in zip(proposed, store.read(proposed), strict=True):
        if row.embedding is not None:
            seen[fact.id] = fact, row.embedding
    corpus = {id: embedding for id, (_, embedding) in seen.items()}
    return nearest_recordings(query, corpus, top=top, subsequence=subsequence), seen


def vote(found: Sequence[Sequence[Candidate]]) -> list[Fact]:
    """Order videos by how alike their nearest frames are to all that asked; one that was not found gains nothing."""
    scores: dict[Fact, float] = {}
    for of_query in found:
        worst = of_query[-1].score if of_query else 0.0
        best: dict[Fact, float] = {}
        for each in of_query:
            best.setdefault(each.fact, each.score - worst)
        for fact, gain in best.items():
            scores[fact] = scores.get(fact, 0.0) + gain
    return sorted(scores, key=lambda fact: -scores[fact])
