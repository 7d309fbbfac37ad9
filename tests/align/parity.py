"""Compare `accumulate` with the reference it is specified by, values and dense gradients."""

import torch
from torch import Tensor

from inphase.align import accumulate
from inphase.align.recursion import Kind, accumulate_reference

KINDS: tuple[Kind, ...] = ("smooth", "soft", "hard")
# One cell, one row, one column, the paper's length, less and more than the 32 rows kernels take at a time, and odd.
SHAPES = ((1, 1), (1, 7), (7, 1), (2, 2), (20, 20), (63, 64), (129, 77), (300, 200))


def costs(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Make costs like those of embeddings for all pairs of a batch but the first, whose costs are negative too."""
    cost = 3 * torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    cost[0] -= 1
    return cost.to(dtype)


def both(cost: Tensor, grad: Tensor, kind: Kind, gamma: float, free_start: bool) -> tuple[Tensor, Tensor]:
    """Accumulate, and take the gradient of Σ grad · table in the cost."""
    cost = cost.detach().requires_grad_()
    table = accumulate(cost, kind=kind, gamma=gamma, free_start=free_start)
    return table.detach(), torch.autograd.grad(table, cost, grad)[0]


def check_parity(
    cost: Tensor, kind: Kind, *, gamma: float = 0.1, free_start: bool = False, values: float, gradients: float
) -> None:
    """Hold table and gradient to relative errors `values` and `gradients`, the latter of the largest gradient.

    The reference runs on the CPU in float64 from the very numbers of `cost`: rounding the input is not the kernel's.
    """
    grad = torch.randn(cost.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(cost)
    table, gradient = both(cost, grad, kind, gamma, free_start)
    exact = cost.detach().cpu().double().requires_grad_()
    expected = accumulate_reference(exact, kind, gamma, free_start)
    (expected_gradient,) = torch.autograd.grad(expected, exact, grad.cpu().double())
    assert table.dtype == gradient.dtype == cost.dtype
    assert table.device == gradient.device == cost.device
    scale = float(expected_gradient.abs().max())
    torch.testing.assert_close(table.cpu().double(), expected.detach(), rtol=values, atol=values)
    torch.testing.assert_close(gradient.cpu().double(), expected_gradient, rtol=0, atol=gradients * scale)
