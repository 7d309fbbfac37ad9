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
from inphase.align.triton.tiles_triton import (
    BORDER,
    LANES,
    LOG2E,
    STEPS,
    add,
    cells,
    chain_words,
    columns,
    eight,
    hand_over,
    is_between,
    joined,
    minimum,
    pack_word,
    peek,
    place,
    read,
    rounded,
    row_below,
    shift_down,
    shift_up,
    steps_in,
    store_aligned,
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


_launch_forward = Launcher(_forward, maxnreg=168)


@triton.jit
def _rows(rows, pair, strips, i_strip, m, n, chained: tl.constexpr):
    """Find column 0 of the row of D that a strip hands over, and count the words to its P and to the next strip."""
    if chained:
        width = _width(n)
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
        tl.store(p_row + column, pack_word(high, small, True), mask=column < n)
        tl.store(p_row + to_p + column, pack_word(high * 0 + FAR, small * 0, True), mask=(column >= 0) & (column < n))


@triton.jit
def _sweep(
    cost, drop_x, drop_y, table, weights, p_out, to_p, to_next, i_strip, m, n, gamma,
    kind: tl.constexpr, chained: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Accumulate one strip of one pair, or all in a chain."""
    dtype: tl.constexpr = table.dtype.element_ty
    lane, width, sharpness = tl.arange(0, LANES), _width(n), LOG2E / gamma
    steps = steps_in(m, n, width, chained)
    giver = (lane == LANES - 1) & (chained or (i_strip + 1) * LANES < m)
    begin = tl.zeros([], tl.int32)  # the step at which the strip of the first lane begins
    # D two steps before and P one step before, as high and low.
    small, matched_low = tl.zeros([LANES], dtype), tl.zeros([LANES], dtype)
    high, matched = small + FAR, matched_low + FAR
    at, real = cells(i_strip, 0, m, n, n, 1, width, wide, chained)
    b_next = tl.load(cost + at, mask=real, other=FAR).to(dtype)
    x = _drops_of_x(drop_x, i_strip, 0, m, chained)
    ys = _drops_of_y(drop_y, -1, n, width, chained)
    word = peek(p_out - to_next - 1, 0, True, n + 1, True, dtype)
    word_p = peek(p_out - to_next + to_p, 0, True, n, True, dtype)
    before = eight(high)  # D of the tile before
    for t in range(0, steps, STEPS):
        c = columns(b_next)
        i_next, next_begin = turn(i_strip, begin, t + STEPS, width, chained)
        ahead = t + STEPS - next_begin
        at, real = cells(i_next, ahead, m, n, n, 1, width, wide, chained)
        b_next = tl.load(cost + at, mask=real, other=FAR).to(dtype)
        next_ys = _drops_of_y(drop_y, ahead - 1, n, width, chained)
        next_x = _drops_of_x(drop_x, i_next, ahead, m, chained) if chained else x
        if not chained:
            word = wait(word, p_out - to_next - 1, t, True, n + 1, dtype)
            word_p = wait(word_p, p_out - to_next + to_p, t, True, n, dtype)
        tops = read(word, dtype, True) + read(word_p, dtype, True)
        p_in = p_out + (next_begin - to_next)
        word = peek(p_in - 1, ahead, i_next * LANES < m, n + 1, True, dtype)
        word_p = peek(p_in + to_p, ahead, i_next * LANES < m, n, True, dtype)
        p = weights + t * (4 * LANES)
        highs, lows, matches, matches_low, values = (), (), (), (), ()
        for k in tl.static_range(STEPS):
            high, small, matched, matched_low, kept = _step(
                c[k], x, ys[k], tops, k, high, small, matched, matched_low, gamma, sharpness, kind
            )
            values = values + (high + small,)
            if k % 2 == 1:
                high, small = rounded(high, small)
                matched, matched_low = rounded(matched, matched_low)
            highs, lows = highs + (high,), lows + (small,)
            matches, matches_low = matches + (matched,), matches_low + (matched_low,)
            if keep:
                tl.store(_slot(p, k), kept)
        x, ys = next_x, next_ys
        gives = giver & (t >= LANES - STEPS)  # before that the last lane would write over the row before the first
        hand_over(p_out, t - 1, gives, highs, lows, True)
        hand_over(p_out + to_p, t, gives, matches, matches_low, True)
        if chained:
            # D is a step behind: the first of its values belongs to the tile before.
            store_aligned(table, i_strip, t - begin - STEPS, m, n, before[1:] + values, width, wide, chained)
            before = values
            between = is_between(t + STEPS - 1 - begin, width)
            high, matched = tl.where(between, FAR, high), tl.where(between, FAR, matched)
            small, matched_low = tl.where(between, 0.0, small), tl.where(between, 0.0, matched_low)
            i_strip, begin = i_next, next_begin
            tl.debug_barrier()  # so that the lanes see what one of them handed over
        else:
            at, real = cells(i_strip, t - 1, m, n, n, 1, width, wide, chained)
            tl.store(table + at, joined(values), mask=real)
    # The backward pass reads a row of n + 1 words: no value of this pass may be left there.
    if not chained:
        tl.store(p_out + n + lane * 0, tl.zeros([LANES], tl.int64), mask=giver)


@triton.jit
def _slot(weights, k: tl.constexpr):
    """Find the four weights of step k of a tile, side by side in each lane."""
    p = weights + (k * 4 * LANES + tl.arange(0, LANES)[:, None] * 4 + tl.arange(0, 4)[None, :])
    return tl.multiple_of(p, [1, 16])


@triton.jit
def _kept_at(weights):
    """Load the four weights of eight steps."""
    kept = ()
    for k in tl.static_range(STEPS):
        ab, pu = tl.split(tl.reshape(tl.load(_slot(weights, k)), [LANES, 2, 2]))
        kept = kept + (tl.split(ab) + tl.split(pu),)
    return kept


@triton.jit
def _width(n):
    """Count the steps between two strips. Short tables of one strip have more than their columns take: one per lane."""
    return tl.maximum(width_of(n + 1), LANES)


@triton.jit
def slots_in(m, n, chained: tl.constexpr):
    """Count the steps that `weights` of a program has room for: D is a step behind P."""
    return steps_in(m, n, _width(n), chained) + STEPS


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
    column, ys = t - tl.arange(0, LANES), ()
    if chained:
        column = tl.where(column + STEPS <= 0, column + width, column)
    for k in tl.static_range(STEPS):
        inside = (column + k).to(tl.uint32) < n.to(tl.uint32)
        ys = ys + (tl.minimum(tl.load(p + column + k, mask=inside, other=FAR), FAR),)
    return ys


@triton.jit
def _step(c, x, y, tops, k: tl.constexpr, high, small, matched, matched_low, gamma, sharpness, kind: tl.constexpr):
    """Compute D of one step and P of the next in each lane, neither of which waits for the other, and four weights."""
    above, above_low = shift_down(high, tops[0], k, True), shift_down(small, tops[1], k, True)
    above_p, above_p_low = shift_down(matched, tops[2], k, True), shift_down(matched_low, tops[3], k, True)
    u, u_low = add(above, above_low, x)
    v, v_low = add(high, small, y)
    least, least_low, penalty, by_a, by_b = minimum(
        above, above_low, above_p, above_p_low, matched, matched_low, gamma, sharpness, kind
    )
    p, p_low = add(least, least_low, c)
    p_low += penalty
    least, least_low, penalty, by_p, by_u = minimum(matched, matched_low, u, u_low, v, v_low, gamma, sharpness, kind)
    kept = tl.reshape(tl.join(tl.join(by_a, by_b), tl.join(by_p, by_u)), [LANES, 4])
    return least, least_low + penalty, p, p_low, kept


@triton.jit(do_not_specialize=ARGUMENTS)
def _backward(
    grad, weights, rows, grad_cost, to_x, to_y, batch, strips, m, n,
    chained: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    i_pair, i_order = place(rows, batch, strips, not chained)
    pair, i_strip = i_pair.to(tl.int64), strips - 1 - i_order
    i_row = pair if chained else pair * strips + i_strip
    p_out, to_p, to_next = _rows(rows, pair, strips, i_strip, m, n, chained)
    size = (strips + 2) * _width(n) if chained else n + 40
    _sweep_back(
        grad + pair * m * n, weights + i_row * slots_in(m, n, chained) * (4 * LANES), grad_cost + pair * m * n,
        to_x + pair * m, to_y + i_row * size, p_out, to_p, to_next, i_strip, m, n, chained, wide,
    )  # fmt: skip


_launch_backward = Launcher(_backward, maxnreg=168)


@triton.jit
def _sweep_back(
    grad, weights, grad_cost, to_x, to_y, p_out, to_p, to_next, i_strip, m, n,
    chained: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Run the gradient of one strip of one pair, or of all in a chain, back."""
    dtype: tl.constexpr = weights.dtype.element_ty
    lane, width = tl.arange(0, LANES), _width(n)
    giver = (lane == 0) & (chained or i_strip > 0)
    to_y += lane
    # What the cells of the step after pass on: by v and d in their own lane, by u, b and (a step later) a to the lane
    # above. Then the sums over a row, over a column, and over the row before the first strip, where D is a sum of ŷ.
    z = tl.zeros([LANES], dtype)
    by_v, by_d, to_above, by_b, by_a, x_sum, y_sum, top_sum = z, z, z, z, z, z, z, z
    t = steps_in(m, n, width, chained) - STEPS
    begin = tl.zeros([], tl.int32)  # the step at which the strip of the first lane begins
    if chained:
        i_strip, begin = turn(i_strip, i_strip * width, t, width, chained)
    at, real = cells(i_strip, t - begin, m, n, n, 1, width, wide, chained)
    b_grad = tl.load(grad + at, mask=real, other=0.0).to(dtype)
    kept = _kept_at(weights + t * (4 * LANES))
    # Of the row below: D from column −1, then P.
    p_in, first, follows = row_below(p_out, i_strip, begin, t, m, to_next, chained)
    word = peek(p_in, first + 1, follows, n + 1, True, dtype)
    word_p = peek(p_in + to_p, first, follows, n, True, dtype)
    w_p, w_u, after = z, z, eight(z)  # of the tile after: two weights of its first step, and E
    while t >= 0:
        g = columns(b_grad)
        i_next, next_begin = turn(i_strip, begin, t - STEPS, width, chained)
        at, real = cells(i_next, t - STEPS - next_begin, m, n, n, 1, width, wide, chained)
        b_grad = tl.load(grad + at, mask=real, other=0.0).to(dtype)
        next_kept = _kept_at(weights + tl.maximum(t - STEPS, 0) * (4 * LANES))
        if not chained:
            p_in, first, follows = row_below(p_out, i_strip, begin, t, m, to_next, chained)
            word = wait(word, p_in, first + 1, follows, n + 1, dtype)
            word_p = wait(word_p, p_in + to_p, first, follows, n, dtype)
        below, _ = read(word, dtype, True)
        below_p, _ = read(word_p, dtype, True)
        p_in, first, follows = row_below(p_out, i_next, next_begin, t - STEPS, m, to_next, chained)
        word = peek(p_in, first + 1, follows, n + 1, True, dtype)
        word_p = peek(p_in + to_p, first, follows, n, True, dtype)
        fixed = t, below, below_p, to_y, i_strip
        es, given, given_p = (), (), ()
        for k in tl.static_range(STEPS - 1, -1, -1):
            w_a, w_b = kept[k][0], kept[k][1]
            state = by_v, by_d, by_a, x_sum, y_sum, top_sum
            e, to_above, by_b, state = _step_back(g[k], k, w_a, w_b, w_p, w_u, to_above, by_b, state, fixed)
            by_v, by_d, by_a, x_sum, y_sum, top_sum = state
            w_p, w_u = kept[k][2], kept[k][3]  # D is a step behind
            es, given, given_p = (e,) + es, (to_above,) + given, (by_b,) + given_p
        hand_over(p_out, t + 1, giver, given, eight(z), True)
        hand_over(p_out + to_p, t, giver, given_p, eight(z), True)
        if chained:
            store_aligned(grad_cost, i_strip, t - begin, m, n, es + after, width, wide, chained)
            after = es
            # A lane has left a strip, with its column −1.
            between = is_between(t - begin + 1, width) & ((i_strip > 0) | (t >= lane))
            row1 = (i_strip + (t - begin >= lane).to(tl.int32)) * LANES + lane
            tl.store(to_x + row1, x_sum, mask=between & (row1 < m))
            by_v, by_d, by_a = tl.where(between, 0.0, by_v), tl.where(between, 0.0, by_d), tl.where(between, 0.0, by_a)
            to_above, by_b = tl.where(between, 0.0, to_above), tl.where(between, 0.0, by_b)
            x_sum, top_sum = tl.where(between, 0.0, x_sum), tl.where(between, 0.0, top_sum)
            i_strip, begin = i_next, next_begin
            tl.debug_barrier()  # so that the lanes see what one of them handed over
        else:
            at, real = cells(i_strip, t, m, n, n, 1, width, wide, chained)
            tl.store(grad_cost + at, joined(es), mask=real)
        kept = next_kept
        t -= STEPS
    # Column −1 of the first lane is a step before the first.
    e = by_v + shift_up(to_above, z, 0, False)
    x_sum += tl.where(lane == 0, e, 0.0)
    if not chained:
        tl.store(p_out + lane * 0, pack_word(e + by_a, z, True), mask=giver)
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
