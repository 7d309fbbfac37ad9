"""The recursion with drops on the CPU, compiled by numba: the plain kernel's strips and lanes with a second state.

With P the table of prefixes whose last two frames match, D that of all prefixes (see `recursion.py`), x̂ and ŷ the drop
costs and s the minimum:

    P(i, j) = c(i, j) + s(a, b, d),           a, b, d = D(i−1, j−1), P(i−1, j), P(i, j−1)
    D(i, j) = s(P(i, j), u, v),               u, v    = D(i−1, j) + x̂(i), D(i, j−1) + ŷ(j)
    E_D(i, j) = G(i, j) + E_P(i+1, j+1) ∂P/∂a + E_D(i+1, j) ∂D/∂u + E_D(i, j+1) ∂D/∂v
    E_P(i, j) = E_D(i, j) ∂D/∂P + E_P(i+1, j) ∂P/∂b + E_P(i, j+1) ∂P/∂d,     each ∂ taken at the successor but the first
    ∂L/∂c = E_P,   ∂L/∂x̂(i) = Σ_j E_D(i, j) ∂D/∂u,   ∂L/∂ŷ(j) = Σ_i E_D(i, j) ∂D/∂v

The border is part of the sums: column 0 of D is Σ x̂, whose cells have ∂D/∂u = 1, and row 0 is Σ ŷ. Lanes, strips and
blocks are those of `recursion_numba.py`; drop costs of y are stored backwards, so that lanes read them forwards.
"""

import math
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.numba import compiled, exp2_for, log
from inphase.align.numba.path_numba import BORDER, least
from inphase.align.numba.recursion_numba import (
    BLOCK,
    KINDS,
    NO_WEIGHTS,
    ONE,
    SMOOTH,
    SOFT,
    STEP,
    cut_into_strips,
    hard_cells,
    hard_weights,
    make_weights,
    over_pairs,
    reuse,
    skew,
    smooth_cells,
    smooth_weights,
    soft_cells,
    soft_weights,
    take,
    unskew,
)

Array = NDArray[np.float64]


def accumulate_with_drops(cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: str, gamma: float) -> Tensor:
    """Accumulate cost [B, M, N] and drop costs [B, M], [B, N] on the CPU; see `inphase.align.accumulate_with_drops`."""
    setting = KINDS[kind], gamma
    if torch.is_grad_enabled() and (cost.requires_grad or drop_x.requires_grad or drop_y.requires_grad):
        return cast("Tensor", _AccumulateWithDrops.apply(cost, drop_x, drop_y, setting))
    table, _ = _launch_forward(cost.detach(), drop_x.detach(), drop_y.detach(), NO_WEIGHTS, setting)
    return torch.from_numpy(table)


class _AccumulateWithDrops(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, drop_x: Tensor, drop_y: Tensor, setting: tuple[int, float]) -> Tensor:
        weights = make_weights(*cost.shape, states=6)
        table, ctx.state = _launch_forward(cost.detach(), drop_x.detach(), drop_y.detach(), weights, setting)
        ctx.weights, ctx.setting = [] if weights is NO_WEIGHTS else [weights], setting
        ctx.save_for_backward(cost)
        return torch.from_numpy(table)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (cost,) = ctx.saved_tensors
        given, dtype, weights = grad.contiguous().numpy(), grad.dtype, take(ctx.weights)
        _, m, n = given.shape
        x_drops, y_drops, edges = ctx.state
        grad_cost, grad_x, grad_y = np.empty_like(given), np.zeros_like(x_drops), np.zeros_like(y_drops)
        arrays = given, cost.detach().contiguous().numpy(), x_drops, y_drops, edges, weights
        over_pairs(_backward, (*arrays, grad_cost, grad_x, grad_y), ctx.setting)
        if weights is not NO_WEIGHTS:
            reuse(weights)
        lanes = (y_drops.shape[1] - n) // 2
        by_y = np.ascontiguousarray(grad_y[:, lanes : lanes + n][:, ::-1])
        to_x, to_y = torch.from_numpy(grad_x[:, :m]), torch.from_numpy(by_y)
        return torch.from_numpy(grad_cost), to_x.to(dtype), to_y.to(dtype), None


def _launch_forward(
    cost: Tensor, drop_x: Tensor, drop_y: Tensor, weights: Array, setting: tuple[int, float]
) -> tuple[NDArray[Any], tuple[Array, Array, Array]]:
    values = cost.contiguous().numpy()
    batch, m, n = values.shape
    strips, lanes = cut_into_strips(m)
    x_drops, y_drops = np.zeros((batch, strips * lanes)), np.zeros((batch, n + 2 * lanes))
    x_drops[:, :m] = drop_x.numpy()
    y_drops[:, lanes : lanes + n] = drop_y.numpy()[:, ::-1]
    table = np.empty_like(values)
    # The rows of D and of P before each strip, from column −1 on: all that a strip needs of the strips before it.
    edges = np.empty((batch, strips + 1, 2, n + lanes + 1))
    over_pairs(_forward, (values, x_drops, y_drops, table, edges, weights), setting)
    return table, (x_drops, y_drops, edges)


@compiled
def _forward(cost, x_drops, y_drops, table, edges, weights, first, last, kind, gamma):
    _, m, n = cost.shape
    lanes = edges.shape[3] - n - 1
    size = min(BLOCK, n + lanes - 1), lanes
    costs, values = np.empty(size, cost.dtype), np.empty(size, cost.dtype)
    recent = np.empty((6, lanes + 1))
    for pair in range(first, last):
        _fill_borders(x_drops[pair], y_drops[pair], edges[pair], n)
        for number in range(edges.shape[1] - 1):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            rows, out, x = cost[pair, top:bottom], table[pair, top:bottom], x_drops[pair, top : top + lanes]
            if len(weights) > 0:
                _weigh(
                    rows, x, y_drops[pair], edges[pair, number], edges[pair, number + 1], out, costs, values, recent,
                    weights[pair, number], kind, gamma,
                )  # fmt: skip
            else:
                _sweep(
                    rows, x, y_drops[pair], edges[pair, number], edges[pair, number + 1], out, costs, values, recent,
                    kind, gamma,
                )  # fmt: skip


@compiled
def _fill_borders(x_drops, y_drops, edges, n):
    """Fill row 0 of D, the sum of drop costs of y, and column 0 above every strip, that of x; there is no P."""
    lanes = edges.shape[2] - n - 1
    edges[:] = BORDER
    total = 0.0
    for j in range(n):
        total += y_drops[lanes + n - 1 - j]
        edges[0, 0, j + 1] = total
    total = 0.0
    edges[0, 0, 0] = 0.0
    for i in range(len(x_drops)):
        total += x_drops[i]
        if (i + 1) % lanes == 0:
            edges[(i + 1) // lanes, 0, 0] = total


@compiled
def _sweep(cost, x, y_drops, edge, next_edge, table, block, values, recent, kind, gamma):
    """Accumulate the rows of one strip."""
    n, lanes = cost.shape[1], block.shape[1]
    recent[:] = BORDER
    older, newer, current = recent[0], recent[1], recent[2]  # D of diagonals t − 2, t − 1 and t
    newer_p, current_p = recent[4], recent[5]
    border = edge[0, 0] + x[0]
    newer[1] = border
    for start in range(0, n + lanes - 1, BLOCK):
        stop = min(start + BLOCK, n + lanes - 1)
        skew(cost, block, start, stop, BORDER)
        for t in range(start, stop):
            older[0], newer[0], newer_p[0] = edge[0, t], edge[0, t + 1], edge[1, t + 1]
            c, y, out = block[t - start], y_drops[lanes + n - 1 - t :], values[t - start]
            begin, end = _active(t, n, lanes)
            if kind == SMOOTH:
                smooth_cells(c, older, newer_p, current_p, out, begin, end, gamma)
                _choose_smooth(current_p, x, y, newer, current, out, begin, end, gamma)
            elif kind == SOFT:
                soft_cells(c, older, newer_p, current_p, out, begin, end, gamma)
                _choose_soft(current_p, x, y, newer, current, out, begin, end, gamma)
            else:
                hard_cells(c, older, newer_p, current_p, out, begin, end)
                _choose_hard(current_p, x, y, newer, current, out, begin, end)
            if t + 1 < lanes:  # the lane that begins next is at column −1
                border += x[t + 1]
                current[t + 2], current_p[t + 2] = border, BORDER
            if t >= lanes - 1:
                next_edge[0, t - lanes + 2], next_edge[1, t - lanes + 2] = current[lanes], current_p[lanes]
            older, newer, current = newer, current, older
            newer_p, current_p = current_p, newer_p
        unskew(values, table, start, stop)


@compiled
def _weigh(cost, x, y_drops, edge, next_edge, table, block, values, recent, weights, kind, gamma):
    """Accumulate the rows of one strip and keep how each cell depends on its predecessors."""
    n, lanes = cost.shape[1], block.shape[1]
    weights[:, n:] = 0.0  # lanes that have ended
    weights[:, :, lanes] = 0.0  # the row after the strip, whose gradients arrive summed
    weights[1, :, lanes] = 1.0
    weights[4, :, lanes] = 1.0
    recent[:] = BORDER
    older, newer, current = recent[0], recent[1], recent[2]
    newer_p, current_p = recent[4], recent[5]
    border = edge[0, 0] + x[0]
    newer[1] = border
    for start in range(0, n + lanes - 1, BLOCK):
        stop = min(start + BLOCK, n + lanes - 1)
        skew(cost, block, start, stop, BORDER)
        for t in range(start, stop):
            older[0], newer[0], newer_p[0] = edge[0, t], edge[0, t + 1], edge[1, t + 1]
            c, y, out = block[t - start], y_drops[lanes + n - 1 - t :], values[t - start]
            begin, end = _active(t, n, lanes)
            a, b, d = weights[0, t], weights[1, t], weights[2, t]
            p, u, v = weights[3, t], weights[4, t], weights[5, t]
            if kind == SMOOTH:
                smooth_weights(c, older, newer_p, current_p, out, a, b, d, begin, end, gamma)
                _weigh_smooth(current_p, x, y, newer, current, out, p, u, v, begin, end, gamma)
            elif kind == SOFT:
                soft_weights(c, older, newer_p, current_p, out, a, b, d, begin, end, gamma)
                _weigh_soft(current_p, x, y, newer, current, out, p, u, v, begin, end, gamma)
            else:
                hard_weights(c, older, newer_p, current_p, out, a, b, d, begin, end)
                _weigh_hard(current_p, x, y, newer, current, out, p, u, v, begin, end)
            if t + 1 < lanes:  # the lane that begins next is at column −1, and those after it have not begun
                border += x[t + 1]
                current[t + 2], current_p[t + 2] = border, BORDER
                weights[:, t, t + 1 : lanes] = 0.0
                u[t + 1] = 1.0
            if t >= lanes - 1:
                next_edge[0, t - lanes + 2], next_edge[1, t - lanes + 2] = current[lanes], current_p[lanes]
            older, newer, current = newer, current, older
            newer_p, current_p = current_p, newer_p
        unskew(values, table, start, stop)


@compiled
def _active(t, n, lanes):
    """Bound the lanes that have a cell or begin next at step t, rounded out to whole vectors."""
    return np.uintp(max(0, t - n + 1) // STEP * STEP), np.uintp(min(lanes, ((t + 1) // STEP + 1) * STEP))


@compiled
def _backward(grad, cost, x_drops, y_drops, edges, weights, grad_cost, grad_x, grad_y, first, last, kind, gamma):
    _, m, n = grad.shape
    lanes = edges.shape[3] - n - 1
    steps = n + lanes - 1
    size = min(BLOCK, steps), lanes
    block, values, recent = np.empty(size, grad.dtype), np.empty(size, grad.dtype), np.empty((6, lanes + 1))
    kept = len(weights) > 0
    own = np.empty((6, 1 if kept else steps + 2, lanes + 1))
    # Gradients of D and of P that a strip passes to the row before it, from column −1.
    below, above = np.empty((2, steps + 2)), np.empty((2, steps + 2))
    for pair in range(first, last):
        below[:] = 0.0
        for number in range(edges.shape[1] - 2, -1, -1):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            if not kept:
                rows, none = cost[pair, top:bottom], grad_cost[pair, :0]
                _weigh(
                    rows, x_drops[pair, top : top + lanes], y_drops[pair], edges[pair, number], edges[pair, number + 1],
                    none, block, values, recent, own, kind, gamma,
                )  # fmt: skip
            by = weights[pair, number] if kept else own
            _sweep_back(
                grad[pair, top:bottom], by, below, above, grad_cost[pair, top:bottom],
                grad_x[pair, top : top + lanes], grad_y[pair], block, values, recent,
            )  # fmt: skip
            below, above = above, below
        total = 0.0  # D(0, j) holds all drop costs of y up to j
        for j in range(n - 1, -1, -1):
            total += below[0, j + 1]
            grad_y[pair, lanes + n - 1 - j] += total


@compiled
def _sweep_back(grad, by, below, above, grad_cost, to_x, to_y, block, values, recent):
    """Run the gradient of one strip back, from the row after it to the row before it."""
    n, lanes = grad.shape[1], block.shape[1]
    steps = n + lanes - 1
    above[:], recent[:] = 0.0, 0.0
    newer, current = recent[0], recent[1]  # E of D at diagonals t + 1 and t
    older_p, newer_p, current_p = recent[2], recent[3], recent[4]
    for stop in range(steps, 0, -BLOCK):
        start = max(0, stop - BLOCK)
        skew(grad, block, start, stop, 0.0)
        for t in range(stop - 1, start - 1, -1):
            column = t - lanes + 2  # of the row after the strip, from −1
            newer[lanes] = below[0, column] if column >= 0 else 0.0
            newer_p[lanes] = below[1, column] if column >= 0 else 0.0
            out, (begin, end) = values[t - start], _active(t, n, lanes)
            _gather(block[t - start], by[0, t + 2], by[4, t + 1], by[5, t + 1], older_p, newer, current, begin, end)
            _gather_matched(by[3, t], by[1, t + 1], by[2, t + 1], current, newer_p, current_p, out, begin, end)
            _collect(by[4, t], by[5, t], current, to_x, to_y[lanes + n - 1 - t :], begin, end)
            if begin == 0:  # lane 0 passes on to the row before the strip: by u and b to column t, by a to t − 1
                above[0, t + 1] += by[4, t, 0] * current[0]
                above[1, t + 1] += by[1, t, 0] * current_p[0]
                above[0, t] += by[0, t, 0] * current_p[0]
            newer, current = current, newer
            older_p, newer_p, current_p = newer_p, current_p, older_p
        unskew(values, grad_cost, start, stop)
    # Lane 0 at column −1, a step before the first.
    first = by[5, 0, 0] * newer[0] + by[4, 0, 1] * newer[1] + by[0, 1, 1] * older_p[1]
    to_x[0] += first
    above[0, 0] += first


@compiled
def _gather(grad, by_a, by_u, by_v, older_p, newer, current, begin, end):
    for r in range(begin, end):
        current[r] = grad[r] + by_a[r + ONE] * older_p[r + ONE] + by_u[r + ONE] * newer[r + ONE] + by_v[r] * newer[r]


@compiled
def _gather_matched(by_p, by_b, by_d, current, newer_p, current_p, out, begin, end):
    for r in range(begin, end):
        e = by_p[r] * current[r] + by_b[r + ONE] * newer_p[r + ONE] + by_d[r] * newer_p[r]
        current_p[r] = e
        out[r] = e


@compiled
def _collect(by_u, by_v, current, to_x, to_y, begin, end):
    for r in range(begin, end):
        to_x[r] += by_u[r] * current[r]
        to_y[r] += by_v[r] * current[r]


# Each is one loop over lanes that the compiler vectorizes: the match is left to the functions of the plain kernel.


@compiled
def _choose_smooth(matched, x, y, newer, current, out, begin, end, gamma):
    scale = -1.0 / (gamma * math.log(2.0))
    for r in range(begin, end):
        p, u, v = matched[r + ONE], newer[r] + x[r], newer[r + ONE] + y[r]
        less, more = (p if p <= u else u), (u if p <= u else p)
        low, rest = (less if less <= v else v), (v if less <= v else less)
        middle, high = rest - low, more - low
        e, f = exp2_for(middle * scale, out[r]), exp2_for(high * scale, out[r])
        value = low + (middle * e + high * f) * (1.0 / (1.0 + e + f))
        current[r + ONE] = out[r] = value


@compiled
def _choose_soft(matched, x, y, newer, current, out, begin, end, gamma):
    scale = -1.0 / (gamma * math.log(2.0))
    for r in range(begin, end):
        p, u, v = matched[r + ONE], newer[r] + x[r], newer[r + ONE] + y[r]
        less, more = (p if p < u else u), (u if p < u else p)
        low, rest = (less if less < v else v), (v if less < v else less)
        e, f = exp2_for((rest - low) * scale, out[r]), exp2_for((more - low) * scale, out[r])
        value = low - gamma * log(1.0 + e + f)
        current[r + ONE] = out[r] = value


@compiled
def _choose_hard(matched, x, y, newer, current, out, begin, end):
    for r in range(begin, end):
        value = least(least(matched[r + ONE], newer[r] + x[r]), newer[r + ONE] + y[r])
        current[r + ONE] = out[r] = value


@compiled
def _weigh_smooth(matched, x, y, newer, current, out, by_p, by_u, by_v, begin, end, gamma):
    scale, sharpness = -1.0 / (gamma * math.log(2.0)), 1.0 / gamma
    for r in range(begin, end):
        p, u, v = matched[r + ONE], newer[r] + x[r], newer[r + ONE] + y[r]
        less, more = (p if p <= u else u), (u if p <= u else p)
        low, rest = (less if less <= v else v), (v if less <= v else less)
        middle, high = rest - low, more - low
        e, f = exp2_for(middle * scale, out[r]), exp2_for(high * scale, out[r])
        share = 1.0 / (1.0 + e + f)
        penalty = (middle * e + high * f) * share
        value = low + penalty
        current[r + ONE] = out[r] = value
        by_low, slope = share * (1.0 + penalty * sharpness), share * sharpness
        by_rest, by_more = e * (by_low - middle * slope), f * (by_low - high * slope)
        by_less = by_low if less <= v else by_rest
        by_v[r] = by_rest if less <= v else by_low
        by_p[r] = by_less if p <= u else by_more
        by_u[r] = by_more if p <= u else by_less


@compiled
def _weigh_soft(matched, x, y, newer, current, out, by_p, by_u, by_v, begin, end, gamma):
    scale = -1.0 / (gamma * math.log(2.0))
    for r in range(begin, end):
        p, u, v = matched[r + ONE], newer[r] + x[r], newer[r + ONE] + y[r]
        less, more = (p if p < u else u), (u if p < u else p)
        low, rest = (less if less < v else v), (v if less < v else less)
        e, f = exp2_for((rest - low) * scale, out[r]), exp2_for((more - low) * scale, out[r])
        share = 1.0 / (1.0 + e + f)
        value = low - gamma * log(1.0 + e + f)
        current[r + ONE] = out[r] = value
        by_less = share if less < v else share * e
        by_v[r] = share * e if less < v else share
        by_p[r] = by_less if p < u else share * f
        by_u[r] = share * f if p < u else by_less


@compiled
def _weigh_hard(matched, x, y, newer, current, out, by_p, by_u, by_v, begin, end):
    for r in range(begin, end):
        p, u, v = matched[r + ONE], newer[r] + x[r], newer[r + ONE] + y[r]
        value = least(least(p, u), v)
        current[r + ONE] = out[r] = value
        other = u if u < v else v
        by_p[r] = 1.0 if p <= other else 0.0
        by_u[r] = 1.0 if (u < p) & (u <= v) else 0.0
        by_v[r] = 1.0 if (v < p) & (v < u) else 0.0
