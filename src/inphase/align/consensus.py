"""Consensus of several alignments: sequences of the same action vote on where a moment of one lies in another.

A path from a to b can also lead through a third sequence c, whether anybody labeled c or not. Where the direct path
fails, since the two differ in view, speed or quality, paths through the sequences most like b rarely fail in the same
way: the median over the direct path and those through the nearest sequences is robust, and their spread measures how
far they agree. The median of monotone maps is monotone.

`barycenter` averages sequences in the time of one of them (DTW barycenter averaging, Petitjean et al. 2011): a template
that stands for all of them where there are too many for all pairs.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.cost import BETA, Routes
from inphase.align.matching import (
    MAX_CELLS,
    Frames,
    batch_costs,
    match_many,
    normalize_rows,
    pair_cost,
    shared_routes,
    stack_sequences,
    tensor_of,
)
from inphase.align.path import Alignment, expected_path
from inphase.align.recursion import accumulate

# Sequences that vote on an alignment, the nearest to its end; more of them change little (docs/lab/transfer.md).
NEIGHBORS = 20
# Sequences among which each finds its nearest, at most: a thousand of them vote no better, but cost a million paths.
MAX_VOTERS = 60
# A normal distribution's standard deviation is this many times its median absolute deviation.
DEVIATIONS = 1.4826

# Costs of a batch of pairs, padding included, that a GPU holds in memory, with a dozen numbers each.
GPU_CELLS = 2**25

FrameMap = NDArray[np.float64]  # [M]


@dataclass(frozen=True, eq=False)
class PairwiseMaps:
    """Maps between K sequences: `maps[a, b]` [T_a] is the frame of b that goes with each frame of a.

    `distances` [K, K] are those of the alignments, infinite where a pair was not aligned.
    """

    maps: Mapping[tuple[int, int], FrameMap]
    distances: NDArray[np.float64]

    def at(self, a: int, b: int, frames: NDArray[np.float64]) -> FrameMap:
        """Map frames of a, which may lie between two, to b."""
        found = self.maps[a, b]
        return np.interp(frames, np.arange(len(found)), found)

    def nearest(
        self, a: int, b: int, *, neighbors: int = NEIGHBORS, voters: Collection[int] | None = None
    ) -> list[int]:
        """List the sequences between a and b that are nearest to b, nearest first; only `voters`, where given."""
        ranked = np.argsort(self.distances[b], kind="stable").tolist()
        between = [c for c in ranked if c not in (a, b) and (a, c) in self.maps and (c, b) in self.maps]
        return [c for c in between if voters is None or c in voters][:neighbors]

    def votes(
        self,
        a: int,
        b: int,
        frames: NDArray[np.float64],
        *,
        neighbors: int = NEIGHBORS,
        voters: Collection[int] | None = None,
    ) -> NDArray[np.float64]:
        """Map frames [E] of a to b on the direct path and on those through the `nearest` sequences, [V, E]."""
        near = self.nearest(a, b, neighbors=neighbors, voters=voters)
        return np.stack([self.at(a, b, frames), *(self.at(c, b, self.at(a, c, frames)) for c in near)])


def align_pairwise(
    sequences: Sequence[Frames],
    *,
    pairs: Iterable[tuple[int, int]] | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> PairwiseMaps:
    """Align pairs of sequences, by default all, each once for both directions, in padded batches.

    Time: a millisecond or two for each pair of a hundred frames.
    """
    count = len(sequences)
    wanted = {(min(pair), max(pair)) for pair in (combinations(range(count), 2) if pairs is None else pairs)}
    ordered = sorted((pair for pair in wanted if pair[0] != pair[1]), key=lambda p: [len(sequences[k]) for k in p])
    maps: dict[tuple[int, int], FrameMap] = {}
    distances = np.full((count, count), np.inf)
    np.fill_diagonal(distances, 0.0)
    found = match_many(((sequences[a], sequences[b]) for a, b in ordered), device=device)
    for done, ((a, b), each) in enumerate(zip(ordered, found, strict=True), start=1):
        maps[a, b], maps[b, a] = each.frame_map(), transpose(each).frame_map()
        distances[a, b] = distances[b, a] = each.distance
        if progress is not None:
            progress(done, len(ordered))
    return PairwiseMaps(maps, distances)


def align_from(
    sequences: Sequence[Frames],
    sources: Sequence[int],
    *,
    max_voters: int = MAX_VOTERS,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> PairwiseMaps:
    """Align sources with all sequences, and the `max_voters` nearest to them with all: K · `max_voters` pairs."""
    others = [k for k in range(len(sequences)) if k not in sources]
    if len(others) <= max_voters:
        return align_pairwise(sequences, device=device, progress=progress)
    total = len(sources) * len(others) + max_voters * len(others)
    report = progress or (lambda done, total: None)
    direct = align_pairwise(
        sequences,
        pairs=[(a, b) for a in sources for b in range(len(sequences))],
        device=device,
        progress=lambda done, _: report(done, total),
    )
    voters = sorted(others, key=lambda k: float(direct.distances[list(sources), k].min()))[:max_voters]
    between = align_pairwise(
        sequences,
        pairs=[(c, b) for c in voters for b in others],
        device=device,
        progress=lambda done, _: report(min(total, len(direct.maps) // 2 + done), total),
    )
    report(total, total)
    distances = np.minimum(direct.distances, between.distances)
    return PairwiseMaps({**direct.maps, **between.maps}, distances)


@dataclass(frozen=True, eq=False)
class Consensus:
    """The frame of b that goes with each frame of a, [M], and how far the paths disagree on it, in frames, [M]."""

    frames: FrameMap
    spread: NDArray[np.float64]


def agree(votes: NDArray[np.float64]) -> Consensus:
    """Take the median of votes [V, M] and a robust standard deviation: 0 where there is one path only."""
    middle = np.median(votes, axis=0)
    return Consensus(middle, DEVIATIONS * np.median(np.abs(votes - middle), axis=0))


def consensus_alignment(direct: Alignment, found: Consensus) -> Alignment:
    """Replace the path of an alignment by the staircase through a consensus map."""
    m, n = direct.shape
    columns = np.clip(np.rint(found.frames), 0, n - 1).astype(np.int64)
    columns[0], columns[-1] = min(columns[0], direct.path[0, 1]), max(columns[-1], direct.path[-1, 1])
    columns = np.maximum.accumulate(columns)
    path = [[0, j] for j in range(int(direct.path[0, 1]), int(columns[0]) + 1)] or [[0, int(columns[0])]]
    for i in range(1, m):
        before, here = int(columns[i - 1]), int(columns[i])
        path.append([i, min(before + 1, here)])
        path += [[i, j] for j in range(before + 2, here + 1)]
    rows = np.array(path, np.int64)
    cost = direct.cost
    if direct.cost_matrix is not None:
        cost = float(direct.cost_matrix[rows[:, 0], rows[:, 1]].sum())
    return Alignment(rows, cost, direct.shape, distance=direct.distance, cost_matrix=direct.cost_matrix)


def agree_on_reference(
    direct: Sequence[Alignment],
    maps: PairwiseMaps,
    *,
    reference: int,
    near: Sequence[float],
    voters: Collection[int] | None = None,
) -> tuple[Alignment, ...]:
    """Replace each alignment of the reference by the consensus of all sequences, except the one with itself.

    Only the sequences in `voters` vote, by default all.

    The confidence of a frame is the share of the paths that lie within `near` frames of the median, a number for each
    sequence.
    """
    frames = np.arange(direct[reference].shape[0], dtype=np.float64)
    agreed = []
    for number, found in enumerate(direct):
        if number == reference:
            agreed.append(found)
            continue
        votes = maps.votes(reference, number, frames, voters=voters)
        confidence = (np.abs(votes - np.median(votes, axis=0)) <= near[number]).mean(0)
        agreed.append(replace(consensus_alignment(found, agree(votes)), confidence=confidence))
    return tuple(agreed)


def transpose(alignment: Alignment) -> Alignment:
    """Exchange x and y."""
    m, n = alignment.shape
    return Alignment(alignment.path[:, ::-1], alignment.cost, (n, m), distance=alignment.distance)


def posterior(
    x: Frames,
    y: Frames,
    frames: NDArray[np.int64],
    *,
    alignment: Alignment,
    gamma: float,
    max_cells: int = MAX_CELLS,
) -> NDArray[np.float64]:
    """Compute for some frames [E] of x the probability of every frame of y to match: [E, N], rows sum to 1.

    All monotone paths vote, each with its probability under soft-DTW at the temperature `gamma`.

    For recordings too long for one table, only the surroundings of each frame are used: between two points of the
    cheapest path, half of √max_cells steps before and after.
    """
    a, b, routes = tensor_of(x), tensor_of(y), shared_routes(x, y)
    path, kept = alignment.path, alignment.cost_matrix
    if len(x) * len(y) <= max_cells:
        cost = pair_cost(a, b, routes=routes) if kept is None else torch.from_numpy(kept)
        weights = expected_path(cost[None], kind="soft", gamma=gamma)[0].double().numpy()[frames]
        return np.asarray(weights / weights.sum(1, keepdims=True))
    reach = math.isqrt(max_cells) // 2
    mass = np.zeros((len(frames), len(y)))
    for row, frame in zip(mass, frames.tolist(), strict=True):
        middle = int(np.searchsorted(path[:, 0], frame))
        (i, j), (k, n) = path[max(0, middle - reach)], path[min(len(path) - 1, middle + reach)]
        block = pair_cost(a[i : k + 1], b[j : n + 1], routes=routes)
        weights = expected_path(block[None], kind="soft", gamma=gamma)[0, frame - i].double().numpy()
        row[j : n + 1] = weights / weights.sum()
    return np.asarray(mass)


def medians_of(times: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the median second of each row's mass [E, N]; a frame's mass is spread evenly around its time."""
    if len(times) == 1:
        return np.full(len(mass), times[0])
    middles = (times[1:] + times[:-1]) / 2
    edges = np.concatenate([[2 * times[0] - middles[0]], middles, [2 * times[-1] - middles[-1]]])
    reached = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(mass, axis=1)], axis=1)
    found = np.array([np.interp(0.5, row, edges) for row in reached / reached[:, -1:]])
    return np.asarray(np.clip(found, times[0], times[-1]))


@dataclass(frozen=True, eq=False)
class Template:
    """The average of several sequences: vectors [T, D], and the parts of each vector (`Embedding.routes`)."""

    values: NDArray[np.float32]
    routes: Routes = ()

    def __len__(self) -> int:
        """Count the frames."""
        return len(self.values)


def barycenter(
    sequences: Sequence[Frames], *, start: int, rounds: int = 2, device: str | torch.device = "cpu"
) -> Template:
    """Average sequences in the time of number `start`: the mean of the frames matched with each of its frames.

    Every round aligns all sequences with the average of the round before. Each route is averaged by itself, and keeps
    the mean length of its part of the rows, by which it is weighted.
    """
    values = [tensor_of(each).numpy() for each in sequences]
    routes = shared_routes(sequences[start], sequences[start])
    cuts = np.cumsum([width for width, _ in routes])[:-1]
    template = Template(values[start], routes)
    for _ in range(rounds):
        total, squares = np.zeros(template.values.shape), np.zeros((len(template), len(cuts) + 1))
        found = match_many([(template, each) for each in sequences], device=device)
        for other, alignment in zip(values, found, strict=True):
            i, j = alignment.path.T
            weight = 1 / np.bincount(i, minlength=len(template))[i, None]
            np.add.at(total, i, weight * other[j])
            lengths = np.stack([np.square(part).sum(1) for part in np.split(other, cuts, axis=1)], axis=1)
            np.add.at(squares, i, weight * lengths[j])
        parts = zip(np.split(total, cuts, axis=1), np.sqrt(squares / len(values)).T, strict=True)
        scaled = [
            part / np.maximum(np.linalg.norm(part, axis=1), 1e-12)[:, None] * size[:, None] for part, size in parts
        ]
        template = Template(np.concatenate(scaled, axis=1).astype(np.float32), routes)
    return template


def match_distances(
    rows: Sequence[Frames], columns: Sequence[Frames], pairs: Sequence[tuple[int, int]], *, device: str = "cpu"
) -> NDArray[np.float32]:
    """Measure the distances of `match_many` between rows[i] and columns[j] for each of `pairs` (i, j).

    On a GPU sequences are copied there once, and costs, tables and paths stay there: only distances come back.
    """
    longest = max(map(len, rows)) * max(map(len, columns))
    if torch.device(device).type != "cuda" or longest > MAX_CELLS:
        found = match_many([(rows[i], columns[j]) for i, j in pairs], device=device)
        return np.array([each.distance for each in found], np.float32)
    from inphase.align.triton.pair_triton import path_similarity

    routes = shared_routes(rows[0], columns[0])
    sides = [stack_sequences(side).to(device) for side in (rows, columns)]
    units = [normalize_rows(side) for side in sides]
    lengths = [torch.tensor([len(each) for each in side], device=device) for side in (rows, columns)]
    index = torch.tensor(pairs, device=device).reshape(-1, 2)
    distances = []
    for part in torch.split(index, max(1, GPU_CELLS // longest)):
        m, n = (length[at] for length, at in zip(lengths, part.T, strict=True))
        x, y, a, b = (each[at] for each, at in zip((*sides, *units), (*part.T, *part.T), strict=True))
        costs = batch_costs(x, y, cost="contrastive", beta=BETA, routes=routes, x_lengths=m, y_lengths=n)
        tables = accumulate(costs.double(), kind="hard")
        distances.append(1 - path_similarity(tables, torch.bmm(a, b.mT), m, n))
    return torch.cat(distances).clamp_min(0).float().cpu().numpy()
