"""Carry labels from one recording to another through their alignment, and say how sure each is.

Soft-DTW gives every monotone path π the probability e^(−cost(π)/γ) / Z (Cuturi and Blondel, 2017), and so every moment
of the labelled recording a distribution over the frames of the other, p(j | i). A label is put at its median, which has
the least expected error; the cheapest path alone is one of many that cost hardly more.

Two things make a label doubtful: that paths disagree where it belongs, and that what they match is not alike. The
confidence of a moment is the probability of its lying within a tenth of a second of where it was put, at a higher
temperature, times the mean cosine of the frames matched around there. That of a stretch is the mean over its frames of
the probability of belonging to it times the cosine: with F the distribution functions of its two ends a frame belongs
to it with probability F_start(j) − F_end(j), since no path runs backwards.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.coarse_to_fine import MAX_CELLS
from inphase.align.matching import match, pair_cost
from inphase.align.path import Alignment, expected_path
from inphase.apps.labels import ROUNDING, Instant, Labels, Stretch
from inphase.models.embedding import Embedding

# The temperatures, in units of the contrastive cost, at which labels are placed and doubted (docs/apps.md).
PLACING, DOUBTING = 2.0, 5.0
# A label counts as right within so many seconds.
NEAR = 0.1


@dataclass(frozen=True, eq=False)
class Belief:
    """Where E moments of one recording lie in another of N frames.

    `seconds` [E]; `mass` [E, N] how probably each goes with each frame; `likeness` [N] the cosine of each frame and
    what it is matched with, 0 where that is negative.
    """

    seconds: NDArray[np.float64]
    mass: NDArray[np.float64]
    likeness: NDArray[np.float64]


def carry(labels: Labels, x: Embedding, y: Embedding, *, y_end: float) -> Labels:
    """Carry the labels of x to y, which ends at second `y_end`, with a confidence each.

    A stretch that has no room in y is left out.
    """
    seconds = [each.second for each in labels.instants]
    for each in labels.stretches:
        seconds += [each.start, each.end]
    belief = believe(x, y, np.array(seconds))
    # What begins with one recording begins with the other; so with what ends after the last frame.
    starts, ends = np.array(seconds) < x.times[0] + ROUNDING, np.array(seconds) > x.times[-1] + ROUNDING
    places = np.where(starts, y.times[0], np.where(ends, y_end, belief.seconds)).tolist()
    count = len(labels.instants)
    instants = [
        Instant(place, each.label, confidence_near(y.times, place, mass, belief.likeness))
        for each, place, mass in zip(labels.instants, places[:count], belief.mass[:count], strict=True)
    ]
    stretches = []
    for k, each in enumerate(labels.stretches):
        begin, stop = count + 2 * k, count + 2 * k + 1
        if places[begin] < places[stop]:
            after = np.zeros_like(belief.mass[stop]) if ends[stop] else belief.mass[stop]
            belongs = (np.cumsum(belief.mass[begin]) - np.cumsum(after)) * belief.likeness
            sure = _mean_inside(y.times, (places[begin], places[stop]), belongs)
            stretches.append(Stretch(places[begin], places[stop], each.label, sure))
    return Labels(tuple(stretches), tuple(instants))


def believe(x: Embedding, y: Embedding, seconds: NDArray[np.float64]) -> Belief:
    """Find where moments of x, at `seconds` [E], lie in y. O(MN) time and memory, as far as `MAX_CELLS` allows."""
    inside = np.clip(seconds, x.times[0], x.times[-1])
    after = np.minimum(np.searchsorted(x.times, inside), len(x) - 1)
    before = np.maximum(after - 1, 0)
    gap = x.times[after] - x.times[before]
    share = np.where(gap > 0, (inside - x.times[before]) / np.where(gap > 0, gap, 1), 1.0)[
        :, None
    ]  # of the frame after
    frames, rows = np.unique(np.concatenate([before, after]), return_inverse=True)
    first, second = np.split(rows, 2)
    found = match(x.values, y.values)
    placing, doubting = (posterior(x, y, frames, alignment=found, gamma=gamma) for gamma in (PLACING, DOUBTING))
    medians = medians_of(y.times, placing)[:, None]
    places = medians[first] * (1 - share) + medians[second] * share
    mass = doubting[first] * (1 - share) + doubting[second] * share
    return Belief(places[:, 0], mass, likeness_of(x, y, found.path))


def posterior(
    x: Embedding,
    y: Embedding,
    frames: NDArray[np.int64],
    *,
    alignment: Alignment,
    gamma: float,
    max_cells: int = MAX_CELLS,
) -> NDArray[np.float64]:
    """Give for some frames [E] of x how probably each frame of y goes with them: [E, N], rows of sum 1.

    Of recordings too long for one table, only the surroundings of each frame are weighed: between two points of the
    cheapest path, half of √max_cells steps before and after.
    """
    a, b = torch.from_numpy(x.values), torch.from_numpy(y.values)
    path, kept = alignment.path, alignment.cost_matrix
    if len(x) * len(y) <= max_cells:
        cost = pair_cost(a, b) if kept is None else torch.from_numpy(kept)
        weights = expected_path(cost[None], kind="soft", gamma=gamma)[0].double().numpy()[frames]
        return np.asarray(weights / weights.sum(1, keepdims=True))
    reach = math.isqrt(max_cells) // 2
    mass = np.zeros((len(frames), len(y)))
    for row, frame in zip(mass, frames.tolist(), strict=True):
        middle = int(np.searchsorted(path[:, 0], frame))
        (i, j), (k, n) = path[max(0, middle - reach)], path[min(len(path) - 1, middle + reach)]
        block = pair_cost(a[i : k + 1], b[j : n + 1])
        weights = expected_path(block[None], kind="soft", gamma=gamma)[0, frame - i].double().numpy()
        row[j : n + 1] = weights / weights.sum()
    return np.asarray(mass)


def medians_of(times: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the second that half of each row's mass [E, N] lies before; a frame's mass is spread evenly around it."""
    if len(times) == 1:
        return np.full(len(mass), times[0])
    middles = (times[1:] + times[:-1]) / 2
    edges = np.concatenate([[2 * times[0] - middles[0]], middles, [2 * times[-1] - middles[-1]]])
    reached = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(mass, axis=1)], axis=1)
    found = np.array([np.interp(0.5, row, edges) for row in reached / reached[:, -1:]])
    return np.asarray(np.clip(found, times[0], times[-1]))


def likeness_of(x: Embedding, y: Embedding, path: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average for every frame of y the cosines of itself and the frames of x it is matched with, [N]."""
    i, j = path.T
    cosines = np.einsum("ld,ld->l", x.values[i], y.values[j], dtype=np.float64)
    return np.clip(np.bincount(j, cosines, len(y)) / np.maximum(np.bincount(j, minlength=len(y)), 1), 0, 1)


def confidence_near(
    times: NDArray[np.float64], place: float, mass: NDArray[np.float64], likeness: NDArray[np.float64]
) -> float:
    """Weigh a moment by the mass within `NEAR` of it, half a frame beyond included, and by the likeness there."""
    half = float(np.median(np.diff(times))) / 2 if len(times) > 1 else 0.0
    near = np.abs(times - place) <= NEAR + half
    near[np.abs(times - place).argmin()] = True
    return float(np.clip(mass[near].sum() * likeness[near].mean(), 0, 1))


def _mean_inside(times: NDArray[np.float64], span: tuple[float, float], values: NDArray[np.float64]) -> float:
    """Average values [N] over the frames of a span; over the nearest frame where it is shorter than one."""
    inside = (times >= span[0] - ROUNDING) & (times < span[1] - ROUNDING)
    inside[np.abs(times - span[0]).argmin()] |= not inside.any()
    return float(np.clip(values[inside].mean(), 0, 1))
