"""Match one embedded recording with another: which frames go together, and how well."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.coarse_to_fine import CELLS, coarse_to_fine_path
from inphase.align.cost import contrastive_costs, cosine_cost
from inphase.align.path import seconds_along
from inphase.models.embedding import Embedding

PairCost = Literal["contrastive", "cosine"]
BETA = 0.1


@dataclass(frozen=True, eq=False)
class PairMatch:
    """How a recording goes with another.

    `path` [L, 2] int64 frames of the first and of the second that go together; `seconds` [M] the second of the second
    recording at each frame of the first, never decreasing; `distance` the mean of 1 − cos along the path, whatever cost
    it was found by: what alignments are compared by, since it does not grow with length.
    """

    path: NDArray[np.int64]
    seconds: NDArray[np.float64]
    distance: float


def match(
    x: Embedding, y: Embedding, *, cost: PairCost = "contrastive", subsequence: bool = False, cells: int = CELLS
) -> PairMatch:
    """Align x with y; with `subsequence`, with whichever part of y fits best.

    Recordings whose table would have more than `cells` entries are aligned coarsely first, then piece by piece.
    """
    a, b = torch.from_numpy(x.values), torch.from_numpy(y.values)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"embeddings have {a.shape[1]} and {b.shape[1]} dimensions: embed both with one encoder")

    def cost_of(some: Tensor, others: Tensor) -> Tensor:
        return part_cost(some, others, cost=cost) if subsequence else pair_cost(some, others, cost=cost)

    path = coarse_to_fine_path(a, b, cost=cost_of, subsequence=subsequence, cells=cells)
    i, j = path.T
    distance = 1 - torch.nn.functional.cosine_similarity(a[i], b[j]).mean()
    # Of a video and its copy the mean of the cosines rounds to a little above 1.
    return PairMatch(path.numpy(), seconds_along(path, x.times, y.times), max(0.0, float(distance)))


def pair_cost(x: Tensor, y: Tensor, *, cost: PairCost = "contrastive", beta: float = BETA) -> Tensor:
    """Take the cost of matching frames x [M, D] with y [N, D], [M, N].

    The contrastive cost is the mean of both directions: how improbable y_j is among all of y for x_i, and x_i among all
    of x for y_j. Either direction alone treats x and y differently.
    """
    if cost == "contrastive":
        return contrastive_costs(x[None], y[None], beta=beta).mean(0)[0]
    if cost == "cosine":
        return cosine_cost(x[None], y[None])[0]
    raise ValueError(f"cost must be 'contrastive' or 'cosine', got {cost!r}")


def part_cost(x: Tensor, y: Tensor, *, cost: PairCost = "contrastive") -> Tensor:
    """Take the cost of matching x [M, D] with a part of y [N, D]: 0 where a frame of x finds its best match.

    A logarithm of probabilities is far from 0 for the best match, too, so that the part with the fewest frames would
    cost least. From there on, −log softmax_j(x_i · y_j / β) is the cosine distance, but for a factor.
    """
    distance = cosine_cost(x[None], y[None])[0]
    return distance if cost == "cosine" else distance - distance.amin(1, keepdim=True)
