"""Alignment error: the difference in canonical time of matched frames, where the true canonical time is known.

Each frame of x is matched with y; the error is the difference of the two frames' canonical time, a fraction of the
action. Mean over the frames of a pair, then over the pairs of an action, then over actions.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np

from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError
from inphase.evaluation.frame_matching import METHODS, FrameMatches, draw_pairs, match_pairs
from inphase.evaluation.scores import Score, mean


def alignment_error(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    pairs: int | None = 10_000,
    seed: int = 0,
    beta: float = 0.1,
) -> list[Score]:
    """Compare the canonical time of matched frames, in all ordered pairs of each action or a random sample of `pairs`.

    Metric: `error`, by method (setting) and action. `train` is not used.
    """
    timed = [item for item in test if item.progress is not None]
    if not timed:
        raise NotApplicableError(f"none of {len(test)} videos has a known canonical time: use the stage")
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for match in match_pairs(draw_pairs(timed, pairs=pairs, seed=seed), beta=beta):
        for method in match.frames:
            errors[method, match.x.video.action].append(_error(match, method))
    score = partial(Score, "alignment_error", "error")
    over_actions = [
        score(mean(float(np.mean(found)) for (name, _), found in errors.items() if name == method), setting=method)
        for method in METHODS
    ]
    return over_actions + [
        score(float(np.mean(found)), setting=method, action=action) for (method, action), found in errors.items()
    ]


def _error(match: FrameMatches, method: str) -> float:
    """Interpolate the canonical time of y between frames; frames beyond its ends get that of the ends."""
    assert match.x.progress is not None
    assert match.y.progress is not None
    there = np.interp(match.frames[method], match.y.frames, match.y.progress)
    return float(np.abs(match.x.progress - there).mean())
