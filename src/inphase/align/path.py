"""The alignment of two sequences: its path, its cost, and what it says about time."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.inputs import require_tensor, single_precision
from inphase.align.numba.path_numba import backtrack, hard_table
from inphase.align.recursion import Kind, accumulate


@dataclass(frozen=True, eq=False)
class Alignment:
    """Which frame of x goes with which frame of y.

    `path` [L, 2] int64, from the first matched pair (i, j) to the last, each step by one in i, in j or in both; `cost`
    the sum of the costs along it; `table` [M, N] the accumulated costs it was found in.
    """

    path: Tensor
    cost: float
    table: Tensor

    def time_map(self, x_times: NDArray[np.float64], y_times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give for each frame of x the second of y that goes with it, [M], never decreasing.

        A frame of x matched with several of y gets the middle of their times. Read the map at other seconds by
        `np.interp(seconds, x_times, map)`.
        """
        m, n = self.table.shape
        x_times, y_times = np.asarray(x_times, np.float64), np.asarray(y_times, np.float64)
        if x_times.shape != (m,) or y_times.shape != (n,):
            raise ValueError(f"times must be [{m}] and [{n}], got {list(x_times.shape)} and {list(y_times.shape)}")
        return seconds_along(self.path, x_times, y_times)


def seconds_along(path: Tensor, x_times: NDArray[np.float64], y_times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Read a path [L, 2] through all of x as the second of y at each frame of x: the middle where there are several."""
    i, j = path.numpy().T
    first = np.searchsorted(i, np.arange(len(x_times)), side="left")
    last = np.searchsorted(i, np.arange(len(x_times)), side="right") - 1
    return np.asarray((y_times[j[first]] + y_times[j[last]]) / 2)


def shortest_path(cost: Tensor, *, subsequence: bool = False) -> Alignment:
    """Find the cheapest monotone path through a cost [M, N].

    With `subsequence` all of x is matched with whichever part of y costs least. Of equal steps the diagonal one is
    taken. O(MN) time and memory, in float64 on the CPU.
    """
    require_tensor("cost", cost, "[M, N]")
    (cost,) = single_precision(cost.detach().cpu())
    table = torch.from_numpy(hard_table(cost.contiguous().numpy(), subsequence))
    if table[-1, -1].isnan():  # where one NaN anywhere ends up
        raise ValueError("cost holds NaN, through which no path is shortest; mend the embeddings it comes from")
    end = int(table[-1].argmin()) if subsequence else table.shape[1] - 1
    path = torch.from_numpy(backtrack(table.numpy(), end, subsequence))
    return Alignment(path=path, cost=float(table[-1, end]), table=table)


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
