"""Slow, plain answers to compare fast ones with: every monotone path, and a scalar double loop."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Path = tuple[tuple[int, int], ...]
Grid = NDArray[np.float64]
INFINITY = float("inf")


@cache
def monotone_paths(m: int, n: int) -> tuple[Path, ...]:
    """List every path from (0, 0) to (m − 1, n − 1) that steps by one in i, in j or in both."""

    def extend(path: Path) -> Iterator[Path]:
        i, j = path[-1]
        if (i, j) == (m - 1, n - 1):
            yield path
        for step in ((i + 1, j + 1), (i + 1, j), (i, j + 1)):
            if step[0] < m and step[1] < n:
                yield from extend((*path, step))

    return tuple(extend(((0, 0),)))


def path_costs(cost: Grid) -> NDArray[np.float64]:
    """Add up the cost along every monotone path."""
    return np.array([sum(cost[cell] for cell in path) for path in monotone_paths(*cost.shape)])


def hard_dtw(cost: Grid) -> float:
    """Take the cheapest of all paths."""
    return float(path_costs(cost).min())


def soft_dtw(cost: Grid, gamma: float) -> float:
    """Take −γ log Σ e^(−cost/γ) over all paths: what min^γ in every cell amounts to."""
    costs = path_costs(cost)
    low = costs.min()
    return float(low - gamma * np.log(np.exp(-(costs - low) / gamma).sum()))


def soft_path(cost: Grid, gamma: float) -> Grid:
    """Weigh every cell by the probability of the paths through it."""
    costs = path_costs(cost)
    probability = np.exp(-(costs - costs.min()) / gamma)
    weights = np.zeros_like(cost)
    for path, share in zip(monotone_paths(*cost.shape), probability / probability.sum(), strict=True):
        for cell in path:
            weights[cell] += share
    return weights


def minimum(values: Sequence[float], kind: str, gamma: float) -> float:
    """Take the minimum of a few numbers, infinite ones left out."""
    finite = [value for value in values if value < INFINITY]
    low = min(finite)
    if kind == "hard" or gamma == 0:
        return low
    weights = [math.exp(-(value - low) / gamma) for value in finite]
    if kind == "soft":
        return low - gamma * math.log(sum(weights))
    return low + sum((v - low) * w for v, w in zip(finite, weights, strict=True)) / sum(weights)


def table(cost: Grid, kind: str, gamma: float, free_start: bool = False) -> Grid:
    """Run the recursion cell by cell, with a real ∞ for the border."""
    m, n = cost.shape
    r = np.full((m + 1, n + 1), INFINITY)
    if free_start:
        r[0] = 0.0
    r[0, 0] = 0.0
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            r[i, j] = cost[i - 1, j - 1] + minimum([r[i - 1, j - 1], r[i - 1, j], r[i, j - 1]], kind, gamma)
    return r[1:, 1:]


def table_with_drops(cost: Grid, drop_x: Grid, drop_y: Grid, kind: str, gamma: float) -> Grid:
    """Run the recursion with drops cell by cell, with a real ∞ for the border: the table of all prefixes."""
    m, n = cost.shape
    d, p = np.full((m + 1, n + 1), INFINITY), np.full((m + 1, n + 1), INFINITY)
    d[:, 0], d[0] = np.cumsum([0.0, *drop_x]), np.cumsum([0.0, *drop_y])
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            p[i, j] = cost[i - 1, j - 1] + minimum([d[i - 1, j - 1], p[i - 1, j], p[i, j - 1]], kind, gamma)
            d[i, j] = minimum([p[i, j], d[i - 1, j] + drop_x[i - 1], d[i, j - 1] + drop_y[j - 1]], kind, gamma)
    return d[1:, 1:]


def costs_with_drops(cost: Grid, drop_x: Grid, drop_y: Grid) -> NDArray[np.float64]:
    """Add up the cost of every way through a grid: matches and drops in any order, none between repeats of a frame."""
    m, n = cost.shape

    def extend(i: int, j: int, matched: bool, total: float) -> Iterator[float]:
        """Go on from a prefix of i and j frames, whose last two are `matched` or not."""
        if (i, j) == (m, n):
            yield total
        if i < m and j < n:
            yield from extend(i + 1, j + 1, True, total + cost[i, j])
        if i < m:
            yield from extend(i + 1, j, False, total + drop_x[i])
            if matched:
                yield from extend(i + 1, j, True, total + cost[i, j - 1])
        if j < n:
            yield from extend(i, j + 1, False, total + drop_y[j])
            if matched:
                yield from extend(i, j + 1, True, total + cost[i - 1, j])

    return np.array(list(extend(0, 0, False, 0.0)))


def contrastive_cost(x: Grid, y: Grid, beta: float) -> Grid:
    """Take −log softmax over y of the cosine similarity, one cell after the other."""
    cost = np.empty((len(x), len(y)))
    for i, u in enumerate(x):
        logits = [float(u @ v) / (np.linalg.norm(u) * np.linalg.norm(v) * beta) for v in y]
        high = max(logits)
        log_sum = high + math.log(sum(math.exp(value - high) for value in logits))
        cost[i] = [log_sum - value for value in logits]
    return cost


def cycle_matrix(table_xy: Grid, table_yx: Grid, alpha: float) -> Grid:
    """Compose p(i → k → i') as a product of two matrices of probabilities, [M, M]."""

    def rows(values: Grid) -> Grid:
        shares = np.exp(-(values - values.min(1, keepdims=True)) / alpha)
        return np.asarray(shares / shares.sum(1, keepdims=True))

    return np.asarray(rows(table_xy) @ rows(table_yx))


def is_monotone(path: Sequence[tuple[int, int]]) -> bool:
    """Say whether every step goes on by one in i, in j or in both."""
    return all((b[0] - a[0], b[1] - a[1]) in {(1, 1), (1, 0), (0, 1)} for a, b in pairwise(path))
