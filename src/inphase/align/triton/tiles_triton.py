"""Tiles of eight steps by 32 lanes, the minimum of a cell, and pairs of 33 to 64 rows.

A lane holds its row of a tile in registers, so cutting it into columns and joining them again only renames registers;
on the way from and to memory the compiler shuffles, and rows are read contiguously. A pair of at most 64 rows is swept
by one warp with two rows to a lane: nothing is handed over, and half as many values move between lanes.
"""

import triton
import triton.language as tl
from triton.language.extra.libdevice import fast_dividef

SMOOTH, SOFT, HARD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
BORDER = tl.constexpr(1e30)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LANES = tl.constexpr(32)
STEPS = tl.constexpr(8)  # columns of a tile


@triton.jit
def rows_of(i_strip, wide: tl.constexpr):
    """Number the rows of a strip, [LANES, 1]; in 64 bits where the cells of a table are too many for 32."""
    row = i_strip * LANES + tl.arange(0, LANES)[:, None]
    return row.to(tl.int64) if wide else row


@triton.jit
def cells(row, t, m, n):
    """Return the columns at steps t, t + 1, … of each lane, and which of them are cells of the table."""
    column = t + tl.arange(0, STEPS)[None, :] - tl.arange(0, LANES)[:, None]
    end = tl.where(row < m, n, 0)
    return column, column.to(tl.uint32) < end.to(tl.uint32)  # one comparison: negative numbers become large


@triton.jit
def steps_of(n):
    """Count the steps of a strip in whole tiles: the last lane begins LANES − 1 steps after the first."""
    return tl.cdiv(n + LANES - 1, STEPS) * STEPS


@triton.jit
def by_step(step):
    """Number the entries of a tile, at those steps, of an array that holds all lanes of a step, then the next."""
    return step[None, :] * LANES + tl.arange(0, LANES)[:, None]


@triton.jit
def steps_at(p, each: tl.constexpr):
    """Load one of `each` values of eight steps, from an array that holds all lanes of a step, then the next step."""
    s: tl.constexpr = each * LANES
    x0, x1, x2, x3 = tl.load(p), tl.load(p + s), tl.load(p + 2 * s), tl.load(p + 3 * s)
    x4, x5, x6, x7 = tl.load(p + 4 * s), tl.load(p + 5 * s), tl.load(p + 6 * s), tl.load(p + 7 * s)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def columns(tile):
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
def tile(x0, x1, x2, x3, x4, x5, x6, x7):
    """Undo `columns`."""
    even = tl.reshape(tl.join(tl.join(x0, x4), tl.join(x2, x6)), [LANES, 4])
    odd = tl.reshape(tl.join(tl.join(x1, x5), tl.join(x3, x7)), [LANES, 4])
    joined = tl.reshape(tl.join(even, odd), [LANES, 8])
    # Each lane gathers its own values: otherwise the compiler converts to the layout of the store at every join.
    return tl.gather(joined, tl.broadcast_to(tl.arange(0, LANES)[:, None], [LANES, 8]), 0)


# A signaling NaN, which arithmetic never yields: values are handed over with its bits flipped, so never as 0.
NEVER = tl.constexpr(0x7FF4000000000000)
NEVER32 = tl.constexpr(0x7FA0000000000000)


@triton.jit
def read(word, dtype: tl.constexpr):
    """Undo `pack_word`."""
    if dtype == tl.float64:
        high = (word ^ NEVER).to(tl.float64, bitcast=True)
        small = high * 0
    else:
        bits = word ^ NEVER32
        high = (bits >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        small = bits.to(tl.int32).to(tl.float32, bitcast=True)
    return high, small


@triton.jit
def pack_word(high, small):
    """Pack a value into one word, written atomically and never 0."""
    if high.dtype == tl.float64:
        word = high.to(tl.int64, bitcast=True) ^ NEVER
    else:
        upper = high.to(tl.int32, bitcast=True).to(tl.int64) << 32
        word = (upper | (small.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)) ^ NEVER32
    return word


@triton.jit
def minimum(high_a, small_a, high_b, small_b, high_d, small_d, gamma, sharpness, kind: tl.constexpr):
    """Take the minimum s of three pairs of floats: the least of them, s less that, ∂s/∂a and ∂s/∂b."""
    ab = (high_a - high_b) + (small_a - small_b)
    ad = (high_a - high_d) + (small_a - small_d)
    bd = (high_b - high_d) + (small_b - small_d)
    md = tl.minimum(ad, bd, propagate_nan=tl.PropagateNan.ALL)
    a_first, d_last = ab <= 0, md <= 0
    lesser, lesser_low = tl.where(a_first, high_a, high_b), tl.where(a_first, small_a, small_b)
    least, least_low = tl.where(d_last, lesser, high_d), tl.where(d_last, lesser_low, small_d)
    if kind == HARD:
        penalty = 0 * (ab + md)  # NaN, like the exponentials, where a predecessor is
    else:
        u, v, e, f = _exponentials(ab, md, sharpness)
        if kind == SMOOTH:
            penalty = (gamma * LN2) * _ratio(u * e + v * f, 1 + e + f)
        else:
            penalty = -(gamma * LN2) * tl.log2(1 + e + f)
    by_a, by_b, _ = _differentiate(ab, md, sharpness, kind)
    return least, least_low, penalty, by_a, by_b


@triton.jit
def add(high, small, x):
    """Add a number to a pair of floats: the rounded sum, and its exact rounding error beside the low part."""
    total = high + x
    part = total - high
    return total, ((high - (total - part)) + (x - part)) + small


@triton.jit
def cell(c, a, a_low, b, b_low, d, d_low, gamma, sharpness, kind: tl.constexpr):
    """Add the cost c to the minimum of a, b and d: R of one cell in each lane, as high and low."""
    least, least_low, penalty, _, _ = minimum(a, a_low, b, b_low, d, d_low, gamma, sharpness, kind)
    total, rest = add(least, least_low, c)
    rest += penalty
    value = total + rest
    return value, rest - (value - total)


@triton.jit
def _differentiate(ab, md, sharpness, kind: tl.constexpr):
    """Take ∂s/∂a, ∂s/∂b and ∂s/∂d of a minimum from a − b and the lesser of these − d."""
    a_first, d_last = ab <= 0, md <= 0
    if kind == HARD:
        least, middle, most = md * 0 + 1, md * 0, md * 0
    else:
        u, v, e, f = _exponentials(ab, md, sharpness)
        least = _ratio(1 + e * 0, 1 + e + f)
        middle, most = least * e, least * f
        if kind == SMOOTH:
            raised = 1 + LN2 * (u * middle + v * most)
            least, middle, most = least * raised, middle * (raised - LN2 * u), most * (raised - LN2 * v)
    lesser = tl.where(d_last, least, middle)
    return tl.where(a_first, lesser, most), tl.where(a_first, most, lesser), tl.where(d_last, middle, least)


@triton.jit
def _exponentials(ab, md, sharpness):
    """Return u = (r − lo)/(γ log 2) and 2^(−u) of the two predecessors that are not the least.

    The first is d or the lesser of a and b, the second the greater of a and b. Capped, since 0 times the border is 0.
    """
    md *= sharpness
    u = tl.minimum(tl.abs(md), 10000.0, propagate_nan=tl.PropagateNan.ALL)
    above = tl.maximum(md, 0.0, propagate_nan=tl.PropagateNan.ALL)
    v = tl.minimum(tl.abs(ab) * sharpness + above, 10000.0, propagate_nan=tl.PropagateNan.ALL)
    return u, v, tl.exp2(-u), tl.exp2(-v)


@triton.jit
def _ratio(x, y):
    """Divide by a number that is neither small nor large."""
    return x / y if x.dtype == tl.float64 else fast_dividef(x, y)


@triton.jit
def shift_down(x, top, k: tl.constexpr, several: tl.constexpr):
    """Shift values down by a lane; the first lane gets entry k of `top`, the row of the strip above."""
    lane = tl.arange(0, LANES)
    first = tl.gather(top, tl.full([LANES], k, tl.int32), 0) if several else top
    return tl.where(lane == 0, first, tl.gather(x, tl.maximum(lane - 1, 0), 0))


@triton.jit
def shift_up(x, below, k: tl.constexpr, several: tl.constexpr):
    """Shift values up by a lane; the last lane gets entry k of `below`, the row of the strip below."""
    lane = tl.arange(0, LANES)
    last = tl.gather(below, tl.full([LANES], k, tl.int32), 0) if several else below
    return tl.where(lane == LANES - 1, last, tl.gather(x, tl.minimum(lane + 1, LANES - 1), 0))


@triton.jit
def sweep_double(
    cost, table, low, m, n, stride_m, stride_n, gamma, edge,
    kind: tl.constexpr, keep: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Accumulate one pair of at most 64 rows, two to a lane: no row is handed over, and half as many lanes shift."""
    dtype: tl.constexpr = table.dtype.element_ty
    sharpness = LOG2E / gamma
    lane = tl.arange(0, LANES)
    row = 2 * rows_of(0, wide)
    # R of the step before in the upper and the lower row, and the lower one of the lane above, which is a.
    x, x_low = tl.full([LANES], BORDER, dtype), tl.zeros([LANES], dtype)
    y, y_low, a, a_low = x, x_low, tl.where(lane == 0, 0.0, x), x_low
    column, real = cells(row, 0, m, n)
    b_upper = tl.load(cost + row * stride_m + column * stride_n, mask=real, other=BORDER).to(dtype)
    column, real = cells(row + 1, 0, m, n)
    b_lower = tl.load(cost + (row + 1) * stride_m + column * stride_n, mask=real, other=BORDER).to(dtype)
    for t in range(0, n + LANES - 1, STEPS):
        c0, c1, c2, c3, c4, c5, c6, c7 = columns(b_upper)
        d0, d1, d2, d3, d4, d5, d6, d7 = columns(b_lower)
        column, real = cells(row, t + STEPS, m, n)
        b_upper = tl.load(cost + row * stride_m + column * stride_n, mask=real, other=BORDER).to(dtype)
        column, real = cells(row + 1, t + STEPS, m, n)
        b_lower = tl.load(cost + (row + 1) * stride_m + column * stride_n, mask=real, other=BORDER).to(dtype)
        x0, u0, y0, v0, a, a_low = _step_double(c0, d0, x, x_low, y, y_low, a, a_low, edge, gamma, sharpness, kind)
        x1, u1, y1, v1, a, a_low = _step_double(c1, d1, x0, u0, y0, v0, a, a_low, edge, gamma, sharpness, kind)
        x2, u2, y2, v2, a, a_low = _step_double(c2, d2, x1, u1, y1, v1, a, a_low, edge, gamma, sharpness, kind)
        x3, u3, y3, v3, a, a_low = _step_double(c3, d3, x2, u2, y2, v2, a, a_low, edge, gamma, sharpness, kind)
        x4, u4, y4, v4, a, a_low = _step_double(c4, d4, x3, u3, y3, v3, a, a_low, edge, gamma, sharpness, kind)
        x5, u5, y5, v5, a, a_low = _step_double(c5, d5, x4, u4, y4, v4, a, a_low, edge, gamma, sharpness, kind)
        x6, u6, y6, v6, a, a_low = _step_double(c6, d6, x5, u5, y5, v5, a, a_low, edge, gamma, sharpness, kind)
        x7, u7, y7, v7, a, a_low = _step_double(c7, d7, x6, u6, y6, v6, a, a_low, edge, gamma, sharpness, kind)
        x, x_low, y, y_low = x7, u7, y7, v7
        column, real = cells(row, t, m, n)
        tl.store(table + (row * n + column), tile(x0, x1, x2, x3, x4, x5, x6, x7), mask=real)
        column, real = cells(row + 1, t, m, n)
        tl.store(table + ((row + 1) * n + column), tile(y0, y1, y2, y3, y4, y5, y6, y7), mask=real)
        if keep:
            keep_low(low, t, tile(u0, u1, u2, u3, u4, u5, u6, u7), gamma)
            keep_low(low + steps_of(n) * LANES, t, tile(v0, v1, v2, v3, v4, v5, v6, v7), gamma)


@triton.jit
def keep_low(low, t, tile, gamma):
    """Store the low parts of a tile, finite beyond the table too."""
    b_low = tl.minimum(tl.maximum(tile * (64 / gamma), -60000.0), 60000.0)
    tl.store(low + by_step(t + tl.arange(0, STEPS)), b_low.to(tl.float16))


@triton.jit
def sweep_double_back(
    grad, table, low, grad_cost, m, n, stride_m, stride_n, gamma, edge,
    kind: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Run the gradient of one pair of at most 64 rows back, two to a lane."""
    dtype: tl.constexpr = table.dtype.element_ty
    lane = tl.arange(0, LANES)
    row = 2 * rows_of(0, wide)
    low_y, top = low + steps_of(n) * LANES, tl.zeros([LANES], dtype) + edge
    # What the cells of the step after pass on: to d in their own row; the upper row to b and (a step later) to a in the
    # lane above, the lower row (a step later) to a in the upper one.
    zero = tl.zeros([LANES], dtype)
    to_x, to_y, to_above, to_a, to_upper = zero, zero, zero, zero, zero
    # As in `sweep_back`, tiles of left neighbors begin a step early: p, q the upper and the lower row, r q of the lane
    # above. The lower row also needs p of the step after.
    p9, l9, q8, k8, r8, i8 = zero, zero, zero, zero, zero, zero
    t = (n + LANES - 1) // STEPS * STEPS
    b_p, b_l = tile_of_d(table, low, row, t - 1 + STEPS, m, n)
    p8, _, _, _, _, _, _, _ = columns(b_p)
    l8, _, _, _, _, _, _, _ = columns(b_l)
    b_p, b_l = tile_of_d(table, low, row, t - 1, m, n)
    b_q, b_k = tile_of_d(table, low_y, row + 1, t - 1, m, n)
    column, real = cells(row, t, m, n)
    b_g = tl.load(grad + row * stride_m + column * stride_n, mask=real, other=0.0).to(dtype)
    column, real = cells(row + 1, t, m, n)
    b_h = tl.load(grad + (row + 1) * stride_m + column * stride_n, mask=real, other=0.0).to(dtype)
    while t >= 0:
        g0, g1, g2, g3, g4, g5, g6, g7 = columns(b_g)
        h0, h1, h2, h3, h4, h5, h6, h7 = columns(b_h)
        p0, p1, p2, p3, p4, p5, p6, p7 = columns(b_p)
        l0, l1, l2, l3, l4, l5, l6, l7 = columns(b_l)
        q0, q1, q2, q3, q4, q5, q6, q7 = columns(b_q)
        k0, k1, k2, k3, k4, k5, k6, k7 = columns(b_k)
        r0, i0 = shift_down(q0, top, 0, False), shift_down(k0, zero, 0, False)
        r1, i1 = shift_down(q1, top, 1, False), shift_down(k1, zero, 1, False)
        r2, i2 = shift_down(q2, top, 2, False), shift_down(k2, zero, 2, False)
        r3, i3 = shift_down(q3, top, 3, False), shift_down(k3, zero, 3, False)
        r4, i4 = shift_down(q4, top, 4, False), shift_down(k4, zero, 4, False)
        r5, i5 = shift_down(q5, top, 5, False), shift_down(k5, zero, 5, False)
        r6, i6 = shift_down(q6, top, 6, False), shift_down(k6, zero, 6, False)
        r7, i7 = shift_down(q7, top, 7, False), shift_down(k7, zero, 7, False)
        r0 = tl.where((lane == 0) & (t == 0), 0.0, r0)
        b_p, b_l = tile_of_d(table, low, row, t - 1 - STEPS, m, n)
        b_q, b_k = tile_of_d(table, low_y, row + 1, t - 1 - STEPS, m, n)
        column, real = cells(row, t - STEPS, m, n)
        b_g = tl.load(grad + row * stride_m + column * stride_n, mask=real, other=0.0).to(dtype)
        column, real = cells(row + 1, t - STEPS, m, n)
        b_h = tl.load(grad + (row + 1) * stride_m + column * stride_n, mask=real, other=0.0).to(dtype)
        u, v, w = weigh(p8, l8, p9, l9, q8, k8, gamma, kind)
        f7, to_y, to_x, to_upper = _step_lower(h7, u, v, w, to_y, to_above, to_x, to_upper)
        u, v, w = weigh(r7, i7, r8, i8, p8, l8, gamma, kind)
        e7, to_x, to_above, to_a = g7 + to_x, w * (g7 + to_x), v * (g7 + to_x) + to_a, u * (g7 + to_x)
        u, v, w = weigh(p7, l7, p8, l8, q7, k7, gamma, kind)
        f6, to_y, to_x, to_upper = _step_lower(h6, u, v, w, to_y, to_above, to_x, to_upper)
        u, v, w = weigh(r6, i6, r7, i7, p7, l7, gamma, kind)
        e6, to_x, to_above, to_a = g6 + to_x, w * (g6 + to_x), v * (g6 + to_x) + to_a, u * (g6 + to_x)
        u, v, w = weigh(p6, l6, p7, l7, q6, k6, gamma, kind)
        f5, to_y, to_x, to_upper = _step_lower(h5, u, v, w, to_y, to_above, to_x, to_upper)
        u, v, w = weigh(r5, i5, r6, i6, p6, l6, gamma, kind)
        e5, to_x, to_above, to_a = g5 + to_x, w * (g5 + to_x), v * (g5 + to_x) + to_a, u * (g5 + to_x)
        u, v, w = weigh(p5, l5, p6, l6, q5, k5, gamma, kind)
        f4, to_y, to_x, to_upper = _step_lower(h4, u, v, w, to_y, to_above, to_x, to_upper)
        u, v, w = weigh(r4, i4, r5, i5, p5, l5, gamma, kind)
        e4, to_x, to_above, to_a = g4 + to_x, w * (g4 + to_x), v * (g4 + to_x) + to_a, u * (g4 + to_x)
        u, v, w = weigh(p4, l4, p5, l5, q4, k4, gamma, kind)
        f3, to_y, to_x, to_upper = _step_lower(h3, u, v, w, to_y, to_above, to_x, to_upper)
        u, v, w = weigh(r3, i3, r4, i4, p4, l4, gamma, kind)
        e3, to_x, to_above, to_a = g3 + to_x, w * (g3 + to_x), v * (g3 + to_x) + to_a, u * (g3 + to_x)
        u, v, w = weigh(p3, l3, p4, l4, q3, k3, gamma, kind)
        f2, to_y, to_x, to_upper = _step_lower(h2, u, v, w, to_y, to_above, to_x, to_upper)
        u, v, w = weigh(r2, i2, r3, i3, p3, l3, gamma, kind)
        e2, to_x, to_above, to_a = g2 + to_x, w * (g2 + to_x), v * (g2 + to_x) + to_a, u * (g2 + to_x)
        u, v, w = weigh(p2, l2, p3, l3, q2, k2, gamma, kind)
        f1, to_y, to_x, to_upper = _step_lower(h1, u, v, w, to_y, to_above, to_x, to_upper)
        u, v, w = weigh(r1, i1, r2, i2, p2, l2, gamma, kind)
        e1, to_x, to_above, to_a = g1 + to_x, w * (g1 + to_x), v * (g1 + to_x) + to_a, u * (g1 + to_x)
        u, v, w = weigh(p1, l1, p2, l2, q1, k1, gamma, kind)
        f0, to_y, to_x, to_upper = _step_lower(h0, u, v, w, to_y, to_above, to_x, to_upper)
        u, v, w = weigh(r0, i0, r1, i1, p1, l1, gamma, kind)
        e0, to_x, to_above, to_a = g0 + to_x, w * (g0 + to_x), v * (g0 + to_x) + to_a, u * (g0 + to_x)
        p8, l8, p9, l9, q8, k8, r8, i8 = p0, l0, p1, l1, q0, k0, r0, i0
        column, real = cells(row, t, m, n)
        tl.store(grad_cost + (row * n + column), tile(e0, e1, e2, e3, e4, e5, e6, e7), mask=real)
        column, real = cells(row + 1, t, m, n)
        tl.store(grad_cost + ((row + 1) * n + column), tile(f0, f1, f2, f3, f4, f5, f6, f7), mask=real)
        t -= STEPS


@triton.jit
def _step_lower(h, by_a, by_b, by_d, to_y, to_above, to_x, to_upper):
    """Collect E of the lower rows; return it, its part for d, all that the upper row gets, and its part for a."""
    e = h + to_y + shift_up(to_above, tl.zeros([LANES], h.dtype), 0, False)
    return e, by_d * e, to_x + by_b * e + to_upper, by_a * e


@triton.jit
def _step_double(c, d, x, x_low, y, y_low, a, a_low, edge, gamma, sharpness, kind: tl.constexpr):
    """Compute the cells of the upper and the lower row in each lane; return them and b of the upper one."""
    b, b_low = (
        shift_down(y, tl.zeros([LANES], x.dtype) + edge, 0, False),
        shift_down(y_low, tl.zeros([LANES], x.dtype), 0, False),
    )
    upper, upper_low = cell(c, a, a_low, b, b_low, x, x_low, gamma, sharpness, kind)
    lower, lower_low = cell(d, x, x_low, upper, upper_low, y, y_low, gamma, sharpness, kind)
    return upper, upper_low, lower, lower_low, b, b_low


@triton.jit
def tile_of_d(table, low, row, t, m, n):
    """Load the left neighbors of a tile of cells, as high and low. Beyond the table low is arbitrary and not used."""
    column, real = cells(row, t - 1, m, n)
    high = tl.load(table + (row * n + column), mask=real, other=BORDER)
    step = tl.minimum(tl.maximum(t - 1 + tl.arange(0, STEPS), 0), steps_of(n) - 1)
    return high, tl.load(low + by_step(step)).to(high.dtype)


@triton.jit
def weigh(high_a, low_a, high_b, low_b, high_d, low_d, gamma, kind: tl.constexpr):
    """Take ∂R/∂a, ∂R/∂b and ∂R/∂d of one cell in each lane."""
    unit = gamma / 64
    ab = (high_a - high_b) + (low_a - low_b) * unit
    lesser, lesser_low = tl.where(ab <= 0, high_a, high_b), tl.where(ab <= 0, low_a, low_b)
    md = (lesser - high_d) + (lesser_low - low_d) * unit
    return _differentiate(ab, md, LOG2E / gamma, kind)
