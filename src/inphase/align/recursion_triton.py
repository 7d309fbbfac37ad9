"""The recursion on a GPU, in Triton: any length, 48-bit state, one warp to a strip of 32 rows and no barrier between.

With a, b, d the predecessors R(i−1, j−1), R(i−1, j), R(i, j−1) of a cell, lo the least of them, u_r = (r − lo)/γ,
q = e^(−u) / Σ e^(−u) and p = Σ u q:

    smooth   R = c + lo + γ p                     ∂R/∂r = q_r (1 − (u_r − p))
    soft     R = c + lo − γ log Σ e^(−u)          ∂R/∂r = q_r
    hard     R = c + lo                           ∂R/∂r = 1 for the first of a, b, d that is least
    E(i, j) = G(i, j) + E(i+1, j+1) ∂R/∂a + E(i+1, j) ∂R/∂b + E(i, j+1) ∂R/∂d,   each ∂ taken at the successor

`accumulate_reference` in `recursion.py` is the same in torch operations. At step t lane r of a strip handles column
t − r, so all lanes of a step are independent and b is the value the lane above had a step ago. What limits the speed is
the chain of one step after another, hence one warp, registers and shuffles only; the strips of a pair run as programs
of their own, each a few columns behind the one above it, which it follows through a counter in memory.

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

SMOOTH, SOFT, HARD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
KINDS = {"smooth": 0, "soft": 1, "hard": 2}
BORDER = tl.constexpr(1e30)
LANES = tl.constexpr(32)
STEPS = tl.constexpr(8)  # columns handled between two looks at memory
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


def accumulate(cost: Tensor, kind: str, gamma: float, free_start: bool) -> Tensor:
    """Accumulate cost [B, M, N] on a CUDA device; see `inphase.align.accumulate`."""
    return cast("Tensor", _Accumulate.apply(cost, KINDS[kind], gamma, free_start))


class _Accumulate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, kind: int, gamma: float, free_start: bool) -> Tensor:
        batch, m, n = cost.shape
        strips = triton.cdiv(m, 32)
        table = torch.empty_like(cost, memory_format=torch.contiguous_format)
        low = torch.empty(cost.shape, dtype=torch.float16, device=cost.device)
        progress = _progress(cost, batch, strips)
        with torch.cuda.device(cost.device):
            _forward[(batch * strips,)](
                cost, table, low, progress, batch, strips, m, n, *cost.stride(),
                *_two_floats(gamma), kind, free_start, strips > 1, num_warps=1,
            )  # fmt: skip
        ctx.save_for_backward(table, low)
        ctx.setting = kind, gamma, free_start
        return table

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        table, low = ctx.saved_tensors
        kind, gamma, free_start = ctx.setting
        batch, m, n = table.shape
        strips = triton.cdiv(m, 32)
        grad_cost = torch.empty_like(table)
        passed = torch.empty((batch, strips, n) if strips > 1 else (1,), dtype=table.dtype, device=table.device)
        progress = _progress(table, batch, strips)
        with torch.cuda.device(table.device):
            _backward[(batch * strips,)](
                grad, table, low, grad_cost, passed, progress, batch, strips, m, n, *grad.stride(),
                *_two_floats(gamma), kind, free_start, strips > 1, num_warps=1,
            )  # fmt: skip
        return grad_cost, None, None, None


@cache
def _two_floats(gamma: float) -> tuple[float, float]:
    """Split γ into what float32 holds of it and the rest: kernels take no other floats. The hard minimum needs none."""
    rounded = float(torch.tensor(gamma or 1.0, dtype=torch.float32))
    return rounded, (gamma or 1.0) - rounded


def _progress(like: Tensor, batch: int, strips: int) -> Tensor:
    """Make the counters strips follow each other by, and before them the ticket programs draw on starting."""
    if strips == 1:
        return like
    return torch.zeros(batch * strips + 1, dtype=torch.int32, device=like.device)


@triton.jit
def _forward(
    cost, table, low, progress, batch, strips, m, n, stride_b, stride_m, stride_n,
    gamma, gamma_rest, kind: tl.constexpr, free_start: tl.constexpr, several: tl.constexpr,
):  # fmt: skip
    gamma = gamma.to(table.dtype.element_ty) + gamma_rest
    sharpness = 1 / gamma
    i_pair, i_strip = _place(progress, batch, several)
    lane = tl.arange(0, LANES)
    row = i_strip * LANES + lane[:, None]
    first = i_pair.to(tl.int64) * m * n
    p_cost = cost + i_pair.to(tl.int64) * stride_b + row.to(tl.int64) * stride_m
    at_row, at_above = first + row.to(tl.int64) * n, first + (row - lane[:, None] - 1).to(tl.int64) * n
    flag = progress + 1 + i_pair * strips + i_strip
    known = 0
    # R of the step before, and b of the step before, which is a; each as high and low.
    high = tl.full([LANES], BORDER, table.dtype.element_ty)
    small = tl.zeros([LANES], table.dtype.element_ty)
    high_a = tl.where((lane == 0) & (i_strip == 0), 0.0, high)
    small_a = small
    for t in range(0, n + LANES - 1, STEPS):
        step = t + tl.arange(0, STEPS)[None, :]
        column = step - lane[:, None]
        real = (row < m) & (column >= 0) & (column < n)
        b_cost = tl.load(p_cost + column * stride_n, mask=real, other=BORDER).to(table.dtype.element_ty)
        b_above = tl.full([LANES, STEPS], 0.0 if free_start else BORDER, table.dtype.element_ty)
        b_above_low = tl.zeros([LANES, STEPS], table.dtype.element_ty)
        if several:
            while (i_strip > 0) & (known < tl.minimum(t + STEPS, n)):
                known = tl.atomic_add(flag - 1, 0, sem="acquire", scope="gpu")
            tl.debug_barrier()
            m_above = (row == i_strip * LANES) & (i_strip > 0) & (step < n)
            b_above = tl.load(table + at_above + step, mask=m_above, other=b_above, cache_modifier=".cg")
            b_above_low = _unpack(tl.load(low + at_above + step, mask=m_above, other=0.0, cache_modifier=".cg"), gamma)
        c0, c1, c2, c3, c4, c5, c6, c7 = _columns(b_cost)
        u0, u1, u2, u3, u4, u5, u6, u7 = _columns(b_above)
        v0, v1, v2, v3, v4, v5, v6, v7 = _columns(b_above_low)
        x0, y0, a, b = _step(c0, u0, v0, high, small, high_a, small_a, lane, gamma, sharpness, kind)
        x1, y1, a, b = _step(c1, u1, v1, x0, y0, a, b, lane, gamma, sharpness, kind)
        x2, y2, a, b = _step(c2, u2, v2, x1, y1, a, b, lane, gamma, sharpness, kind)
        x3, y3, a, b = _step(c3, u3, v3, x2, y2, a, b, lane, gamma, sharpness, kind)
        x4, y4, a, b = _step(c4, u4, v4, x3, y3, a, b, lane, gamma, sharpness, kind)
        x5, y5, a, b = _step(c5, u5, v5, x4, y4, a, b, lane, gamma, sharpness, kind)
        x6, y6, a, b = _step(c6, u6, v6, x5, y5, a, b, lane, gamma, sharpness, kind)
        high, small, high_a, small_a = _step(c7, u7, v7, x6, y6, a, b, lane, gamma, sharpness, kind)
        b_table = _tile(x0, x1, x2, x3, x4, x5, x6, high)
        b_low = _tile(y0, y1, y2, y3, y4, y5, y6, small)
        tl.store(table + at_row + column, b_table, mask=real)
        tl.store(low + at_row + column, _pack(b_low, sharpness), mask=real)
        if several:
            tl.debug_barrier()
            tl.atomic_xchg(flag, t + STEPS - LANES + 1, sem="release", scope="gpu")


@triton.jit
def _backward(
    grad, table, low, grad_cost, passed, progress, batch, strips, m, n, stride_b, stride_m, stride_n,
    gamma, gamma_rest, kind: tl.constexpr, free_start: tl.constexpr, several: tl.constexpr,
):  # fmt: skip
    gamma = gamma.to(table.dtype.element_ty) + gamma_rest
    sharpness = 1 / gamma
    i_pair, i_order = _place(progress, batch, several)
    i_strip = strips - 1 - i_order
    lane = tl.arange(0, LANES)
    row = i_strip * LANES + lane[:, None]
    first = i_pair.to(tl.int64) * m * n
    p_grad = grad + i_pair.to(tl.int64) * stride_b + row.to(tl.int64) * stride_m
    p_passed = passed + (i_pair.to(tl.int64) * strips + i_strip) * n
    flag = progress + 1 + i_pair * strips + i_order
    known = 0
    # What the cells of the step after pass on: to d in their own lane, to b and (a step later) to a in the lane above.
    to_d = tl.zeros([LANES], table.dtype.element_ty)
    to_above, to_a = to_d, to_d
    end = tl.cdiv(n + LANES - 1, STEPS) * STEPS
    for back in range(STEPS, end + 1, STEPS):
        t = end - back
        step = t + tl.arange(0, STEPS)[None, :]
        column = step - lane[:, None]
        real = (row < m) & (column >= 0) & (column < n)
        b_grad = tl.load(p_grad + column * stride_n, mask=real, other=0.0).to(table.dtype.element_ty)
        w_a, w_b, w_d = _weights(table + first, low + first, row, column, m, n, gamma, sharpness, kind, free_start)
        b_below = tl.zeros([LANES, STEPS], table.dtype.element_ty)
        if several:
            while (i_order > 0) & (known < end - tl.maximum(t - LANES + 1, 0)):
                known = tl.atomic_add(flag - 1, 0, sem="acquire", scope="gpu")
            tl.debug_barrier()
            m_below = (lane[:, None] == LANES - 1) & (i_order > 0) & (column >= 0) & (column < n)
            b_below = tl.load(p_passed + n + column, mask=m_below, other=0.0, cache_modifier=".cg")
        g0, g1, g2, g3, g4, g5, g6, g7 = _columns(b_grad)
        a0, a1, a2, a3, a4, a5, a6, a7 = _columns(w_a)
        b0, b1, b2, b3, b4, b5, b6, b7 = _columns(w_b)
        d0, d1, d2, d3, d4, d5, d6, d7 = _columns(w_d)
        u0, u1, u2, u3, u4, u5, u6, u7 = _columns(b_below)
        e7, to_d, p7, to_a = _step_back(g7, u7, a7, b7, d7, to_d, to_above, to_a, lane)
        e6, to_d, p6, to_a = _step_back(g6, u6, a6, b6, d6, to_d, p7, to_a, lane)
        e5, to_d, p5, to_a = _step_back(g5, u5, a5, b5, d5, to_d, p6, to_a, lane)
        e4, to_d, p4, to_a = _step_back(g4, u4, a4, b4, d4, to_d, p5, to_a, lane)
        e3, to_d, p3, to_a = _step_back(g3, u3, a3, b3, d3, to_d, p4, to_a, lane)
        e2, to_d, p2, to_a = _step_back(g2, u2, a2, b2, d2, to_d, p3, to_a, lane)
        e1, to_d, p1, to_a = _step_back(g1, u1, a1, b1, d1, to_d, p2, to_a, lane)
        e0, to_d, to_above, to_a = _step_back(g0, u0, a0, b0, d0, to_d, p1, to_a, lane)
        at = first + row.to(tl.int64) * n + column
        tl.store(grad_cost + at, _tile(e0, e1, e2, e3, e4, e5, e6, e7), mask=real)
        if several:
            m_passed = (lane[:, None] == 0) & (step < n)
            tl.store(p_passed + (column + lane[:, None]), _tile(to_above, p1, p2, p3, p4, p5, p6, p7), mask=m_passed)
            tl.debug_barrier()
            tl.atomic_xchg(flag, back, sem="release", scope="gpu")


@triton.jit
def _place(progress, batch, several: tl.constexpr):
    """Find this program's pair and strip. Tickets are drawn in order, so whom one waits for has already started."""
    if several:
        ticket = tl.atomic_add(progress, 1, sem="relaxed", scope="gpu")
    else:
        ticket = tl.program_id(0)
    return ticket % batch, ticket // batch


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
    if kind != HARD:
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
def _weights(table, low, row, column, m, n, gamma, sharpness, kind: tl.constexpr, free_start: tl.constexpr):
    """Take ∂R/∂a, ∂R/∂b and ∂R/∂d of a tile of cells."""
    high_a, low_a = _state(table, low, row - 1, column - 1, m, n, gamma, free_start)
    high_b, low_b = _state(table, low, row - 1, column, m, n, gamma, free_start)
    high_d, low_d = _state(table, low, row, column - 1, m, n, gamma, free_start)
    ab = (high_a - high_b) + (low_a - low_b)
    a_first = ab <= 0
    md = tl.where(a_first, high_a - high_d, high_b - high_d) + tl.where(a_first, low_a - low_d, low_b - low_d)
    d_last = md <= 0
    if kind == HARD:
        lesser, w_d = d_last.to(high_a.dtype), (md > 0).to(high_a.dtype)
        return tl.where(a_first, lesser, 0.0), tl.where(a_first, 0.0, lesser), w_d
    u, v, e, f = _exponentials(ab, md, sharpness)
    share = 1 / (1 + e + f)
    if kind == SMOOTH:
        penalty = (u * e + v * f) * share
        least, middle, most = share * (1 + penalty), share * e * (1 + penalty - u), share * f * (1 + penalty - v)
    else:
        least, middle, most = share, share * e, share * f
    lesser = tl.where(d_last, least, middle)
    return tl.where(a_first, lesser, most), tl.where(a_first, most, lesser), tl.where(d_last, middle, least)


@triton.jit
def _exponentials(ab, md, sharpness):
    """Give u = (r − lo)/γ and e^(−u) of the two predecessors that are not the least.

    The first is d or the lesser of a and b, the second the greater of a and b. Capped, since 0 times the border is 0.
    """
    u = tl.minimum(tl.abs(md) * sharpness, 10000.0)
    v = tl.minimum((tl.abs(ab) + tl.maximum(md, 0.0)) * sharpness, 10000.0)
    return u, v, tl.exp2(-LOG2E * u), tl.exp2(-LOG2E * v)


@triton.jit
def _state(table, low, row, column, m, n, gamma, free_start: tl.constexpr):
    """Load a tile of R as high and low, with the border where there is no cell."""
    inside = (row >= 0) & (row < m) & (column >= 0) & (column < n)
    at = row.to(tl.int64) * n + column
    high = tl.load(table + at, mask=inside, other=BORDER)
    origin = row == -1 if free_start else (row == -1) & (column == -1)
    return tl.where(origin, 0.0, high), _unpack(tl.load(low + at, mask=inside, other=0.0), gamma)


@triton.jit
def _pack(small, sharpness):
    return (small * (64 * sharpness)).to(tl.float16)


@triton.jit
def _unpack(packed, gamma):
    return packed.to(gamma.dtype) * (gamma / 64)


@triton.jit
def _columns(tile):
    """Cut a tile [LANES, 8] into its columns."""
    even, odd = tl.split(tl.reshape(tile, [LANES, 4, 2]))
    x04, x26 = tl.split(tl.reshape(even, [LANES, 2, 2]))
    x15, x37 = tl.split(tl.reshape(odd, [LANES, 2, 2]))
    x0, x4 = tl.split(x04)
    x2, x6 = tl.split(x26)
    x1, x5 = tl.split(x15)
    x3, x7 = tl.split(x37)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def _tile(x0, x1, x2, x3, x4, x5, x6, x7):
    """Undo `_columns`."""
    even = tl.reshape(tl.join(tl.join(x0, x4), tl.join(x2, x6)), [LANES, 4])
    odd = tl.reshape(tl.join(tl.join(x1, x5), tl.join(x3, x7)), [LANES, 4])
    return tl.reshape(tl.join(even, odd), [LANES, 8])
