"""Carry labels from one recording to another through their alignment, and say how sure each is.

Soft-DTW gives every monotone path π the probability e^(−cost(π)/γ) / Z (Cuturi and Blondel, 2017), and so every moment
of the labelled recording a distribution over the moments of the other, p(j | i). A label is put at its median, which
has the least expected error; the cheapest path alone is one of many that cost hardly more. Its confidence is the
probability that it belongs within a tenth of a second of there. A stretch has the labels of its two ends, and as its
confidence the expected fraction of it that belongs to it: with F the distribution functions of its ends, the mean over
its frames of F_start(j) − F_end(j), since no path runs backwards.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.long import CELLS
from inphase.align.path import expected_path
from inphase.apps.labels import ROUNDING, Instant, Labels, Stretch
from inphase.apps.matching import match, pair_cost
from inphase.models.embed import Embedding

# The temperature of paths, in units of the contrastive cost: chosen on GolfDB's training splits (docs/apps.md).
GAMMA = 5.0
# A label counts as right within so many seconds.
NEAR = 0.1


@dataclass(frozen=True, eq=False)
class Belief:
    """Where E moments of one recording lie in another: `seconds` [E], and `mass` [E, N], how probably at each frame."""

    seconds: NDArray[np.float64]
    mass: NDArray[np.float64]


def carry(labels: Labels, x: Embedding, y: Embedding, *, y_end: float, gamma: float = GAMMA) -> Labels:
    """Carry the labels of x to y, which ends at second `y_end`, with a confidence each.

    A stretch that has no room in y is left out.
    """
    seconds = [each.second for each in labels.instants]
    for each in labels.stretches:
        seconds += [each.start, each.end]
    belief = believe(x, y, np.array(seconds), gamma=gamma)
    # What begins with one recording begins with the other; so with what ends after the last frame.
    starts, ends = np.array(seconds) < x.times[0] + ROUNDING, np.array(seconds) > x.times[-1] + ROUNDING
    places = np.where(starts, y.times[0], np.where(ends, y_end, belief.seconds)).tolist()
    count = len(labels.instants)
    instants = [
        Instant(place, each.label, _near(y.times, place, mass))
        for each, place, mass in zip(labels.instants, places[:count], belief.mass[:count], strict=True)
    ]
    stretches = []
    for k, each in enumerate(labels.stretches):
        begin, stop = count + 2 * k, count + 2 * k + 1
        if places[begin] < places[stop]:
            after = np.zeros_like(belief.mass[stop]) if ends[stop] else belief.mass[stop]
            sure = _belonging(y.times, (places[begin], places[stop]), belief.mass[begin], after)
            stretches.append(Stretch(places[begin], places[stop], each.label, sure))
    return Labels(tuple(stretches), tuple(instants))


def believe(x: Embedding, y: Embedding, seconds: NDArray[np.float64], *, gamma: float = GAMMA) -> Belief:
    """Find where moments of x, at `seconds` [E], lie in y. O(MN) time and memory, as far as `CELLS` allows."""
    inside = np.clip(seconds, x.times[0], x.times[-1])
    after = (
        np.clip(np.searchsorted(x.times, inside), 1, max(len(x) - 1, 1)) if len(x) > 1 else np.zeros(len(inside), int)
    )
    before = np.maximum(after - 1, 0)
    gap = x.times[after] - x.times[before]
    share = np.where(gap > 0, (inside - x.times[before]) / np.where(gap > 0, gap, 1), 0.0)
    frames, rows = np.unique(np.concatenate([before, after]), return_inverse=True)
    mass = posterior(x, y, frames, gamma=gamma)
    medians = _medians(y.times, mass)
    first, second = rows[: len(before)], rows[len(before) :]
    places = medians[first] * (1 - share) + medians[second] * share
    return Belief(places, mass[first] * (1 - share)[:, None] + mass[second] * share[:, None])


def posterior(
    x: Embedding, y: Embedding, frames: NDArray[np.int64], *, gamma: float = GAMMA, cells: int = CELLS
) -> NDArray[np.float64]:
    """Give for some frames [E] of x how probably each frame of y goes with them: [E, N], rows of sum 1.

    Of recordings too long for one table, only the surroundings of each frame are weighed: between two points of the
    cheapest path, half of √cells steps before and after.
    """
    a, b = torch.from_numpy(x.values), torch.from_numpy(y.values)
    if len(x) * len(y) <= cells:
        weights = expected_path(pair_cost(a, b)[None], kind="soft", gamma=gamma)[0].double().numpy()[frames]
        return np.asarray(weights / weights.sum(1, keepdims=True))
    path, reach = match(x, y, cells=cells).path, math.isqrt(cells) // 2
    mass = np.zeros((len(frames), len(y)))
    for row, frame in zip(mass, frames.tolist(), strict=True):
        middle = int(np.searchsorted(path[:, 0], frame))
        (i, j), (k, n) = path[max(0, middle - reach)], path[min(len(path) - 1, middle + reach)]
        block = pair_cost(a[i : k + 1], b[j : n + 1])
        weights = expected_path(block[None], kind="soft", gamma=gamma)[0, frame - i].double().numpy()
        row[j : n + 1] = weights / weights.sum()
    return np.asarray(mass)


def _medians(times: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the second that half of each row's mass [E, N] lies before; a frame's mass is spread evenly around it."""
    if len(times) == 1:
        return np.full(len(mass), times[0])
    middles = (times[1:] + times[:-1]) / 2
    edges = np.concatenate([[2 * times[0] - middles[0]], middles, [2 * times[-1] - middles[-1]]])
    reached = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(mass, axis=1)], axis=1)
    found = np.array([np.interp(0.5, row, edges) for row in reached / reached[:, -1:]])
    return np.asarray(np.clip(found, times[0], times[-1]))


def _near(times: NDArray[np.float64], place: float, mass: NDArray[np.float64]) -> float:
    """Add up what lies within `NEAR` of a place, half a frame beyond it included."""
    half = float(np.median(np.diff(times))) / 2 if len(times) > 1 else 0.0
    return float(min(1.0, mass[np.abs(times - place) <= NEAR + half].sum()))


def _belonging(
    times: NDArray[np.float64], span: tuple[float, float], start: NDArray[np.float64], end: NDArray[np.float64]
) -> float:
    """Average over the frames of a span how probably they come after its start and before its end."""
    inside = (times >= span[0] - ROUNDING) & (times < span[1] - ROUNDING)
    if not inside.any():  # shorter than a frame
        inside[np.abs(times - span[0]).argmin()] = True
    belongs = np.cumsum(start) - np.cumsum(end)
    return float(np.clip(belongs[inside].mean(), 0, 1))
