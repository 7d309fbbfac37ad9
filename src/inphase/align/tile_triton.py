"""Tiles of eight steps by 32 lanes: loaded and stored as such, worked on a column at a time.

A lane holds its row of the tile in registers, so cutting it into columns and joining them again only renames registers;
on the way from and to memory the compiler shuffles, and rows are read in runs.
"""

import triton
import triton.language as tl

LANES = tl.constexpr(32)
STEPS = tl.constexpr(8)  # columns of a tile


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
    return tl.reshape(tl.join(even, odd), [LANES, 8])
