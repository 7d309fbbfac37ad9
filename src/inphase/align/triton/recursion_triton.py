"""The recursion on a GPU, in Triton: any length, 48-bit state, one warp to a strip of 32 rows and no barrier between.

With a, b, d the predecessors R(i−1, j−1), R(i−1, j), R(i, j−1) of a cell, lo the least of them, u_r = (r − lo)/γ,
q = e^(−u) / Σ e^(−u) and p = Σ u q:

    smooth   R = c + lo + γ p                     ∂R/∂r = q_r (1 − (u_r − p))
    soft     R = c + lo − γ log Σ e^(−u)          ∂R/∂r = q_r
    hard     R = c + lo                           ∂R/∂r = 1 for the first of a, b, d that is least
    E(i, j) = G(i, j) + E(i+1, j+1) ∂R/∂a + E(i+1, j) ∂R/∂b + E(i, j+1) ∂R/∂d,   each ∂ taken at the successor

`accumulate_reference` in `recursion.py` is the same in torch operations. At step t lane r of a strip handles column
t − r, so the lanes of a step are independent and b is the value the lane above had a step ago. The chain of dependent
steps limits the speed: hence one warp to a strip, registers and shuffles, and tiles of eight steps loaded one ahead.
Each strip of a pair is a program, a few columns behind the strip above, which hands over one row through memory in
words that are 0 until written: no flags, no fences. With pairs enough a program does a chain of all strips of a pair:
each lane goes on to the next strip after eight steps without a cell, in which its state is set back (`is_chained`).

State is a pair of floats, high + low, whose sum carries 48 bits: float32 alone loses the differences r − lo after a few
dozen frames (docs/lab/numerics.md). `high` is the table; `low` is kept for the backward pass as float16 in units of
γ/64, in the order of the steps: a little more than half the size of the table.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.triton import KINDS, Launcher, is_chained, low_size, two_floats, words
from inphase.align.triton.tiles_triton import (
    BORDER,
    LANES,
    LOG2E,
    STEPS,
    cell,
    cells,
    chain_words,
    clear_low,
    columns,
    hand_over,
    is_between,
    keep_low,
    low_room,
    peek,
    place,
    read,
    shift_down,
    shift_up,
    steps_at,
    steps_in,
    steps_of,
    store_aligned,
    turn,
    wait,
    weigh,
    width_of,
    word_row,
    words_of,
)

# A kernel compiled for one size and one alignment serves all.
ARGUMENTS = ["cost", "grad", "table", "grad_cost", "rows", "batch", "strips", "m", "n", "stride_b", "stride_m"]


def accumulate(cost: Tensor, kind: str, gamma: float, free_start: bool) -> Tensor:
    """Accumulate cost [B, M, N] on a CUDA device; see `inphase.align.accumulate`."""
    return cast("Tensor", _AccumulateTriton.apply(cost, KINDS[kind], gamma, free_start))


class _AccumulateTriton(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, kind: int, gamma: float, free_start: bool) -> Tensor:
        keep = ctx.needs_input_grad[0]
        table, low, rows = launch_forward(cost, kind, gamma, free_start, keep=keep)
        if keep:
            ctx.save_for_backward(table, low, rows)
            ctx.setting = kind, gamma, free_start
        return table

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return launch_backward(grad, *ctx.saved_tensors, *ctx.setting), None, None, None


def launch_forward(
    cost: Tensor, kind: int, gamma: float, free_start: bool, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Fill the table and, where a backward pass will need it, `low`: the rounding error of the table."""
    batch, m, n = cost.shape
    strips, chained = -(-m // 32), is_chained(cost)
    table = torch.empty_like(cost, memory_format=torch.contiguous_format)
    low = cost.new_empty(batch * low_size(m, n, chained=chained) if keep else 1, dtype=torch.float16)
    rows = words(cost, batch, strips, n, chained=chained) if strips > 1 else table
    strides = cost.stride()
    constants = kind, strips > 1, keep, _wide(m, n, strides), chained
    _launch_forward(
        batch if chained else batch * strips, (cost.dtype, strides[2], max(strides) < 2**31, constants),
        (cost, table, low, rows), batch, strips, m, n, *strides, *two_floats(gamma), 0.0 if free_start else 1e30,
        *constants,
    )  # fmt: skip
    return table, low, rows


def launch_backward(
    grad: Tensor, table: Tensor, low: Tensor, rows: Tensor | None, kind: int, gamma: float, free_start: bool
) -> Tensor:
    """Run the gradient of the table back to the cost. `rows` of the forward pass can be used again."""
    batch, m, n = table.shape
    strips = -(-m // 32)
    # vmap may have run the forward pass of fewer pairs: `low` is as that pass left it, and the table may be expanded.
    table, low = table.contiguous(), low.contiguous()
    chained = low.numel() != batch * low_size(m, n, chained=False)
    if rows is None:
        rows = words(table, batch, strips, n, chained=chained) if strips > 1 else table
    grad_cost = torch.empty_like(table)
    strides = grad.stride()
    constants = kind, strips > 1, _wide(m, n, strides), chained
    _launch_backward(
        batch if chained else batch * strips, (grad.dtype, strides[2], max(strides) < 2**31, constants),
        (grad, table, low, grad_cost, rows), batch, strips, m, n, *strides, *two_floats(gamma),
        0.0 if free_start else 1e30, *constants,
    )  # fmt: skip
    return grad_cost


def _wide(m: int, n: int, strides: tuple[int, ...]) -> bool:
    """Test whether 32 bits are too few to number the cells of a pair."""
    return max(m * n, m * strides[1] + n * strides[2]) >= 2**31


@triton.jit
def _row_size(m, n, chained: tl.constexpr):
    return chain_words(m, width_of(n)) if chained else words_of(n)


@triton.jit(do_not_specialize=ARGUMENTS)
def _forward(
    cost, table, low, rows, batch, strips, m, n, stride_b, stride_m, stride_n, gamma, gamma_rest, edge,
    kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    gamma = tl.zeros([], table.dtype.element_ty) + gamma + gamma_rest
    i_pair, i_strip = place(rows, batch, strips, several and not chained)
    p_cost, first = cost + i_pair.to(tl.int64) * stride_b, i_pair.to(tl.int64) * m * n
    i_row = i_pair.to(tl.int64) if chained else i_pair.to(tl.int64) * strips + i_strip
    sweep(
        p_cost, table + first, low + i_row * low_room(steps_in(m, n, width_of(n), chained)),
        word_row(rows, i_row, _row_size(m, n, chained)), i_strip, m, n, stride_m, stride_n, gamma, edge,
        kind, several, keep, wide, chained,
    )  # fmt: skip


_launch_forward = Launcher(_forward, maxnreg=120)


@triton.jit
def sweep(
    cost, table, low, p_out, i_strip, m, n, stride_m, stride_n,
    gamma, edge, kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
    chained: tl.constexpr,
):  # fmt: skip
    """Accumulate one strip of one pair, or all. `table` may be `cost` itself: a cell is read before it is written."""
    dtype: tl.constexpr = table.dtype.element_ty
    sharpness = LOG2E / gamma
    lane, width = tl.arange(0, LANES), width_of(n)
    steps, to_next = steps_in(m, n, width, chained), width if chained else words_of(n)
    gives = (lane == LANES - 1) & (chained or (i_strip + 1) * LANES < m)
    # R of the step before, and b of the step before, which is a; each as high and low.
    high, small = tl.full([LANES], BORDER, dtype), tl.zeros([LANES], dtype)
    high_a, small_a = tl.where((lane == 0) & (i_strip == 0), 0.0, high), small
    top, top_low = tl.zeros([LANES], dtype) + edge, small
    row, column, real = cells(i_strip, 0, m, n, width, wide, chained)
    b_next = tl.load(cost + (row * stride_m + column * stride_n), mask=real, other=BORDER).to(dtype)
    word = peek(p_out - to_next, 0, i_strip > 0, n, several, dtype)
    begin = tl.zeros([], tl.int32)  # the step at which the strip of the first lane begins
    low += lane
    if keep:
        clear_low(low, steps)
    # Tiles are stored late, while the next one is computed: the last one, and the one before it. These begin with
    # different values: Triton takes a variable for constant that begins with the value it is set to.
    x0, x1, x2, x3, x4, x5, x6, x7 = high, high, high, high, high, high, high, high
    z0, z1, z2, z3, z4, z5, z6, z7 = small, small, small, small, small, small, small, small
    for t in range(0, steps, STEPS):
        c0, c1, c2, c3, c4, c5, c6, c7 = columns(b_next)
        i_next, next_begin = turn(i_strip, begin, t + STEPS, width, chained)
        row, column, real = cells(i_next, t + STEPS - next_begin, m, n, width, wide, chained)
        b_next = tl.load(cost + (row * stride_m + column * stride_n), mask=real, other=BORDER).to(dtype)
        if several:
            if not chained:
                word = wait(word, p_out - to_next, t, i_strip > 0, n, dtype)
            top, top_low = read(word, dtype)
            top = tl.where(i_strip > 0, top, edge)
            p_above = p_out + (next_begin - to_next)
            word = peek(p_above, t + STEPS - next_begin, i_next > 0, n, several, dtype)
        tiles = z0, z1, z2, z3, z4, z5, z6, z7, x0, x1, x2, x3, x4, x5, x6
        store_aligned(table, i_strip, t - begin - 2 * STEPS, m, n, tiles, width, wide, chained)
        z0, z1, z2, z3, z4, z5, z6, z7 = x0, x1, x2, x3, x4, x5, x6, x7
        x0, y0, a, b = _step(c0, top, top_low, 0, high, small, high_a, small_a, gamma, sharpness, kind, several)
        x1, y1, a, b = _step(c1, top, top_low, 1, x0, y0, a, b, gamma, sharpness, kind, several)
        x2, y2, a, b = _step(c2, top, top_low, 2, x1, y1, a, b, gamma, sharpness, kind, several)
        x3, y3, a, b = _step(c3, top, top_low, 3, x2, y2, a, b, gamma, sharpness, kind, several)
        x4, y4, a, b = _step(c4, top, top_low, 4, x3, y3, a, b, gamma, sharpness, kind, several)
        x5, y5, a, b = _step(c5, top, top_low, 5, x4, y4, a, b, gamma, sharpness, kind, several)
        x6, y6, a, b = _step(c6, top, top_low, 6, x5, y5, a, b, gamma, sharpness, kind, several)
        x7, y7, a, b = _step(c7, top, top_low, 7, x6, y6, a, b, gamma, sharpness, kind, several)
        high, small, high_a, small_a = x7, y7, a, b
        if several:
            hand_over(p_out, t, gives, x0, x1, x2, x3, x4, x5, x6, x7, y0, y1, y2, y3, y4, y5, y6, y7)
        if keep:
            at = low + (t + 2) * LANES
            keep_low(at + 0 * LANES, y0, gamma)
            keep_low(at + 1 * LANES, y1, gamma)
            keep_low(at + 2 * LANES, y2, gamma)
            keep_low(at + 3 * LANES, y3, gamma)
            keep_low(at + 4 * LANES, y4, gamma)
            keep_low(at + 5 * LANES, y5, gamma)
            keep_low(at + 6 * LANES, y6, gamma)
            keep_low(at + 7 * LANES, y7, gamma)
        if chained:
            between = is_between(t + STEPS - 1 - begin, width)
            high, high_a = tl.where(between, BORDER, high), tl.where(between, BORDER, high_a)
            small, small_a = tl.where(between, 0.0, small), tl.where(between, 0.0, small_a)
            i_strip, begin = i_next, next_begin
            tl.debug_barrier()  # so that the lanes see what one of them handed over
    tiles = z0, z1, z2, z3, z4, z5, z6, z7, x0, x1, x2, x3, x4, x5, x6
    store_aligned(table, i_strip, steps - begin - 2 * STEPS, m, n, tiles, width, wide, chained)


@triton.jit(do_not_specialize=ARGUMENTS)
def _backward(
    grad, table, low, grad_cost, rows, batch, strips, m, n, stride_b, stride_m, stride_n, gamma, gamma_rest, edge,
    kind: tl.constexpr, several: tl.constexpr, wide: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    gamma = tl.zeros([], table.dtype.element_ty) + gamma + gamma_rest
    i_pair, i_order = place(rows, batch, strips, several and not chained)
    p_grad, first = grad + i_pair.to(tl.int64) * stride_b, i_pair.to(tl.int64) * m * n
    i_strip = strips - 1 - i_order
    i_row = i_pair.to(tl.int64) if chained else i_pair.to(tl.int64) * strips + i_strip
    sweep_back(
        p_grad, table + first, low + i_row * low_room(steps_in(m, n, width_of(n), chained)), grad_cost + first,
        word_row(rows, i_row, _row_size(m, n, chained)), i_strip, m, n, stride_m, stride_n, gamma, edge,
        kind, several, wide, chained,
    )  # fmt: skip


_launch_backward = Launcher(_backward, maxnreg=144)


@triton.jit
def sweep_back(
    grad, table, low, grad_cost, p_out, i_strip, m, n, stride_m, stride_n,
    gamma, edge, kind: tl.constexpr, several: tl.constexpr, wide: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Run the gradient of one strip of one pair, or of all, back. `grad_cost` may be `grad` itself."""
    dtype: tl.constexpr = table.dtype.element_ty
    lane, width = tl.arange(0, LANES), width_of(n)
    # What the cells of the step after pass on: to d in their own lane, to b and (a step later) to a in the lane above.
    to_next = width if chained else words_of(n)
    to_d = tl.zeros([LANES], dtype)
    to_above, to_a, below = to_d, to_d, to_d
    # d of a step is R a column before; b is d of the lane above; a is b of the step before. The tile of d therefore
    # begins a step before the tile of cells, and d and b of its last step are kept from the tile after.
    d, d_low, b, b_low = to_d, to_d, to_d, to_d
    t = (n + LANES - 1) // STEPS * STEPS
    begin = tl.zeros([], tl.int32)  # the step at which the strip of the first lane begins
    if chained:
        begin = i_strip * width
        t += begin
        i_strip, begin = turn(i_strip, begin, t, width, chained)
    row, column, real = cells(i_strip, t - begin - 2, m, n, width, wide, chained)
    b_d = tl.load(table + (row * n + column), mask=real, other=BORDER)
    s0, s1, s2, s3, s4, s5, s6, s7 = steps_at(low + lane + t * LANES, 1)
    top, top_low = _top(table, low, i_strip, begin, t - 1, m, n, edge, several, chained, dtype)
    row, column, real = cells(i_strip, t - begin, m, n, width, wide, chained)
    b_grad = tl.load(grad + (row * stride_m + column * stride_n), mask=real, other=0.0).to(dtype)
    p_row, first, follows = row_below(p_out, i_strip, begin, t, m, to_next, chained)
    word = peek(p_row, first, follows, n, several, dtype)
    z0, z1, z2, z3, z4, z5, z6 = to_d, to_d, to_d, to_d, to_d, to_d, to_d  # E of the tile after
    while t >= 0:
        g0, g1, g2, g3, g4, g5, g6, g7 = columns(b_grad)
        d0, d1, d2, d3, d4, d5, d6, d7 = columns(b_d)
        l0, l1, l2, l3 = s0.to(dtype), s1.to(dtype), s2.to(dtype), s3.to(dtype)
        l4, l5, l6, l7 = s4.to(dtype), s5.to(dtype), s6.to(dtype), s7.to(dtype)
        a0, i0 = shift_down(d0, top, 0, several), shift_down(l0, top_low, 0, several)
        a1, i1 = shift_down(d1, top, 1, several), shift_down(l1, top_low, 1, several)
        a2, i2 = shift_down(d2, top, 2, several), shift_down(l2, top_low, 2, several)
        a3, i3 = shift_down(d3, top, 3, several), shift_down(l3, top_low, 3, several)
        a4, i4 = shift_down(d4, top, 4, several), shift_down(l4, top_low, 4, several)
        a5, i5 = shift_down(d5, top, 5, several), shift_down(l5, top_low, 5, several)
        a6, i6 = shift_down(d6, top, 6, several), shift_down(l6, top_low, 6, several)
        a7, i7 = shift_down(d7, top, 7, several), shift_down(l7, top_low, 7, several)
        a0 = tl.where((lane == 0) & (i_strip == 0) & (t == 0), 0.0, a0)
        i_next, next_begin = turn(i_strip, begin, t - STEPS, width, chained)
        row, column, real = cells(i_next, t - next_begin - 2 - STEPS, m, n, width, wide, chained)
        b_d = tl.load(table + (row * n + column), mask=real, other=BORDER)
        s0, s1, s2, s3, s4, s5, s6, s7 = steps_at(low + lane + tl.maximum(t - STEPS, 0) * LANES, 1)
        top, top_low = _top(table, low, i_next, next_begin, t - 1 - STEPS, m, n, edge, several, chained, dtype)
        row, column, real = cells(i_next, t - next_begin - STEPS, m, n, width, wide, chained)
        b_grad = tl.load(grad + (row * stride_m + column * stride_n), mask=real, other=0.0).to(dtype)
        if several:
            if not chained:
                p_row, first, follows = row_below(p_out, i_strip, begin, t, m, to_next, chained)
                word = wait(word, p_row, first, follows, n, dtype)
            below, _ = read(word, dtype)
            p_row, first, follows = row_below(p_out, i_next, next_begin, t - STEPS, m, to_next, chained)
            word = peek(p_row, first, follows, n, several, dtype)
        u7, v7, w7 = weigh(a7, i7, b, b_low, d, d_low, gamma, kind)
        e7, to_d, p7, to_a = _step_back(g7, below, 7, u7, v7, w7, to_d, to_above, to_a, several)
        u6, v6, w6 = weigh(a6, i6, a7, i7, d7, l7, gamma, kind)
        e6, to_d, p6, to_a = _step_back(g6, below, 6, u6, v6, w6, to_d, p7, to_a, several)
        u5, v5, w5 = weigh(a5, i5, a6, i6, d6, l6, gamma, kind)
        e5, to_d, p5, to_a = _step_back(g5, below, 5, u5, v5, w5, to_d, p6, to_a, several)
        u4, v4, w4 = weigh(a4, i4, a5, i5, d5, l5, gamma, kind)
        e4, to_d, p4, to_a = _step_back(g4, below, 4, u4, v4, w4, to_d, p5, to_a, several)
        u3, v3, w3 = weigh(a3, i3, a4, i4, d4, l4, gamma, kind)
        e3, to_d, p3, to_a = _step_back(g3, below, 3, u3, v3, w3, to_d, p4, to_a, several)
        u2, v2, w2 = weigh(a2, i2, a3, i3, d3, l3, gamma, kind)
        e2, to_d, p2, to_a = _step_back(g2, below, 2, u2, v2, w2, to_d, p3, to_a, several)
        u1, v1, w1 = weigh(a1, i1, a2, i2, d2, l2, gamma, kind)
        e1, to_d, p1, to_a = _step_back(g1, below, 1, u1, v1, w1, to_d, p2, to_a, several)
        u0, v0, w0 = weigh(a0, i0, a1, i1, d1, l1, gamma, kind)
        e0, to_d, p0, to_a = _step_back(g0, below, 0, u0, v0, w0, to_d, p1, to_a, several)
        d, d_low, b, b_low, to_above = d0, l0, a0, i0, p0
        if several:
            o = to_a * 0
            hand_over(p_out, t, (lane == 0) & (i_strip > 0), p0, p1, p2, p3, p4, p5, p6, p7, o, o, o, o, o, o, o, o)
        tiles = e0, e1, e2, e3, e4, e5, e6, e7, z0, z1, z2, z3, z4, z5, z6
        store_aligned(grad_cost, i_strip, t - begin, m, n, tiles, width, wide, chained)
        z0, z1, z2, z3, z4, z5, z6 = e0, e1, e2, e3, e4, e5, e6
        if chained:
            between = is_between(t - begin, width)
            to_d, to_above = tl.where(between, 0.0, to_d), tl.where(between, 0.0, to_above)
            to_a = tl.where(between, 0.0, to_a)
            i_strip, begin = i_next, next_begin
            tl.debug_barrier()  # so that the lanes see what one of them handed over
        t -= STEPS


@triton.jit
def row_below(p_out, i_strip, begin, t, m, to_next, chained: tl.constexpr):
    """Find what the last lane reads at steps t, t + 1, …: its row, its column, and whether there is such a row."""
    column = t - begin - LANES + 1
    if chained:
        above = (column <= -STEPS) & (i_strip > 0)
        i_strip, begin = tl.where(above, i_strip - 1, i_strip), tl.where(above, begin - to_next, begin)
        column = tl.where(above, column + to_next, column)
    return p_out + (begin + to_next), column, (i_strip + 1) * LANES < m


@triton.jit
def _top(
    table, low, i_strip, begin, t, m, n, edge, several: tl.constexpr, chained: tl.constexpr, dtype: tl.constexpr
):  # fmt: skip
    """Load what is above the first lane at steps t, t + 1, …, as high and low."""
    high = tl.zeros([LANES], dtype) + edge
    small = tl.zeros([LANES], dtype)
    if several:
        column = t - begin + tl.arange(0, LANES) % STEPS
        inside = (i_strip > 0) & (i_strip * LANES < m) & (column.to(tl.uint32) < n.to(tl.uint32))
        high = tl.load(table + (i_strip.to(tl.int64) * LANES - 1) * n + column, mask=inside, other=BORDER)
        high = tl.where(i_strip > 0, high, edge)
        # The last lane of the strip above, which reached a column LANES − 1 steps late.
        step = column + LANES + 1
        strip = (begin - width_of(n)) * LANES if chained else -low_room(steps_of(n))
        at = step * LANES + LANES - 1 + strip
        small = tl.load(low + at, mask=inside, other=0.0).to(dtype)
    return high, small


@triton.jit
def _step(
    c, top, top_low, k: tl.constexpr, high, small, high_a, small_a,
    gamma, sharpness, kind: tl.constexpr, several: tl.constexpr,
):  # fmt: skip
    """Compute one cell in each lane from cost c and the previous step; return it and b, which is a of the next step."""
    high_b, small_b = shift_down(high, top, k, several), shift_down(small, top_low, k, several)
    value, low = cell(c, high_a, small_a, high_b, small_b, high, small, gamma, sharpness, kind)
    return value, low, high_b, small_b


@triton.jit
def _step_back(g, below, k: tl.constexpr, w_a, w_b, w_d, to_d, to_above, to_a, several: tl.constexpr):
    """Collect E in each lane from the gradient g and the step after; return it and its parts for a, b and d."""
    e = g + to_d + shift_up(to_above, below, k, several)
    return e, w_d * e, w_b * e + to_a, w_a * e
