"""Cycle error: how often and how far a frame misses itself when it goes to its nearest neighbour and back.

A frame of x goes to the nearest frame of y, and that to its nearest of x. Needs no labels; 0 says that neighbours are
mutual, not that they are right.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from inphase.evaluation.embedded import Embedded, mean
from inphase.evaluation.matching import draw_pairs, is_undefined, similarities


def cycle_error(
    train: Sequence[Embedded], test: Sequence[Embedded], *, pairs: int | None = 10_000, seed: int = 0
) -> dict[str, float]:
    """Send frames there and back, in all ordered pairs or at most `pairs` of each action drawn at random.

    Keys: `missed`, the fraction of frames that do not return to themselves; `frames` and `fraction` (of the length),
    how far from themselves frames return. Mean over the frames of a pair, then over pairs, then over actions. Pairs
    with a constant embedding are left out; where nothing is left all is undefined. `train` is not used.
    """
    chosen = draw_pairs(test, pairs=pairs, seed=seed)
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for x, alike in similarities([pair for pair in chosen if not is_undefined(pair)]):
        back = alike.argmax(0)[alike.argmax(1)]
        gaps = np.abs(back - np.arange(len(x)))
        found[x.video.action].append((float((gaps > 0).mean()), float(gaps.mean()), float(gaps.mean()) / x.length))
    means = [np.mean(rows, axis=0) for rows in found.values()]
    return {name: mean(float(row[k]) for row in means) for k, name in enumerate(("missed", "frames", "fraction"))}
