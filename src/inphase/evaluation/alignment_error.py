"""Alignment error: how far apart in the action two matched frames are, where its true time is known.

Each frame of x is matched with y; the error is the difference of the two frames' canonical time, a fraction of the
action. Mean over the frames of a pair, then over the pairs of an action, then over actions.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from inphase.evaluation.embedded import Embedded, NotApplicableError, mean
from inphase.evaluation.matching import METHODS, Match, draw_pairs, match_pairs


def alignment_error(
    train: Sequence[Embedded],
    test: Sequence[Embedded],
    *,
    pairs: int | None = 10_000,
    seed: int = 0,
    beta: float = 0.1,
) -> dict[str, float]:
    """Compare the canonical time of matched frames, in all ordered pairs or `pairs` of each action drawn at random.

    Keys: nearest, dtw, contrastive and linear, and METHOD/ACTION for each action. `train` is not used.
    """
    timed = [item for item in test if item.progress is not None]
    if not timed:
        raise NotApplicableError(f"none of {len(test)} videos has a known canonical time: use the stage")
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for match in match_pairs(draw_pairs(timed, pairs=pairs, seed=seed), beta=beta):
        for method in match.frames:
            errors[method, match.x.video.action].append(_error(match, method))
    numbers = {
        method: mean(float(np.mean(found)) for (name, _), found in errors.items() if name == method)
        for method in METHODS
    }
    return numbers | {f"{method}/{action}": float(np.mean(found)) for (method, action), found in errors.items()}


def _error(match: Match, method: str) -> float:
    """Read the canonical time of y at frames that may lie between two, or past its ends; those count as the ends."""
    assert match.x.progress is not None
    assert match.y.progress is not None
    there = np.interp(match.frames[method], match.y.frames, match.y.progress)
    return float(np.abs(match.x.progress - there).mean())
