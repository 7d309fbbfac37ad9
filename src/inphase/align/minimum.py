"""The minimum of a few numbers, exact and smooth: min, min^γ and smoothMin, eq. (4)–(6) of the paper.

With a₀ = min(a) and γ > 0 each smooth minimum is a₀ plus a penalty that depends on (a − a₀)/γ alone:

    smoothMin(a; γ) = Σ aᵢ e^(−aᵢ/γ) / Σ e^(−aᵢ/γ) = a₀ + d,    0 ≤ d ≤ γ (x(N) − 1),  where x − 1 = (N − 1) e^(−x)
    min^γ(a; γ)     = −γ log Σ e^(−aᵢ/γ)           = a₀ + d,    −γ log N ≤ d ≤ 0

smoothMin bounds the minimum from above and rewards a clear winner once the runner-up is more than about 1.5 γ away;
min^γ bounds it from below and rewards ties.
"""

import torch
from torch import Tensor

from inphase.align.inputs import require_temperature


def smooth_min(values: Tensor, *, gamma: float, dim: int = -1) -> Tensor:
    """Take the expected value under softmax(−values/γ); γ = 0 is the exact minimum.

    >>> smooth_min(torch.tensor([1.0, 1.0, 50.0]), gamma=0.1)
    tensor(1.)
    """
    return _exact(values, dim) + smooth_min_penalty(values, gamma=gamma, dim=dim)


def min_gamma(values: Tensor, *, gamma: float, dim: int = -1) -> Tensor:
    """Take −γ log Σ e^(−values/γ); γ = 0 is the exact minimum.

    >>> min_gamma(torch.tensor([1.0, 50.0]), gamma=0.1)
    tensor(1.)
    """
    return _exact(values, dim) + min_gamma_penalty(values, gamma=gamma, dim=dim)


def smooth_min_penalty(values: Tensor, *, gamma: float, dim: int = -1) -> Tensor:
    """Measure d = smoothMin − min ≥ 0 without subtracting the two."""
    require_temperature("gamma", gamma, zero=True)
    if gamma == 0:
        return torch.zeros_like(_exact(values, dim))
    above = (values - _exact(values, dim).unsqueeze(dim)) / gamma
    weights = torch.softmax(-above, dim)
    # A weight of 0 silences its value even where that is infinite.
    return gamma * (weights * above.where(weights > 0, 0)).sum(dim)


def min_gamma_penalty(values: Tensor, *, gamma: float, dim: int = -1) -> Tensor:
    """Measure d = min^γ − min ≤ 0 without subtracting the two."""
    require_temperature("gamma", gamma, zero=True)
    if gamma == 0:
        return torch.zeros_like(_exact(values, dim))
    above = (values - _exact(values, dim).unsqueeze(dim)) / gamma
    return -gamma * torch.logsumexp(-above, dim)


def _exact(values: Tensor, dim: int) -> Tensor:
    # The first of equal minima, as every kernel does, so that the gradient of a tie has one meaning.
    return values.gather(dim, values.argmin(dim, keepdim=True)).squeeze(dim)
