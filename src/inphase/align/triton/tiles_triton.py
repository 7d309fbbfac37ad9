"""Tiles of eight steps by 32 lanes, the minimum of a cell, and what strips keep and hand over in memory.

A lane holds its row of a tile in registers, so cutting it into columns and joining them again only renames registers;
on the way from and to memory the compiler shuffles, and rows are read contiguously.
"""

import triton
import triton.language as tl

SMOOTH, SOFT, HARD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
BORDER = tl.constexpr(1e30)
LOG2E, LN2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)
LANES = tl.constexpr(32)
STEPS = tl.constexpr(8)  # columns of a tile
RECIPROCAL = tl.constexpr("rcp.approx.ftz.f32 $0, $1;")


@triton.jit
def cells(i_strip, t, m, n, stride_m, stride_n, width, wide: tl.constexpr, chained: tl.constexpr):
    """Return where each lane is at steps t, t + 1, … as an offset into the table, and which of these are its cells.

    Steps count from the start of the first lane's strip. In a chain of strips, later lanes may still be in the strip
    above.
    """
    return _cells(i_strip, t, tl.arange(0, LANES)[:, None], m, n, stride_m, stride_n, width, wide, chained)


@triton.jit
def _cells(i_strip, t, behind, m, n, stride_m, stride_n, width, wide: tl.constexpr, chained: tl.constexpr):
    """Do the same for lanes that are `behind` steps behind the first lane."""
    lane, step = tl.arange(0, LANES)[:, None], tl.arange(0, STEPS)[None, :]
    if wide:  # the cells of a table are too many for 32 bits
        stride_m, stride_n = stride_m.to(tl.int64), tl.zeros([], tl.int64) + stride_n
    if chained:
        # Eight steps of a lane that contain the last of a strip and the first of the next contain no cell of the last.
        above = behind >= tl.where(i_strip > 0, t + STEPS, LANES)
        begin = i_strip * LANES * stride_m + t * stride_n
        begin = tl.where(above, begin + (width * stride_n - LANES * stride_m), begin)
        left = m - i_strip * LANES
        real = _within(tl.where(above, t + width, t) + (step - behind), n) & (
            lane < tl.where(above, left + LANES, left)
        )
        offset = begin + (lane * stride_m + (step - behind) * stride_n)
    else:
        row = i_strip * LANES + lane
        column = t + step - tl.where(row < m, behind, 2**30)  # rows beyond the table have no column
        offset, real = row * stride_m + column * stride_n, _within(column, n)
    return offset, real


@triton.jit
def width_of(n):
    """Count the steps between the starts of two strips of a chain; a lane has no cell in at least eight of them."""
    return tl.cdiv(n, STEPS) * STEPS + STEPS


@triton.jit
def turn(i_strip, begin, t, width, chained: tl.constexpr):
    """Return the first lane's strip at step t and the step at which that strip begins.

    `i_strip` and `begin` are the same of a nearby step, at most one strip away.
    """
    if chained:
        later, earlier = t - begin >= width, (t < begin) & (begin > 0)
        begin = tl.where(later, begin + width, tl.where(earlier, begin - width, begin))
        i_strip = tl.where(later, i_strip + 1, tl.where(earlier, i_strip - 1, i_strip))
    return i_strip, begin


@triton.jit
def is_between(t, width):
    """Test which lanes are, at step t, in the last eight steps before their next strip: one tile of each ends there."""
    column = t - tl.arange(0, LANES)
    return tl.where(column < 0, column + width, column) >= width - STEPS


@triton.jit
def steps_of(n):
    """Count the steps until every lane has its last eight columns: the last lane begins 31 steps after the first."""
    return tl.cdiv(n, STEPS) * STEPS + LANES


@triton.jit
def steps_in(m, n, width, chained: tl.constexpr):
    """Count the steps of a program, for one strip or for a chain of all strips of a pair."""
    return steps_of(n) + ((tl.cdiv(m, LANES) - 1) * width if chained else 0)


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
            penalty = ((u * e + v * f) * (-gamma * LN2)) * _inverse(1 + e + f)
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
def rounded(total, rest):
    """Round a sum of two floats: the nearest float, and what is left."""
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
        least = _inverse(1 + e + f)
        if kind == SMOOTH:
            unit = least * LN2
            raised = least - least * ((u * e + v * f) * unit)
            least, middle, most = raised, (raised + unit * u) * e, (raised + unit * v) * f
        else:
            middle, most = least * e, least * f
    lesser = tl.where(d_last, least, middle)
    return tl.where(a_first, lesser, most), tl.where(a_first, most, lesser), tl.where(d_last, middle, least)


@triton.jit
def _exponentials(ab, md, sharpness):
    """Return u = −(r − lo)/(γ log 2) and 2^u of the two predecessors that are not the least.

    The first is d or the lesser of a and b, the second the greater of a and b. u is limited: 0 times the border is 0.
    """
    u = tl.abs(md) * -sharpness
    v = (tl.abs(ab) + tl.maximum(md, 0.0, propagate_nan=tl.PropagateNan.ALL)) * -sharpness
    e, f = tl.exp2(u), tl.exp2(v)
    u = tl.maximum(u, -10000.0, propagate_nan=tl.PropagateNan.ALL)
    v = tl.maximum(v, -10000.0, propagate_nan=tl.PropagateNan.ALL)
    return u, v, e, f


@triton.jit
def _inverse(x):
    """Take 1 / x of numbers that are neither small nor large."""
    if x.dtype == tl.float64:
        inverse = 1 / x
    else:
        inverse = tl.inline_asm_elementwise(RECIPROCAL, "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return inverse


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


# A signaling NaN, which arithmetic never yields: values are handed over with its bits flipped, so never as 0.
NEVER, NEVER32 = tl.constexpr(0x7FF4000000000000), tl.constexpr(0x7FA0000000000000)


@triton.jit
def read(word, dtype: tl.constexpr, flip: tl.constexpr):
    """Undo `pack_word`."""
    if flip:
        word ^= NEVER if dtype == tl.float64 else NEVER32
    if dtype == tl.float64:
        high = word.to(tl.float64, bitcast=True)
        small = high * 0
    else:
        high = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        small = word.to(tl.int32).to(tl.float32, bitcast=True)
    return high, small


@triton.jit
def pack_word(high, small, flip: tl.constexpr):
    """Pack a sum of two floats into one word, written atomically; flipped, it is never 0."""
    if high.dtype == tl.float64:
        word = (high + small).to(tl.int64, bitcast=True)
    else:
        upper = high.to(tl.int32, bitcast=True).to(tl.int64) << 32
        word = upper | (small.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)
    if flip:
        word ^= NEVER if high.dtype == tl.float64 else NEVER32
    return word


@triton.jit
def place(rows, batch, strips, several: tl.constexpr):
    """Find this program's pair and strip. Tickets are drawn in order, so the strip it waits for has already started."""
    if several:
        ticket = tl.atomic_add(rows, 1, sem="relaxed", scope="gpu").to(tl.int32)
        tl.store(rows, 0, mask=ticket == batch * strips - 1)
    else:
        ticket = tl.program_id(0)
    return ticket % batch, ticket // batch


@triton.jit
def words_of(n):
    """Count the words of a row that is handed over: columns from −31 to n + 8, a few of which the next row shares."""
    return n + 40


@triton.jit
def word_row(rows, i, size):
    """Find column 0 of a row of words."""
    return rows + LANES + i * size


@triton.jit
def chain_words(m, width):
    """Count the words of a chain: the row before the first strip and the rows that strips hand over, in one array."""
    return (tl.cdiv(m, LANES) + 1) * width + 40


@triton.jit
def peek(p_row, t, follows, n, several: tl.constexpr, dtype: tl.constexpr):
    """Load columns t, t + 1, … of the row another strip hands over, one per lane: 0 where not written yet.

    Beyond the row, or where no strip hands over, the value is 0, whose word is not 0.
    """
    nothing: tl.constexpr = NEVER if dtype == tl.float64 else NEVER32
    word = tl.full([LANES], nothing, tl.int64)
    if several:
        column = t + tl.arange(0, LANES) % STEPS
        word = tl.load(p_row + column, mask=follows & _within(column, n), other=nothing, volatile=True)
    return word


@triton.jit
def wait(word, p_row, t, follows, n, dtype: tl.constexpr):
    """Wait until all columns are written; leave 0 behind."""
    while tl.min((word != 0).to(tl.int32)) == 0:
        word = peek(p_row, t, follows, n, True, dtype)
    lane = tl.arange(0, LANES)
    column = t + lane % STEPS
    tl.store(p_row + column, tl.zeros([LANES], tl.int64), mask=follows & (lane < STEPS) & _within(column, n))
    return word


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
def hand_over(p_row, t, giver, highs, lows, flip: tl.constexpr):
    """Write the values of the giving lane at steps t, t + 1, …; beyond the table nobody reads them."""
    at = p_row + (t - tl.arange(0, LANES))
    for k in tl.static_range(STEPS):
        tl.store(at + k, pack_word(highs[k], lows[k], flip), mask=giver)


@triton.jit
def fill_row(p_row, width, value):
    """Write one value to a whole row of words of a chain."""
    word = pack_word(value, value * 0, False)
    for start in range(0, width, LANES):
        column = start + tl.arange(0, LANES)
        tl.store(p_row + column, word, mask=column < width)


@triton.jit
def peek_chain(p):
    """Load eight words of a chain, one per lane."""
    return tl.load(p + tl.arange(0, LANES) % STEPS)


@triton.jit
def _within(column, n):
    return column.to(tl.uint32) < n.to(tl.uint32)  # one comparison: negative numbers become large


@triton.jit
def eight(x):
    """Repeat a value for each step of a tile."""
    return x, x, x, x, x, x, x, x


@triton.jit
def low_room(steps):
    """Count the numbers of `low`: of the steps, and of two before the first and six after the last, which are 0."""
    return (steps + STEPS) * LANES


@triton.jit
def clear_low(low, steps):
    """Set `low` to 0 where the backward pass reads beyond the steps."""
    nothing = tl.zeros([LANES], tl.float16)
    tl.store(low, nothing)
    tl.store(low + LANES, nothing)
    for step in range(steps + 2, steps + 8):
        tl.store(low + step * LANES, nothing)


@triton.jit
def joined(x):
    """Undo `columns`."""
    even = tl.reshape(tl.join(tl.join(x[0], x[4]), tl.join(x[2], x[6])), [LANES, 4])
    odd = tl.reshape(tl.join(tl.join(x[1], x[5]), tl.join(x[3], x[7])), [LANES, 4])
    tile = tl.reshape(tl.join(even, odd), [LANES, STEPS])
    # Each lane gathers its own values: otherwise the compiler converts to the layout of a store at every join.
    return tl.gather(tile, tl.broadcast_to(tl.arange(0, LANES)[:, None], [LANES, STEPS]), 0)


@triton.jit
def _pick(bit, x, y):
    """Return x where bit is 1, y where it is 0, without a comparison: a warp has room for the results of seven."""
    word: tl.constexpr = tl.int64 if x.dtype == tl.float64 else tl.int32
    mask, x_bits, y_bits = -bit.to(word), x.to(word, bitcast=True), y.to(word, bitcast=True)
    return (y_bits ^ ((x_bits ^ y_bits) & mask)).to(x.dtype, bitcast=True)


@triton.jit
def _begin_later(x, bit, by: tl.constexpr, count: tl.constexpr):
    """Take `count` of the values, in lanes whose bit is 1 from number `by` on, in the others from the first on."""
    taken = ()
    for k in tl.static_range(count):
        taken = taken + (_pick(bit, x[k + by], x[k]),)
    return taken


@triton.jit
def store_aligned(p, i_strip, t, m, n, values, width, wide: tl.constexpr, chained: tl.constexpr):
    """Of the values of steps t to t + 14 store eight columns in each lane, from a multiple of eight on.

    Memory is written in sectors of eight numbers: writing parts of two takes a GPU several times as long.
    """
    lane = tl.arange(0, LANES)
    values = _begin_later(values, lane // 4 % 2, 4, 11)
    values = _begin_later(values, lane // 2 % 2, 2, 9)
    values = _begin_later(values, lane % 2, 1, 8)
    at, real = _cells(i_strip, t, lane[:, None] // STEPS * STEPS, m, n, n, 1, width, wide, chained)
    tl.store(p + at, joined(values), mask=real)
