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

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.numba import WIDTH as STEP
from inphase.align.numba import compiled, inlined, load, prefetch, store
from inphase.align.numba.path_numba import BORDER
from inphase.align.numba.recursion_numba import (
    AHEAD,
    BLOCK,
    KINDS,
    NO_STATE,
    cut_into_strips,
    make_state,
    minimum,
    outline,
    over_pairs,
    reuse,
    skew,
    take,
    unskew,
    weights,
)

Array = NDArray[np.float64]


def accumulate_with_drops(cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: str, gamma: float) -> Tensor:
    """Accumulate cost [B, M, N] and drop costs [B, M], [B, N] on the CPU; see `inphase.align.accumulate_with_drops`."""
    setting = KINDS[kind], gamma
    if torch.is_grad_enabled() and (cost.requires_grad or drop_x.requires_grad or drop_y.requires_grad):
        return cast("Tensor", _AccumulateWithDrops.apply(cost, drop_x, drop_y, setting))
    table, _ = _launch_forward(cost.detach(), drop_x.detach(), drop_y.detach(), NO_STATE, setting)
    return torch.from_numpy(table)


class _AccumulateWithDrops(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, drop_x: Tensor, drop_y: Tensor, setting: tuple[int, float]) -> Tensor:
        state = make_state(*cost.shape, tables=2)
        table, ctx.inputs = _launch_forward(cost.detach(), drop_x.detach(), drop_y.detach(), state, setting)
        ctx.kept, ctx.setting = [] if state is NO_STATE else [state], setting
        ctx.save_for_backward(cost)
        return torch.from_numpy(table)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (cost,) = ctx.saved_tensors
        given, dtype, state = grad.contiguous().numpy(), grad.dtype, take(ctx.kept)
        _, m, n = given.shape
        x_drops, y_drops, edges = ctx.inputs
        grad_cost, grad_x, grad_y = np.empty_like(given), np.zeros_like(x_drops), np.zeros_like(y_drops)
        arrays = given, cost.detach().contiguous().numpy(), x_drops, y_drops, edges, state
        over_pairs(_backward, (*arrays, grad_cost, grad_x, grad_y), ctx.setting)
        if state is not NO_STATE:
            reuse(state)
        lanes = (y_drops.shape[1] - n) // 2
        by_y = np.ascontiguousarray(grad_y[:, lanes : lanes + n][:, ::-1])
        to_x, to_y = torch.from_numpy(grad_x[:, :m]), torch.from_numpy(by_y)
        return torch.from_numpy(grad_cost), to_x.to(dtype), to_y.to(dtype), None


def _launch_forward(
    cost: Tensor, drop_x: Tensor, drop_y: Tensor, state: Array, setting: tuple[int, float]
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
    over_pairs(_forward, (values, x_drops, y_drops, table, edges, state), setting)
    return table, (x_drops, y_drops, edges)


@compiled
def _forward(cost, x_drops, y_drops, table, edges, kept, first, last, kind, gamma):
    _, m, n = cost.shape
    lanes = edges.shape[3] - n - 1
    size = min(BLOCK, n + lanes - 1), lanes
    costs, values = np.empty(size, cost.dtype), np.empty(size, cost.dtype)
    recent = np.empty((3, 2 * (lanes + 1)))
    for pair in range(first, last):
        _fill_borders(x_drops[pair], y_drops[pair], edges[pair], n)
        for number in range(edges.shape[1] - 1):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            _sweep(
                cost[pair, top:bottom], x_drops[pair, top : top + lanes], y_drops[pair], edges[pair, number],
                edges[pair, number + 1], table[pair, top:bottom], costs, values,
                kept[pair, number] if len(kept) > 0 else recent, kind, gamma,
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
def _sweep(cost, x, y_drops, edge, next_edge, table, block, values, state, kind, gamma):
    """Accumulate the rows of one strip; `state` holds the diagonals of D beside P, all of them or the last three."""
    n, lanes = cost.shape[1], block.shape[1]
    width = lanes + 1
    state[:2] = BORDER
    border = edge[0, 0] + x[0]
    state[0, 0], state[1, 1] = edge[0, 0], border
    first, second, third = 0, 1, 2
    for start in range(0, n + lanes - 1, BLOCK):
        stop = min(start + BLOCK, n + lanes - 1)
        skew(cost, block, start, stop, BORDER)
        for t in range(start, stop):
            older, newer, current = state[first], state[second], state[third]
            newer_p, current_p = newer[width:], current[width:]
            begin, end = _active(t, n, lanes)
            newer[0], newer_p[0] = edge[0, t + 1], edge[1, t + 1]
            outline(current, begin, end, lanes)
            outline(current_p, begin, end, lanes)
            c, y, out = block[t - start], y_drops[lanes + n - 1 - t :], values[t - start]
            for r in range(begin, end, STEP):
                p = load(c, r) + minimum(load(older, r), load(newer_p, r), load(newer_p, r + 1), out, kind, gamma)
                u, v = load(newer, r) + load(x, r), load(newer, r + 1) + load(y, r)
                value = minimum(p, u, v, out, kind, gamma)
                store(current_p, r + 1, p)
                store(current, r + 1, value)
                store(out, r, value)
            if t + 1 < lanes:  # the lane that begins next is at column −1
                border += x[t + 1]
                current[t + 2], current_p[t + 2] = border, BORDER
            if t >= lanes - 1:
                next_edge[0, t - lanes + 2], next_edge[1, t - lanes + 2] = current[lanes], current_p[lanes]
            first, second, third = second, third, third + 1 if third + 1 < len(state) else 0
        unskew(values, table, start, stop)


@inlined
def _active(t, n, lanes):
    """Bound the lanes that have a cell or begin next at step t, rounded out to whole vectors."""
    return max(0, t - n + 1) // STEP * STEP, min(lanes, ((t + 1) // STEP + 1) * STEP)


@compiled
def _backward(grad, cost, x_drops, y_drops, edges, kept, grad_cost, grad_x, grad_y, first, last, kind, gamma):
    _, m, n = grad.shape
    lanes = edges.shape[3] - n - 1
    size = min(BLOCK, n + lanes - 1), lanes
    block, values = np.empty(size, grad.dtype), np.empty(size, grad.dtype)
    passed = np.empty((5, lanes + 1))
    own = np.empty((0 if len(kept) > 0 else n + lanes + 1, 2 * (lanes + 1)))
    across = np.empty((2, n + 1))  # gradients of D and of P that a strip passes to the row before it, from column −1
    for pair in range(first, last):
        across[:] = 0.0
        for number in range(edges.shape[1] - 2, -1, -1):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            x, y = x_drops[pair, top : top + lanes], y_drops[pair]
            if len(kept) == 0:
                rows, edge, none = cost[pair, top:bottom], edges[pair, number], grad_cost[pair, :0]
                _sweep(rows, x, y, edge, edges[pair, number + 1], none, block, values, own, kind, gamma)
            _sweep_back(
                grad[pair, top:bottom], x, y, kept[pair, number] if len(kept) > 0 else own, across,
                grad_cost[pair, top:bottom], grad_x[pair, top : top + lanes], grad_y[pair], block, values, passed,
                kind, gamma,
            )  # fmt: skip
        total = 0.0  # D(0, j) holds all drop costs of y up to j
        for j in range(n - 1, -1, -1):
            total += across[0, j + 1]
            grad_y[pair, lanes + n - 1 - j] += total


@compiled
def _sweep_back(grad, x, y_drops, state, across, grad_cost, grad_x, grad_y, block, values, passed, kind, gamma):
    """Run the gradient of one strip back; `across` comes from the row after it and leaves for the row before it."""
    n, lanes = grad.shape[1], block.shape[1]
    passed[:] = 0.0
    to_above, to_above_p, to_a, to_d, to_v = passed[0], passed[1], passed[2], passed[3], passed[4]
    for stop in range(n + lanes - 1, 0, -BLOCK):
        start = max(0, stop - BLOCK)
        skew(grad, block, start, stop, 0.0)
        for t in range(stop - 1, start - 1, -1):
            older, newer, early = state[t], state[t + 1], state[max(0, t - AHEAD)]
            newer_p, current_p = newer[lanes + 1 :], state[t + 2, lanes + 1 :]
            begin, end = _active(t, n, lanes)
            column = t - end + 1  # of the row after the vectors
            if column < -1:
                to_above[end] = to_above_p[end] = 0.0
            elif end == lanes:
                to_above[lanes], to_above_p[lanes] = across[0, column + 1], across[1, column + 1]
            g, out, at = block[t - start], values[t - start], lanes + n - 1 - t
            for r in range(begin, end, STEP):
                prefetch(early, r)
                prefetch(early, r + lanes)
                u, v = load(newer, r) + load(x, r), load(newer, r + 1) + load(y_drops, r + at)
                by_p, by_u, by_v = weights(load(current_p, r + 1), u, v, out, kind, gamma)
                e = load(g, r) + load(to_v, r) + load(to_above, r + 1)
                by_a, by_b, by_d = weights(load(older, r), load(newer_p, r), load(newer_p, r + 1), out, kind, gamma)
                e_p = by_p * e + load(to_d, r) + load(to_above_p, r + 1)
                store(out, r, e_p)
                store(grad_x, r, load(grad_x, r) + by_u * e)
                store(grad_y, r + at, load(grad_y, r + at) + by_v * e)
                store(to_above, r, load(to_a, r) + by_u * e)
                store(to_above_p, r, by_b * e_p)
                store(to_a, r, by_a * e_p)
                store(to_d, r, by_d * e_p)
                store(to_v, r, by_v * e)
            if t < n:
                across[0, t + 1], across[1, t + 1] = to_above[0], to_above_p[0]
        unskew(values, grad_cost, start, stop)
    # Lane 0 at column −1, a step before the first.
    first = to_v[0] + to_above[1]
    grad_x[0] += first
    across[0, 0], across[1, 0] = first + to_a[0], 0.0
