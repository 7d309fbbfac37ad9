"""The alignment of two sequences: its path, its cost and its time map."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import require_tensor, single_precision
from inphase.align.numba.path_numba import backtrack, hard_table
from inphase.align.recursion import Kind, accumulate

FramePairs = NDArray[np.int64]  # [L, 2]


@dataclass(frozen=True, eq=False)
class Alignment:
    """Matched frames of x and y, as numpy arrays.

    `path` [L, 2] int64, from the first matched pair (i, j) to the last, each step by one in i, in j or in both; `cost`
    the sum of the costs along it; `shape` (M, N) the lengths of x and y; `distance` the mean of 1 − cos along the path,
    independent of the cost that the path minimizes: it does not grow with length, so it compares alignments (NaN where
    only costs were given). `confidence` [M], from 0 to 1 for each frame of x, where it was estimated. `cost_matrix`
    [M, N], where it was computed in one piece and stored; `table` [M, N] the accumulated costs, where stored.
    """

    path: FramePairs
    cost: float
    shape: tuple[int, int]
    distance: float = math.nan
    confidence: NDArray[np.float64] | None = None
    cost_matrix: NDArray[Any] | None = None
    table: NDArray[np.float64] | None = None

    def time_map(self, x_times: NDArray[np.float64], y_times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the second of y that matches each frame of x, [M], never decreasing.

        A frame of x matched with several of y gets the middle of their times. Read the map at other seconds by
        `np.interp(seconds, x_times, map)`.
        """
        m, n = self.shape
        x_times, y_times = np.asarray(x_times, np.float64), np.asarray(y_times, np.float64)
        if x_times.shape != (m,) or y_times.shape != (n,):
            raise ValueError(f"times must be [{m}] and [{n}], got {list(x_times.shape)} and {list(y_times.shape)}")
        i, j = self.path.T
        first = np.searchsorted(i, np.arange(m), side="left")
        last = np.searchsorted(i, np.arange(m), side="right") - 1
        return np.asarray((y_times[j[first]] + y_times[j[last]]) / 2)

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


def cosine_distance(x: Tensor, y: Tensor, path: FramePairs) -> float:
    """Take the mean of 1 − cos along a path between x [M, D] and y [N, D]."""
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
