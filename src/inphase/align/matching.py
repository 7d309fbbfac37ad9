"""Align two embedded sequences, or many pairs at once: the path through their costs, and how alike they are along it.

The contrastive cost is the mean of both directions: how improbable y_j is among all of y for x_i, and x_i among all of
x for y_j. Either direction alone treats x and y differently. Time O(MND) a pair.

An embedding may join the vectors of several encoders, its routes: body pose and images, say. Each route has a cost of
its own, and the cost of a pair is the sum over the routes that both sides have, weighted by how far each side supports
them. The squared length of a route's part of a row, over the largest of the row, is how far that frame supports it;
the mean over the frames is the weight of the sequence. A route that one side lacks, all zeros, costs nothing.

Sequences too long for one table are aligned coarsely first, then exactly piece by piece. Blocks of s frames are
averaged and aligned; the coarse path is cut into pieces, and each is aligned frame by frame between its ends. An end is
off by up to a block. So the path is cut again in the middle of the pieces, where it is exact, and aligned once more.
Costs that compare a frame with all others use the frames of its piece.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from typing import Literal, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import BETA, Lengths, Routes, contrastive_costs, cosine_cost, route_costs
from inphase.align.numba.path_numba import hard_table
from inphase.align.path import (
    Alignment,
    FramePairs,
    cosine_distance,
    percentile_drop_cost,
    shortest_path,
    shortest_path_with_drops,
    trace,
)
from inphase.align.recursion import accumulate

PairCost = Literal["contrastive", "cosine"]
Vectors = Tensor | NDArray[np.float32]  # [T, D]


class RoutedFrames(Protocol):
    """Vectors `values` [T, D], and the routes that their columns belong to; none: one encoder gave all of them."""

    @property
    def values(self) -> NDArray[np.float32]:
        """One row per frame."""

    @property
    def routes(self) -> Routes:
        """The width and the temperature of each route."""

    def __len__(self) -> int:
        """Count the frames."""


Frames = Vectors | RoutedFrames
Side = TypeVar("Side", bound=Sized)  # one side of a pair
# A table of 4000 × 4000 takes 128 MB and a tenth of a second.
MAX_CELLS = 16_000_000
# Costs of a batch of pairs, padding included, that `match_many` holds in memory.
BATCH_CELLS = 2**21
# Vectors whose length differs from 1 by less, as float16 rounds it, count as unit vectors.
UNIT_TOLERANCE = 2e-3


def match(
    x: Frames,
    y: Frames,
    *,
    cost: PairCost = "contrastive",
    beta: float = BETA,
    subsequence: bool = False,
    drop: float | None = None,
    max_cells: int = MAX_CELLS,
    keep_cost: bool = True,
) -> Alignment:
    """Align x [M, D] with y [N, D]; with `subsequence`, with whichever part of y fits best.

    With `drop` frames of either that have no counterpart are dropped (Drop-DTW): dropping one costs as much as the
    match that this share of all pairs is cheaper than, so a smaller share drops more. The alignment has `kept` masks.

    Embeddings of several routes are given as they are, not by their `values`. Sequences whose cost matrix would have
    more than `max_cells` entries are aligned coarsely first, then piece by piece; the alignment of shorter ones holds
    its cost matrix, unless `keep_cost` is False.

    >>> frames = torch.eye(3)
    >>> alignment = match(frames, frames[[0, 1, 1, 2]])
    >>> alignment.path.tolist(), alignment.distance
    ([[0, 0], [1, 1], [1, 2], [2, 3]], 0.0)
    >>> match(frames[1:], frames, subsequence=True).path.tolist()
    [[0, 1], [1, 2]]
    """
    a, b, routes = tensor_of(x), tensor_of(y), shared_routes(x, y)
    _require_one_dimension(a, b)
    if drop is not None:
        return _match_with_drops(
            a,
            b,
            cost=cost,
            beta=beta,
            routes=routes,
            subsequence=subsequence,
            drop=drop,
            max_cells=max_cells,
            keep_cost=keep_cost,
        )

    def cost_function(some: Tensor, others: Tensor) -> Tensor:
        if subsequence:
            return subsequence_cost(some, others, cost=cost)
        return pair_cost(some, others, cost=cost, beta=beta, routes=routes)

    found = align_coarse_to_fine(a, b, cost=cost_function, subsequence=subsequence, max_cells=max_cells)
    distance = cosine_distance(a, b, found.path)
    return replace(found, distance=distance, cost_matrix=found.cost_matrix if keep_cost else None, table=None)


def _match_with_drops(
    x: Tensor,
    y: Tensor,
    *,
    cost: PairCost,
    beta: float,
    routes: Routes,
    subsequence: bool,
    drop: float,
    max_cells: int,
    keep_cost: bool,
) -> Alignment:
    if subsequence:
        raise ValueError("drop already leaves out what has no counterpart at the ends: give drop or subsequence")
    if len(x) * len(y) > max_cells:
        raise ValueError(f"{len(x)} × {len(y)} frames are too many to drop some: embed fewer frames per second")
    matrix = pair_cost(x, y, cost=cost, beta=beta, routes=routes)
    price = percentile_drop_cost(matrix, keep=drop)
    found = shortest_path_with_drops(matrix, matrix.new_full((len(x),), price), matrix.new_full((len(y),), price))
    distance = cosine_distance(x, y, found.path)
    return replace(found, distance=distance, cost_matrix=found.cost_matrix if keep_cost else None, table=None)


def match_many(
    pairs: Iterable[tuple[Frames, Frames]],
    *,
    cost: PairCost = "contrastive",
    beta: float = BETA,
    subsequence: bool = False,
    max_cells: int = MAX_CELLS,
    keep_cost: bool = False,
    device: str | torch.device = "cpu",
    batch_cells: int | None = None,
) -> Iterator[Alignment]:
    """Align every pair of x [M, D] and y [N, D], in the order given, in padded batches.

    Consecutive pairs should have similar lengths. A batch has at most `batch_cells` costs (`BATCH_CELLS`); costs and
    tables are computed on the device, except those of a pair longer than `max_cells`, which `match` aligns.

    >>> frames = torch.eye(3)
    >>> [alignment.path.tolist() for alignment in match_many([(frames, frames), (frames[:2], frames[:1])])]
    [[[0, 0], [1, 1], [2, 2]], [[0, 0], [1, 0]]]
    """
    limit = BATCH_CELLS if batch_cells is None else batch_cells
    for batch in batch_pairs(pairs, limit):
        (m, n) = len(batch[0][0]), len(batch[0][1])
        if len(batch) == 1 and m * n > max_cells:
            x, y = batch[0]
            yield match(x, y, cost=cost, beta=beta, subsequence=subsequence, max_cells=max_cells, keep_cost=keep_cost)
        else:
            yield from _match_batch(
                batch, cost=cost, beta=beta, subsequence=subsequence, keep_cost=keep_cost, device=device
            )


def pair_cost(
    x: Tensor, y: Tensor, *, cost: PairCost = "contrastive", beta: float = BETA, routes: Routes = ()
) -> Tensor:
    """Take the cost of matching frames x [M, D] with y [N, D], [M, N]."""
    return batch_costs(x[None], y[None], cost=cost, beta=beta, routes=routes)[0]


def tensor_of(frames: Frames) -> Tensor:
    """Return the vectors of a sequence as a tensor [T, D], detached."""
    return torch.as_tensor(frames if isinstance(frames, Tensor | np.ndarray) else frames.values).detach()


def shared_routes(x: Frames, y: Frames) -> Routes:
    """Return the routes of two sequences; raise if they differ."""
    one, other = (() if isinstance(side, Tensor | np.ndarray) else tuple(side.routes) for side in (x, y))
    if one != other:
        raise ValueError(f"embeddings have the routes {one} and {other}: embed both with one encoder")
    return one


def subsequence_cost(x: Tensor, y: Tensor, *, cost: PairCost = "contrastive") -> Tensor:
    """Take the cost of matching x [M, D] with a part of y [N, D]: 0 where a frame of x finds its best match.

    A logarithm of probabilities is far from 0 for the best match, too, so that the part with the fewest frames would
    cost least. From there on, −log softmax_j(x_i · y_j / β) is the cosine distance, but for a factor.
    """
    _require_cost(cost)
    distance = cosine_cost(x[None], y[None])[0]
    return distance if cost == "cosine" else distance - distance.amin(1, keepdim=True)


def batch_costs(
    x: Tensor,
    y: Tensor,
    *,
    cost: PairCost,
    beta: float,
    routes: Routes = (),
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
) -> Tensor:
    """Take the costs of matching a batch x [B, M, D] with y [B, N, D], [B, M, N]; `routes` have their own `beta`."""
    _require_cost(cost)
    if cost == "cosine":
        return cosine_cost(x, y, x_lengths=x_lengths, y_lengths=y_lengths)
    if not routes:
        return contrastive_costs(x, y, beta=beta, x_lengths=x_lengths, y_lengths=y_lengths).mean(0)
    return route_costs(x, y, routes, x_lengths=x_lengths, y_lengths=y_lengths)


def batch_pairs(pairs: Iterable[tuple[Side, Side]], limit: int) -> Iterator[list[tuple[Side, Side]]]:
    """Split pairs into batches of at most `limit` padded costs, unless one pair has more."""
    batch: list[tuple[Side, Side]] = []
    m = n = 0
    for x, y in pairs:
        m, n = max(m, len(x)), max(n, len(y))
        if batch and (len(batch) + 1) * m * n > limit:
            yield batch
            batch, m, n = [], len(x), len(y)
        batch.append((x, y))
    if batch:
        yield batch


def _match_batch(
    pairs: Sequence[tuple[Frames, Frames]],
    *,
    cost: PairCost,
    beta: float,
    subsequence: bool,
    keep_cost: bool,
    device: str | torch.device,
) -> Iterator[Alignment]:
    """Align the pairs of one batch."""
    x_lengths, y_lengths = [len(x) for x, _ in pairs], [len(y) for _, y in pairs]
    x, y = (stack_sequences([pair[side] for pair in pairs]).to(device) for side in (0, 1))
    _require_one_dimension(x, y)
    _require_cost(cost)
    if cost == "cosine" or subsequence:
        costs = cosine_cost(x, y)
    else:
        routes = {tuple(shared_routes(*pair)) for pair in pairs}
        if len(routes) > 1:
            raise ValueError("embeddings have different routes: embed all of them with one encoder")
        costs = batch_costs(x, y, cost=cost, beta=beta, routes=routes.pop(), x_lengths=x_lengths, y_lengths=y_lengths)
    if cost == "contrastive" and subsequence:  # see `subsequence_cost`; padding is no match
        real = torch.arange(costs.shape[2]) < torch.tensor(y_lengths)[:, None]
        costs = costs - costs.where(real[:, None].to(device), float("inf")).amin(2, keepdim=True)
    fill = _fill_tables_one_by_one if costs.is_cpu else _fill_tables_at_once
    tables = fill(costs, x_lengths, y_lengths, subsequence)
    matrices = list(costs.cpu().numpy()) if keep_cost else [None] * len(pairs)
    rows, columns = (normalize_rows(side).cpu().numpy() for side in (x, y))
    for a, b, table, matrix in zip(rows, columns, tables, matrices, strict=True):
        m, n = table.shape
        found = trace(table, subsequence=subsequence)
        i, j = found.path.T
        # In numpy, since threads of torch wait for each other on a busy machine: 7 ms for what takes 0.02 ms.
        # The mean of a video and its copy rounds to a little above 1, and a negative distance cannot be clustered.
        distance = max(0.0, 1 - float((a[i] * b[j]).sum(dtype=np.float64)) / len(found.path))
        yield replace(
            found, distance=distance, cost_matrix=None if matrix is None else matrix[:m, :n].copy(), table=None
        )


def _fill_tables_one_by_one(
    costs: Tensor, rows: Sequence[int], columns: Sequence[int], free_start: bool
) -> Iterator[NDArray[np.float64]]:
    """Fill the hard table of every pair [B, M, N] without its padding, which is fastest on a CPU core."""
    for cost, m, n in zip(costs.numpy(), rows, columns, strict=True):
        yield hard_table(np.ascontiguousarray(cost[:m, :n]), free_start)


def _fill_tables_at_once(
    costs: Tensor, rows: Sequence[int], columns: Sequence[int], free_start: bool
) -> Iterator[NDArray[np.float64]]:
    """Fill the hard tables of all pairs [B, M, N] in parallel, then cut off the padding, which is fastest on a GPU.

    In double precision, as on the CPU: rounding a table would decide between paths that cost about the same.
    """
    tables = accumulate(costs.double(), kind="hard", free_start=free_start).cpu().numpy()
    for table, m, n in zip(tables, rows, columns, strict=True):
        yield np.ascontiguousarray(table[:m, :n])


def stack_sequences(values: Sequence[Frames]) -> Tensor:
    """Pad sequences with zeros to the longest, [B, T, D]."""
    return torch.nn.utils.rnn.pad_sequence([tensor_of(each) for each in values], batch_first=True)


def normalize_rows(values: Tensor) -> Tensor:
    """Normalize vectors [B, T, D], unless all are unit vectors or 0 already."""
    norms = values.norm(dim=2)
    if bool((((norms - 1).abs() < UNIT_TOLERANCE) | (norms == 0)).all()):
        return values
    return F.normalize(values, dim=2)


def _require_one_dimension(x: Tensor, y: Tensor) -> None:
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"embeddings have {x.shape[-1]} and {y.shape[-1]} dimensions: embed both with one encoder")


def _require_cost(cost: str) -> None:
    if cost not in ("contrastive", "cosine"):
        raise ValueError(f"cost must be 'contrastive' or 'cosine', got {cost!r}")


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


def align_with_itself(length: int) -> Alignment:
    """Align a sequence with itself, frame by frame."""
    frames = np.arange(length)
    return Alignment(np.stack([frames, frames], axis=1), 0.0, (length, length), distance=0.0)
