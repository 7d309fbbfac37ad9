"""The recursion on a GPU, in Triton: any length, 48-bit state, one warp to a strip of 32 rows and no barrier between.

With a, b, d the predecessors R(i−1, j−1), R(i−1, j), R(i, j−1) of a cell, lo the least of them, u_r = (r − lo)/γ,
q = e^(−u) / Σ e^(−u) and p = Σ u q:

    smooth   R = c + lo + γ p                     ∂R/∂r = q_r (1 − (u_r − p))
    soft     R = c + lo − γ log Σ e^(−u)          ∂R/∂r = q_r
    hard     R = c + lo                           ∂R/∂r = 1 for the first of a, b, d that is least
    E(i, j) = G(i, j) + E(i+1, j+1) ∂R/∂a + E(i+1, j) ∂R/∂b + E(i, j+1) ∂R/∂d,   each ∂ taken at the successor

`accumulate_reference` in `recursion.py` is the same in torch operations. At step t lane r of a strip handles column
t − r, so the lanes of a step are independent and b is the value the lane above had a step ago. What limits the speed is
the chain of one step after another: hence one warp to a strip, registers and shuffles, and tiles of eight steps loaded
one ahead. The strips of a pair run as programs of their own, each a few columns behind the one it follows, and hand
over one row through memory in words that are 0 until written: no flags, no fences.

State is a pair of floats, high + low, whose sum carries 48 bits: the differences r − lo decide everything and a table
of float32 has lost them after a few dozen frames (docs/numerics.md). `high` is the table itself; `low` is kept for the
backward pass as float16 in units of γ/64, half the size of the table.
"""

from functools import cache
from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from inphase.align.launch_triton import Launcher, aligned
from inphase.align.tile_triton import LANES, STEPS, columns, tile

SMOOTH, SOFT, HARD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
KINDS = {"smooth": 0, "soft": 1, "hard": 2}
BORDER = tl.constexpr(1e30)
# A kernel compiled for one size serves all.
SIZES = ["batch", "strips", "m", "n", "stride_b", "stride_m"]
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# A signalling NaN, which arithmetic never yields: what is handed over is written with its bits flipped, so never as 0.
NEVER = tl.constexpr(0x7FF4000000000000)
NEVER32 = tl.constexpr(0x7FA0000000000000)


def accumulate(cost: Tensor, kind: str, gamma: float, free_start: bool) -> Tensor:
    """Accumulate cost [B, M, N] on a CUDA device; see `inphase.align.accumulate`."""
    return cast("Tensor", _Accumulate.apply(cost, KINDS[kind], gamma, free_start))


class _Accumulate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, kind: int, gamma: float, free_start: bool) -> Tensor:
        keep = ctx.needs_input_grad[0]
        table, low = launch_forward(cost, kind, gamma, free_start, keep=keep)
        ctx.save_for_backward(table, low)
        ctx.setting = kind, gamma, free_start
        return table

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return launch_backward(grad, *ctx.saved_tensors, *ctx.setting), None, None, None


def launch_forward(cost: Tensor, kind: int, gamma: float, free_start: bool, *, keep: bool) -> tuple[Tensor, Tensor]:
    """Fill the table and, where a backward pass will need it, what the table's rounding lost."""
    batch, m, n = cost.shape
    strips = -(-m // 32)
    table = cost.new_empty(cost.shape)
    low = cost.new_empty(cost.shape if keep else (1,), dtype=torch.float16)
    constants = kind, free_start, strips > 1, keep
    _launch_forward(
        batch * strips, (*_alike(cost), constants),
        cost, table, low, _handover(table, strips), batch, strips, m, n, *cost.stride(), *two_floats(gamma), *constants,
    )  # fmt: skip
    return table, low


def launch_backward(grad: Tensor, table: Tensor, low: Tensor, kind: int, gamma: float, free_start: bool) -> Tensor:
    """Run the gradient of the table back to the cost."""
    batch, m, n = table.shape
    strips = -(-m // 32)
    grad_cost = torch.empty_like(table)
    constants = kind, free_start, strips > 1
    _launch_backward(
        batch * strips, (*_alike(grad), constants),
        grad, table, low, grad_cost, _handover(table, strips), batch, strips, m, n, *grad.stride(),
        *two_floats(gamma), *constants,
    )  # fmt: skip
    return grad_cost


def _alike(given: Tensor) -> tuple[object, ...]:
    """Name what of a given tensor kernels are compiled anew for."""
    strides = given.stride()
    return given.dtype, aligned(given), strides[2], max(strides) < 2**31


@cache
def two_floats(gamma: float) -> tuple[float, float]:
    """Split γ into what float32 holds of it and the rest: kernels take no other floats. The hard minimum needs none."""
    gamma = gamma or 1.0
    rounded = float(torch.tensor(gamma, dtype=torch.float32))
    return rounded, gamma - rounded


def _handover(table: Tensor, strips: int) -> Tensor:
    """Make room for the row each strip hands over, after the ticket that programs draw on starting."""
    batch, _, n = table.shape
    return table if strips == 1 else torch.zeros(1 + batch * strips * n, dtype=torch.int64, device=table.device)


@triton.jit(do_not_specialize=SIZES)
def _forward(
    cost, table, low, rows, batch, strips, m, n, stride_b, stride_m, stride_n, gamma, gamma_rest,
    kind: tl.constexpr, free_start: tl.constexpr, several: tl.constexpr, keep: tl.constexpr,
):  # fmt: skip
    gamma = tl.zeros([], table.dtype.element_ty) + gamma + gamma_rest
    i_pair, i_strip = _place(rows, batch, several)
    p_out = rows + 1 + (i_pair.to(tl.int64) * strips + i_strip) * n
    p_cost, first = cost + i_pair.to(tl.int64) * stride_b, i_pair.to(tl.int64) * m * n
    sweep(
        p_cost, table + first, low + first, p_out, i_strip, m, n, stride_m, stride_n,
        gamma, kind, free_start, several, keep,
    )  # fmt: skip


_launch_forward = Launcher(_forward)


@triton.jit
def sweep(
    cost, table, low, p_out, i_strip, m, n, stride_m, stride_n,
    gamma, kind: tl.constexpr, free_start: tl.constexpr, several: tl.constexpr, keep: tl.constexpr,
):  # fmt: skip
    """Accumulate one strip of one pair. `table` may be `cost` itself: a cell is read before it is written."""
    sharpness = 1 / gamma
    lane = tl.arange(0, LANES)
    row = i_strip * LANES + lane[:, None]
    p_cost = cost + row.to(tl.int64) * stride_m
    at_row = row.to(tl.int64) * n
    # R of the step before, and b of the step before, which is a; each as high and low.
    high = tl.full([LANES], BORDER, table.dtype.element_ty)
    small = tl.zeros([LANES], table.dtype.element_ty)
    high_a = tl.where((lane == 0) & (i_strip == 0), 0.0, high)
    small_a = small
    edge = tl.full([LANES, STEPS], 0.0 if free_start else BORDER, table.dtype.element_ty)
    b_next = _cost_tile(p_cost, row, 0, lane, m, n, stride_n, table.dtype.element_ty)
    b_word = _word_tile(p_out - n, 0, lane, i_strip > 0, n, several)
    for t in range(0, n + LANES - 1, STEPS):
        column = t + tl.arange(0, STEPS)[None, :] - lane[:, None]
        real = (row < m) & (column >= 0) & (column < n)
        b_cost = b_next
        b_next = _cost_tile(p_cost, row, t + STEPS, lane, m, n, stride_n, table.dtype.element_ty)
        b_above, b_above_low = edge, tl.zeros([LANES, STEPS], table.dtype.element_ty)
        if several:
            while tl.min((b_word != 0).to(tl.int32)) == 0:
                b_word = _word_tile(p_out - n, t, lane, i_strip > 0, n, several)
            b_above, b_above_low = _read(b_word, table.dtype.element_ty)
            m_above = (row == i_strip * LANES) & (i_strip > 0) & (column < n)
            b_above, b_above_low = tl.where(m_above, b_above, edge), tl.where(m_above, b_above_low, 0.0)
            b_word = _word_tile(p_out - n, t + STEPS, lane, i_strip > 0, n, several)
        c0, c1, c2, c3, c4, c5, c6, c7 = columns(b_cost)
        u0, u1, u2, u3, u4, u5, u6, u7 = columns(b_above)
        v0, v1, v2, v3, v4, v5, v6, v7 = columns(b_above_low)
        x0, y0, a, b = _step(c0, u0, v0, high, small, high_a, small_a, lane, gamma, sharpness, kind)
        x1, y1, a, b = _step(c1, u1, v1, x0, y0, a, b, lane, gamma, sharpness, kind)
        x2, y2, a, b = _step(c2, u2, v2, x1, y1, a, b, lane, gamma, sharpness, kind)
        x3, y3, a, b = _step(c3, u3, v3, x2, y2, a, b, lane, gamma, sharpness, kind)
        x4, y4, a, b = _step(c4, u4, v4, x3, y3, a, b, lane, gamma, sharpness, kind)
        x5, y5, a, b = _step(c5, u5, v5, x4, y4, a, b, lane, gamma, sharpness, kind)
        x6, y6, a, b = _step(c6, u6, v6, x5, y5, a, b, lane, gamma, sharpness, kind)
        high, small, high_a, small_a = _step(c7, u7, v7, x6, y6, a, b, lane, gamma, sharpness, kind)
        b_table = tile(x0, x1, x2, x3, x4, x5, x6, high)
        b_low = tile(y0, y1, y2, y3, y4, y5, y6, small)
        if several:
            m_last = real & (lane[:, None] == LANES - 1)
            tl.store(p_out + column, _word(b_table, b_low), mask=m_last)
        tl.store(table + at_row + column, b_table, mask=real)
        if keep:
            tl.store(low + at_row + column, (b_low * (64 * sharpness)).to(tl.float16), mask=real)


@triton.jit(do_not_specialize=SIZES)
def _backward(
    grad, table, low, grad_cost, rows, batch, strips, m, n, stride_b, stride_m, stride_n, gamma, gamma_rest,
    kind: tl.constexpr, free_start: tl.constexpr, several: tl.constexpr,
):  # fmt: skip
    gamma = tl.zeros([], table.dtype.element_ty) + gamma + gamma_rest
    i_pair, i_order = _place(rows, batch, several)
    i_strip = strips - 1 - i_order
    p_out = rows + 1 + (i_pair.to(tl.int64) * strips + i_strip) * n
    p_grad, first = grad + i_pair.to(tl.int64) * stride_b, i_pair.to(tl.int64) * m * n
    sweep_back(
        p_grad, table + first, low + first, grad_cost + first, p_out, i_strip, i_order > 0, m, n, stride_m, stride_n,
        gamma, kind, free_start, several,
    )  # fmt: skip


_launch_backward = Launcher(_backward)


@triton.jit
def sweep_back(
    grad, table, low, grad_cost, p_out, i_strip, follows, m, n, stride_m, stride_n,
    gamma, kind: tl.constexpr, free_start: tl.constexpr, several: tl.constexpr,
):  # fmt: skip
    """Run the gradient of one strip of one pair back. `grad_cost` may be `grad` itself."""
    lane = tl.arange(0, LANES)
    row = i_strip * LANES + lane[:, None]
    p_grad = grad + row.to(tl.int64) * stride_m
    # What the cells of the step after pass on: to d in their own lane, to b and (a step later) to a in the lane above.
    to_d = tl.zeros([LANES], table.dtype.element_ty)
    to_above, to_a = to_d, to_d
    t = (n + LANES - 2) // STEPS * STEPS
    ab, md, b_grad_next = _differences(table, low, p_grad, row, t, lane, m, n, stride_n, gamma, free_start)
    b_word = _word_tile(p_out + n, t - LANES + 1, lane, follows, n, several)
    for _ in range(0, n + LANES - 1, STEPS):
        column = t + tl.arange(0, STEPS)[None, :] - lane[:, None]
        real = (row < m) & (column >= 0) & (column < n)
        w_a, w_b, w_d = _weights(ab, md, gamma, kind)
        b_grad = b_grad_next
        ab, md, b_grad_next = _differences(table, low, p_grad, row, t - STEPS, lane, m, n, stride_n, gamma, free_start)
        b_below = tl.zeros([LANES, STEPS], table.dtype.element_ty)
        if several:
            while tl.min((b_word != 0).to(tl.int32)) == 0:
                b_word = _word_tile(p_out + n, t - LANES + 1, lane, follows, n, several)
            m_below = (lane[:, None] == LANES - 1) & (follows) & (column >= 0) & (column < n)
            b_below = tl.where(m_below, _read(b_word, table.dtype.element_ty)[0], 0.0)
            b_word = _word_tile(p_out + n, t - STEPS - LANES + 1, lane, follows, n, several)
        g0, g1, g2, g3, g4, g5, g6, g7 = columns(b_grad)
        a0, a1, a2, a3, a4, a5, a6, a7 = columns(w_a)
        b0, b1, b2, b3, b4, b5, b6, b7 = columns(w_b)
        d0, d1, d2, d3, d4, d5, d6, d7 = columns(w_d)
        u0, u1, u2, u3, u4, u5, u6, u7 = columns(b_below)
        e7, to_d, p7, to_a = _step_back(g7, u7, a7, b7, d7, to_d, to_above, to_a, lane)
        e6, to_d, p6, to_a = _step_back(g6, u6, a6, b6, d6, to_d, p7, to_a, lane)
        e5, to_d, p5, to_a = _step_back(g5, u5, a5, b5, d5, to_d, p6, to_a, lane)
        e4, to_d, p4, to_a = _step_back(g4, u4, a4, b4, d4, to_d, p5, to_a, lane)
        e3, to_d, p3, to_a = _step_back(g3, u3, a3, b3, d3, to_d, p4, to_a, lane)
        e2, to_d, p2, to_a = _step_back(g2, u2, a2, b2, d2, to_d, p3, to_a, lane)
        e1, to_d, p1, to_a = _step_back(g1, u1, a1, b1, d1, to_d, p2, to_a, lane)
        e0, to_d, to_above, to_a = _step_back(g0, u0, a0, b0, d0, to_d, p1, to_a, lane)
        if several:
            b_passed = tile(to_above, p1, p2, p3, p4, p5, p6, p7)
            m_first = (lane[:, None] == 0) & (column < n)
            tl.store(p_out + column, _word(b_passed, b_passed * 0), mask=m_first)
        at = row.to(tl.int64) * n + column
        tl.store(grad_cost + at, tile(e0, e1, e2, e3, e4, e5, e6, e7), mask=real)
        t -= STEPS


@triton.jit
def _place(rows, batch, several: tl.constexpr):
    """Find this program's pair and strip. Tickets are drawn in order, so whom one waits for has already started."""
    if several:
        ticket = tl.atomic_add(rows, 1, sem="relaxed", scope="gpu").to(tl.int32)
    else:
        ticket = tl.program_id(0)
    return ticket % batch, ticket // batch


@triton.jit
def _cost_tile(p_cost, row, t, lane, m, n, stride_n, dtype: tl.constexpr):
    column = t + tl.arange(0, STEPS)[None, :] - lane[:, None]
    real = (row < m) & (column >= 0) & (column < n)
    return tl.load(p_cost + column * stride_n, mask=real, other=BORDER).to(dtype)


@triton.jit
def _word_tile(p_row, t, lane, follows, n, several: tl.constexpr):
    """Look at columns t, t + 1, … of the row another strip hands over: 0 where it has not been written yet."""
    word = tl.full([LANES, STEPS], 1, tl.int64)
    if several:
        column = t + tl.arange(0, STEPS)[None, :] + lane[:, None] * 0
        m_row = ((lane[:, None] == 0) | (lane[:, None] == LANES - 1)) & follows & (column >= 0) & (column < n)
        word = tl.load(p_row + column, mask=m_row, other=1, volatile=True)
    return word


@triton.jit
def _word(high, small):
    """Put a value into one word that is written at once and is never 0."""
    if high.dtype == tl.float64:
        word = high.to(tl.int64, bitcast=True) ^ NEVER
    else:
        upper = high.to(tl.int32, bitcast=True).to(tl.int64) << 32
        word = (upper | (small.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)) ^ NEVER32
    return word


@triton.jit
def _read(word, dtype: tl.constexpr):
    """Undo `_word`."""
    if dtype == tl.float64:
        high = (word ^ NEVER).to(tl.float64, bitcast=True)
        small = high * 0
    else:
        bits = word ^ NEVER32
        high = (bits >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        small = bits.to(tl.int32).to(tl.float32, bitcast=True)
    return high, small


@triton.jit
def _step(c, above, above_low, high, small, high_a, small_a, lane, gamma, sharpness, kind: tl.constexpr):
    """Compute one cell in each lane from cost c and the step before; give it, and b, which is a of the next step."""
    high_b = tl.where(lane == 0, above, tl.gather(high, tl.maximum(lane - 1, 0), 0))
    small_b = tl.where(lane == 0, above_low, tl.gather(small, tl.maximum(lane - 1, 0), 0))
    ab = (high_a - high_b) + (small_a - small_b)
    lesser, lesser_low = tl.where(ab <= 0, high_a, high_b), tl.where(ab <= 0, small_a, small_b)
    md = (lesser - high) + (lesser_low - small)
    least, least_low = tl.where(md <= 0, lesser, high), tl.where(md <= 0, lesser_low, small)
    # The sum of two floats and exactly what it rounds away.
    total = least + c
    part = total - least
    rest = ((least - (total - part)) + (c - part)) + least_low
    if kind == HARD:
        rest += 0 * (ab + md)  # NaN, like the exponentials, where a predecessor is
    else:
        u, v, e, f = _exponentials(ab, md, sharpness)
        if kind == SMOOTH:
            rest += gamma * ((u * e + v * f) / (1 + e + f))
        else:
            rest -= gamma * LN2 * tl.log2(1 + e + f)
    value = total + rest
    return value, rest - (value - total), high_b, small_b


@triton.jit
def _step_back(g, below, w_a, w_b, w_d, to_d, to_above, to_a, lane):
    """Collect E in each lane from the gradient g and the step after; give it and what it passes on."""
    from_below = tl.where(lane == LANES - 1, below, tl.gather(to_above, tl.minimum(lane + 1, LANES - 1), 0))
    e = g + to_d + from_below
    return e, w_d * e, w_b * e + to_a, w_a * e


@triton.jit
def _differences(table, low, p_grad, row, t, lane, m, n, stride_n, gamma, free_start: tl.constexpr):
    """Load a tile of cells: a − b, the lesser of the two minus d, and the gradient of the table."""
    column = t + tl.arange(0, STEPS)[None, :] - lane[:, None]
    high_a, low_a = _state(table, low, row - 1, column - 1, m, n, gamma, free_start)
    high_b, low_b = _state(table, low, row - 1, column, m, n, gamma, free_start)
    high_d, low_d = _state(table, low, row, column - 1, m, n, gamma, free_start)
    ab = (high_a - high_b) + (low_a - low_b)
    md = tl.where(ab <= 0, high_a - high_d, high_b - high_d) + tl.where(ab <= 0, low_a - low_d, low_b - low_d)
    real = (row < m) & (column >= 0) & (column < n)
    return ab, md, tl.load(p_grad + column * stride_n, mask=real, other=0.0).to(ab.dtype)


@triton.jit
def _weights(ab, md, gamma, kind: tl.constexpr):
    """Take ∂R/∂a, ∂R/∂b and ∂R/∂d of a tile of cells."""
    a_first, d_last = ab <= 0, md <= 0
    if kind == HARD:
        least, middle, most = md * 0 + 1, md * 0, md * 0
    else:
        u, v, e, f = _exponentials(ab, md, 1 / gamma)
        share = 1 / (1 + e + f)
        least, middle, most = share, share * e, share * f
        if kind == SMOOTH:
            penalty = u * middle + v * most
            least, middle, most = least * (1 + penalty), middle * (1 + penalty - u), most * (1 + penalty - v)
    lesser = tl.where(d_last, least, middle)
    return tl.where(a_first, lesser, most), tl.where(a_first, most, lesser), tl.where(d_last, middle, least)


@triton.jit
def _exponentials(ab, md, sharpness):
    """Give u = (r − lo)/γ and e^(−u) of the two predecessors that are not the least.

    The first is d or the lesser of a and b, the second the greater of a and b. Capped, since 0 times the border is 0.
    """
    u = tl.minimum(tl.abs(md) * sharpness, 10000.0, propagate_nan=tl.PropagateNan.ALL)
    above = tl.maximum(md, 0.0, propagate_nan=tl.PropagateNan.ALL)
    v = tl.minimum((tl.abs(ab) + above) * sharpness, 10000.0, propagate_nan=tl.PropagateNan.ALL)
    return u, v, tl.exp2(-LOG2E * u), tl.exp2(-LOG2E * v)


@triton.jit
def _state(table, low, row, column, m, n, gamma, free_start: tl.constexpr):
    """Load a tile of R as high and low, with the border where there is no cell."""
    inside = (row >= 0) & (row < m) & (column >= 0) & (column < n)
    at = row.to(tl.int64) * n + column
    high = tl.load(table + at, mask=inside, other=BORDER)
    origin = row == -1 if free_start else (row == -1) & (column == -1)
    small = tl.load(low + at, mask=inside, other=0.0).to(high.dtype) * (gamma / 64)
    return tl.where(origin, 0.0, high), small
