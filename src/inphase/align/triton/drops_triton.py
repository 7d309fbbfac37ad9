"""The table of the recursion with drops on a GPU, in Triton: any length, float64 state, one warp to a pair.

With P, D and their predecessors as in `drops_numba.py`: at step t lane r of a strip of 32 rows handles column t − r. A
pair's strips follow one another; the row between two goes through memory. State is float64, since differences of long
sums decide; exponentials have the precision of the cost. Where a gradient is needed, `accumulate_with_drops_reference`
runs instead: a backward kernel is still to be written.
"""

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from inphase.align.triton import two_floats

SMOOTH, SOFT, HARD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
KINDS = {"smooth": 0, "soft": 1, "hard": 2}
BORDER = tl.constexpr(1e30)
LANES = tl.constexpr(32)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
SIZES = ["m", "n", "strips"]  # a kernel compiled for one size serves all


def accumulate_with_drops(cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: str, gamma: float) -> Tensor:
    """Accumulate cost [B, M, N] with drops on a CUDA device, without gradients; see `inphase.align`."""
    cost, drop_x, drop_y = cost.detach().contiguous(), drop_x.detach().contiguous(), drop_y.detach().contiguous()
    batch, m, n = cost.shape
    table = torch.empty_like(cost)
    x_sums = drop_x.double().cumsum(1)
    # The rows of D and of P before a strip, from column −1 on.
    edges = torch.full((batch, 2, n + 1), 1e30, dtype=torch.float64, device=cost.device)
    edges[:, 0, 0] = 0
    edges[:, 0, 1:] = drop_y.double().cumsum(1)
    with _on(cost):
        _forward[(batch,)](
            cost, drop_x, drop_y, x_sums, edges, table, m, n, -(-m // 32), *two_floats(gamma), KINDS[kind],
            num_warps=1,
        )  # fmt: skip
    return table


def _on(tensor: Tensor) -> Any:
    """Make the device of a tensor the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@triton.jit(do_not_specialize=SIZES)
def _forward(
    cost, drop_x, drop_y, x_sums, edges, table, m, n, strips, gamma, gamma_rest, kind: tl.constexpr
):  # fmt: skip
    dtype: tl.constexpr = table.dtype.element_ty
    pair = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    gamma = tl.zeros([], tl.float64) + gamma + gamma_rest
    cost += pair * m * n
    table += pair * m * n
    drop_x += pair * m
    drop_y += pair * n
    x_sums += pair * m
    edge, edge_p = edges + pair * 2 * (n + 1), edges + pair * 2 * (n + 1) + n + 1
    for strip in range(0, strips):
        row = strip * LANES + lane
        inside = row < m
        x = tl.load(drop_x + row, mask=inside, other=0.0).to(tl.float64)
        border = tl.load(x_sums + row, mask=inside, other=BORDER)  # D(i, 0)
        # D and P of the step before, and D(i−1, j) of the step before, which is a.
        value, matched = border, tl.full([LANES], BORDER, tl.float64)
        a = tl.where(lane == 0, tl.load(edge), _above(border, border))
        for t in range(0, n + LANES - 1):
            column = t - lane
            real = inside & (column >= 0) & (column < n)
            c = tl.load(cost + row.to(tl.int64) * n + column, mask=real, other=BORDER).to(tl.float64)
            y = tl.load(drop_y + column, mask=real, other=0.0).to(tl.float64)
            b = _above(value, tl.load(edge + t + 1, mask=t < n, other=BORDER))
            b_p = _above(matched, tl.load(edge_p + t + 1, mask=t < n, other=BORDER))
            best = _minimum(a, b_p, matched, gamma, kind, dtype)
            p = c + best
            chosen = _minimum(p, b + x, value + y, gamma, kind, dtype)
            matched = tl.where(column < 0, BORDER, p)
            value = tl.where(column < 0, border, chosen)
            a = b
            tl.store(table + row.to(tl.int64) * n + column, value.to(dtype), mask=real)
            last = real & (lane == LANES - 1)
            tl.store(edge + column + 1, value, mask=last)
            tl.store(edge_p + column + 1, matched, mask=last)
        last_sum = tl.load(x_sums + strip * LANES + LANES - 1, mask=strip * LANES + LANES - 1 < m, other=0.0)
        tl.store(edge, last_sum)
        tl.debug_barrier()


@triton.jit
def _minimum(a, b, d, gamma, kind: tl.constexpr, dtype: tl.constexpr):
    low = tl.minimum(tl.minimum(a, b), d)
    if kind == HARD:
        low += 0 * (a + b + d)  # NaN where one of them is
    else:
        u, v, w = _scaled(a - low, gamma, dtype), _scaled(b - low, gamma, dtype), _scaled(d - low, gamma, dtype)
        e, f, g = tl.exp2(-LOG2E * u), tl.exp2(-LOG2E * v), tl.exp2(-LOG2E * w)
        total = e + f + g
        penalty = (u * e + v * f + w * g) / total if kind == SMOOTH else -LN2 * tl.log2(total)
        low += gamma * penalty.to(tl.float64)
    return low


@triton.jit
def _scaled(above, gamma, dtype: tl.constexpr):
    """Divide by γ; capped, since 0 times the border is 0."""
    return tl.minimum(above / gamma, 10000.0, propagate_nan=tl.PropagateNan.ALL).to(dtype)


@triton.jit
def _above(x, first):
    """Shift values down by a lane; the first lane gets `first`."""
    lane = tl.arange(0, LANES)
    return tl.where(lane == 0, first, tl.gather(x, tl.maximum(lane - 1, 0), 0))
