"""Find in many recordings the moments most like a moment, or the recordings that go best with a whole one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inphase.apps.matching import Match, match
from inphase.models.embed import Embedding

# Two moments of one recording closer than this are one.
APART = 0.5


@dataclass(frozen=True)
class Hit:
    """A moment that was found: `name` the recording, `second` of it, `score` from −1 to 1, larger is more alike."""

    name: str
    second: float
    score: float


@dataclass(frozen=True, eq=False)
class Found:
    """A recording that was found: how the query goes with it, and `score` = 1 − the mean distance, 1 at best."""

    name: str
    match: Match
    score: float


def moment_of(query: Embedding, second: float) -> NDArray[np.float32]:
    """Give the vector [D] of the frame shown nearest to a second."""
    step = float(np.median(np.diff(query.times))) if len(query) > 1 else 0.0
    if not query.times[0] - step <= second <= query.times[-1] + step + 1e-6:
        raise ValueError(f"second {second:g} lies outside the query, which runs to {query.times[-1] + step:.2f} s")
    return np.asarray(query.values[np.abs(query.times - second).argmin()])


def nearest_moments(
    moment: NDArray[np.float32], corpus: Mapping[str, Embedding], *, top: int = 10, apart: float = APART
) -> list[Hit]:
    """Find the moments of a corpus most like one [D], best first, no two of a recording within `apart` seconds.

    O(frames · D): a pass over all of them. A larger corpus wants an index that proposes candidates; `spread` then
    chooses among these.
    """
    candidates = []
    for name, seen in corpus.items():
        scores = seen.values @ moment
        candidates += spread(name, seen.times, scores, top=top, apart=apart)
    return sorted(candidates, key=lambda hit: -hit.score)[:top]


def spread(
    name: str, times: NDArray[np.float64], scores: NDArray[np.float32], *, top: int, apart: float = APART
) -> list[Hit]:
    """Choose the best moments of one recording greedily, each at least `apart` seconds from those before."""
    left = np.array(scores, np.float64)
    hits: list[Hit] = []
    while len(hits) < top and np.isfinite(best := left.max()):
        second = float(times[left.argmax()])
        hits.append(Hit(name, second, float(best)))
        left[np.abs(times - second) < apart] = -np.inf
        left[times == second] = -np.inf
    return hits


def nearest_recordings(
    query: Embedding,
    corpus: Mapping[str, Embedding],
    *,
    top: int = 10,
    subsequence: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Found]:
    """Find the recordings a query goes with best, by the mean distance along the alignment, best first.

    The mean does not grow with length. With `subsequence` the query may be found inside a longer recording.
    """
    found = []
    for number, (name, seen) in enumerate(corpus.items(), start=1):
        matched = match(query, seen, subsequence=subsequence)
        found.append(Found(name, matched, 1 - matched.distance))
        if progress is not None:
            progress(number, len(corpus))
    return sorted(found, key=lambda each: -each.score)[:top]
