"""How the strips of a pair run side by side: each hands one row over through memory, in words that are 0 until written.

No flags and no fences: a word is written at once and carries its own value. Whoever has read a word puts the 0 back, so
what was cleared for the forward pass serves the backward pass too.
"""

import triton
import triton.language as tl

from inphase.align.tile_triton import LANES, STEPS

# A signalling NaN, which arithmetic never yields: what is handed over is written with its bits flipped, so never as 0.
NEVER = tl.constexpr(0x7FF4000000000000)
NEVER32 = tl.constexpr(0x7FA0000000000000)


@triton.jit
def place(rows, batch, strips, several: tl.constexpr):
    """Find this program's pair and strip. Tickets are drawn in order, so whom one waits for has already started."""
    if several:
        ticket = tl.atomic_add(rows, 1, sem="relaxed", scope="gpu").to(tl.int32)
        tl.store(rows, 0, mask=ticket == batch * strips - 1)
    else:
        ticket = tl.program_id(0)
    return ticket % batch, ticket // batch


@triton.jit
def peek(p_row, t, follows, n, several: tl.constexpr, dtype: tl.constexpr):
    """Look at columns t, t + 1, … of the row another strip hands over, one to a lane: 0 where not written yet.

    Beyond the row, or where nobody hands over, the value is 0, and so never the word.
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
def hand_over(p_row, t, giver, n, x0, x1, x2, x3, x4, x5, x6, x7, y0, y1, y2, y3, y4, y5, y6, y7):
    """Write what the giving lane found in the steps t, t + 1, …, as high and low."""
    column = t - tl.arange(0, LANES)
    tl.store(p_row + column, _word(x0, y0), mask=giver & _within(column, n))
    tl.store(p_row + column + 1, _word(x1, y1), mask=giver & _within(column + 1, n))
    tl.store(p_row + column + 2, _word(x2, y2), mask=giver & _within(column + 2, n))
    tl.store(p_row + column + 3, _word(x3, y3), mask=giver & _within(column + 3, n))
    tl.store(p_row + column + 4, _word(x4, y4), mask=giver & _within(column + 4, n))
    tl.store(p_row + column + 5, _word(x5, y5), mask=giver & _within(column + 5, n))
    tl.store(p_row + column + 6, _word(x6, y6), mask=giver & _within(column + 6, n))
    tl.store(p_row + column + 7, _word(x7, y7), mask=giver & _within(column + 7, n))


@triton.jit
def read(word, dtype: tl.constexpr):
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
def _word(high, small):
    """Put a value into one word that is written at once and is never 0."""
    if high.dtype == tl.float64:
        word = high.to(tl.int64, bitcast=True) ^ NEVER
    else:
        upper = high.to(tl.int32, bitcast=True).to(tl.int64) << 32
        word = (upper | (small.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)) ^ NEVER32
    return word


@triton.jit
def _within(column, n):
    return column.to(tl.uint32) < n.to(tl.uint32)  # one comparison: what is negative becomes large
