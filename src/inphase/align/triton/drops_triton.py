"""The recursion with drops on a GPU, in Triton: strips, lanes and pairs of floats as in `recursion_triton.py`.

P, D and their predecessors are those of `drops_numba.py`. A strip hands over a row of D and a row of P. For the
backward pass ∂P/∂a, ∂P/∂b, ∂D/∂P and ∂D/∂u are kept in the order of the steps; the three derivatives of a minimum add
up to 1. Column −1, where D is the sum of x̂, is a column of cells with ∂D/∂u = 1. The sum over rows of ∂L/∂ŷ travels up
the lanes with its column.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.triton import Launcher, two_floats
from inphase.align.triton.recursion_triton import (
    KINDS,
    hand_over,
    hand_over_one,
    low_size,
    peek,
    place,
    wait,
)
from inphase.align.triton.tiles_triton import (
    BORDER,
    LANES,
    LOG2E,
    STEPS,
    add,
    cells,
    columns,
    minimum,
    read,
    rows_of,
    shift_down,
    shift_up,
    steps_at,
    steps_of,
    tile,
)

# A kernel compiled for one size and one alignment serves all.
ARGUMENTS = ["cost", "drop_x", "drop_y", "grad", "table", "weights", "rows", "grad_cost", "to_x", "to_y"]
ARGUMENTS += ["batch", "strips", "m", "n"]


def accumulate_with_drops(cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: str, gamma: float) -> Tensor:
    """Accumulate cost [B, M, N] with drops on a CUDA device; see `inphase.align`."""
    return cast("Tensor", _WithDropsTriton.apply(cost, drop_x, drop_y, KINDS[kind], gamma))


class _WithDropsTriton(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: int, gamma: float) -> Tensor:
        cost, drop_x, drop_y = cost.contiguous(), drop_x.contiguous(), drop_y.contiguous()
        batch, m, n = cost.shape
        strips, keep = -(-m // 32), any(ctx.needs_input_grad[:3])
        table = torch.empty_like(cost)
        weights = cost.new_empty(batch * strips * 4 * low_size(n) if keep else 1)
        # The rows of D and P that each strip hands over, after the ticket that programs draw on starting.
        rows = weights
        if strips > 1:
            rows = torch.zeros(1 + 2 * batch * strips * (n + 1), dtype=torch.int64, device=cost.device)
        constants = kind, strips > 1, keep, m * n >= 2**31
        _launch_forward(
            batch * strips, (cost.dtype, constants), (cost, drop_x, drop_y, table, weights, rows),
            batch, strips, m, n, *two_floats(gamma), *constants,
        )  # fmt: skip
        if keep:
            ctx.save_for_backward(weights, rows)
        return table

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        weights, rows = ctx.saved_tensors
        grad = grad.contiguous()
        batch, m, n = grad.shape
        strips = -(-m // 32)
        grad_cost, to_x, to_y = torch.empty_like(grad), grad.new_empty(batch, m), grad.new_empty(batch, strips, n)
        constants = strips > 1, m * n >= 2**31
        _launch_backward(
            batch * strips, (grad.dtype, constants), (grad, weights, rows, grad_cost, to_x, to_y),
            batch, strips, m, n, *constants,
        )  # fmt: skip
        return grad_cost, to_x, to_y.sum(1) if strips > 1 else to_y[:, 0], None, None


@triton.jit(do_not_specialize=ARGUMENTS)
def _forward(
    cost, drop_x, drop_y, table, weights, rows, batch, strips, m, n, gamma, gamma_rest,
    kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    dtype: tl.constexpr = table.dtype.element_ty
    gamma = tl.zeros([], dtype) + gamma + gamma_rest
    sharpness = LOG2E / gamma
    i_pair, i_strip = place(rows, batch, strips, several)
    pair = i_pair.to(tl.int64)
    lane, row = tl.arange(0, LANES), rows_of(i_strip, wide)
    follows, leads = i_strip > 0, (i_strip + 1) * LANES < m
    cost += pair * m * n
    table += pair * m * n
    drop_y += pair * n
    weights += (pair * strips + i_strip) * steps_of(n) * (4 * LANES) + lane
    p_out = rows + 1 + (pair * strips + i_strip) * 2 * (n + 1)
    p_in = p_out - 2 * (n + 1)
    x, border, border_low, high_a, small_a = _column_before(drop_x + pair * m, i_strip, m, dtype)
    # D and P of the step before, as high and low; b of D of the step before is a.
    none = tl.zeros([LANES], dtype)
    high, small, matched, matched_low = border, border_low, none + BORDER, none
    top_p, top_p_low = none + BORDER, none
    y_sum = tl.zeros([], tl.float64)
    column, real = cells(row, 0, m, n)
    b_next = tl.load(cost + row * n + column, mask=real, other=BORDER).to(dtype)
    word = peek(p_in, 0, follows, n, several, dtype)
    word_p = peek(p_in + n + 1, 0, follows, n, several, dtype)
    for t in range(0, n + LANES - 1, STEPS):
        c0, c1, c2, c3, c4, c5, c6, c7 = columns(b_next)
        ahead, m_ahead = cells(row, t + STEPS, m, n)
        b_next = tl.load(cost + row * n + ahead, mask=m_ahead, other=BORDER).to(dtype)
        b_y, m_y = cells(lane[:, None] * 0, t, 1, n)
        y0, y1, y2, y3, y4, y5, y6, y7 = columns(tl.minimum(tl.load(drop_y + b_y, mask=m_y, other=0.0), BORDER))
        top, top_low = none, none
        if i_strip == 0:  # D(0, j) is the sum of the drop costs of y up to j
            at = t + lane % STEPS
            y8 = tl.minimum(tl.load(drop_y + at, mask=at < n, other=0.0), BORDER).to(tl.float64)
            sums = y_sum + tl.reshape(tl.cumsum(tl.reshape(y8, [4, 8]), 1), [LANES])
            y_sum += tl.sum(tl.where(lane < STEPS, y8, 0.0))
            top, top_low = _split(sums, dtype)
        if several:
            word = wait(word, p_in, t, follows, n, dtype)
            word_p = wait(word_p, p_in + n + 1, t, follows, n, dtype)
            handed, handed_low = read(word, dtype)
            top_p, top_p_low = read(word_p, dtype)
            top, top_low = tl.where(follows, handed, top), tl.where(follows, handed_low, top_low)
            top_p = tl.where(follows, top_p, BORDER)
            word = peek(p_in, t + STEPS, follows, n, several, dtype)
            word_p = peek(p_in + n + 1, t + STEPS, follows, n, several, dtype)
        p = weights + t * (4 * LANES)
        h0, s0, q0, r0, a, b = _step(
            c0, y0, x, t, 0, top, top_low, top_p, top_p_low, high, small, matched, matched_low, high_a, small_a,
            border, border_low, gamma, sharpness, p, kind, several, keep,
        )  # fmt: skip
        h1, s1, q1, r1, a, b = _step(
            c1, y1, x, t, 1, top, top_low, top_p, top_p_low, h0, s0, q0, r0, a, b,
            border, border_low, gamma, sharpness, p, kind, several, keep,
        )  # fmt: skip
        h2, s2, q2, r2, a, b = _step(
            c2, y2, x, t, 2, top, top_low, top_p, top_p_low, h1, s1, q1, r1, a, b,
            border, border_low, gamma, sharpness, p, kind, several, keep,
        )  # fmt: skip
        h3, s3, q3, r3, a, b = _step(
            c3, y3, x, t, 3, top, top_low, top_p, top_p_low, h2, s2, q2, r2, a, b,
            border, border_low, gamma, sharpness, p, kind, several, keep,
        )  # fmt: skip
        h4, s4, q4, r4, a, b = _step(
            c4, y4, x, t, 4, top, top_low, top_p, top_p_low, h3, s3, q3, r3, a, b,
            border, border_low, gamma, sharpness, p, kind, several, keep,
        )  # fmt: skip
        h5, s5, q5, r5, a, b = _step(
            c5, y5, x, t, 5, top, top_low, top_p, top_p_low, h4, s4, q4, r4, a, b,
            border, border_low, gamma, sharpness, p, kind, several, keep,
        )  # fmt: skip
        h6, s6, q6, r6, a, b = _step(
            c6, y6, x, t, 6, top, top_low, top_p, top_p_low, h5, s5, q5, r5, a, b,
            border, border_low, gamma, sharpness, p, kind, several, keep,
        )  # fmt: skip
        h7, s7, q7, r7, a, b = _step(
            c7, y7, x, t, 7, top, top_low, top_p, top_p_low, h6, s6, q6, r6, a, b,
            border, border_low, gamma, sharpness, p, kind, several, keep,
        )  # fmt: skip
        high, small, matched, matched_low, high_a, small_a = h7, s7, q7, r7, a, b
        if several:
            giver = (lane == LANES - 1) & leads
            hand_over(p_out, t, giver, n, h0, h1, h2, h3, h4, h5, h6, h7, s0, s1, s2, s3, s4, s5, s6, s7)
            hand_over(p_out + n + 1, t, giver, n, q0, q1, q2, q3, q4, q5, q6, q7, r0, r1, r2, r3, r4, r5, r6, r7)
        column, real = cells(row, t, m, n)
        tl.store(table + (row * n + column), tile(h0, h1, h2, h3, h4, h5, h6, h7), mask=real)


_launch_forward = Launcher(_forward)


@triton.jit
def _column_before(drop_x, i_strip, m, dtype: tl.constexpr):
    """Return x̂ of a strip, column −1 of D in its rows, and that column a row higher; the sums as high and low."""
    lane = tl.arange(0, LANES)
    before = tl.zeros([], tl.float64)
    for k in range(0, i_strip):
        before += tl.sum(tl.minimum(tl.load(drop_x + k * LANES + lane), BORDER).to(tl.float64))
    row = i_strip * LANES + lane
    x = tl.minimum(tl.load(drop_x + row, mask=row < m, other=0.0), BORDER)
    sums = before + tl.cumsum(x.to(tl.float64), 0)
    border, border_low = _split(sums, dtype)
    above, above_low = _split(tl.where(lane == 0, before, tl.gather(sums, tl.maximum(lane - 1, 0), 0)), dtype)
    return x, border, border_low, above, above_low


@triton.jit
def _split(sums, dtype: tl.constexpr):
    high = sums.to(dtype)
    return high, (sums - high.to(tl.float64)).to(dtype)


@triton.jit
def _step(
    c, y, x, t, k: tl.constexpr, top, top_low, top_p, top_p_low, high, small, matched, matched_low, high_a, small_a,
    border, border_low, gamma, sharpness, weights, kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr,
):  # fmt: skip
    """Compute D and P of one cell in each lane; return them and D above, which is a of the next step."""
    high_b, small_b = shift_down(high, top, k, True), shift_down(small, top_low, k, True)
    above_p, above_p_low = shift_down(matched, top_p, k, several), shift_down(matched_low, top_p_low, k, several)
    least, least_low, penalty, by_a, by_b = minimum(
        high_a, small_a, above_p, above_p_low, matched, matched_low, gamma, sharpness, kind
    )
    total, rest = add(least, least_low, c)
    rest += penalty
    p = total + rest
    p_low = rest - (p - total)
    u, u_low = add(high_b, small_b, x)
    v, v_low = add(high, small, y)
    least, least_low, penalty, by_p, by_u = minimum(p, p_low, u, u_low, v, v_low, gamma, sharpness, kind)
    rest = least_low + penalty
    value = least + rest
    begun = tl.arange(0, LANES) <= t + k
    if keep:
        at = weights + k * (4 * LANES)
        tl.store(at, by_a)
        tl.store(at + LANES, by_b)
        tl.store(at + 2 * LANES, tl.where(begun, by_p, 0.0))
        tl.store(at + 3 * LANES, tl.where(begun, by_u, 1.0))
    low = tl.where(begun, rest - (value - least), border_low)
    return tl.where(begun, value, border), low, p, p_low, high_b, small_b


@triton.jit(do_not_specialize=ARGUMENTS)
def _backward(
    grad, weights, rows, grad_cost, to_x, to_y, batch, strips, m, n, several: tl.constexpr, wide: tl.constexpr
):
    dtype: tl.constexpr = weights.dtype.element_ty
    i_pair, i_order = place(rows, batch, strips, several)
    i_strip = strips - 1 - i_order
    follows, pair = i_order > 0, i_pair.to(tl.int64)
    lane, row = tl.arange(0, LANES), rows_of(i_strip, wide)
    giver = (lane == 0) & (i_strip > 0)
    grad += pair * m * n
    grad_cost += pair * m * n
    to_y += (pair * strips + i_strip) * n + lane
    weights += (pair * strips + i_strip) * steps_of(n) * (4 * LANES) + lane
    p_out = rows + 1 + (pair * strips + i_strip) * 2 * (n + 1)
    p_in = p_out + 2 * (n + 1)  # of the row below: D from column −1, then P
    # What the cells of the step after pass on: by v and d in their own lane, by u, b and (a step later) a to the lane
    # above. Then the sums over a row, over a column, and over the row before the first strip, where D is a sum of ŷ.
    z = tl.zeros([LANES], dtype)
    by_v, by_d, to_above, by_b, by_a, below, below_p, x_sum, y_sum, top_sum = z, z, z, z, z, z, z, z, z, z
    t = steps_of(n) - STEPS
    column, real = cells(row, t, m, n)
    b_grad = tl.load(grad + row * n + column, mask=real, other=0.0).to(dtype)
    p = weights + t * (4 * LANES)
    a0, a1, a2, a3, a4, a5, a6, a7 = steps_at(p, 4)
    b0, b1, b2, b3, b4, b5, b6, b7 = steps_at(p + LANES, 4)
    p0, p1, p2, p3, p4, p5, p6, p7 = steps_at(p + 2 * LANES, 4)
    u0, u1, u2, u3, u4, u5, u6, u7 = steps_at(p + 3 * LANES, 4)
    word = peek(p_in, t - LANES + 2, follows, n + 1, several, dtype)
    word_p = peek(p_in + n + 1, t - LANES + 1, follows, n, several, dtype)
    while t >= 0:
        g0, g1, g2, g3, g4, g5, g6, g7 = columns(b_grad)
        ahead, m_ahead = cells(row, t - STEPS, m, n)
        b_grad = tl.load(grad + row * n + ahead, mask=m_ahead, other=0.0).to(dtype)
        p = weights + tl.maximum(t - STEPS, 0) * (4 * LANES)
        e0, e1, e2, e3, e4, e5, e6, e7 = steps_at(p, 4)
        f0, f1, f2, f3, f4, f5, f6, f7 = steps_at(p + LANES, 4)
        q0, q1, q2, q3, q4, q5, q6, q7 = steps_at(p + 2 * LANES, 4)
        v0, v1, v2, v3, v4, v5, v6, v7 = steps_at(p + 3 * LANES, 4)
        if several:
            word = wait(word, p_in, t - LANES + 2, follows, n + 1, dtype)
            word_p = wait(word_p, p_in + n + 1, t - LANES + 1, follows, n, dtype)
            below, _ = read(word, dtype)
            below_p, _ = read(word_p, dtype)
            word = peek(p_in, t - STEPS - LANES + 2, follows, n + 1, several, dtype)
            word_p = peek(p_in + n + 1, t - STEPS - LANES + 1, follows, n, several, dtype)
        c7, by_v, by_d, h7, i7, by_a, x_sum, y_sum, top_sum = _step_back(
            g7, t, 7, below, below_p, a7, b7, p7, u7, by_v, by_d, to_above, by_b, by_a, x_sum, y_sum, top_sum,
            to_y, i_strip, n, several,
        )  # fmt: skip
        c6, by_v, by_d, h6, i6, by_a, x_sum, y_sum, top_sum = _step_back(
            g6, t, 6, below, below_p, a6, b6, p6, u6, by_v, by_d, h7, i7, by_a, x_sum, y_sum, top_sum,
            to_y, i_strip, n, several,
        )  # fmt: skip
        c5, by_v, by_d, h5, i5, by_a, x_sum, y_sum, top_sum = _step_back(
            g5, t, 5, below, below_p, a5, b5, p5, u5, by_v, by_d, h6, i6, by_a, x_sum, y_sum, top_sum,
            to_y, i_strip, n, several,
        )  # fmt: skip
        c4, by_v, by_d, h4, i4, by_a, x_sum, y_sum, top_sum = _step_back(
            g4, t, 4, below, below_p, a4, b4, p4, u4, by_v, by_d, h5, i5, by_a, x_sum, y_sum, top_sum,
            to_y, i_strip, n, several,
        )  # fmt: skip
        c3, by_v, by_d, h3, i3, by_a, x_sum, y_sum, top_sum = _step_back(
            g3, t, 3, below, below_p, a3, b3, p3, u3, by_v, by_d, h4, i4, by_a, x_sum, y_sum, top_sum,
            to_y, i_strip, n, several,
        )  # fmt: skip
        c2, by_v, by_d, h2, i2, by_a, x_sum, y_sum, top_sum = _step_back(
            g2, t, 2, below, below_p, a2, b2, p2, u2, by_v, by_d, h3, i3, by_a, x_sum, y_sum, top_sum,
            to_y, i_strip, n, several,
        )  # fmt: skip
        c1, by_v, by_d, h1, i1, by_a, x_sum, y_sum, top_sum = _step_back(
            g1, t, 1, below, below_p, a1, b1, p1, u1, by_v, by_d, h2, i2, by_a, x_sum, y_sum, top_sum,
            to_y, i_strip, n, several,
        )  # fmt: skip
        c0, by_v, by_d, h0, i0, by_a, x_sum, y_sum, top_sum = _step_back(
            g0, t, 0, below, below_p, a0, b0, p0, u0, by_v, by_d, h1, i1, by_a, x_sum, y_sum, top_sum,
            to_y, i_strip, n, several,
        )  # fmt: skip
        to_above, by_b = h0, i0
        if several:
            hand_over(p_out, t + 1, giver, n + 1, h0, h1, h2, h3, h4, h5, h6, h7, z, z, z, z, z, z, z, z)
            hand_over(p_out + n + 1, t, giver, n, i0, i1, i2, i3, i4, i5, i6, i7, z, z, z, z, z, z, z, z)
        column, real = cells(row, t, m, n)
        tl.store(grad_cost + (row * n + column), tile(c0, c1, c2, c3, c4, c5, c6, c7), mask=real)
        a0, a1, a2, a3, a4, a5, a6, a7 = e0, e1, e2, e3, e4, e5, e6, e7
        b0, b1, b2, b3, b4, b5, b6, b7 = f0, f1, f2, f3, f4, f5, f6, f7
        p0, p1, p2, p3, p4, p5, p6, p7 = q0, q1, q2, q3, q4, q5, q6, q7
        u0, u1, u2, u3, u4, u5, u6, u7 = v0, v1, v2, v3, v4, v5, v6, v7
        t -= STEPS
    # Column −1 of the first lane is a step before the first.
    e = by_v + shift_up(to_above, z, 0, False)
    x_sum += tl.where(lane == 0, e, 0.0)
    if several:
        hand_over_one(p_out, giver, e + by_a)
    row1 = i_strip * LANES + lane
    tl.store(to_x + pair * m + row1, x_sum, mask=row1 < m)


_launch_backward = Launcher(_backward)


@triton.jit
def _step_back(
    g, t, k: tl.constexpr, below, below_p, w_a, w_b, w_p, w_u, by_v, by_d, to_above, by_b, by_a, x_sum, y_sum, top_sum,
    to_y, i_strip, n, several: tl.constexpr,
):  # fmt: skip
    """Collect E of D and of P in each lane; return the latter, its parts for the predecessors, and the sums."""
    lane = tl.arange(0, LANES)
    e = g + by_v + shift_up(to_above, below, k, several)
    matched = w_p * e + by_d + shift_up(by_b, below_p, k, several)
    matched = tl.where(lane <= t + k, matched, 0.0)
    by_v, by_u = (1 - (w_p + w_u)) * e, w_u * e
    to_above = by_u + by_a
    by_a, by_b, by_d = w_a * matched, w_b * matched, (1 - (w_a + w_b)) * matched
    y_sum = by_v + shift_up(y_sum, tl.zeros([LANES], e.dtype), k, False)
    top_sum += to_above
    tl.store(to_y + (t + k), y_sum + tl.where(i_strip == 0, top_sum, 0.0), mask=(lane == 0) & (t + k < n))
    return matched, by_v, by_d, to_above, by_b, by_a, x_sum + by_u, y_sum, top_sum
