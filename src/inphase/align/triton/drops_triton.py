"""The recursion with drops on a GPU, in Triton: strips, lanes and pairs of floats as in `recursion_triton.py`.

`drops_numba.py` defines P, D, their predecessors a, b, d, u and v, and the drop costs x̂ and ŷ. A strip hands over P,
and D from column −1 on. There D is the sum of x̂: match and ŷ cost `FAR` in column −1, so that the minimum is u. For
the backward pass ∂P/∂a, ∂P/∂b, ∂D/∂P and ∂D/∂u are kept; the three derivatives of a minimum add up to 1. ∂L/∂ŷ of a
column is summed while it moves up the lanes. A step computes P on one diagonal and D on the one before: neither waits.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.triton import KINDS, Launcher, chain_width, is_chained, low_size, two_floats, words
from inphase.align.triton.recursion_triton import row_below
from inphase.align.triton.tiles_triton import (
    BORDER,
    LANES,
    LOG2E,
    STEPS,
    add,
    cells,
    chain_words,
    columns,
    hand_over,
    hand_over_one,
    is_between,
    joined,
    minimum,
    pack_word,
    peek,
    place,
    read,
    shift_down,
    shift_up,
    steps_at,
    steps_in,
    turn,
    wait,
    width_of,
    word_row,
    words_of,
)

FAR = tl.constexpr(1e36)  # more than any sum of drop costs, each of which is BORDER at most
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
        strips, chained, keep = -(-m // 32), m <= 32 or is_chained(cost), any(ctx.needs_input_grad[:3])
        table = torch.empty_like(cost)
        held = n + 1 if chained else n  # the columns from strip to strip of a chain include −1
        weights = cost.new_empty(4 * batch * low_size(m, held, chained=chained) if keep else 1)
        # The rows of D and of P that each strip hands over, and of the row before the first strip.
        rows = words(cost, 2 * batch, strips if chained else strips + 1, held, chained=chained)
        constants = kind, chained, keep, m * n >= 2**31
        _launch_forward(
            batch if chained else batch * strips, (cost.dtype, constants), (cost, drop_x, drop_y, table, weights, rows),
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
        strips, chained = -(-m // 32), m <= 32 or is_chained(grad)
        grad_cost, to_x = torch.empty_like(grad), grad.new_empty(batch, m)
        # With room for the steps beyond the table: in a chain after each strip, and after the last twice as much.
        width = chain_width(n + 1) if chained else n + 40
        to_y = grad.new_empty(batch, strips + 2 if chained else strips, width)
        constants = chained, m * n >= 2**31
        _launch_backward(
            batch if chained else batch * strips, (grad.dtype, constants), (grad, weights, rows, grad_cost, to_x, to_y),
            batch, strips, m, n, *constants,
        )  # fmt: skip
        to_y = to_y[:, :strips, :n]
        return grad_cost, to_x, to_y.sum(1) if strips > 1 else to_y[:, 0], None, None


@triton.jit(do_not_specialize=ARGUMENTS)
def _forward(
    cost, drop_x, drop_y, table, weights, rows, batch, strips, m, n, gamma, gamma_rest,
    kind: tl.constexpr, chained: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    gamma = tl.zeros([], table.dtype.element_ty) + gamma + gamma_rest
    i_pair, i_strip = place(rows, batch, strips, not chained)
    pair = i_pair.to(tl.int64)
    p_out, to_p, to_next = _rows(rows, pair, strips, i_strip, m, n, chained)
    if i_strip == 0:
        _row_before(drop_y + pair * n, p_out - to_next, to_p, n, table.dtype.element_ty)
        tl.debug_barrier()
    weights += (pair if chained else pair * strips + i_strip) * slots_in(m, n, chained) * (4 * LANES)
    _sweep(
        cost + pair * m * n, drop_x + pair * m, drop_y + pair * n, table + pair * m * n, weights,
        p_out, to_p, to_next, i_strip, m, n, gamma, kind, chained, keep, wide,
    )  # fmt: skip


_launch_forward = Launcher(_forward, maxnreg=255)


@triton.jit
def _rows(rows, pair, strips, i_strip, m, n, chained: tl.constexpr):
    """Find column 0 of the row of D that a strip hands over, and count the words to its P and to the next strip."""
    if chained:
        width = width_of(n + 1)
        to_p, to_next = chain_words(m, width), width
        p_out = word_row(rows, 2 * pair, to_p) + to_next
    else:
        to_p, to_next = words_of(n), 2 * words_of(n)
        p_out = word_row(rows, (pair * (strips + 1) + i_strip + 1) * 2, to_p)
    return p_out, to_p, to_next


@triton.jit
def _row_before(drop_y, p_row, to_p, n, dtype: tl.constexpr):
    """Write D of the row before the first, the sum of the drop costs of y up to each column, and P, the border."""
    before = tl.zeros([], tl.float64)
    for start in range(-1, n, LANES):
        column = start + tl.arange(0, LANES)
        y = tl.load(drop_y + column, mask=(column >= 0) & (column < n), other=0.0)
        y = tl.minimum(y, BORDER).to(tl.float64)
        sums = before + tl.cumsum(y, 0)
        high, small = sums.to(dtype), (sums - sums.to(dtype).to(tl.float64)).to(dtype)
        before += tl.sum(y)
        tl.store(p_row + column, pack_word(high, small), mask=column < n)
        tl.store(p_row + to_p + column, pack_word(high * 0 + FAR, small * 0), mask=(column >= 0) & (column < n))


@triton.jit
def _sweep(
    cost, drop_x, drop_y, table, weights, p_out, to_p, to_next, i_strip, m, n, gamma,
    kind: tl.constexpr, chained: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Accumulate one strip of one pair, or all in a chain."""
    dtype: tl.constexpr = table.dtype.element_ty
    lane, width, sharpness = tl.arange(0, LANES), width_of(n + 1), LOG2E / gamma
    steps = steps_in(m, n, width, chained)
    giver = (lane == LANES - 1) & (chained or (i_strip + 1) * LANES < m)
    begin = tl.zeros([], tl.int32)  # the step at which the strip of the first lane begins
    weights += lane
    # D two steps before and P one step before, as high and low.
    small, matched_low = tl.zeros([LANES], dtype), tl.zeros([LANES], dtype)
    high, matched = small + FAR, matched_low + FAR
    row, column, real = cells(i_strip, 0, m, n, width, wide, chained)
    b_next = tl.load(cost + (row * n + column), mask=real, other=FAR).to(dtype)
    x = _drops_of_x(drop_x, i_strip, 0, m, chained)
    y0, y1, y2, y3, y4, y5, y6, y7 = _drops_of_y(drop_y, -1, n, width, chained)
    word = peek(p_out - to_next - 1, 0, True, n + 1, True, dtype)
    word_p = peek(p_out - to_next + to_p, 0, True, n, True, dtype)
    for t in range(0, steps, STEPS):
        c0, c1, c2, c3, c4, c5, c6, c7 = columns(b_next)
        i_next, next_begin = turn(i_strip, begin, t + STEPS, width, chained)
        ahead = t + STEPS - next_begin
        row, column, real = cells(i_next, ahead, m, n, width, wide, chained)
        b_next = tl.load(cost + (row * n + column), mask=real, other=FAR).to(dtype)
        z0, z1, z2, z3, z4, z5, z6, z7 = _drops_of_y(drop_y, ahead - 1, n, width, chained)
        next_x = _drops_of_x(drop_x, i_next, ahead, m, chained) if chained else x
        if not chained:
            word = wait(word, p_out - to_next - 1, t, True, n + 1, dtype)
            word_p = wait(word_p, p_out - to_next + to_p, t, True, n, dtype)
        top, top_low = read(word, dtype)
        top_p, top_p_low = read(word_p, dtype)
        p_in = p_out + (next_begin - to_next)
        word = peek(p_in - 1, ahead, i_next * LANES < m, n + 1, True, dtype)
        word_p = peek(p_in + to_p, ahead, i_next * LANES < m, n, True, dtype)
        p = weights + t * (4 * LANES)
        fixed = x, top, top_low, top_p, top_p_low, gamma, sharpness
        h0, s0, q0, r0 = _step(c0, y0, 0, high, small, matched, matched_low, fixed, p, kind, keep)
        h1, s1, q1, r1 = _step(c1, y1, 1, h0, s0, q0, r0, fixed, p, kind, keep)
        h2, s2, q2, r2 = _step(c2, y2, 2, h1, s1, q1, r1, fixed, p, kind, keep)
        h3, s3, q3, r3 = _step(c3, y3, 3, h2, s2, q2, r2, fixed, p, kind, keep)
        h4, s4, q4, r4 = _step(c4, y4, 4, h3, s3, q3, r3, fixed, p, kind, keep)
        h5, s5, q5, r5 = _step(c5, y5, 5, h4, s4, q4, r4, fixed, p, kind, keep)
        h6, s6, q6, r6 = _step(c6, y6, 6, h5, s5, q5, r5, fixed, p, kind, keep)
        h7, s7, q7, r7 = _step(c7, y7, 7, h6, s6, q6, r6, fixed, p, kind, keep)
        high, small, matched, matched_low = h7, s7, q7, r7
        y0, y1, y2, y3, y4, y5, y6, y7 = z0, z1, z2, z3, z4, z5, z6, z7
        if chained:
            x = next_x
        gives = giver & (t >= LANES - STEPS)  # before that the last lane would write over the row before the first
        hand_over(p_out, t - 1, gives, h0, h1, h2, h3, h4, h5, h6, h7, s0, s1, s2, s3, s4, s5, s6, s7)
        hand_over(p_out + to_p, t, gives, q0, q1, q2, q3, q4, q5, q6, q7, r0, r1, r2, r3, r4, r5, r6, r7)
        row, column, real = cells(i_strip, t - begin - 1, m, n, width, wide, chained)
        tl.store(table + (row * n + column), joined(h0, h1, h2, h3, h4, h5, h6, h7), mask=real)
        if chained:
            between = is_between(t + STEPS - 1 - begin, width)
            high, matched = tl.where(between, FAR, high), tl.where(between, FAR, matched)
            small, matched_low = tl.where(between, 0.0, small), tl.where(between, 0.0, matched_low)
            i_strip, begin = i_next, next_begin
            tl.debug_barrier()  # so that the lanes see what one of them handed over
    # The backward pass reads a step beyond the last, and a row of n + 1 words: no value of this pass may be left there.
    if keep:
        tl.store(weights + (steps * 4 + 2) * LANES, x * 0)
        tl.store(weights + (steps * 4 + 3) * LANES, x * 0)
    if not chained:
        tl.store(p_out + n + lane * 0, tl.zeros([LANES], tl.int64), mask=giver)


@triton.jit
def slots_in(m, n, chained: tl.constexpr):
    """Count the steps that `weights` of a program has room for: D is a step behind P."""
    return steps_in(m, n, width_of(n + 1), chained) + STEPS


@triton.jit
def _drops_of_x(drop_x, i_strip, t, m, chained: tl.constexpr):
    """Load the drop costs of x for the rows that the lanes are in from step t on."""
    row = i_strip * LANES + tl.arange(0, LANES)
    if chained:
        row -= tl.where((tl.arange(0, LANES) >= t + STEPS) & (i_strip > 0), LANES, 0)
    return tl.minimum(tl.load(drop_x + row, mask=row < m, other=0.0), BORDER)


@triton.jit
def _drops_of_y(p, t, n, width, chained: tl.constexpr):
    """Load the drop costs of y for all lanes at steps t, t + 1, …"""
    column = t - tl.arange(0, LANES)
    if chained:
        column = tl.where(column + STEPS <= 0, column + width, column)
    y0, y1, y2, y3 = _y(p, column, n), _y(p, column + 1, n), _y(p, column + 2, n), _y(p, column + 3, n)
    y4, y5, y6, y7 = _y(p, column + 4, n), _y(p, column + 5, n), _y(p, column + 6, n), _y(p, column + 7, n)
    return y0, y1, y2, y3, y4, y5, y6, y7


@triton.jit
def _y(drop_y, column, n):
    inside = column.to(tl.uint32) < n.to(tl.uint32)
    return tl.minimum(tl.load(drop_y + column, mask=inside, other=FAR), FAR)


@triton.jit
def _step(
    c, y, k: tl.constexpr, high, small, matched, matched_low, fixed, weights, kind: tl.constexpr, keep: tl.constexpr
):  # fmt: skip
    """Compute D of one step and P of the next in each lane: neither waits for the other."""
    x, top, top_low, top_p, top_p_low, gamma, sharpness = fixed
    above, above_low = shift_down(high, top, k, True), shift_down(small, top_low, k, True)
    above_p, above_p_low = shift_down(matched, top_p, k, True), shift_down(matched_low, top_p_low, k, True)
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
    at = weights + k * (4 * LANES)
    if keep:
        tl.store(at, by_a)
        tl.store(at + LANES, by_b)
        tl.store(at + 2 * LANES, by_p)
        tl.store(at + 3 * LANES, by_u)
    return value, rest - (value - least), p, p_low


@triton.jit(do_not_specialize=ARGUMENTS)
def _backward(
    grad, weights, rows, grad_cost, to_x, to_y, batch, strips, m, n,
    chained: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    i_pair, i_order = place(rows, batch, strips, not chained)
    pair, i_strip = i_pair.to(tl.int64), strips - 1 - i_order
    i_row = pair if chained else pair * strips + i_strip
    p_out, to_p, to_next = _rows(rows, pair, strips, i_strip, m, n, chained)
    size = (strips + 2) * width_of(n + 1) if chained else n + 40
    _sweep_back(
        grad + pair * m * n, weights + i_row * slots_in(m, n, chained) * (4 * LANES), grad_cost + pair * m * n,
        to_x + pair * m, to_y + i_row * size, p_out, to_p, to_next, i_strip, m, n, chained, wide,
    )  # fmt: skip


_launch_backward = Launcher(_backward, maxnreg=128)


@triton.jit
def _sweep_back(
    grad, weights, grad_cost, to_x, to_y, p_out, to_p, to_next, i_strip, m, n,
    chained: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Run the gradient of one strip of one pair, or of all in a chain, back."""
    dtype: tl.constexpr = weights.dtype.element_ty
    lane, width = tl.arange(0, LANES), width_of(n + 1)
    giver = (lane == 0) & (chained or i_strip > 0)
    to_y += lane
    weights += lane
    # What the cells of the step after pass on: by v and d in their own lane, by u, b and (a step later) a to the lane
    # above. Then the sums over a row, over a column, and over the row before the first strip, where D is a sum of ŷ.
    z = tl.zeros([LANES], dtype)
    by_v, by_d, to_above, by_b, by_a, x_sum, y_sum, top_sum = z, z, z, z, z, z, z, z
    t = steps_in(m, n, width, chained) - STEPS
    begin = tl.zeros([], tl.int32)  # the step at which the strip of the first lane begins
    if chained:
        i_strip, begin = turn(i_strip, i_strip * width, t, width, chained)
    row, column, real = cells(i_strip, t - begin, m, n, width, wide, chained)
    b_grad = tl.load(grad + (row * n + column), mask=real, other=0.0).to(dtype)
    p = weights + t * (4 * LANES)
    a0, a1, a2, a3, a4, a5, a6, a7 = steps_at(p, 4)
    b0, b1, b2, b3, b4, b5, b6, b7 = steps_at(p + LANES, 4)
    p0, p1, p2, p3, p4, p5, p6, p7 = steps_at(p + 6 * LANES, 4)
    u0, u1, u2, u3, u4, u5, u6, u7 = steps_at(p + 7 * LANES, 4)
    # Of the row below: D from column −1, then P.
    p_in, first, follows = row_below(p_out, i_strip, begin, t, m, to_next, chained)
    word = peek(p_in, first + 1, follows, n + 1, True, dtype)
    word_p = peek(p_in + to_p, first, follows, n, True, dtype)
    while t >= 0:
        g0, g1, g2, g3, g4, g5, g6, g7 = columns(b_grad)
        i_next, next_begin = turn(i_strip, begin, t - STEPS, width, chained)
        row, column, real = cells(i_next, t - STEPS - next_begin, m, n, width, wide, chained)
        b_grad = tl.load(grad + (row * n + column), mask=real, other=0.0).to(dtype)
        p = weights + tl.maximum(t - STEPS, 0) * (4 * LANES)
        e0, e1, e2, e3, e4, e5, e6, e7 = steps_at(p, 4)
        f0, f1, f2, f3, f4, f5, f6, f7 = steps_at(p + LANES, 4)
        q0, q1, q2, q3, q4, q5, q6, q7 = steps_at(p + 6 * LANES, 4)
        v0, v1, v2, v3, v4, v5, v6, v7 = steps_at(p + 7 * LANES, 4)
        if not chained:
            p_in, first, follows = row_below(p_out, i_strip, begin, t, m, to_next, chained)
            word = wait(word, p_in, first + 1, follows, n + 1, dtype)
            word_p = wait(word_p, p_in + to_p, first, follows, n, dtype)
        below, _ = read(word, dtype)
        below_p, _ = read(word_p, dtype)
        p_in, first, follows = row_below(p_out, i_next, next_begin, t - STEPS, m, to_next, chained)
        word = peek(p_in, first + 1, follows, n + 1, True, dtype)
        word_p = peek(p_in + to_p, first, follows, n, True, dtype)
        fixed = t, below, below_p, to_y, i_strip
        state = by_v, by_d, by_a, x_sum, y_sum, top_sum
        c7, h7, i7, state = _step_back(g7, 7, a7, b7, p7, u7, to_above, by_b, state, fixed)
        c6, h6, i6, state = _step_back(g6, 6, a6, b6, p6, u6, h7, i7, state, fixed)
        c5, h5, i5, state = _step_back(g5, 5, a5, b5, p5, u5, h6, i6, state, fixed)
        c4, h4, i4, state = _step_back(g4, 4, a4, b4, p4, u4, h5, i5, state, fixed)
        c3, h3, i3, state = _step_back(g3, 3, a3, b3, p3, u3, h4, i4, state, fixed)
        c2, h2, i2, state = _step_back(g2, 2, a2, b2, p2, u2, h3, i3, state, fixed)
        c1, h1, i1, state = _step_back(g1, 1, a1, b1, p1, u1, h2, i2, state, fixed)
        c0, h0, i0, state = _step_back(g0, 0, a0, b0, p0, u0, h1, i1, state, fixed)
        by_v, by_d, by_a, x_sum, y_sum, top_sum = state
        to_above, by_b = h0, i0
        hand_over(p_out, t + 1, giver, h0, h1, h2, h3, h4, h5, h6, h7, z, z, z, z, z, z, z, z)
        hand_over(p_out + to_p, t, giver, i0, i1, i2, i3, i4, i5, i6, i7, z, z, z, z, z, z, z, z)
        row, column, real = cells(i_strip, t - begin, m, n, width, wide, chained)
        tl.store(grad_cost + (row * n + column), joined(c0, c1, c2, c3, c4, c5, c6, c7), mask=real)
        a0, a1, a2, a3, a4, a5, a6, a7 = e0, e1, e2, e3, e4, e5, e6, e7
        b0, b1, b2, b3, b4, b5, b6, b7 = f0, f1, f2, f3, f4, f5, f6, f7
        p0, p1, p2, p3, p4, p5, p6, p7 = q0, q1, q2, q3, q4, q5, q6, q7
        u0, u1, u2, u3, u4, u5, u6, u7 = v0, v1, v2, v3, v4, v5, v6, v7
        if chained:  # a lane has left a strip, with its column −1
            between = is_between(t - begin + 1, width) & ((i_strip > 0) | (t >= lane))
            row1 = (i_strip + (t - begin >= lane).to(tl.int32)) * LANES + lane
            tl.store(to_x + row1, x_sum, mask=between & (row1 < m))
            by_v, by_d, by_a = tl.where(between, 0.0, by_v), tl.where(between, 0.0, by_d), tl.where(between, 0.0, by_a)
            to_above, by_b = tl.where(between, 0.0, to_above), tl.where(between, 0.0, by_b)
            x_sum, top_sum = tl.where(between, 0.0, x_sum), tl.where(between, 0.0, top_sum)
            i_strip, begin = i_next, next_begin
            tl.debug_barrier()  # so that the lanes see what one of them handed over
        t -= STEPS
    # Column −1 of the first lane is a step before the first.
    e = by_v + shift_up(to_above, z, 0, False)
    x_sum += tl.where(lane == 0, e, 0.0)
    if not chained:
        hand_over_one(p_out, giver, e + by_a)
    row1 = i_strip * LANES + lane
    tl.store(to_x + row1, x_sum, mask=row1 < m)


@triton.jit
def _step_back(g, k: tl.constexpr, w_a, w_b, w_p, w_u, to_above, by_b, state, fixed):
    """Collect E of D and of P in each lane; return the latter, its parts for the lane above, and the state after it."""
    by_v, by_d, by_a, x_sum, y_sum, top_sum = state
    t, below, below_p, to_y, i_strip = fixed
    e = g + by_v + shift_up(to_above, below, k, True)
    matched = w_p * e + by_d + shift_up(by_b, below_p, k, True)
    by_v, by_u = (1 - (w_p + w_u)) * e, w_u * e
    to_above = by_u + by_a
    by_a, by_b, by_d = w_a * matched, w_b * matched, (1 - (w_a + w_b)) * matched
    y_sum = by_v + shift_up(y_sum, tl.zeros([LANES], e.dtype), k, False)
    top_sum += to_above
    tl.store(to_y + (t + k), y_sum + tl.where(i_strip == 0, top_sum, 0.0), mask=tl.arange(0, LANES) == 0)
    return matched, to_above, by_b, (by_v, by_d, by_a, x_sum + by_u, y_sum, top_sum)
