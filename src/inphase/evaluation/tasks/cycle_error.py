"""Cycle error: how often and how far a frame misses itself after its nearest neighbor's nearest neighbor.

A frame of x goes to the nearest frame of y, and that to its nearest of x. Needs no labels; an error of 0 means that
neighbors are mutual, not that they are correct.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from inphase.evaluation.embedded_videos import EmbeddedVideo
from inphase.evaluation.frame_matching import draw_pairs, is_undefined, similarities
from inphase.evaluation.scores import Score, mean


def cycle_error(
    train: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo], *, pairs: int | None = 10_000, seed: int = 0
) -> list[Score]:
    """Match frames there and back, in all ordered pairs of each action or a random sample of `pairs`.

    Metrics: `missed`, the fraction of frames that do not return to themselves; `frames` and `fraction` (of the length),
    the mean distance between a frame and its return. Mean over the frames of a pair, then over pairs, then over
    actions. Pairs with a constant embedding are left out; without any other pair all scores are undefined. `train` is
    not used.
    """
    chosen = draw_pairs(test, pairs=pairs, seed=seed)
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for x, cosines in similarities([pair for pair in chosen if not is_undefined(pair)]):
        back = cosines.argmax(0)[cosines.argmax(1)]
        gaps = np.abs(back - np.arange(len(x)))
        found[x.video.action].append((float((gaps > 0).mean()), float(gaps.mean()), float(gaps.mean()) / x.length))
    means = [np.mean(rows, axis=0) for rows in found.values()]
    return [
        Score("cycle_error", metric, mean(float(row[column]) for row in means))
        for column, metric in enumerate(("missed", "frames", "fraction"))
    ]
