"""The recursion with drops on a GPU, in Triton: strips, lanes and pairs of floats as in `recursion_triton.py`.

P, D and their predecessors are those of `drops_numba.py`. A strip hands over a row of D and a row of P. For the
backward pass ∂P/∂a, ∂P/∂b, ∂D/∂P and ∂D/∂u are kept in the order of the steps; the three derivatives of a minimum add
up to 1. Column −1, where D is the sum of x̂, is a column of cells with ∂D/∂u = 1. The sum over rows of ∂L/∂ŷ travels up
the lanes with its column. A step takes P of one diagonal and D of the one before: neither waits for the other.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.triton import Launcher, two_floats
from inphase.align.triton.recursion_triton import KINDS, low_size
from inphase.align.triton.tiles_triton import (
    BORDER,
    LANES,
    LOG2E,
    STEPS,
    add,
    cells,
    columns,
    hand_over,
    hand_over_one,
    joined,
    minimum,
    pack_word,
    peek,
    place,
    read,
    rows_of,
    shift_down,
    shift_up,
    steps_at,
    steps_of,
    wait,
    word_row,
    words_of,
    zero_words,
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
        # The rows of D and of P that each strip hands over, and of the row before the first strip.
        rows = table if strips == 1 else zero_words(cost, 2 * batch * (strips + 1), n)
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
        grad_cost, to_x = torch.empty_like(grad), grad.new_empty(batch, m)
        to_y = grad.new_empty(batch, strips, n + 40)  # with room for the steps beyond the table
        constants = strips > 1, m * n >= 2**31
        _launch_backward(
            batch * strips, (grad.dtype, constants), (grad, weights, rows, grad_cost, to_x, to_y),
            batch, strips, m, n, *constants,
        )  # fmt: skip
        to_y = to_y[:, :, :n]
        return grad_cost, to_x, to_y.sum(1) if strips > 1 else to_y[:, 0], None, None


@triton.jit(do_not_specialize=ARGUMENTS)
def _forward(
    cost, drop_x, drop_y, table, weights, rows, batch, strips, m, n, gamma, gamma_rest,
    kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    gamma = tl.zeros([], table.dtype.element_ty) + gamma + gamma_rest
    i_pair, i_strip = place(rows, batch, strips, several)
    pair = i_pair.to(tl.int64)
    p_out = word_row(rows, (pair * (strips + 1) + i_strip + 1) * 2, n)
    if several and i_strip == 0:
        _row_before(drop_y + pair * n, p_out - 2 * words_of(n), n, table.dtype.element_ty)
        tl.debug_barrier()
    _sweep(
        cost + pair * m * n, drop_x + pair * m, drop_y + pair * n, table + pair * m * n,
        weights + (pair * strips + i_strip) * slots_of(n) * (4 * LANES), p_out, i_strip, m, n,
        gamma, kind, several, keep, wide,
    )  # fmt: skip


_launch_forward = Launcher(_forward)


@triton.jit
def _row_before(drop_y, p_row, n, dtype: tl.constexpr):
    """Write D of the row before the first, the sum of the drop costs of y up to each column, and P, the border."""
    before = tl.zeros([], tl.float64)
    for start in range(0, n, LANES):
        column = start + tl.arange(0, LANES)
        y = tl.minimum(tl.load(drop_y + column, mask=column < n, other=0.0), BORDER).to(tl.float64)
        high, small = _split(before + tl.cumsum(y, 0), dtype)
        before += tl.sum(y)
        tl.store(p_row + column, pack_word(high, small), mask=column < n)
        tl.store(p_row + words_of(n) + column, pack_word(high * 0 + BORDER, small * 0), mask=column < n)


@triton.jit
def _sweep(
    cost, drop_x, drop_y, table, weights, p_out, i_strip, m, n, gamma,
    kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Accumulate one strip of one pair."""
    dtype: tl.constexpr = table.dtype.element_ty
    sharpness = LOG2E / gamma
    lane, row = tl.arange(0, LANES), rows_of(i_strip, wide)
    giver = (lane == LANES - 1) & ((i_strip + 1) * LANES < m)
    weights += lane
    p_in, p_in_p = p_out - 2 * words_of(n), p_out - words_of(n)
    x, border, border_low, above, above_low = _column_before(drop_x, i_strip, m, dtype)
    # D two steps before and P one step before, as high and low.
    high, small, matched, matched_low = border, border_low, border * 0 + BORDER, border * 0
    column, real = cells(row, 0, m, n)
    b_next = tl.load(cost + (row * n + column), mask=real, other=BORDER).to(dtype)
    y0, y1, y2, y3, y4, y5, y6, y7 = _drops_of_y(drop_y, -1, n)
    word = peek(p_in, -1, True, n, several, dtype)
    word_p = peek(p_in_p, 0, True, n, several, dtype)
    top_p, top_p_low, y_sum = matched, matched_low, tl.zeros([], tl.float64)
    for t in range(0, steps_of(n), STEPS):
        c0, c1, c2, c3, c4, c5, c6, c7 = columns(b_next)
        ahead, m_ahead = cells(row, t + STEPS, m, n)
        b_next = tl.load(cost + (row * n + ahead), mask=m_ahead, other=BORDER).to(dtype)
        z0, z1, z2, z3, z4, z5, z6, z7 = _drops_of_y(drop_y, t + STEPS - 1, n)
        if several:
            word = wait(word, p_in, t - 1, True, n, dtype)
            word_p = wait(word_p, p_in_p, t, True, n, dtype)
            top, top_low = read(word, dtype)
            top_p, top_p_low = read(word_p, dtype)
            is_border = t + lane % STEPS == 0
            top, top_low = tl.where(is_border, above, top), tl.where(is_border, above_low, top_low)
            word = peek(p_in, t + STEPS - 1, True, n, several, dtype)
            word_p = peek(p_in_p, t + STEPS, True, n, several, dtype)
        else:
            top, top_low, y_sum = _sums_of_y(drop_y, t - 1, y_sum, n, dtype)
        p = weights + t * (4 * LANES)
        rows = top, top_low, top_p, top_p_low
        fixed = x, t, border, border_low, gamma, sharpness
        h0, s0, q0, r0 = _step(c0, y0, 0, rows, high, small, matched, matched_low, fixed, p, kind, several, keep)
        h1, s1, q1, r1 = _step(c1, y1, 1, rows, h0, s0, q0, r0, fixed, p, kind, several, keep)
        h2, s2, q2, r2 = _step(c2, y2, 2, rows, h1, s1, q1, r1, fixed, p, kind, several, keep)
        h3, s3, q3, r3 = _step(c3, y3, 3, rows, h2, s2, q2, r2, fixed, p, kind, several, keep)
        h4, s4, q4, r4 = _step(c4, y4, 4, rows, h3, s3, q3, r3, fixed, p, kind, several, keep)
        h5, s5, q5, r5 = _step(c5, y5, 5, rows, h4, s4, q4, r4, fixed, p, kind, several, keep)
        h6, s6, q6, r6 = _step(c6, y6, 6, rows, h5, s5, q5, r5, fixed, p, kind, several, keep)
        h7, s7, q7, r7 = _step(c7, y7, 7, rows, h6, s6, q6, r6, fixed, p, kind, several, keep)
        high, small, matched, matched_low = h7, s7, q7, r7
        y0, y1, y2, y3, y4, y5, y6, y7 = z0, z1, z2, z3, z4, z5, z6, z7
        if several:
            hand_over(p_out, t - 1, giver, h0, h1, h2, h3, h4, h5, h6, h7, s0, s1, s2, s3, s4, s5, s6, s7)
            hand_over(p_out + words_of(n), t, giver, q0, q1, q2, q3, q4, q5, q6, q7, r0, r1, r2, r3, r4, r5, r6, r7)
        column, real = cells(row, t - 1, m, n)
        tl.store(table + (row * n + column), joined(h0, h1, h2, h3, h4, h5, h6, h7), mask=real)
    # The backward pass reads a step beyond the last, and a row of n + 1 words: no value of this pass may be left there.
    if keep:
        tl.store(weights + ((slots_of(n) - STEPS) * 4 + 2) * LANES, x * 0)
        tl.store(weights + ((slots_of(n) - STEPS) * 4 + 3) * LANES, x * 0)
    if several:
        tl.store(p_out + n + lane * 0, tl.zeros([LANES], tl.int64), mask=giver)


@triton.jit
def _sums_of_y(drop_y, t, before, n, dtype: tl.constexpr):
    """Sum the drop costs of y up to columns t, t + 1, …: D of the row before the first, as high and low."""
    lane = tl.arange(0, LANES)
    column = t + lane % STEPS
    y = tl.load(drop_y + column, mask=column.to(tl.uint32) < n.to(tl.uint32), other=0.0)
    y = tl.minimum(y, BORDER).to(tl.float64)
    sums = before + tl.reshape(tl.cumsum(tl.reshape(y, [LANES // STEPS, STEPS]), 1), [LANES])
    high, small = _split(sums, dtype)
    return high, small, before + tl.sum(tl.where(lane < STEPS, y, 0.0))


@triton.jit
def slots_of(n):
    """Count the steps that `weights` of a strip has room for: D is a step behind P."""
    return steps_of(n) + STEPS


@triton.jit
def _drops_of_y(p, t, n):
    """Load the drop costs of y for all lanes at steps t, t + 1, …"""
    y0, y1, y2, y3 = _y(p, t, n), _y(p, t + 1, n), _y(p, t + 2, n), _y(p, t + 3, n)
    y4, y5, y6, y7 = _y(p, t + 4, n), _y(p, t + 5, n), _y(p, t + 6, n), _y(p, t + 7, n)
    return y0, y1, y2, y3, y4, y5, y6, y7


@triton.jit
def _y(drop_y, t, n):
    column = t - tl.arange(0, LANES)
    y = tl.load(drop_y + column, mask=column.to(tl.uint32) < n.to(tl.uint32), other=0.0)
    return tl.minimum(y, BORDER)


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
    return sums.to(dtype), (sums - sums.to(dtype).to(tl.float64)).to(dtype)


@triton.jit
def _step(
    c, y, k: tl.constexpr, rows, high, small, matched, matched_low, fixed, weights,
    kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr,
):  # fmt: skip
    """Compute D of one step and P of the next in each lane: neither waits for the other."""
    top, top_low, top_p, top_p_low = rows
    x, t, border, border_low, gamma, sharpness = fixed
    above, above_low = shift_down(high, top, k, True), shift_down(small, top_low, k, True)
    above_p, above_p_low = shift_down(matched, top_p, k, several), shift_down(matched_low, top_p_low, k, several)
    u, u_low = add(above, above_low, x)
    v, v_low = add(high, small, y)
    least, least_low, penalty, by_a, by_b = minimum(
        above, above_low, above_p, above_p_low, matched, matched_low, gamma, sharpness, kind
    )
    total, rest = add(least, least_low, c)
    rest += penalty
    p = total + rest
    p_low = rest - (p - total)
    least, least_low, penalty, by_p, by_u = minimum(matched, matched_low, u, u_low, v, v_low, gamma, sharpness, kind)
    rest = least_low + penalty
    value = least + rest
    begun = tl.arange(0, LANES) < t + k
    at = weights + k * (4 * LANES)
    if keep:
        tl.store(at, by_a)
        tl.store(at + LANES, by_b)
        tl.store(at + 2 * LANES, tl.where(begun, by_p, 0.0))
        tl.store(at + 3 * LANES, tl.where(begun, by_u, 1.0))
    low = tl.where(begun, rest - (value - least), border_low)
    return tl.where(begun, value, border), low, p, p_low


@triton.jit(do_not_specialize=ARGUMENTS)
def _backward(
    grad, weights, rows, grad_cost, to_x, to_y, batch, strips, m, n,
    several: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    i_pair, i_order = place(rows, batch, strips, several)
    pair, i_strip = i_pair.to(tl.int64), strips - 1 - i_order
    i_row = pair * strips + i_strip
    _sweep_back(
        grad + pair * m * n, weights + i_row * slots_of(n) * (4 * LANES), grad_cost + pair * m * n, to_x + pair * m,
        to_y + i_row * (n + 40), word_row(rows, (i_row + pair + 1) * 2, n), i_strip, i_order > 0, m, n, several, wide,
    )  # fmt: skip


_launch_backward = Launcher(_backward)


@triton.jit
def _sweep_back(
    grad, weights, grad_cost, to_x, to_y, p_out, i_strip, follows, m, n,
    several: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Run the gradient of one strip of one pair back."""
    dtype: tl.constexpr = weights.dtype.element_ty
    lane, row = tl.arange(0, LANES), rows_of(i_strip, wide)
    giver = (lane == 0) & (i_strip > 0)
    to_y += lane
    weights += lane
    p_in = p_out + 2 * words_of(n)  # of the row below: D from column −1, then P
    # What the cells of the step after pass on: by v and d in their own lane, by u, b and (a step later) a to the lane
    # above. Then the sums over a row, over a column, and over the row before the first strip, where D is a sum of ŷ.
    z = tl.zeros([LANES], dtype)
    by_v, by_d, to_above, by_b, by_a, below, below_p, x_sum, y_sum, top_sum = z, z, z, z, z, z, z, z, z, z
    t = steps_of(n) - STEPS
    column, real = cells(row, t, m, n)
    b_grad = tl.load(grad + (row * n + column), mask=real, other=0.0).to(dtype)
    p = weights + t * (4 * LANES)
    a0, a1, a2, a3, a4, a5, a6, a7 = steps_at(p, 4)
    b0, b1, b2, b3, b4, b5, b6, b7 = steps_at(p + LANES, 4)
    p0, p1, p2, p3, p4, p5, p6, p7 = steps_at(p + 6 * LANES, 4)
    u0, u1, u2, u3, u4, u5, u6, u7 = steps_at(p + 7 * LANES, 4)
    word = peek(p_in, t - LANES + 2, follows, n + 1, several, dtype)
    word_p = peek(p_in + words_of(n), t - LANES + 1, follows, n, several, dtype)
    while t >= 0:
        g0, g1, g2, g3, g4, g5, g6, g7 = columns(b_grad)
        ahead, m_ahead = cells(row, t - STEPS, m, n)
        b_grad = tl.load(grad + (row * n + ahead), mask=m_ahead, other=0.0).to(dtype)
        p = weights + tl.maximum(t - STEPS, 0) * (4 * LANES)
        e0, e1, e2, e3, e4, e5, e6, e7 = steps_at(p, 4)
        f0, f1, f2, f3, f4, f5, f6, f7 = steps_at(p + LANES, 4)
        q0, q1, q2, q3, q4, q5, q6, q7 = steps_at(p + 6 * LANES, 4)
        v0, v1, v2, v3, v4, v5, v6, v7 = steps_at(p + 7 * LANES, 4)
        if several:
            word = wait(word, p_in, t - LANES + 2, follows, n + 1, dtype)
            word_p = wait(word_p, p_in + words_of(n), t - LANES + 1, follows, n, dtype)
            below, _ = read(word, dtype)
            below_p, _ = read(word_p, dtype)
            word = peek(p_in, t - STEPS - LANES + 2, follows, n + 1, several, dtype)
            word_p = peek(p_in + words_of(n), t - STEPS - LANES + 1, follows, n, several, dtype)
        fixed = t, below, below_p, to_y, i_strip
        c7, by_v, by_d, h7, i7, by_a, x_sum, y_sum, top_sum = _step_back(
            g7, 7, a7, b7, p7, u7, by_v, by_d, to_above, by_b, by_a, x_sum, y_sum, top_sum, fixed, several
        )
        c6, by_v, by_d, h6, i6, by_a, x_sum, y_sum, top_sum = _step_back(
            g6, 6, a6, b6, p6, u6, by_v, by_d, h7, i7, by_a, x_sum, y_sum, top_sum, fixed, several
        )
        c5, by_v, by_d, h5, i5, by_a, x_sum, y_sum, top_sum = _step_back(
            g5, 5, a5, b5, p5, u5, by_v, by_d, h6, i6, by_a, x_sum, y_sum, top_sum, fixed, several
        )
        c4, by_v, by_d, h4, i4, by_a, x_sum, y_sum, top_sum = _step_back(
            g4, 4, a4, b4, p4, u4, by_v, by_d, h5, i5, by_a, x_sum, y_sum, top_sum, fixed, several
        )
        c3, by_v, by_d, h3, i3, by_a, x_sum, y_sum, top_sum = _step_back(
            g3, 3, a3, b3, p3, u3, by_v, by_d, h4, i4, by_a, x_sum, y_sum, top_sum, fixed, several
        )
        c2, by_v, by_d, h2, i2, by_a, x_sum, y_sum, top_sum = _step_back(
            g2, 2, a2, b2, p2, u2, by_v, by_d, h3, i3, by_a, x_sum, y_sum, top_sum, fixed, several
        )
        c1, by_v, by_d, h1, i1, by_a, x_sum, y_sum, top_sum = _step_back(
            g1, 1, a1, b1, p1, u1, by_v, by_d, h2, i2, by_a, x_sum, y_sum, top_sum, fixed, several
        )
        c0, by_v, by_d, h0, i0, by_a, x_sum, y_sum, top_sum = _step_back(
            g0, 0, a0, b0, p0, u0, by_v, by_d, h1, i1, by_a, x_sum, y_sum, top_sum, fixed, several
        )
        to_above, by_b = h0, i0
        if several:
            hand_over(p_out, t + 1, giver, h0, h1, h2, h3, h4, h5, h6, h7, z, z, z, z, z, z, z, z)
            hand_over(p_out + words_of(n), t, giver, i0, i1, i2, i3, i4, i5, i6, i7, z, z, z, z, z, z, z, z)
        column, real = cells(row, t, m, n)
        tl.store(grad_cost + (row * n + column), joined(c0, c1, c2, c3, c4, c5, c6, c7), mask=real)
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
    tl.store(to_x + row1, x_sum, mask=row1 < m)


@triton.jit
def _step_back(
    g, k: tl.constexpr, w_a, w_b, w_p, w_u, by_v, by_d, to_above, by_b, by_a, x_sum, y_sum, top_sum, fixed,
    several: tl.constexpr,
):  # fmt: skip
    """Collect E of D and of P in each lane; return the latter, its parts for the predecessors, and the sums."""
    t, below, below_p, to_y, i_strip = fixed
    lane = tl.arange(0, LANES)
    e = g + by_v + shift_up(to_above, below, k, several)
    matched = w_p * e + by_d + shift_up(by_b, below_p, k, several)
    matched = tl.where(lane <= t + k, matched, 0.0)
    by_v, by_u = (1 - (w_p + w_u)) * e, w_u * e
    to_above = by_u + by_a
    by_a, by_b, by_d = w_a * matched, w_b * matched, (1 - (w_a + w_b)) * matched
    y_sum = by_v + shift_up(y_sum, tl.zeros([LANES], e.dtype), k, False)
    top_sum += to_above
    tl.store(to_y + (t + k), y_sum + tl.where(i_strip == 0, top_sum, 0.0), mask=lane == 0)
    return matched, by_v, by_d, to_above, by_b, by_a, x_sum + by_u, y_sum, top_sum
