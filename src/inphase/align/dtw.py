"""Align two sequences, exactly (DTW) or differentiably (smoothDTW and soft-DTW)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inphase.align.cost import BETA, Cost, Lengths, last_frame, pairwise_cost, require_tensor, valid
from inphase.align.path import Alignment, cosine_distance, shortest_path
from inphase.align.recursion import Kind, accumulate, min_gamma, smooth_min


@dataclass(frozen=True, eq=False)
class Warping:
    """A differentiable alignment: `cost` [B] of the best path, smoothed, and the `table` [B, M, N] it was read from."""

    cost: Tensor
    table: Tensor


def dtw(x: Tensor, y: Tensor, *, cost: Cost = "cosine", beta: float = BETA, subsequence: bool = False) -> Alignment:
    """Align x [M, D] with y [N, D] by the cheapest monotone path.

    With `subsequence` all of x is matched with whichever part of y costs least. O(MN (D + 1)) time, O(MN) memory.

    >>> frames = torch.eye(3)
    >>> dtw(frames, frames[[0, 1, 1, 2]]).path.tolist()
    [[0, 0], [1, 1], [1, 2], [2, 3]]
    """
    require_tensor("x", x, "[M, D]")
    require_tensor("y", y, "[N, D]")
    with torch.no_grad():
        found = shortest_path(pairwise_cost(x[None], y[None], cost=cost, beta=beta)[0], subsequence=subsequence)
        return replace(found, distance=cosine_distance(x, y, found.path))


def smooth_dtw(
    x: Tensor,
    y: Tensor,
    *,
    gamma: float = 0.1,
    cost: Cost = "contrastive",
    beta: float = BETA,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    subsequence: bool = False,
) -> Warping:
    """Align x [B, M, D] with y [B, N, D] by smoothMin, eq. (4), (5), (8) and (9) of the paper.

    >>> x = torch.eye(3)[None].requires_grad_()
    >>> warping = smooth_dtw(x, x.detach()[:, [0, 1, 1, 2]])
    >>> warping.cost.shape, warping.table.shape
    (torch.Size([1]), torch.Size([1, 3, 4]))
    >>> warping.cost.sum().backward()
    """
    return _warp("smooth", x, y, gamma, cost, beta, x_lengths, y_lengths, subsequence)


def soft_dtw(
    x: Tensor,
    y: Tensor,
    *,
    gamma: float = 0.1,
    cost: Cost = "squared_euclidean",
    beta: float = BETA,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    subsequence: bool = False,
) -> Warping:
    """Align x [B, M, D] with y [B, N, D] by min^γ, eq. (6): soft-DTW of Cuturi and Blondel (2017).

    >>> x, y = torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[0.0], [3.0]]])
    >>> soft_dtw(x, y, gamma=1e-3).cost
    tensor([4.])
    """
    return _warp("soft", x, y, gamma, cost, beta, x_lengths, y_lengths, subsequence)


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
    gamma: float,
    cost: Cost,
    beta: float,
    x_lengths: Lengths,
    y_lengths: Lengths,
    subsequence: bool,
) -> Warping:
    costs = pairwise_cost(x, y, cost=cost, beta=beta, x_lengths=x_lengths, y_lengths=y_lengths)
    table = accumulate(costs, kind=kind, gamma=gamma, free_start=subsequence)
    end = read_out(table, kind=kind, gamma=gamma, x_lengths=x_lengths, y_lengths=y_lengths, subsequence=subsequence)
    return Warping(cost=end, table=table)
