"""Tiles of eight steps by 32 lanes: loaded and stored as such, worked on a column at a time; paths traced in lanes.

A lane holds its row of the tile in registers, so cutting it into columns and joining them again only renames registers;
on the way from and to memory the compiler shuffles, and rows are read contiguously.
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

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
def place(rows, batch, strips, several: tl.constexpr):
    """Find this program's pair and strip. Tickets are drawn in order, so the strip it waits for has already started."""
    if several:
        ticket = tl.atomic_add(rows, 1, sem="relaxed", scope="gpu").to(tl.int32)
        tl.store(rows, 0, mask=ticket == batch * strips - 1)
    else:
        ticket = tl.program_id(0)
    return ticket % batch, ticket // batch


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
def hand_over(p_row, t, giver, n, x0, x1, x2, x3, x4, x5, x6, x7, y0, y1, y2, y3, y4, y5, y6, y7):
    """Write the values of the giving lane at steps t, t + 1, …, as high and low."""
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
    """Pack a value into one word, written atomically and never 0."""
    if high.dtype == tl.float64:
        word = high.to(tl.int64, bitcast=True) ^ NEVER
    else:
        upper = high.to(tl.int32, bitcast=True).to(tl.int64) << 32
        word = (upper | (small.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)) ^ NEVER32
    return word


@triton.jit
def _within(column, n):
    return column.to(tl.uint32) < n.to(tl.uint32)  # one comparison: negative numbers become large


def path_similarity(tables: Tensor, similarity: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Average the similarity [B, M, N] of frames along the cheapest path through each hard table [B, M, N]; [B].

    `rows` and `columns` [B] are the lengths of the pairs. As `path_numba.backtrack` does, of equal steps the diagonal
    one is taken.
    """
    batch, m, n = tables.shape
    found = torch.empty(batch, dtype=torch.float64, device=tables.device)
    with torch.cuda.device(tables.device) if tables.is_cuda else nullcontext():
        _trace[(-(-batch // 32),)](
            tables.contiguous(), similarity.contiguous(), rows, columns, found, batch, m, n, num_warps=1
        )
    return found


@triton.jit(do_not_specialize=["batch", "m", "n"])
def _trace(tables, similarity, rows, columns, found, batch, m, n):
    """Walk back through the tables of 32 pairs, one in each lane."""
    pair = tl.program_id(0) * LANES + tl.arange(0, LANES)
    real = pair < batch
    i = tl.load(rows + pair, mask=real, other=1) - 1
    j = tl.load(columns + pair, mask=real, other=1) - 1
    first = pair.to(tl.int64) * m * n
    going, total, count = real, tl.zeros([LANES], tl.float64), tl.zeros([LANES], tl.float64)
    while tl.sum(going.to(tl.int32), 0) > 0:
        cell = first + i.to(tl.int64) * n + j
        total += tl.load(similarity + cell, mask=going, other=0.0).to(tl.float64)
        count += going.to(tl.float64)
        inner = going & (i > 0) & (j > 0)
        a = tl.load(tables + cell - n - 1, mask=inner, other=0.0)
        b = tl.load(tables + cell - n, mask=inner, other=0.0)
        d = tl.load(tables + cell - 1, mask=inner, other=0.0)
        diagonal = inner & (a <= b) & (a <= d)
        up = going & (i > 0) & ((j == 0) | ((b <= d) & inner))
        up = diagonal | up
        left = diagonal | (going & (j > 0) & (~up))
        going = going & ((i > 0) | (j > 0))
        i -= (up & going).to(tl.int32)
        j -= (left & going).to(tl.int32)
    tl.store(found + pair, total / count, mask=real)
