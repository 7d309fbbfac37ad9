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
words that are 0 until written: no flags, no fences.

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
from inphase.align.triton import Launcher, two_floats
from inphase.align.triton.tiles_triton import (
    BORDER,
    LANES,
    LOG2E,
    STEPS,
    cell,
    cells,
    clear_low,
    columns,
    hand_over,
    keep_low,
    low_room,
    peek,
    place,
    read,
    rows_of,
    shift_down,
    shift_up,
    steps_at,
    steps_of,
    store_aligned,
    wait,
    weigh,
    word_row,
    words_of,
    zero_words,
)

KINDS = {"smooth": 0, "soft": 1, "hard": 2}
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
    strips = -(-m // 32)
    table = torch.empty_like(cost, memory_format=torch.contiguous_format)
    low = cost.new_empty(batch * strips * low_size(n) if keep else 1, dtype=torch.float16)
    rows = table if strips == 1 else zero_words(cost, batch * strips, n)
    strides = cost.stride()
    constants = kind, strips > 1, keep, _wide(m, n, strides)
    _launch_forward(
        batch * strips, (cost.dtype, strides[2], max(strides) < 2**31, constants),
        (cost, table, low, rows), batch, strips, m, n, *strides, *two_floats(gamma), 0.0 if free_start else 1e30,
        *constants,
    )  # fmt: skip
    return table, low, rows


def launch_backward(
    grad: Tensor, table: Tensor, low: Tensor, rows: Tensor, kind: int, gamma: float, free_start: bool
) -> Tensor:
    """Run the gradient of the table back to the cost."""
    batch, m, n = table.shape
    strips = -(-m // 32)
    grad_cost = torch.empty_like(table)
    strides = grad.stride()
    constants = kind, strips > 1, _wide(m, n, strides)
    _launch_backward(
        batch * strips, (grad.dtype, strides[2], max(strides) < 2**31, constants),
        (grad, table, low, grad_cost, rows), batch, strips, m, n, *strides, *two_floats(gamma),
        0.0 if free_start else 1e30, *constants,
    )  # fmt: skip
    return grad_cost


def low_size(n: int) -> int:
    """Count the numbers that `low` of a strip holds: one for each lane and step."""
    return ((n + 7) // 8 * 8 + 40) * 32


def _wide(m: int, n: int, strides: tuple[int, ...]) -> bool:
    """Test whether 32 bits are too few to number the cells of a pair."""
    return max(m * n, m * strides[1] + n * strides[2]) >= 2**31


@triton.jit(do_not_specialize=ARGUMENTS)
def _forward(
    cost, table, low, rows, batch, strips, m, n, stride_b, stride_m, stride_n, gamma, gamma_rest, edge,
    kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    gamma = tl.zeros([], table.dtype.element_ty) + gamma + gamma_rest
    i_pair, i_strip = place(rows, batch, strips, several)
    p_cost, first = cost + i_pair.to(tl.int64) * stride_b, i_pair.to(tl.int64) * m * n
    i_row = i_pair.to(tl.int64) * strips + i_strip
    sweep(
        p_cost, table + first, low + i_row * low_room(n), word_row(rows, i_row, n), i_strip, m, n, stride_m, stride_n,
        gamma, edge, kind, several, keep, wide,
    )  # fmt: skip


_launch_forward = Launcher(_forward, maxnreg=168)


@triton.jit
def sweep(
    cost, table, low, p_out, i_strip, m, n, stride_m, stride_n,
    gamma, edge, kind: tl.constexpr, several: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Accumulate one strip of one pair. `table` may be `cost` itself: a cell is read before it is written."""
    dtype: tl.constexpr = table.dtype.element_ty
    sharpness = LOG2E / gamma
    lane, row = tl.arange(0, LANES), rows_of(i_strip, wide)
    follows, leads = i_strip > 0, (i_strip + 1) * LANES < m
    # R of the step before, and b of the step before, which is a; each as high and low.
    high, small = tl.full([LANES], BORDER, dtype), tl.zeros([LANES], dtype)
    high_a, small_a = tl.where((lane == 0) & (i_strip == 0), 0.0, high), small
    top, top_low = tl.zeros([LANES], dtype) + edge, small
    column, real = cells(row, 0, m, n)
    b_next = tl.load(cost + (row * stride_m + column * stride_n), mask=real, other=BORDER).to(dtype)
    word = peek(p_out - words_of(n), 0, follows, n, several, dtype)
    low += lane
    if keep:
        clear_low(low, n)
    # Tiles are stored late, while the next one is computed: the last one, and the one before it. These begin with
    # different values: Triton takes a variable for constant that begins with the value it is set to.
    x0, x1, x2, x3, x4, x5, x6, x7 = high, high, high, high, high, high, high, high
    z0, z1, z2, z3, z4, z5, z6, z7 = small, small, small, small, small, small, small, small
    for t in range(0, steps_of(n), STEPS):
        c0, c1, c2, c3, c4, c5, c6, c7 = columns(b_next)
        ahead, m_ahead = cells(row, t + STEPS, m, n)
        b_next = tl.load(cost + (row * stride_m + ahead * stride_n), mask=m_ahead, other=BORDER).to(dtype)
        if several:
            word = wait(word, p_out - words_of(n), t, follows, n, dtype)
            top, top_low = read(word, dtype)
            top = tl.where(follows, top, edge)
            word = peek(p_out - words_of(n), t + STEPS, follows, n, several, dtype)
        store_aligned(table, row, t - 2 * STEPS, m, n, z0, z1, z2, z3, z4, z5, z6, z7, x0, x1, x2, x3, x4, x5, x6)
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
            hand_over(
                p_out, t, (lane == LANES - 1) & leads, x0, x1, x2, x3, x4, x5, x6, x7, y0, y1, y2, y3, y4, y5, y6, y7
            )
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
    t = steps_of(n) - 2 * STEPS
    store_aligned(table, row, t, m, n, z0, z1, z2, z3, z4, z5, z6, z7, x0, x1, x2, x3, x4, x5, x6)


@triton.jit(do_not_specialize=ARGUMENTS)
def _backward(
    grad, table, low, grad_cost, rows, batch, strips, m, n, stride_b, stride_m, stride_n, gamma, gamma_rest, edge,
    kind: tl.constexpr, several: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    gamma = tl.zeros([], table.dtype.element_ty) + gamma + gamma_rest
    i_pair, i_order = place(rows, batch, strips, several)
    p_grad, first = grad + i_pair.to(tl.int64) * stride_b, i_pair.to(tl.int64) * m * n
    i_strip = strips - 1 - i_order
    i_row = i_pair.to(tl.int64) * strips + i_strip
    sweep_back(
        p_grad, table + first, low + i_row * low_room(n), grad_cost + first, word_row(rows, i_row, n),
        i_strip, i_order > 0, m, n, stride_m, stride_n, gamma, edge, kind, several, wide,
    )  # fmt: skip


_launch_backward = Launcher(_backward, maxnreg=168)


@triton.jit
def sweep_back(
    grad, table, low, grad_cost, p_out, i_strip, follows, m, n, stride_m, stride_n,
    gamma, edge, kind: tl.constexpr, several: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Run the gradient of one strip of one pair back. `grad_cost` may be `grad` itself."""
    dtype: tl.constexpr = table.dtype.element_ty
    lane, row = tl.arange(0, LANES), rows_of(i_strip, wide)
    # What the cells of the step after pass on: to d in their own lane, to b and (a step later) to a in the lane above.
    to_d = tl.zeros([LANES], dtype)
    to_above, to_a, below = to_d, to_d, to_d
    # d of a step is R a column before; b is d of the lane above; a is b of the step before. The tile of d therefore
    # begins a step before the tile of cells, and d and b of its last step are kept from the tile after.
    d, d_low, b, b_low = to_d, to_d, to_d, to_d
    t = (n + LANES - 1) // STEPS * STEPS
    column, real = cells(row, t - 2, m, n)
    b_d = tl.load(table + (row * n + column), mask=real, other=BORDER)
    s0, s1, s2, s3, s4, s5, s6, s7 = steps_at(low + lane + t * LANES, 1)
    top, top_low = _top(table, low, i_strip, t - 1, n, edge, several, dtype)
    column, real = cells(row, t, m, n)
    b_grad = tl.load(grad + (row * stride_m + column * stride_n), mask=real, other=0.0).to(dtype)
    word = peek(p_out + words_of(n), t - LANES + 1, follows, n, several, dtype)
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
        column, real = cells(row, t - 2 - STEPS, m, n)
        b_d = tl.load(table + (row * n + column), mask=real, other=BORDER)
        s0, s1, s2, s3, s4, s5, s6, s7 = steps_at(low + lane + tl.maximum(t - STEPS, 0) * LANES, 1)
        top, top_low = _top(table, low, i_strip, t - 1 - STEPS, n, edge, several, dtype)
        ahead, m_ahead = cells(row, t - STEPS, m, n)
        b_grad = tl.load(grad + (row * stride_m + ahead * stride_n), mask=m_ahead, other=0.0).to(dtype)
        if several:
            word = wait(word, p_out + words_of(n), t - LANES + 1, follows, n, dtype)
            below, _ = read(word, dtype)
            word = peek(p_out + words_of(n), t - STEPS - LANES + 1, follows, n, several, dtype)
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
        store_aligned(grad_cost, row, t, m, n, e0, e1, e2, e3, e4, e5, e6, e7, z0, z1, z2, z3, z4, z5, z6)
        z0, z1, z2, z3, z4, z5, z6 = e0, e1, e2, e3, e4, e5, e6
        t -= STEPS


@triton.jit
def _top(table, low, i_strip, t, n, edge, several: tl.constexpr, dtype: tl.constexpr):
    """Load columns t, t + 1, … of the row above the strip, as high and low."""
    high = tl.zeros([LANES], dtype) + edge
    small = tl.zeros([LANES], dtype)
    if several:
        column = t + tl.arange(0, LANES) % STEPS
        inside = (i_strip > 0) & (column.to(tl.uint32) < n.to(tl.uint32))
        high = tl.load(table + (i_strip.to(tl.int64) * LANES - 1) * n + column, mask=inside, other=BORDER)
        high = tl.where(i_strip > 0, high, edge)
        # The last lane of the strip above, which reached a column LANES − 1 steps late.
        step = column + LANES + 1
        at = step * LANES + LANES - 1 - low_room(n)
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
