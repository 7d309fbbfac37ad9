"""Global cycle consistency: going from x to y and back should end at the start, eq. (10)–(13).

A table R read as negative log probabilities of prefixes gives p(j | i) = softmax_j(−R(i, j)/α). There and back,

    p(i → k → i') = Σ_k p_yx(i' | k) p_xy(k | i),    L = −Σ_i log p(i → · → i)

Only the diagonal is needed, so nothing larger than the tables is formed: log p(i → · → i) = logsumexp_k of the sum of
two log-softmaxes. Exact where a probability underflows, as most do early in training.
"""

import torch
from torch import Tensor

from inphase.align.cost import (
    Lengths,
    no_autocast,
    require_alike,
    require_temperature,
    require_tensor,
    single_precision,
    valid,
)


def cycle_consistency(
    table_xy: Tensor,
    table_yx: Tensor,
    *,
    alpha: float = 1.0,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
) -> Tensor:
    """Sum over x the cross entropy of returning to the frame of departure, eq. (13), [B].

    `table_xy` [B, M, N] and `table_yx` [B, N, M] are the tables of both directions. O(MN) time and memory.
    """
    there, back, x_real = _log_transitions(table_xy, table_yx, alpha, x_lengths, y_lengths)
    returned = torch.logsumexp(there + back.mT, 2)  # [B, M]
    if x_real is not None:
        returned = returned.where(x_real, 0)
    return -returned.sum(1)


def released_cycle_consistency(
    table_xy: Tensor,
    table_yx: Tensor,
    *,
    alpha: float = 1.0,
    label_smoothing: float = 0.1,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
) -> Tensor:
    """Compute the cycle term as the authors' released code does, [B].

    It differs from eq. (13) in three ways: the probabilities p(i → · → ·) are taken as *logits* of a second softmax,
    the one-hot labels are smoothed to 0.9 δ + 0.1/M, and the rows are averaged. At M = 20 it lies between 2.173
    (perfect) and 3.073 (a wrong permutation) where eq. (13) runs from 0 to infinity. O(M²N) time.
    """
    there, back, x_real = _log_transitions(table_xy, table_yx, alpha, x_lengths, y_lengths)
    with no_autocast(there):
        logits = there.exp() @ back.exp()  # [B, M, M]
        if x_real is not None:
            logits = logits.where(x_real[:, None, :], float("-inf"))
        log_probability = torch.log_softmax(logits, 2)
        own = log_probability.diagonal(dim1=1, dim2=2)
        if x_real is None:
            average = log_probability.mean(2)
            return -((1 - label_smoothing) * own + label_smoothing * average).mean(1)
        count = x_real.sum(1)
        average = log_probability.where(x_real[:, None, :], 0).sum(2) / count[:, None]
        entropy = (1 - label_smoothing) * own + label_smoothing * average
        return -entropy.where(x_real, 0).sum(1) / count


def _log_transitions(
    table_xy: Tensor, table_yx: Tensor, alpha: float, x_lengths: Lengths, y_lengths: Lengths
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return log p_xy [B, M, N], log p_yx [B, N, M] and a mask of the frames of x that are not padding."""
    require_tensor("table_xy", table_xy, "[B, M, N]")
    require_tensor("table_yx", table_yx, "[B, N, M]")
    require_alike("table_xy", table_xy, "table_yx", table_yx)
    require_temperature("alpha", alpha)
    batch, m, n = table_xy.shape
    if table_yx.shape != (batch, n, m):
        raise ValueError(
            f"table_yx must be {[batch, n, m]} beside table_xy {[batch, m, n]}, got {list(table_yx.shape)}"
        )
    table_xy, table_yx = single_precision(table_xy, table_yx)
    x_real = valid(x_lengths, name="x_lengths", batch=batch, size=m, device=table_xy.device)
    y_real = valid(y_lengths, name="y_lengths", batch=batch, size=n, device=table_xy.device)
    there = _log_softmax(table_xy, alpha, rows=x_real, columns=y_real)
    back = _log_softmax(table_yx, alpha, rows=y_real, columns=x_real)
    return there, back, x_real


def _log_softmax(table: Tensor, alpha: float, *, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    logits = table / -alpha
    if rows is not None:
        # A padded row's table may hold anything; it is set to 0 before the softmax so that its gradient is 0, not NaN.
        logits = logits.where(rows[:, :, None], 0)
    if columns is not None:
        logits = logits.where(columns[:, None, :], -1e30)
    log_probability = torch.log_softmax(logits, 2)
    if rows is not None:
        log_probability = log_probability.where(rows[:, :, None], -1e30)
    return log_probability
