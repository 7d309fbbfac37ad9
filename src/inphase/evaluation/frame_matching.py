"""Match the frames of pairs of videos in four ways, many pairs at once.

    nearest      the frame with the highest cosine
    dtw          the cheapest monotone path through 1 − cos
    contrastive  the cheapest monotone path through the contrastive cost, x to y plus y to x
    linear       frame · length / length, independent of the embedding: both videos played at full length

A frame that a path matches with several frames gets the middle of them, as in `Alignment.time_map`.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.cost import BETA, cosine_cost
from inphase.align.matching import batch_pairs, match_many
from inphase.align.path import shortest_path
from inphase.evaluation.embedded_videos import EmbeddedVideo, require_two

METHODS = ("nearest", "dtw", "contrastive", "linear")
CELLS = 2**21  # entries of the padded cost matrices in memory at a time

Pair = tuple[EmbeddedVideo, EmbeddedVideo]


@dataclass(frozen=True, eq=False)
class FrameMatches:
    """The frame number of y that each method matches with each row of x, [M] float64.

    If either embedding is constant, every match would be arbitrary: only "linear" is present.
    """

    x: EmbeddedVideo
    y: EmbeddedVideo
    frames: dict[str, NDArray[np.float64]]


def draw_pairs(test: Sequence[EmbeddedVideo], *, pairs: int | None, seed: int = 0) -> list[Pair]:
    """List all ordered pairs of different videos of each action, or `pairs` of each drawn without replacement."""
    if pairs is not None and pairs < 1:
        raise ValueError(f"pairs must be at least 1, or None for all, got {pairs}")
    found = []
    for number, videos in enumerate(require_two(test).values()):
        count = len(videos)
        total = count * (count - 1)
        chosen = np.arange(total)
        if pairs is not None and pairs < total:
            chosen = np.sort(np.random.default_rng([seed, number]).choice(total, pairs, replace=False))
        for code in chosen.tolist():
            i, j = divmod(code, count - 1)
            found.append((videos[i], videos[j + (j >= i)]))
    return found


def match_pairs(pairs: Sequence[Pair], *, beta: float = BETA) -> Iterator[FrameMatches]:
    """Match the frames of every pair, in the order given."""
    for batch in batch_pairs(pairs, CELLS):
        defined = [pair for pair in batch if not is_undefined(pair)]
        found = _match(defined, beta=beta) if defined else {}
        place = iter(range(len(defined)))
        for x, y in batch:
            frames: dict[str, NDArray[np.float64]] = {}
            if not is_undefined((x, y)):
                at = next(place)
                frames = {name: y.first + rows[at] for name, rows in found.items()}
            frames["linear"] = x.frames.astype(np.float64) * (y.length / x.length)
            yield FrameMatches(x, y, frames)


def is_undefined(pair: Pair) -> bool:
    """Return whether an embedding of a pair is constant, so that no match is better than another."""
    return pair[0].is_constant or pair[1].is_constant


def similarities(pairs: Sequence[Pair]) -> Iterator[tuple[EmbeddedVideo, NDArray[np.float32]]]:
    """Yield x and the cosines of all frames of x with all frames of y, [M, N], for every pair."""
    for batch in batch_pairs(pairs, CELLS):
        for (x, _), cost in zip(batch, _cut(cosine_cost(*_stacked(batch)), batch), strict=True):
            yield x, 1 - cost


def _match(pairs: Sequence[Pair], *, beta: float) -> dict[str, list[NDArray[np.float64]]]:
    """Match by the methods that use embeddings: the row of y for each row of x."""
    values = [(x.values, y.values) for x, y in pairs]
    # `batch_pairs` has split the pairs: the batch is aligned whole, and the nearest frames need its cost matrices.
    cosine = list(match_many(values, cost="cosine", keep_cost=True, max_cells=sys.maxsize, batch_cells=sys.maxsize))
    contrastive = match_many(values, beta=beta, max_cells=sys.maxsize, batch_cells=sys.maxsize)
    return {
        "nearest": [
            found.cost_matrix.argmin(1).astype(np.float64) for found in cosine if found.cost_matrix is not None
        ],
        "dtw": [found.frame_map() for found in cosine],
        "contrastive": [found.frame_map() for found in contrastive],
    }


def _stacked(pairs: Sequence[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad both sides of all pairs to the longest: [P, M, D] and [P, N, D]."""
    x, y = (
        torch.nn.utils.rnn.pad_sequence([torch.from_numpy(pair[side].values) for pair in pairs], batch_first=True)
        for side in (0, 1)
    )
    return x, y


def _cut(costs: torch.Tensor, pairs: Sequence[Pair]) -> list[NDArray[np.float32]]:
    """Remove the padding from the costs [P, M, N] of a batch."""
    return [cost[: len(a), : len(b)] for cost, (a, b) in zip(costs.numpy(), pairs, strict=True)]


def along_path(cost: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the middle of the columns that the cheapest path through a cost [M, N] visits in each row, [M]."""
    return shortest_path(torch.from_numpy(cost)).frame_map()
