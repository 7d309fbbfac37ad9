"""The alignment of two sequences: by DTW, with its path and time map, or differentiably (smoothDTW, soft-DTW)."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import (
    BETA,
    Cost,
    Lengths,
    SequenceLike,
    as_pair,
    default_cost,
    last_frame,
    pairwise_cost,
    require_finite,
    require_tensor,
    single_precision,
    valid,
)
from inphase.align.numba.path_numba import backtrack, backtrack_with_drops, hard_table, hard_tables
from inphase.align.recursion import Kind, accumulate, min_gamma, smooth_min

FramePairs = NDArray[np.int64]  # [L, 2]
# The share of pairs that are cheaper than dropping a frame, of Drop-DTW's released code.
KEEP = 0.3
# Bound on the speed of a smoothed time map, relative to its average speed.
MAX_SPEED_RATIO = 8.0
# Linear pieces of a smoothed time map: number per period, and maximum in all.
PIECES_PER_PERIOD, MAX_PIECES = 8, 300
# Weight of the end point against all others in the fit of a smoothed time map.
END_WEIGHT = 1e3


@dataclass(frozen=True, eq=False)
class Alignment:
    """Matched frames of x and y, as numpy arrays.

    `path` [L, 2] int64, from the first matched pair (i, j) to the last, each step by one in i, in j or in both; `cost`
    the sum of the costs along it; `shape` (M, N) the lengths of x and y; `distance` the mean of 1 − cos along the path,
    independent of the cost that the path minimizes: it does not grow with length, so it compares alignments (NaN where
    only costs were given). `confidence` [M], from 0 to 1 for each frame of x, where it was estimated. `cost_matrix`
    [M, N], where it was computed in one piece and stored; `table` [M, N] the accumulated costs, where stored.

    Where frames could be dropped, `kept` holds a mask of the matched frames of x [M] and of y [N], the path lists those
    alone and its steps may be longer than one; `cost` includes the drop costs.
    """

    path: FramePairs
    cost: float
    shape: tuple[int, int]
    distance: float = math.nan
    confidence: NDArray[np.float64] | None = None
    cost_matrix: NDArray[Any] | None = None
    table: NDArray[np.float64] | None = None
    kept: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None

    def time_map(self, x_times: NDArray[np.float64], y_times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the second of y that matches each frame of x, [M], never decreasing.

        A frame of x matched with several of y gets the middle of their times; one that was dropped, a time between
        those of its neighbors. Read the map at other seconds by `np.interp(seconds, x_times, map)`.
        """
        m, n = self.shape
        x_times, y_times = np.asarray(x_times, np.float64), np.asarray(y_times, np.float64)
        if x_times.shape != (m,) or y_times.shape != (n,):
            raise ValueError(f"times must be [{m}] and [{n}], got {list(x_times.shape)} and {list(y_times.shape)}")
        if len(self.path) == 0:
            raise ValueError("all frames were dropped, so nothing matches: raise the drop cost, or leave it out")
        i, j = self.path.T
        frames = np.arange(m) if self.kept is None else np.unique(i)
        first = np.searchsorted(i, frames, side="left")
        last = np.searchsorted(i, frames, side="right") - 1
        matched = np.asarray((y_times[j[first]] + y_times[j[last]]) / 2)
        return matched if self.kept is None else np.interp(x_times, x_times[frames], matched)

    def frame_map(self) -> NDArray[np.float64]:
        """Return the frame of y that matches each frame of x, [M]; the middle one of several."""
        m, n = self.shape
        return self.time_map(np.arange(m, dtype=np.float64), np.arange(n, dtype=np.float64))


def shortest_path(cost: Tensor, *, subsequence: bool = False) -> Alignment:
    """Find the cheapest monotone path through a cost [M, N].

    With `subsequence` all of x is matched with whichever part of y costs least. Of equal steps the diagonal one is
    taken. O(MN) time and memory, in float64 on the CPU.

    >>> shortest_path(torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])).path.tolist()
    [[0, 0], [1, 1], [1, 2]]
    """
    require_tensor("cost", cost, "[M, N]")
    (cost,) = single_precision(cost.detach().cpu())
    matrix = cost.contiguous().numpy()
    return trace(hard_table(matrix, subsequence), subsequence=subsequence, cost_matrix=matrix)


def trace(
    table: NDArray[np.float64], *, subsequence: bool = False, cost_matrix: NDArray[Any] | None = None
) -> Alignment:
    """Trace the cheapest path back through a hard table [M, N] of accumulated costs."""
    if np.isnan(table[-1, -1]):  # where one NaN anywhere ends up
        raise ValueError("cost contains NaN, so no path is shortest: check the embeddings it was computed from")
    m, n = table.shape
    end = int(table[-1].argmin()) if subsequence else n - 1
    path = backtrack(table, end, subsequence)
    return Alignment(path, float(table[-1, end]), (m, n), cost_matrix=cost_matrix, table=table)


def shortest_path_with_drops(cost: Tensor, drop_x: Tensor, drop_y: Tensor) -> Alignment:
    """Find the cheapest alignment by a cost [M, N] that drops frames of x and y for drop_x [M] and drop_y [N].

    The hard minimum of `accumulate_with_drops`, traced back; of equal costs a match is preferred to a drop.

    >>> cost, drops = torch.tensor([[0.0, 9.0, 9.0], [9.0, 9.0, 0.0]]), torch.ones(3)
    >>> found = shortest_path_with_drops(cost, drops[:2], drops)
    >>> found.path.tolist(), found.cost, found.kept[1].tolist()
    ([[0, 0], [1, 2]], 1.0, [True, False, True])
    """
    require_tensor("cost", cost, "[M, N]")
    (cost,) = single_precision(cost.detach().cpu())
    matrix = cost.contiguous().numpy()
    m, n = matrix.shape
    drops = [drop.detach().cpu().double().contiguous().numpy() for drop in (drop_x, drop_y)]
    if drops[0].shape != (m,) or drops[1].shape != (n,):
        raise ValueError(f"drop costs must be [{m}] and [{n}], got {list(drop_x.shape)} and {list(drop_y.shape)}")
    table, matched = hard_tables(matrix, *drops)
    if np.isnan(table[-1, -1]):
        raise ValueError("cost contains NaN, so no path is shortest: check the embeddings it was computed from")
    path = backtrack_with_drops(table, matched, *drops)
    kept = np.zeros(m, bool), np.zeros(n, bool)
    kept[0][path[:, 0]], kept[1][path[:, 1]] = True, True
    return Alignment(path, float(table[-1, -1]), (m, n), cost_matrix=matrix, table=table[1:, 1:], kept=kept)


def cosine_distance(x: Tensor, y: Tensor, path: FramePairs) -> float:
    """Take the mean of 1 − cos along a path between x [M, D] and y [N, D]; NaN for an empty path."""
    if len(path) == 0:
        return math.nan
    i, j = torch.from_numpy(path).T
    # The mean of the cosines of a video and its copy rounds to a little above 1.
    return max(0.0, float(1 - F.cosine_similarity(x[i], y[j]).mean()))


def expected_path(cost: Tensor, *, kind: Kind = "soft", gamma: float = 0.1, free_start: bool = False) -> Tensor:
    """Weigh every cell of cost [B, M, N] by how much the accumulated cost at the end depends on it, [B, M, N].

    For `kind="soft"` this is the probability that a path through the cell is taken; for `"smooth"` the weights are
    signed, since smoothMin rewards separation; for `"hard"` it is the path itself.
    """
    require_tensor("cost", cost, "[B, M, N]")
    with torch.enable_grad():
        cost = cost.detach().requires_grad_()
        corner = accumulate(cost, kind=kind, gamma=gamma, free_start=free_start)[:, -1, -1]
        (weights,) = torch.autograd.grad(corner.sum(), cost)
    return weights


@dataclass(frozen=True, eq=False)
class Warping:
    """A differentiable alignment: `cost` [B] of the best path, smoothed, and the `table` [B, M, N] it was read from."""

    cost: Tensor
    table: Tensor


def dtw(
    x: SequenceLike, y: SequenceLike, *, cost: Cost | None = None, beta: float = BETA, subsequence: bool = False
) -> Alignment:
    """Align x [M, D] with y [N, D] by the cheapest monotone path; tensors, arrays or lists, also [M] and [N].

    The cost is by default the cosine's, of one-dimensional sequences the squared distance. With `subsequence` all of x
    is matched with whichever part of y costs least. O(MN (D + 1)) time, O(MN) memory.

    >>> frames = torch.eye(3)
    >>> dtw(frames, frames[[0, 1, 1, 2]]).path.tolist()
    [[0, 0], [1, 1], [1, 2], [2, 3]]
    """
    first, second = _single_pair("dtw", x, y)
    with torch.no_grad():
        chosen = default_cost(cost, first, otherwise="cosine")
        found = shortest_path(pairwise_cost(first, second, cost=chosen, beta=beta)[0], subsequence=subsequence)
        return replace(found, distance=cosine_distance(first[0], second[0], found.path))


def _single_pair(name: str, x: SequenceLike, y: SequenceLike) -> tuple[Tensor, Tensor]:
    """Convert one pair to [1, M, D] and [1, N, D]; raise for a batch."""
    first, second, _, _, batched = as_pair(x, y)
    if batched:
        raise ValueError(f"{name} aligns one pair, got a batch of {len(first)}: call it for each, or match_many")
    return first, second


def drop_dtw(
    x: SequenceLike,
    y: SequenceLike,
    *,
    drop_cost: float | tuple[Tensor, Tensor] | None = None,
    keep: float = KEEP,
    cost: Cost | None = None,
    beta: float = BETA,
) -> Alignment:
    """Align x [M, D] with y [N, D], dropping frames of either that have no counterpart (Dvornik et al., NeurIPS 2021).

    `drop_cost` is the cost of dropping a frame: one number, or one for each frame of x [M] and of y [N]. By default it
    is a percentile of the costs, as in the paper: the share `keep` of all pairs is cheaper. The share is 0.3 in the
    released code. O(MN (D + 1)) time, O(MN) memory.

    >>> frames = torch.eye(4)
    >>> drop_dtw(frames[:3], frames[[0, 3, 1, 2]], drop_cost=0.1).path.tolist()
    [[0, 0], [1, 2], [2, 3]]
    """
    first, second = _single_pair("drop_dtw", x, y)
    with torch.no_grad():
        costs = pairwise_cost(first, second, cost=default_cost(cost, first, otherwise="cosine"), beta=beta)[0]
        given = percentile_drop_cost(costs, keep=keep) if drop_cost is None else drop_cost
        if not isinstance(given, tuple):
            given = costs.new_full((costs.shape[0],), given), costs.new_full((costs.shape[1],), given)
        found = shortest_path_with_drops(costs, *given)
        return replace(found, distance=cosine_distance(first[0], second[0], found.path))


def percentile_drop_cost(cost: Tensor, *, keep: float = KEEP) -> float:
    """Take the cost below which the share `keep` of all entries of cost [M, N] lies: Drop-DTW's percentile."""
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be above 0 and at most 1, the share of pairs cheaper than a drop; got {keep}")
    rank = max(1, int(keep * cost.numel()))
    return float(cost.detach().flatten().kthvalue(rank).values)


def smooth_dtw(
    x: SequenceLike,
    y: SequenceLike,
    *,
    gamma: float = 0.1,
    cost: Cost | None = None,
    beta: float = BETA,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    subsequence: bool = False,
    check: bool = False,
) -> Warping:
    """Align x [B, M, D] with y [B, N, D] by smoothMin, eq. (4), (5), (8) and (9) of the paper.

    One pair is [M, D] and [N, D], or [M] and [N], and has no axis B in the result. Sequences of unequal lengths are a
    list, or padded with their lengths. Arrays and lists of numbers will do. The cost is by default the contrastive one,
    of one-dimensional sequences the squared distance. With `check` NaN is reported by sequence and frame.

    >>> x = torch.eye(3)[None].requires_grad_()
    >>> warping = smooth_dtw(x, x.detach()[:, [0, 1, 1, 2]])
    >>> warping.cost.shape, warping.table.shape
    (torch.Size([1]), torch.Size([1, 3, 4]))
    >>> warping.cost.sum().backward()
    """
    pair = as_pair(x, y, x_lengths, y_lengths)
    cost = default_cost(cost, pair[0], otherwise="contrastive")
    return _warp("smooth", *pair, gamma, cost, beta, subsequence, check)


def soft_dtw(
    x: SequenceLike,
    y: SequenceLike,
    *,
    gamma: float = 0.1,
    cost: Cost = "squared_euclidean",
    beta: float = BETA,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    subsequence: bool = False,
    check: bool = False,
) -> Warping:
    """Align x [B, M, D] with y [B, N, D] by min^γ, eq. (6): soft-DTW of Cuturi and Blondel (2017).

    Takes the same inputs as `smooth_dtw`.

    >>> x, y = torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[0.0], [3.0]]])
    >>> soft_dtw(x, y, gamma=1e-3).cost
    tensor([4.])
    """
    return _warp("soft", *as_pair(x, y, x_lengths, y_lengths), gamma, cost, beta, subsequence, check)


def read_out(
    table: Tensor,
    *,
    kind: Kind,
    gamma: float,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    subsequence: bool = False,
) -> Tensor:
    """Read the cost of the whole alignment off a table [B, M, N], [B]: R(M, N) of each pair's own lengths.

    With `subsequence` a path may end at any frame of y: the same kind of minimum over the last row.
    """
    batch, m, n = table.shape
    if x_lengths is None and y_lengths is None and not subsequence:
        return table[:, -1, -1]
    rows = torch.arange(batch, device=table.device)
    i = last_frame(x_lengths, batch=batch, size=m, device=table.device)
    if not subsequence:
        return table[rows, i, last_frame(y_lengths, batch=batch, size=n, device=table.device)]
    ends = table[rows, i]
    real = valid(y_lengths, name="y_lengths", batch=batch, size=n, device=table.device)
    if real is not None:
        ends = ends.where(real, float("inf"))
    if kind == "smooth":
        return smooth_min(ends, gamma=gamma)
    return min_gamma(ends, gamma=gamma if kind == "soft" else 0.0)


def _warp(
    kind: Kind,
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths,
    y_lengths: Lengths,
    batched: bool,
    gamma: float,
    cost: Cost,
    beta: float,
    subsequence: bool,
    check: bool,
) -> Warping:
    if check:
        require_finite("x", x, x_lengths)
        require_finite("y", y, y_lengths)
    costs = pairwise_cost(x, y, cost=cost, beta=beta, x_lengths=x_lengths, y_lengths=y_lengths)
    table = accumulate(costs, kind=kind, gamma=gamma, free_start=subsequence)
    end = read_out(table, kind=kind, gamma=gamma, x_lengths=x_lengths, y_lengths=y_lengths, subsequence=subsequence)
    return Warping(cost=end, table=table) if batched else Warping(cost=end[0], table=table[0])


def smooth_time_map(
    clock: NDArray[np.float64], seconds: NDArray[np.float64], *, period: float, bound: float = MAX_SPEED_RATIO
) -> NDArray[np.float64]:
    """Smooth a monotone map from `clock` [M] to `seconds` [M]; changes of speed shorter than `period` vanish.

    An alignment g(tₖ) is a staircase: frames are matched with frames. The smooth map f minimizes

        (1/T) Σₖ (f(tₖ) − g(tₖ))² Δₖ  +  (τ/2π)⁴ (1/T) ∫ f″(t)² dt
        subject to    v/b ≤ f′(t) ≤ v·b,    f(0) = g(0),    f(T) = g(T)

    where T is the duration, τ the period, v = (g(T) − g(0))/T the average speed and b bounds how far speeds depart from
    it. Without the constraints f is a smoothing spline, which halves changes of period τ and follows slower ones; as τ
    grows, f becomes the straight line of constant speed. f is piecewise linear and its unknowns are the speeds of the
    pieces, so that the bounds are those of the variables; a large weight holds the end. This is a bounded linear least
    squares of at most 300 unknowns, which is convex: about a second.
    """
    from scipy.optimize import lsq_linear

    if not period > 0 or not bound > 1:
        raise ValueError(f"smoothing needs a period above 0 seconds and a bound above 1, got {period=} and {bound=}")
    total = clock[-1] - clock[0]
    if len(clock) < 3 or seconds[-1] <= seconds[0]:
        return seconds
    pieces = int(np.clip(np.ceil(PIECES_PER_PERIOD * total / period), 2, min(MAX_PIECES, len(clock) - 1)))
    width, travel = total / pieces, seconds[-1] - seconds[0]
    # f(t) = f(0) + Σ speed · (how much of the piece lies before t)
    before = np.clip(clock[:, None] - clock[0] - width * np.arange(pieces), 0, width)
    weight = np.sqrt(np.gradient(clock) / total)[:, None]
    bend = np.diff(np.eye(pieces), axis=0) * np.sqrt((period / (2 * np.pi)) ** 4 / (width * total))
    rows = np.concatenate([weight * before, bend, np.full((1, pieces), END_WEIGHT * width)])
    aims = np.concatenate([weight[:, 0] * (seconds - seconds[0]), np.zeros(len(bend)), [END_WEIGHT * travel]])
    # QR leaves as many rows as unknowns, with the same least-squares solution.
    rotation, triangle = np.linalg.qr(rows)
    speed = travel / total
    speeds = lsq_linear(triangle, rotation.T @ aims, bounds=(speed / bound, speed * bound)).x
    way = before @ speeds
    return np.asarray(seconds[0] + way * (travel / way[-1]))


def soft_posterior(cost: NDArray[np.float64], *, gamma: float) -> NDArray[np.float64]:
    """Take the probability of every cell [M, N] to lie on the path, up to a factor for each row: soft-DTW twice."""
    there, back = _soft_table(cost, gamma), _soft_table(cost[::-1, ::-1], gamma)[::-1, ::-1]
    excess = there + back - cost
    return np.asarray(np.exp(-np.minimum((excess - excess.min(1, keepdims=True)) / gamma, 50.0)))


def _soft_table(cost: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Accumulate a cost [M, N] by soft-DTW, one antidiagonal after the other: M + N steps."""
    m, n = cost.shape
    table = np.full((m + 1, n + 1), np.inf)
    table[0, 0] = 0.0
    for diagonal in range(2, m + n + 1):
        i = np.arange(max(1, diagonal - n), min(m, diagonal - 1) + 1)
        j = diagonal - i
        before = np.stack([table[i - 1, j - 1], table[i - 1, j], table[i, j - 1]])
        least = before.min(0)
        table[i, j] = cost[i - 1, j - 1] + least - gamma * np.log(np.exp((least - before) / gamma).sum(0))
    return table[1:, 1:]
