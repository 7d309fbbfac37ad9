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
dozen frames (docs/lab/numerics.md). Every other step it is rounded, so that `high` is the nearest float. The table is
`high`, rounded; `low` is kept for the backward pass as float16 in units of γ/64, in the order of the steps: a little
more than half the size of the table.
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
    add,
    cells,
    chain_words,
    clear_low,
    columns,
    eight,
    fill_row,
    hand_over,
    is_between,
    low_room,
    minimum,
    peek,
    peek_chain,
    place,
    read,
    rounded,
    shift_down,
    shift_up,
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
    launch = _launch_several if strips > 1 else _launch_forward
    launch(
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


# Fewer registers make chains faster and single strips slower.
_launch_forward, _launch_several = Launcher(_forward, maxnreg=120), Launcher(_forward, maxnreg=96)


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
    giver = (lane == LANES - 1) & (chained or (i_strip + 1) * LANES < m)
    # R of the step before, and b of the step before, which is a; each as high and low.
    high, small = tl.full([LANES], BORDER, dtype), tl.zeros([LANES], dtype)
    high_a, small_a = tl.where((lane == 0) & (i_strip == 0), 0.0, high), small
    top, top_low = tl.zeros([LANES], dtype) + edge, small
    at, real = cells(i_strip, 0, m, n, stride_m, stride_n, width, wide, chained)
    b_next = tl.load(cost + at, mask=real, other=BORDER).to(dtype)
    if chained:
        fill_row(p_out, width, top)
        tl.debug_barrier()
        word = peek_chain(p_out)
    else:
        word = peek(p_out - to_next, 0, i_strip > 0, n, several, dtype)
    begin = tl.zeros([], tl.int32)  # the step at which the strip of the first lane begins
    low += lane
    if keep:
        clear_low(low, steps)
    # Tiles are stored late, while the next one is computed: the last one, and the one before it. These begin with
    # different values: Triton takes a variable for constant that begins with the value it is set to.
    last, before = eight(high), eight(small)
    for t in range(0, steps, STEPS):
        c = columns(b_next)
        i_next, next_begin = turn(i_strip, begin, t + STEPS, width, chained)
        at, real = cells(i_next, t + STEPS - next_begin, m, n, stride_m, stride_n, width, wide, chained)
        b_next = tl.load(cost + at, mask=real, other=BORDER).to(dtype)
        if chained:
            top, top_low = read(word, dtype, False)
            word = peek_chain(p_out + (t + STEPS))
        elif several:
            word = wait(word, p_out - to_next, t, i_strip > 0, n, dtype)
            top, top_low = read(word, dtype, True)
            top = tl.where(i_strip > 0, top, edge)
            word = peek(p_out - to_next, t + STEPS, i_strip > 0, n, several, dtype)
        store_aligned(table, i_strip, t - begin - 2 * STEPS, m, n, before + last, width, wide, chained)
        before = last
        highs, lows, last, rests = (), (), (), ()
        for k in tl.static_range(STEPS):
            high, small, high_a, small_a = _step(
                c[k], top, top_low, k, high, small, high_a, small_a, gamma, sharpness, kind, several
            )
            value, rest = rounded(high, small)
            if k % 2 == 1:  # the next step waits for it: rarer is faster, but less exact
                high, small = value, rest
            highs, lows, last, rests = highs + (high,), lows + (small,), last + (value,), rests + (rest,)
        if several:
            # Earlier, the last lane would write over the row before the first of a chain.
            gives = giver & (t >= LANES - STEPS) if chained else giver
            hand_over(p_out + (width if chained else 0), t, gives, highs, lows, not chained)
        if keep:
            _keep_lows(low + (t + 2) * LANES, rests, gamma)
        if chained:
            between = is_between(t + STEPS - 1 - begin, width)
            high, high_a = tl.where(between, BORDER, high), tl.where(between, BORDER, high_a)
            small, small_a = tl.where(between, 0.0, small), tl.where(between, 0.0, small_a)
            i_strip, begin = i_next, next_begin
            tl.debug_barrier()  # so that the lanes see what one of them handed over
    store_aligned(table, i_strip, steps - begin - 2 * STEPS, m, n, before + last, width, wide, chained)


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
    at, real = cells(i_strip, t - begin - 2, m, n, n, 1, width, wide, chained)
    b_d = tl.load(table + at, mask=real, other=BORDER)
    next_lows = _lows_at(low + lane + t * LANES)
    top, top_low = _top(table, low, i_strip, begin, t - 1, m, n, edge, several, chained, dtype)
    at, real = cells(i_strip, t - begin, m, n, stride_m, stride_n, width, wide, chained)
    b_grad = tl.load(grad + at, mask=real, other=0.0).to(dtype)
    # What the last lane reads at steps t, t + 1, … the first lane of the strip below has written.
    p_below, follows = p_out + (to_next - LANES + 1), (i_strip + 1) * LANES < m
    if chained:
        fill_row(p_out + tl.cdiv(m, LANES) * width, width, to_d)
        tl.debug_barrier()
        word = peek_chain(p_below + t)
    else:
        word = peek(p_out + to_next, t - LANES + 1, follows, n, several, dtype)
    after = eight(to_d)  # E of the tile after
    while t >= 0:
        g, ds = columns(b_grad), columns(b_d)
        above, above_low, lows = (), (), ()
        for k in tl.static_range(STEPS):
            lows = lows + (next_lows[k].to(dtype),)
            above = above + (shift_down(ds[k], top, k, several),)
            above_low = above_low + (shift_down(lows[k], top_low, k, several),)
        first = tl.where((lane == 0) & (i_strip == 0) & (t == 0), 0.0, above[0])
        i_next, next_begin = turn(i_strip, begin, t - STEPS, width, chained)
        at, real = cells(i_next, t - next_begin - 2 - STEPS, m, n, n, 1, width, wide, chained)
        b_d = tl.load(table + at, mask=real, other=BORDER)
        next_lows = _lows_at(low + lane + tl.maximum(t - STEPS, 0) * LANES)
        top, top_low = _top(table, low, i_next, next_begin, t - 1 - STEPS, m, n, edge, several, chained, dtype)
        at, real = cells(i_next, t - next_begin - STEPS, m, n, stride_m, stride_n, width, wide, chained)
        b_grad = tl.load(grad + at, mask=real, other=0.0).to(dtype)
        if chained:
            below, _ = read(word, dtype, False)
            word = peek_chain(p_below + (t - STEPS))
        elif several:
            word = wait(word, p_out + to_next, t - LANES + 1, follows, n, dtype)
            below, _ = read(word, dtype, True)
            word = peek(p_out + to_next, t - LANES + 1 - STEPS, follows, n, several, dtype)
        es, given = (), ()
        for k in tl.static_range(STEPS - 1, -1, -1):
            a = first if k == 0 else above[k]
            w_a, w_b, w_d = weigh(a, above_low[k], b, b_low, d, d_low, gamma, kind)
            e, to_d, to_above, to_a = _step_back(g[k], below, k, w_a, w_b, w_d, to_d, to_above, to_a, several)
            es, given = (e,) + es, (to_above,) + given
            b, b_low, d, d_low = a, above_low[k], ds[k], lows[k]
        if several:
            gives = (lane == 0) & (chained or i_strip > 0)
            hand_over(p_out, t, gives, given, eight(to_a * 0), not chained)
        store_aligned(grad_cost, i_strip, t - begin, m, n, es + after, width, wide, chained)
        after = es
        if chained:
            between = is_between(t - begin, width)
            to_d, to_above = tl.where(between, 0.0, to_d), tl.where(between, 0.0, to_above)
            to_a = tl.where(between, 0.0, to_a)
            i_strip, begin = i_next, next_begin
            tl.debug_barrier()  # so that the lanes see what one of them handed over
        t -= STEPS


@triton.jit
def _lows_at(p):
    """Load the low parts of eight steps, from an array that holds all lanes of a step, then the next step."""
    lows = ()
    for k in tl.static_range(STEPS):
        lows = lows + (tl.load(p + k * LANES),)
    return lows


@triton.jit
def _keep_lows(p, lows, gamma):
    """Store the low parts of eight steps, finite beyond the table too."""
    for k in tl.static_range(STEPS):
        scaled = tl.minimum(tl.maximum(lows[k] * (64 / gamma), -60000.0), 60000.0)
        tl.store(p + k * LANES, scaled.to(tl.float16))


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
    least, least_low, penalty, _, _ = minimum(high_a, small_a, high_b, small_b, high, small, gamma, sharpness, kind)
    total, rest = add(least, least_low, c)
    return total, rest + penalty, high_b, small_b


@triton.jit
def _step_back(g, below, k: tl.constexpr, w_a, w_b, w_d, to_d, to_above, to_a, several: tl.constexpr):
    """Collect E in each lane from the gradient g and the step after; return it and its parts for a, b and d."""
    e = g + to_d + shift_up(to_above, below, k, several)
    return e, w_d * e, w_b * e + to_a, w_a * e
