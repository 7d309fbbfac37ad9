"""Tiles of eight steps by 32 lanes, and the minimum of a cell.

A lane holds its row of a tile in registers, so cutting it into columns and joining them again only renames registers;
on the way from and to memory the compiler shuffles, and rows are read contiguously.
"""

import triton
import triton.language as tl
from triton.language.extra.libdevice import fast_dividef

SMOOTH, SOFT, HARD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
BORDER = tl.constexpr(1e30)
LOG2E, LN2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)
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
    behind = tl.where(row < m, tl.arange(0, LANES)[:, None], 2**30)  # rows beyond the table have no column
    column = t + tl.arange(0, STEPS)[None, :] - behind
    return column, column.to(tl.uint32) < n.to(tl.uint32)  # one comparison: negative numbers become large


@triton.jit
def steps_of(n):
    """Count the steps until every lane has its last eight columns: the last lane begins 31 steps after the first."""
    return tl.cdiv(n, STEPS) * STEPS + LANES


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
    return total, (x - (total - high)) + small


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
def weigh(high_a, low_a, high_b, low_b, high_d, low_d, gamma, kind: tl.constexpr):
    """Take ∂R/∂a, ∂R/∂b and ∂R/∂d of one cell in each lane."""
    unit = gamma / 64
    ab = (high_a - high_b) + (low_a - low_b) * unit
    ad = (high_a - high_d) + (low_a - low_d) * unit
    bd = (high_b - high_d) + (low_b - low_d) * unit
    return _differentiate(ab, tl.minimum(ad, bd, propagate_nan=tl.PropagateNan.ALL), LOG2E / gamma, kind)
