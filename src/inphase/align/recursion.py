"""The recursion of dynamic time warping, one for three minima, and the choice of its implementation.

    R(i, j) = c(i, j) + s(R(i−1, j−1), R(i−1, j), R(i, j−1)),    R(0, 0) = 0,  R(0, ·) = R(·, 0) = ∞        eq. (1), (4)

where s is the minimum ("hard"), min^γ ("soft") or smoothMin ("smooth"). With q = softmax(−r/γ) over the three
predecessors r and E = ∂L/∂R, the gradient of any loss of the whole table runs backwards through the same grid:

    E(p) = ∂L/∂R(p) directly + Σ over the successors of p of E(successor) ∂s/∂p,    ∂L/∂c = E
    ∂s/∂rₖ = [k is the first minimum]  |  qₖ  |  qₖ (1 − (rₖ − s)/γ)

Lengths are not needed: a cell depends only on cells before it, so padding never reaches the cell that is read.
The border ∞ is a large finite number, since smoothMin multiplies a weight of 0 by it.

The smooth minima, eq. (4)–(6): with a₀ = min(a) and γ > 0 each is a₀ plus a penalty that depends on (a − a₀)/γ alone:

    smoothMin(a; γ) = Σ aᵢ e^(−aᵢ/γ) / Σ e^(−aᵢ/γ) = a₀ + d,    0 ≤ d ≤ γ (x(N) − 1),  where x − 1 = (N − 1) e^(−x)
    min^γ(a; γ)     = −γ log Σ e^(−aᵢ/γ)           = a₀ + d,    −γ log N ≤ d ≤ 0

smoothMin bounds the minimum from above and rewards a clear winner once the runner-up is more than about 1.5 γ away;
min^γ bounds it from below and rewards ties.

Global cycle consistency: going from x to y and back should end at the start, eq. (10)–(13).

A table R read as negative log probabilities of prefixes gives p(j | i) = softmax_j(−R(i, j)/α). There and back,

    p(i → k → i') = Σ_k p_yx(i' | k) p_xy(k | i),    L = −Σ_i log p(i → · → i)

Only the diagonal is needed, so nothing larger than the tables is formed: log p(i → · → i) = logsumexp_k of the sum of
two log-softmaxes. Exact where a probability underflows, as most do early in training.
"""

from typing import Literal

import torch
from torch import Tensor

from inphase.align.cost import (
    Lengths,
    no_autocast,
    refuse_forward_mode,
    require_alike,
    require_temperature,
    require_tensor,
    single_precision,
    valid,
)
from inphase.align.numba import recursion_numba
from inphase.align.operators import accumulate_transformed


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


Kind = Literal["smooth", "soft", "hard"]
BORDER = 1e30


def accumulate(cost: Tensor, *, kind: Kind = "smooth", gamma: float = 0.1, free_start: bool = False) -> Tensor:
    """Accumulate cost [B, M, N] along all monotone paths into the table R [B, M, N].

    Every cell of the table is differentiable. γ = 0 is the hard minimum. With `free_start` a path may begin at any
    column: R(0, ·) = 0. State is kept in float64 or its equivalent and the table rounded to float32, or left in
    float64 for a float64 cost; half precision is converted to float32. O(BMN) time and memory, M + N dependent steps.

    >>> accumulate(torch.tensor([[[1.0, 2.0], [3.0, 1.0]]]), kind="hard")
    tensor([[[1., 3.],
             [4., 2.]]])
    """
    require_tensor("cost", cost, "[B, M, N]")
    require_temperature("gamma", gamma, zero=True)
    refuse_forward_mode(cost)
    if kind not in ("smooth", "soft", "hard"):
        raise ValueError(f"kind must be 'smooth', 'soft' or 'hard', got {kind!r}")
    (cost,) = single_precision(cost)
    kind, gamma = kind if gamma > 0 else "hard", float(gamma)  # an integer would be another kernel to compile
    if (cost.is_cpu or cost.is_cuda) and (table := accumulate_transformed(cost, kind, gamma, free_start)) is not None:
        return table
    if cost.is_cpu:
        return recursion_numba.accumulate(cost, kind, gamma, free_start)
    if cost.is_cuda:
        from inphase.align.triton import recursion_triton

        return recursion_triton.accumulate(cost, kind, gamma, free_start)
    return accumulate_reference(cost, kind, gamma, free_start)


def accumulate_reference(cost: Tensor, kind: Kind, gamma: float, free_start: bool) -> Tensor:
    """Accumulate with torch operations along anti-diagonals: the specification, used on other devices."""
    _, m, n = cost.shape
    rows = torch.arange(m, device=cost.device)
    with no_autocast(cost):
        # skewed[:, k, i] is the cost of cell (i, k − i); off the grid it is some cost of that row, never read.
        columns = (torch.arange(m + n - 1, device=cost.device)[:, None] - rows).clamp(0, n - 1)
        skewed = cost.double()[:, rows, columns]
        # A diagonal is a row of R with the border R(0, ·) before its first entry.
        older, newer = _border(skewed, 0.0), _border(skewed, 0.0 if free_start else BORDER)
        diagonals = []
        for k in range(m + n - 1):
            predecessors = torch.stack([older[:, :-1], newer[:, :-1], newer[:, 1:]], -1)
            cells = skewed[:, k] + _minimum(predecessors, kind, gamma)
            diagonals.append(cells)
            # Row k + 1 has not begun: the cell before its first is the border R(·, 0).
            begun = torch.where(rows <= k, cells, BORDER)
            older, newer = newer, torch.cat([newer[:, :1], begun], 1)
        table = torch.stack(diagonals, 1)[:, rows[:, None] + torch.arange(n, device=cost.device), rows[:, None]]
        return table.to(cost.dtype)


def _border(skewed: Tensor, top: float) -> Tensor:
    border = torch.full_like(skewed[:, 0], BORDER)
    return torch.cat([torch.full_like(border[:, :1], top), border], 1)


def _minimum(predecessors: Tensor, kind: Kind, gamma: float) -> Tensor:
    if kind == "smooth":
        return smooth_min(predecessors, gamma=gamma)
    return min_gamma(predecessors, gamma=gamma if kind == "soft" else 0.0)


def accumulate_with_drops(
    cost: Tensor, drop_x: Tensor, drop_y: Tensor, *, kind: Kind = "smooth", gamma: float = 0.1
) -> Tensor:
    """Accumulate cost [B, M, N] where a frame of x or y may be dropped for drop_x [B, M] or drop_y [B, N]; [B, M, N].

    Drop-DTW (Dvornik et al., NeurIPS 2021) with drops on both sides. Beside the table D of all prefixes the recursion
    has a second state, the table P of prefixes whose last two frames match:

        P(i, j) = c(i, j) + s(D(i−1, j−1), P(i−1, j), P(i, j−1))
        D(i, j) = s(P(i, j), D(i−1, j) + drop_x(i), D(i, j−1) + drop_y(j))
        D(0, 0) = 0,   D(i, 0) = Σ drop_x,   D(0, j) = Σ drop_y,   P(0, ·) = P(·, 0) = ∞

    and D is returned. One frame matches several only if they follow each other, as in the released code
    (`contiguous`); within a gap drops of x and of y come in any order, which min^γ counts. Infinite drop costs give
    `accumulate`; infinite ones but at the ends of a sequence give DTW with relaxed ends. Every cell is differentiable
    in all three inputs. O(BMN) time and memory.

    >>> cost, drops = torch.tensor([[[0.0, 9.0, 9.0], [9.0, 9.0, 0.0]]]), torch.ones(1, 3)
    >>> accumulate_with_drops(cost, drops[:, :2], drops, kind="hard")[0, -1, -1]  # y_2 is dropped
    tensor(1.)
    """
    require_tensor("cost", cost, "[B, M, N]")
    require_tensor("drop_x", drop_x, "[B, M]")
    require_tensor("drop_y", drop_y, "[B, N]")
    for name, drop, length in (("drop_x", drop_x, cost.shape[1]), ("drop_y", drop_y, cost.shape[2])):
        require_alike("cost", cost, name, drop)
        if drop.shape != (len(cost), length):
            raise ValueError(
                f"{name} must be {[len(cost), length]} beside a cost of {list(cost.shape)}, got {list(drop.shape)}"
            )
    require_temperature("gamma", gamma, zero=True)
    if kind not in ("smooth", "soft", "hard"):
        raise ValueError(f"kind must be 'smooth', 'soft' or 'hard', got {kind!r}")
    cost, drop_x, drop_y = single_precision(cost, drop_x, drop_y)
    kind, gamma = kind if gamma > 0 else "hard", float(gamma)
    if cost.is_cuda:  # these kernels limit the drop costs themselves
        from inphase.align.triton import drops_triton

        return drops_triton.accumulate_with_drops(cost, drop_x, drop_y, kind, gamma)
    if cost.is_cpu:
        from inphase.align.numba import drops_numba

        return drops_numba.accumulate_with_drops(cost, drop_x, drop_y, kind, gamma)
    drop_x, drop_y = drop_x.clamp(max=BORDER), drop_y.clamp(max=BORDER)
    return accumulate_with_drops_reference(cost, drop_x, drop_y, kind, gamma)


def accumulate_with_drops_reference(cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: Kind, gamma: float) -> Tensor:
    """Accumulate with drops along anti-diagonals in torch operations: the specification, used on other devices."""
    batch, m, n = cost.shape
    rows = torch.arange(m + 1, device=cost.device)
    with no_autocast(cost):
        padded = torch.nn.functional.pad(cost.double(), (1, 0, 1, 0), value=BORDER)
        from_x = torch.nn.functional.pad(drop_x.double(), (1, 0), value=BORDER)
        border = padded.new_full((batch, 1), BORDER)
        older = newer = matched = border.expand(-1, m + 1)
        diagonals = []
        for k in range(m + n + 1):
            column = k - rows
            inside = (column > 0) & (rows > 0)
            c = padded[:, rows, column.clamp(0, n)]
            shifted = [torch.cat([border, values[:, :-1]], 1) for values in (older, matched, newer)]
            best = _minimum(torch.stack([shifted[0], shifted[1], matched], -1), kind, gamma)
            p = torch.where(inside, c + best, BORDER)
            drop_left = torch.where(column > 0, drop_y.double()[:, (column - 1).clamp(0, n - 1)], BORDER)
            left = torch.where(column > 0, newer + drop_left, BORDER)
            cells = _minimum(torch.stack([p, shifted[2] + from_x, left], -1), kind, gamma)
            cells = torch.where(rows + k == 0, 0.0, torch.where(column >= 0, cells, BORDER))
            diagonals.append(cells)
            older, newer, matched = newer, cells, p
        table = torch.stack(diagonals, 1)[
            :, rows[1:, None] + torch.arange(1, n + 1, device=cost.device), rows[1:, None]
        ]
        return table.to(cost.dtype)


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
