"""Entropic optimal transport between two sequences, with a prior on their order and a virtual frame.

Each frame carries the same mass, and a plan T says how much of it goes from x_i to y_j:

    T = argmin Σ T c + ε KL(T ‖ Q),    Σ_j T(i, j) = 1/M,   Σ_i T(i, j) = 1/N

Sinkhorn's iterations find it: T = diag(e^f) Q e^(−c/ε) diag(e^g), with f and g fitted to the rows and the columns in
turn, here as logarithms, so that no kernel underflows. The prior Q holds what is known of the order (Su and Hua, CVPR
2017); a virtual frame takes the mass of frames without a counterpart. All in batches, on any device, differentiable
through the iterations. O(BMN) time and memory each.
"""

import torch
from torch import Tensor

from inphase.align.cost import (
    Lengths,
    last_frame,
    no_autocast,
    require_alike,
    require_temperature,
    require_tensor,
    single_precision,
    valid,
)

NOTHING = -1e30  # the logarithm of 0, finite: the difference of two is 0


def transport(
    cost: Tensor,
    *,
    epsilon: float = 0.1,
    log_prior: Tensor | None = None,
    iterations: int = 20,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
) -> Tensor:
    """Find the plan of least cost [B, M, N] between frames of equal mass, [B, M, N]; it sums to 1, 0 in the padding.

    `log_prior` [B, M, N] is log Q, uniform by default; `epsilon` the weight of the divergence from it. Rows are exact,
    columns as exact as the `iterations` make them.

    >>> transport(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), epsilon=0.01)
    tensor([[[0.5000, 0.0000],
             [0.0000, 0.5000]]])
    """
    require_tensor("cost", cost, "[B, M, N]")
    require_temperature("epsilon", epsilon)
    if iterations < 1:
        raise ValueError(f"need at least 1 iteration, got {iterations}")
    if log_prior is not None:
        require_tensor("log_prior", log_prior, "[B, M, N]")
        require_alike("cost", cost, "log_prior", log_prior)
    (cost,) = single_precision(cost)
    batch, m, n = cost.shape
    device = cost.device
    rows = valid(x_lengths, name="x_lengths", batch=batch, size=m, device=device)
    columns = valid(y_lengths, name="y_lengths", batch=batch, size=n, device=device)
    real = _both(rows, columns)
    with no_autocast(cost):
        kernel = -cost / epsilon if log_prior is None else log_prior - cost / epsilon
        if real is not None:
            kernel = kernel.where(real, NOTHING)
        log_a = -(last_frame(x_lengths, batch=batch, size=m, device=device) + 1).to(cost.dtype).log()[:, None]
        log_b = -(last_frame(y_lengths, batch=batch, size=n, device=device) + 1).to(cost.dtype).log()[:, None]
        g = cost.new_zeros(batch, n)
        for _ in range(iterations):
            f = _silence(log_a - torch.logsumexp(kernel + g[:, None, :], 2), rows)
            g = _silence(log_b - torch.logsumexp(kernel + f[:, :, None], 1), columns)
        f = _silence(log_a - torch.logsumexp(kernel + g[:, None, :], 2), rows)
        return (kernel + f[:, :, None] + g[:, None, :]).exp()


def order_distances(cost: Tensor, *, x_lengths: Lengths = None, y_lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Measure how far each pair of frames is from the diagonal, and from the cheapest frame of y for x_i; [B, M, N].

    In fractions of a sequence: |i/M − j/N| and |j − argmin_j c(i, j)| / N, with frames counted from 1.
    """
    require_tensor("cost", cost, "[B, M, N]")
    batch, m, n = cost.shape
    columns = valid(y_lengths, name="y_lengths", batch=batch, size=n, device=cost.device)
    sizes = [
        (last_frame(lengths, batch=batch, size=size, device=cost.device)[:, None] + 1).to(cost.dtype)
        for lengths, size in ((x_lengths, m), (y_lengths, n))
    ]
    i, j = ((torch.arange(1, size + 1, device=cost.device) / each) for size, each in zip((m, n), sizes, strict=True))
    known = cost.detach() if columns is None else cost.detach().where(columns[:, None], float("inf"))
    nearest = (known.argmin(2) + 1) / sizes[1]  # [B, M]
    return (i[:, :, None] - j[:, None, :]).abs(), (j[:, None, :] - nearest[:, :, None]).abs()


def add_virtual_frame(cost: Tensor, *, price: float) -> Tensor:
    """Put a frame before both sequences that matches every frame for `price`: [B, M, N] → [B, M + 1, N + 1].

    Lengths grow by one, too.
    """
    require_tensor("cost", cost, "[B, M, N]")
    require_temperature("price", price, zero=True)
    return torch.nn.functional.pad(cost, (1, 0, 1, 0), value=price)


def _both(rows: Tensor | None, columns: Tensor | None) -> Tensor | None:
    if rows is None:
        return None if columns is None else columns[:, None, :]
    return rows[:, :, None] if columns is None else rows[:, :, None] & columns[:, None, :]


def _silence(potential: Tensor, real: Tensor | None) -> Tensor:
    return potential if real is None else potential.where(real, 0)
