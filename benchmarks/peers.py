"""Other libraries with a differentiable DTW on a given cost matrix, called as their documentation does.

Each returns the cost of the whole alignment and its gradient; none returns the table or its gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import torch
from torch import Tensor

GAMMA = 0.1


@dataclass(frozen=True)
class Peer:
    """A peer: its name with version, its minimum, and cost [B, M, N] → costs of the alignments, or their mean."""

    name: str
    kind: Literal["smooth", "soft"]
    align: Callable[[Tensor], Tensor]


def load(device: str) -> list[Peer]:
    """Load the peers that work on this machine; print why the others do not."""
    makers = [_ddtw_cuda] if device == "cuda" else [_tslearn, _pysdtw, _ddtw_cpu]
    peers = []
    for make in makers:
        try:
            peer = make()
            cost = torch.rand(1, 3, 3, device=device, requires_grad=True)
            torch.autograd.grad(peer.align(cost).sum(), cost)
        except (ImportError, OSError, RuntimeError) as reason:
            print(f"skipped {make.__name__.strip('_')}: {str(reason).strip().splitlines()[0]}")
        else:
            peers.append(peer)
    return peers


def _tslearn() -> Peer:
    from tslearn.metrics.soft_dtw_loss_pytorch import _SoftDTWLossPyTorch

    return Peer(f"tslearn {version('tslearn')}", "soft", lambda cost: _SoftDTWLossPyTorch.apply(cost, GAMMA))


def _pysdtw() -> Peer:
    from pysdtw.sdtw_cpu import SoftDTWcpu

    def align(cost: Tensor) -> Tensor:
        batch, m, n = cost.shape
        lengths = torch.tensor([[m, n]]).expand(batch, 2)
        result: Tensor = SoftDTWcpu.apply(cost, lengths, GAMMA, 0)
        return result

    return Peer(f"pysdtw {version('pysdtw')}", "soft", align)


def _ddtw_cpu() -> Peer:
    return _ddtw("cpu_numba")


def _ddtw_cuda() -> Peer:
    return _ddtw("cuda_cpp")


def _ddtw(backend: str) -> Peer:
    import ddtw

    loss = ddtw.smoothDTW(gamma=GAMMA, normalization="none", backend=backend)
    return Peer(f"dDTW {version('dDTW')} {backend}", "smooth", lambda cost: loss(C=cost))
