"""The gate before any timing: results must equal the reference and the peers."""

import torch
from torch import Tensor

from benchmarks.peers import GAMMA, Peer
from inphase.align import accumulate
from inphase.align.recursion import Kind, accumulate_reference

Shape = tuple[int, int, int]


def require_correct(shape: Shape, peers: list[Peer], device: str) -> None:
    """Exit unless tables, dense gradients and the peers' costs agree at this shape."""
    cost = random_cost(shape, device)
    for kind in ("smooth", "soft", "hard"):
        _require_reference(cost, kind)
    for peer in peers:
        ours = accumulate(cost, kind=peer.kind, gamma=GAMMA)[:, -1, -1].mean()
        _require(float(ours), float(peer.align(cost.clone()).mean()), 1e-3, f"the cost of {peer.name} at {shape}")


def random_cost(shape: Shape, device: str) -> Tensor:
    """Draw a cost that depends only on its shape."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)


def _require_reference(cost: Tensor, kind: Kind) -> None:
    shape = tuple(cost.shape)
    # Reference gradients of long tables take minutes and, with smoothMin, are inaccurate: see docs/lab/numerics.md.
    dense = max(shape[1:]) <= 64
    exact, ours = cost[:4].double().requires_grad_(dense), cost[:4].clone().requires_grad_(dense)
    tables = accumulate_reference(exact, kind, GAMMA, False), accumulate(ours, kind=kind, gamma=GAMMA)
    _require_close(*tables, 1e-6, f"the {kind} table at {shape}")
    if dense:
        upstream = torch.randn(tables[0].shape, generator=torch.Generator().manual_seed(1)).to(cost.device)
        expected, value = (
            torch.autograd.grad(table, given, upstream.to(table.dtype))[0]
            for table, given in zip(tables, (exact, ours), strict=True)
        )
        _require_close(expected, value, 1e-4, f"the {kind} gradient at {shape}")


def _require_close(expected: Tensor, value: Tensor, tolerance: float, what: str) -> None:
    error = float((value - expected).detach().abs().max() / expected.detach().abs().max())
    if not error <= tolerance:
        raise SystemExit(f"nothing was timed: {what} differs by {error:.1e} of its maximum, more than {tolerance:.0e}")


def _require(expected: float, value: float, tolerance: float, what: str) -> None:
    if not abs(value - expected) <= tolerance * abs(expected):
        raise SystemExit(f"not comparable: {what} is {value}, inphase has {expected}")
