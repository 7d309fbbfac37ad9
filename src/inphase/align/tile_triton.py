"""Tiles of eight steps by 32 lanes: loaded and stored as such, worked on a column at a time.

A lane holds its row of the tile in registers, so cutting it into columns and joining them again only renames registers;
on the way from and to memory the compiler shuffles, and rows are read in runs.
"""

import triton
import triton.language as tl

LANES = tl.constexpr(32)
STEPS = tl.constexpr(8)  # columns of a tile


@triton.jit
def rows_of(i_strip, wide: tl.constexpr):
    """Number the rows of a strip, [LANES, 1]; in 64 bits where the cells of a table are too many for 32."""
    row = i_strip * LANES + tl.arange(0, LANES)[:, None]
    return row.to(tl.int64) if wide else row


@triton.jit
def cells(row, t, m, n):
    """Give the columns at steps t, t + 1, … of each lane, and which of them are cells of the table."""
    column = t + tl.arange(0, STEPS)[None, :] - tl.arange(0, LANES)[:, None]
    end = tl.where(row < m, n, 0)
    return column, column.to(tl.uint32) < end.to(tl.uint32)  # one comparison: what is negative becomes large


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
    # Each lane gathers its own: that keeps the compiler from moving to the layout of the store with every join.
    return tl.gather(joined, tl.broadcast_to(tl.arange(0, LANES)[:, None], [LANES, 8]), 0)
