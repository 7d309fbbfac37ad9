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

Step s takes P on diagonal s and D on diagonal s − 1: neither waits for the other, and both read D on diagonal s − 2 and
P on s − 1, one row of the state. Tables and drop costs are in units of γ log 2, so that a predecessor r has the weight
2⁻ʳ = m 2⁻ᵏ with k = round(r). Smooth minima take k and m once for each D and P and once for each drop cost; then a
weight is m 2^(K − k), K the least of three k, and that of a sum D + x̂ is a product. Arrays are read at offsets, not
as views of rows: a view is counted, and the atomic operations took as long as the arithmetic of a short diagonal.
"""

import math
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.numba import WIDTH as STEP
from inphase.align.numba import compiled, halve, inlined, internal, load, prefetch, select, shift, split, spread, store
from inphase.align.numba.path_numba import BORDER
from inphase.align.numba.recursion_numba import (
    AHEAD,
    BLOCK,
    KINDS,
    NO_STATE,
    SMOOTH,
    cut_into_strips,
    make_state,
    minimum,
    over_pairs,
    reuse,
    skew,
    take,
    unskew,
    weights,
)

Array = NDArray[np.float64]
LOG2 = math.log(2.0)
TEMPERATURE = 1.0 / LOG2  # γ in units of γ log 2


def accumulate_with_drops(cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: str, gamma: float) -> Tensor:
    """Accumulate cost [B, M, N] and drop costs [B, M], [B, N] on the CPU; see `inphase.align.accumulate_with_drops`."""
    setting = KINDS[kind], gamma * LOG2 if kind != "hard" else 1.0
    if torch.is_grad_enabled() and (cost.requires_grad or drop_x.requires_grad or drop_y.requires_grad):
        return cast("Tensor", _AccumulateWithDrops.apply(cost, drop_x, drop_y, setting))
    table, _ = _launch_forward((cost, drop_x, drop_y), NO_STATE, setting)
    return torch.from_numpy(table)


class _AccumulateWithDrops(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, drop_x: Tensor, drop_y: Tensor, setting: tuple[int, float]) -> Tensor:
        state = make_state(*cost.shape, tables=2)
        table, ctx.edges = _launch_forward((cost, drop_x, drop_y), state, setting)
        ctx.kept, ctx.setting = [] if state is NO_STATE else [state], setting
        ctx.save_for_backward(cost, drop_x, drop_y)
        return torch.from_numpy(table)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        given, state = grad.contiguous().numpy(), take(ctx.kept)
        inputs = _to_numpy(ctx.saved_tensors)
        results = tuple(map(np.empty_like, inputs))
        over_pairs(_backward, (given, *inputs, ctx.edges, state, *results), ctx.setting)
        if state is not NO_STATE:
            reuse(state)
        by_cost, by_x, by_y = map(torch.from_numpy, results)
        return by_cost, by_x, by_y, None


def _to_numpy(tensors: tuple[Tensor, ...]) -> tuple[NDArray[Any], ...]:
    return tuple(each.detach().contiguous().numpy() for each in tensors)


def _launch_forward(
    tensors: tuple[Tensor, Tensor, Tensor], state: Array, setting: tuple[int, float]
) -> tuple[NDArray[Any], Array]:
    inputs = _to_numpy(tensors)
    batch, m, n = inputs[0].shape
    strips, lanes = cut_into_strips(m)
    table = np.empty_like(inputs[0])
    # The rows of D and of P before each strip, from column −1 on: all that a strip needs of the strips before it.
    edges = np.empty((batch, strips + 1, 2, n + lanes + 1))
    over_pairs(_forward, (*inputs, table, edges, state), setting)
    return table, edges


@compiled
def _forward(cost, drop_x, drop_y, table, edges, kept, first, last, kind, unit):
    _, m, n = cost.shape
    strips, lanes = edges.shape[1] - 1, edges.shape[3] - n - 1
    size = min(BLOCK, n + lanes), lanes
    block, values = np.empty(size, cost.dtype), np.empty(size, cost.dtype)
    x, y = _make_drops(strips * lanes), _make_drops(n + 2 * lanes)
    recent = np.empty((2, 2 * (lanes + 1)))
    for pair in range(first, last):
        _fill_drops(drop_x[pair], x, 0, block[0], unit)
        _fill_drops(drop_y[pair, ::-1], y, lanes, block[0], unit)
        _fill_borders(x, y, edges[pair], n)
        for number in range(strips):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            _sweep(
                cost[pair, top:bottom], x, y, top, edges[pair, number], edges[pair, number + 1],
                table[pair, top:bottom], block, values, kept[pair, number] if len(kept) > 0 else recent, kind, unit,
            )  # fmt: skip


@internal
def _make_drops(size):
    """Make arrays of drop costs and of the k and m of each, which are 0, 0 and 1 where there is no frame."""
    drops = np.zeros((3, -(-size // STEP) * STEP))
    drops[2] = 1.0
    return drops


@internal
def _fill_drops(costs, drops, at, like, unit):
    """Fill in drop costs from `at` on, in units, and the k and m of each."""
    size = drops.shape[1]
    for i, cost in enumerate(costs):
        drops[0, at + i] = (BORDER if cost > BORDER else cost) / unit  # in this order NaN stays NaN
    for r in range(at, at + len(costs), STEP):
        k, m = split(load(drops, r), like)
        store(drops, size + r, k)
        store(drops, 2 * size + r, m)


@internal
def _fill_borders(x, y, edges, n):
    """Fill row 0 of D, the sum of drop costs of y, and column 0 above every strip, that of x; there is no P."""
    lanes = edges.shape[2] - n - 1
    edges[:] = BORDER
    total = 0.0
    for j in range(n):
        total += y[0, lanes + n - 1 - j]
        edges[0, 0, j + 1] = total
    total = 0.0
    edges[0, 0, 0] = 0.0
    for i in range(x.shape[1]):
        total += x[0, i]
        if (i + 1) % lanes == 0:
            edges[(i + 1) // lanes, 0, 0] = total


@internal
def _sweep(cost, x, y, top, edge, next_edge, table, block, values, state, kind, unit):
    """Accumulate the rows of one strip; `state` holds D of s − 2 beside P of s − 1, of all steps or the last two."""
    n, lanes = cost.shape[1], block.shape[1]
    width, rate, like = lanes + 1, 1.0 / unit, block[0]
    state[0] = BORDER
    here, there = 0, 1
    for start in range(0, n + lanes, BLOCK):
        stop = min(start + BLOCK, n + lanes)
        skew(cost, block, start, stop, BORDER)
        for s in range(start, stop):
            begin, end = _active(s, n, lanes)
            state[here, 0], state[here, width] = edge[0, s], edge[1, s + 1]
            state[there, begin] = state[there, width + begin] = BORDER
            d, new, c, v = here * 2 * width, there * 2 * width + 1, (s - start) * lanes, lanes + n - s
            if end < lanes:
                store(state, new + end, spread(BORDER))
                store(state, new + width + end, spread(BORDER))
            if kind == SMOOTH:
                d_k, d_m = split(spread(state[here, begin]), like)
                p_k, p_m = split(spread(state[here, width + begin]), like)
                for r in range(begin, end, STEP):
                    ax, bx = load(state, d + r), load(state, d + width + r)
                    dx, px = load(state, d + r + 1), load(state, d + width + r + 1)
                    dk, dm = split(dx, like)
                    pk, pm = split(px, like)
                    ak, am, bk, bm = shift(d_k, dk), shift(d_m, dm), shift(p_k, pk), shift(p_m, pm)
                    d_k, d_m, p_k, p_m = dk, dm, pk, pm
                    value = load(block, c + r) * rate + _smooth(ax, ak, am, bx, bk, bm, px, pk, pm)
                    store(state, new + width + r, value)
                    ux, uk, um = _add_drop(ax, ak, am, x, top + r)
                    vx, vk, vm = _add_drop(dx, dk, dm, y, v + r)
                    value = _smooth(px, pk, pm, ux, uk, um, vx, vk, vm)
                    store(state, new + r, value)
                    store(values, c + r, value * unit)
            else:
                for r in range(begin, end, STEP):
                    ax, bx = load(state, d + r), load(state, d + width + r)
                    dx, px = load(state, d + r + 1), load(state, d + width + r + 1)
                    value = load(block, c + r) * rate + minimum(ax, bx, px, like, kind, TEMPERATURE)
                    store(state, new + width + r, value)
                    ux, vx = ax + load(x, top + r), dx + load(y, v + r)
                    value = minimum(px, ux, vx, like, kind, TEMPERATURE)
                    store(state, new + r, value)
                    store(values, c + r, value * unit)
            if s >= lanes - 1:
                next_edge[0, s - lanes + 1] = state[there, lanes]
                next_edge[1, s - lanes + 2] = state[there, width + lanes]
            here, there = there, there + 1 if there + 1 < len(state) else 0
        unskew(values, table, start - 1, stop - 1)


@inlined
def _active(s, n, lanes):
    """Bound the lanes that have a cell of P or D at step s, column −1 included, rounded out to whole vectors."""
    return max(0, s - n) // STEP * STEP, min(lanes, (s // STEP + 1) * STEP)


@inlined
def _add_drop(x, k, m, drops, at):
    """Add drop costs to x, and to the k and m of x."""
    size = drops.shape[1]
    return x + load(drops, at), k + load(drops, at + size), m * load(drops, at + 2 * size)


@inlined
def _smooth(a, a_k, a_m, b, b_k, b_m, d, d_k, d_m):
    """Take the smooth minimum of a, b and d, given the k and m of each."""
    k = _least(a_k, b_k, d_k)
    e, f, g = halve(a_m, k - a_k), halve(b_m, k - b_k), halve(d_m, k - d_k)
    return k + (e * (a - k) + f * (b - k) + g * (d - k)) / (e + f + g)


@inlined
def _least(a, b, d):
    less = select(a < b, a, b)
    return select(less < d, less, d)


@compiled
def _backward(grad, cost, drop_x, drop_y, edges, kept, grad_cost, to_drop_x, to_drop_y, first, last, kind, unit):
    _, m, n = grad.shape
    strips, lanes = edges.shape[1] - 1, edges.shape[3] - n - 1
    size = min(BLOCK, n + lanes), lanes
    block, values = np.empty(size, grad.dtype), np.empty(size, grad.dtype)
    x, y = _make_drops(strips * lanes), _make_drops(n + 2 * lanes)
    grad_x, grad_y = np.empty(x.shape[1]), np.empty(y.shape[1])
    passed = np.empty((4, lanes + 1))
    own = np.empty((0 if len(kept) > 0 else n + lanes + 1, 2 * (lanes + 1)))
    across = np.empty((2, n + 2))  # gradients of D and of P that a strip passes to the row before it, from column −1
    for pair in range(first, last):
        _fill_drops(drop_x[pair], x, 0, block[0], unit)
        _fill_drops(drop_y[pair, ::-1], y, lanes, block[0], unit)
        across[:], grad_x[:], grad_y[:] = 0.0, 0.0, 0.0
        for number in range(strips - 1, -1, -1):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            if len(kept) == 0:
                rows, edge, none = cost[pair, top:bottom], edges[pair, number], grad_cost[pair, :0]
                _sweep(rows, x, y, top, edge, edges[pair, number + 1], none, block, values, own, kind, unit)
            _sweep_back(
                grad[pair, top:bottom], x, y, top, kept[pair, number] if len(kept) > 0 else own, across,
                grad_cost[pair, top:bottom], grad_x, grad_y, block, values, passed, kind,
            )  # fmt: skip
        for i in range(m):
            to_drop_x[pair, i] = grad_x[i]
        total = 0.0  # D(0, j) holds all drop costs of y up to j
        for j in range(n - 1, -1, -1):
            total += across[0, j + 1]
            to_drop_y[pair, j] = grad_y[lanes + n - 1 - j] + total


@internal
def _sweep_back(grad, x, y, top, state, across, grad_cost, grad_x, grad_y, block, values, passed, kind):
    """Run the gradient of one strip back; `across` comes from the row after it and leaves for the row before it."""
    n, lanes = grad.shape[1], block.shape[1]
    width, like = lanes + 1, block[0]
    passed[:] = 0.0
    own, own_p = 2 * width, 3 * width
    for stop in range(n + lanes, 0, -BLOCK):
        start = max(0, stop - BLOCK)
        skew(grad, block, start - 1, stop - 1, 0.0)
        for s in range(stop - 1, start - 1, -1):
            begin, end = _active(s, n, lanes)
            if s >= lanes - 1:  # from the row after the strip
                passed[0, lanes], passed[1, lanes] = across[0, s - lanes + 1], across[1, s - lanes + 2]
            elif (s + 1) % STEP != 0:  # no row after the vectors has a cell
                passed[0, end] = passed[1, end] = 0.0
            d, early, c, v = s * 2 * width, max(0, s - AHEAD) * 2 * width, (s - start) * lanes, lanes + n - s
            d_k, d_m = split(spread(state[s, begin]), like)
            p_k, p_m = split(spread(state[s, width + begin]), like)
            for r in range(begin, end, STEP):
                prefetch(state, early + r)
                prefetch(state, early + width + r)
                e = load(block, c + r) + load(passed, own + r) + load(passed, r + 1)
                e_p = load(passed, own_p + r) + load(passed, width + r + 1)
                ax, bx = load(state, d + r), load(state, d + width + r)
                dx, px = load(state, d + r + 1), load(state, d + width + r + 1)
                if kind == SMOOTH:
                    dk, dm = split(dx, like)
                    pk, pm = split(px, like)
                    ak, am, bk, bm = shift(d_k, dk), shift(d_m, dm), shift(p_k, pk), shift(p_m, pm)
                    d_k, d_m, p_k, p_m = dk, dm, pk, pm
                    to_a, to_b, to_d = _smooth_back(e_p, ax, ak, am, bx, bk, bm, px, pk, pm)
                    ux, uk, um = _add_drop(ax, ak, am, x, top + r)
                    vx, vk, vm = _add_drop(dx, dk, dm, y, v + r)
                    to_p, to_u, to_v = _smooth_back(e, px, pk, pm, ux, uk, um, vx, vk, vm)
                else:
                    ux, vx = ax + load(x, top + r), dx + load(y, v + r)
                    by_a, by_b, by_d = weights(ax, bx, px, like, kind, TEMPERATURE)
                    by_p, by_u, by_v = weights(px, ux, vx, like, kind, TEMPERATURE)
                    to_a, to_b, to_d, to_p, to_u, to_v = (
                        by_a * e_p,
                        by_b * e_p,
                        by_d * e_p,
                        by_p * e,
                        by_u * e,
                        by_v * e,
                    )
                store(values, c + r, e_p)
                store(grad_x, top + r, load(grad_x, top + r) + to_u)
                store(grad_y, v + r, load(grad_y, v + r) + to_v)
                store(passed, r, to_a + to_u)
                store(passed, width + r, to_b)
                store(passed, own + r, to_v)
                store(passed, own_p + r, to_p + to_d)
            if s <= n:
                across[0, s], across[1, s + 1] = passed[0, 0], passed[1, 0]
        unskew(values, grad_cost, start, stop)


@inlined
def _smooth_back(grad, a, a_k, a_m, b, b_k, b_m, d, d_k, d_m):
    """Run the gradient of the smooth minimum back to a, b and d."""
    k = _least(a_k, b_k, d_k)
    e, f, g = halve(a_m, k - a_k), halve(b_m, k - b_k), halve(d_m, k - d_k)
    a, b, d = a - k, b - k, d - k
    inverse = 1.0 / (e + f + g)
    share = grad * inverse
    slope = share * LOG2
    base = share + (e * a + f * b + g * d) * inverse * slope
    return e * (base - a * slope), f * (base - b * slope), g * (base - d * slope)
