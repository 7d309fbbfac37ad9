"""The cheapest path of sequences too long for one table: aligned coarsely first, then exactly piece by piece.

Blocks of s frames are averaged and aligned; the coarse path is cut into pieces, and each is aligned frame by frame
between its ends. An end is off by up to a block. So the path is cut again in the middle of the pieces, where it is
exact, and aligned once more. Costs that compare a frame with all others use the frames of its piece.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from inphase.align.path import Alignment, FramePairs, shortest_path

# A table of 4000 × 4000 takes 128 MB and a tenth of a second.
MAX_CELLS = 16_000_000

CostFunction = Callable[[Tensor, Tensor], Tensor]  # x [M, D], y [N, D] → [M, N]


def align_coarse_to_fine(
    x: Tensor, y: Tensor, *, cost: CostFunction, subsequence: bool = False, max_cells: int = MAX_CELLS
) -> Alignment:
    """Find a cheap monotone path between x [M, D] and y [N, D]: the cheapest where M·N is at most `max_cells`.

    With `subsequence` all of x is matched with whichever part of y costs least. Memory: a few times `max_cells`; time:
    that of a coarse table and of about 2 (M + N) √max_cells. Only an exact alignment has a cost matrix and a table.
    """
    m, n = len(x), len(y)
    if m * n <= max_cells:
        return shortest_path(cost(x, y), subsequence=subsequence)
    size = math.ceil(math.sqrt(m * n / max_cells))
    coarse = shortest_path(cost(average_blocks(x, size), average_blocks(y, size)), subsequence=subsequence).path
    path = np.minimum(coarse * size + size // 2, [m - 1, n - 1])
    if subsequence:
        first, last = int(path[0, 1]), int(path[-1, 1])
        margin = (last - first) // 2 + 2 * size
        begin, end = max(0, first - margin), min(n, last + margin + 1)
        if end - begin <= n // 2:
            part = align_coarse_to_fine(x, y[begin:end], cost=cost, subsequence=True, max_cells=max_cells)
            return replace(part, path=part.path + np.array([0, begin]), shape=(m, n), cost_matrix=None, table=None)
    path[0] = [0, path[0, 1] if subsequence else 0]
    path[-1] = [m - 1, path[-1, 1] if subsequence else n - 1]
    step = math.isqrt(max_cells)
    for shift in (step, step // 2):
        path, total = _refine(x, y, path, cost=cost, shift=shift, step=step)
    return Alignment(path, total, (m, n))


def average_blocks(values: Tensor, size: int) -> Tensor:
    """Average blocks of `size` rows [T, D]; the last may be shorter."""
    return torch.stack([values[i : i + size].mean(0) for i in range(0, len(values), size)])


def _refine(
    x: Tensor, y: Tensor, path: FramePairs, *, cost: CostFunction, shift: int, step: int
) -> tuple[FramePairs, float]:
    """Cut a path where its length passes shift, shift + step, …; find the cheapest path of each piece, and its cost."""
    length = (path - path[0]).sum(1)
    marks = np.arange(shift, max(int(length[-1]), shift + 1), step)
    cuts = np.minimum(np.searchsorted(length, marks), len(path) - 1)
    corners = path[np.unique([0, *cuts.tolist(), len(path) - 1])]
    pieces, total = [path[:1]], 0.0
    for (i, j), (k, n) in zip(corners[:-1].tolist(), corners[1:].tolist(), strict=True):
        matrix = cost(x[i : k + 1], y[j : n + 1])
        piece = shortest_path(matrix)
        pieces.append(piece.path[1:] + np.array([i, j]))  # the corner ends the piece before
        total += piece.cost - (float(matrix[0, 0]) if len(pieces) > 2 else 0.0)
    return np.concatenate(pieces), total
