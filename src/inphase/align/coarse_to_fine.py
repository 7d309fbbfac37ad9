"""The cheapest path of sequences too long for one table: found coarsely, then exactly piece by piece.

Blocks of s frames are averaged and aligned; the coarse path is cut into pieces, and each is aligned frame by frame
between the ends it has. An end is off by up to a block. So the path is cut anew in the middle of the pieces, where it
is right, and aligned once more. Costs that compare a frame with all others compare it with those of its piece.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from inphase.align.path import shortest_path

# A table of 4000 × 4000 takes 128 MB and a tenth of a second.
CELLS = 16_000_000

CostOf = Callable[[Tensor, Tensor], Tensor]  # x [M, D], y [N, D] → [M, N]


def coarse_to_fine_path(x: Tensor, y: Tensor, *, cost: CostOf, subsequence: bool = False, cells: int = CELLS) -> Tensor:
    """Find a cheap monotone path between x [M, D] and y [N, D], [L, 2]: the cheapest where M·N is at most `cells`.

    With `subsequence` all of x is matched with whichever part of y costs least. Memory: a few times `cells`; time: that
    of a coarse table and of about 2 (M + N) √cells.
    """
    m, n = len(x), len(y)
    if m * n <= cells:
        return shortest_path(cost(x, y), subsequence=subsequence).path
    size = math.ceil(math.sqrt(m * n / cells))
    coarse = shortest_path(cost(average_blocks(x, size), average_blocks(y, size)), subsequence=subsequence).path
    path = (coarse * size + size // 2).clamp(max=torch.tensor([m - 1, n - 1]))
    if subsequence:
        first, last = int(path[0, 1]), int(path[-1, 1])
        margin = (last - first) // 2 + 2 * size
        begin, end = max(0, first - margin), min(n, last + margin + 1)
        if end - begin <= n // 2:
            return coarse_to_fine_path(x, y[begin:end], cost=cost, subsequence=True, cells=cells) + torch.tensor(
                [0, begin]
            )
    path[0] = torch.tensor([0, path[0, 1] if subsequence else 0])
    path[-1] = torch.tensor([m - 1, path[-1, 1] if subsequence else n - 1])
    step = math.isqrt(cells)
    for shift in (step, step // 2):
        path = _refined(x, y, path, cost=cost, shift=shift, step=step)
    return path


def average_blocks(values: Tensor, size: int) -> Tensor:
    """Average blocks of `size` rows [T, D]; the last may be shorter."""
    return torch.stack([values[i : i + size].mean(0) for i in range(0, len(values), size)])


def _refined(x: Tensor, y: Tensor, path: Tensor, *, cost: CostOf, shift: int, step: int) -> Tensor:
    """Cut a path where its length passes shift, shift + step, … and find the cheapest path of each piece."""
    length = (path - path[0]).sum(1)
    marks = torch.arange(shift, max(int(length[-1]), shift + 1), step)
    cuts = torch.searchsorted(length, marks).clamp(max=len(path) - 1)
    corners = path[torch.unique(torch.cat([torch.tensor([0]), cuts, torch.tensor([len(path) - 1])]))]
    pieces = [path[:1]]
    for (i, j), (k, n) in zip(corners[:-1].tolist(), corners[1:].tolist(), strict=True):
        piece = shortest_path(cost(x[i : k + 1], y[j : n + 1])).path + torch.tensor([i, j])
        pieces.append(piece[1:])  # the corner ends the piece before
    return torch.cat(pieces)
