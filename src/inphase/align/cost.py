"""Costs of matching every frame of one sequence with every frame of another, with padding masked.

All take x [B, M, D] and y [B, N, D] and return a cost [B, M, N] in float32 (float64 for float64). Cells of padded
frames cost 0 and carry no gradient, whatever the padding holds.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from inphase.align.inputs import Lengths, no_autocast, require_pair, require_temperature, single_precision, valid

Cost = Literal["contrastive", "cosine", "squared_euclidean"]
# The temperature of the contrastive cost, as in the paper.
BETA = 0.1


def contrastive_cost(
    x: Tensor, y: Tensor, *, beta: float = BETA, x_lengths: Lengths = None, y_lengths: Lengths = None
) -> Tensor:
    """Take the negative log probability that x_i matches y_j among all of y, eq. (8).

    c(i, j) = −log softmax_j(x̃_i · ỹ_j / β), with x̃ = x/‖x‖. O(MND) time, O(MN) memory.

    >>> frames = torch.eye(2)[None]
    >>> (-contrastive_cost(frames, frames, beta=1.0)).exp()
    tensor([[[0.7311, 0.2689],
             [0.2689, 0.7311]]])
    """
    require_temperature("beta", beta)
    x, y, real = _prepare(x, y, x_lengths, y_lengths)
    with no_autocast(x):
        similarity = _mask(_cosine(x, y) / beta, real, float("-inf"), rows=False)
        return _mask(-torch.log_softmax(similarity, 2), real, 0.0)


def contrastive_costs(
    x: Tensor, y: Tensor, *, beta: float = BETA, x_lengths: Lengths = None, y_lengths: Lengths = None
) -> Tensor:
    """Take the contrastive cost of x to y and of y to x from one product, [2, B, M, N].

    The second lies on the grid of the first, its axes swapped. The recursion is symmetric, so both accumulate in
    one call.
    """
    require_temperature("beta", beta)
    x, y, real = _prepare(x, y, x_lengths, y_lengths)
    with no_autocast(x):
        similarity = _cosine(x, y) / beta
        there = _mask(similarity, real, float("-inf"), rows=False).log_softmax(2)
        back = _mask(similarity, real, float("-inf"), columns=False).log_softmax(1)
        return _mask(-torch.stack([there, back]), real, 0.0)


def cosine_cost(x: Tensor, y: Tensor, *, x_lengths: Lengths = None, y_lengths: Lengths = None) -> Tensor:
    """Take the cosine distance, c(i, j) = 1 − x̃_i · ỹ_j: the paper's ablation without the contrastive cost."""
    x, y, real = _prepare(x, y, x_lengths, y_lengths)
    with no_autocast(x):
        return _mask(1 - _cosine(x, y), real, 0.0)


def squared_euclidean_cost(x: Tensor, y: Tensor, *, x_lengths: Lengths = None, y_lengths: Lengths = None) -> Tensor:
    """Take the squared distance, c(i, j) = ‖x_i − y_j‖², as soft-DTW and LAV do. No normalization."""
    x, y, real = _prepare(x, y, x_lengths, y_lengths)
    with no_autocast(x):
        # Centering leaves distances alone and keeps the expanded square from canceling. Padding, 0, does not count.
        _, y_real = real
        count = y.shape[1] if y_real is None else y_real.sum(1)[:, None, None]
        center = y.detach().sum(1, keepdim=True) / count
        x, y = x - center, y - center
        squares = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None, :]
        return _mask((squares - 2 * x @ y.mT).clamp_min(0), real, 0.0)


def pairwise_cost(
    x: Tensor, y: Tensor, *, cost: Cost, beta: float = BETA, x_lengths: Lengths = None, y_lengths: Lengths = None
) -> Tensor:
    """Take the cost of the given name; `beta` is the temperature of the contrastive cost."""
    if cost == "contrastive":
        return contrastive_cost(x, y, beta=beta, x_lengths=x_lengths, y_lengths=y_lengths)
    if cost == "cosine":
        return cosine_cost(x, y, x_lengths=x_lengths, y_lengths=y_lengths)
    if cost == "squared_euclidean":
        return squared_euclidean_cost(x, y, x_lengths=x_lengths, y_lengths=y_lengths)
    raise ValueError(f"cost must be 'contrastive', 'cosine' or 'squared_euclidean', got {cost!r}")


Real = tuple[Tensor | None, Tensor | None]  # which frames of x [B, M] and of y [B, N] are not padding; None: all


def _prepare(x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths) -> tuple[Tensor, Tensor, Real]:
    require_pair(x, y)
    x, y = single_precision(x, y)
    x_real = valid(x_lengths, name="x_lengths", batch=len(x), size=x.shape[1], device=x.device)
    y_real = valid(y_lengths, name="y_lengths", batch=len(y), size=y.shape[1], device=y.device)
    # Padding may hold NaN, which would spread through sums and gradients.
    if x_real is not None:
        x = x.where(x_real[:, :, None], 0)
    if y_real is not None:
        y = y.where(y_real[:, :, None], 0)
    return x, y, (x_real, y_real)


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    return F.normalize(x, dim=2) @ F.normalize(y, dim=2).mT


def _mask(cost: Tensor, real: Real, value: float, *, rows: bool = True, columns: bool = True) -> Tensor:
    x_real, y_real = real
    if rows and x_real is not None:
        cost = cost.where(x_real[:, :, None], value)
    if columns and y_real is not None:
        cost = cost.where(y_real[:, None, :], value)
    return cost
