"""The recursion with drops on a GPU, in Triton: any length, float64 state, one warp to a pair.

With P, D and their predecessors as in `drops_numba.py`: at step t lane r of a strip of 32 rows handles column t − r. A
pair's strips follow one another; the row between two goes through memory. State is float64, since differences of long
sums decide; exponentials have the precision of the cost. For the backward pass both tables are kept in float64 with
their borders, and every cell passes its gradient on to its predecessors:

    E_D(i, j) = G(i, j) + E_P(i+1, j+1) ∂P/∂D + E_D(i+1, j) ∂D/∂D↑ + E_D(i, j+1) ∂D/∂D←,    each ∂ at the successor
    E_P(i, j) = E_D(i, j) ∂D/∂P + E_P(i+1, j) ∂P/∂P↑ + E_P(i, j+1) ∂P/∂P←,                   ∂L/∂c = E_P
    ∂L/∂drop_x(i) = Σ_j E_D(i, j) ∂D/∂D↑,    ∂L/∂drop_y(j) = Σ_i E_D(i, j) ∂D/∂D←
"""

from contextlib import nullcontext
from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.triton import two_floats

SMOOTH, SOFT, HARD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
KINDS = {"smooth": 0, "soft": 1, "hard": 2}
BORDER = tl.constexpr(1e30)
LANES = tl.constexpr(32)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
SIZES = ["m", "n", "strips"]  # a kernel compiled for one size serves all


def accumulate_with_drops(cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: str, gamma: float) -> Tensor:
    """Accumulate cost [B, M, N] with drops on a CUDA device; see `inphase.align`."""
    return cast("Tensor", _WithDropsTriton.apply(cost, drop_x, drop_y, KINDS[kind], gamma))


class _WithDropsTriton(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: int, gamma: float) -> Tensor:
        cost, drop_x, drop_y = cost.contiguous(), drop_x.contiguous(), drop_y.contiguous()
        batch, m, n = cost.shape
        table, keep = torch.empty_like(cost), any(ctx.needs_input_grad[:3])
        x_sums, y_sums = drop_x.double().cumsum(1), drop_y.double().cumsum(1)
        # The rows of D and of P before a strip, from column −1 on.
        edges = torch.full((batch, 2, n + 1), 1e30, dtype=torch.float64, device=cost.device)
        edges[:, 0, 0], edges[:, 0, 1:] = 0, y_sums
        both = edges
        if keep:
            both = torch.full((batch, 2, m + 1, n + 1), 1e30, dtype=torch.float64, device=cost.device)
            both[:, 0, 0, 0], both[:, 0, 1:, 0], both[:, 0, 0, 1:] = 0, x_sums, y_sums
            ctx.save_for_backward(drop_x, drop_y, both)
            ctx.setting = kind, gamma, cost.dtype
        with _on(cost):
            _forward[(batch,)](
                cost, drop_x, drop_y, x_sums, edges, table, both, m, n, -(-m // 32), *two_floats(gamma), kind, keep,
                num_warps=1,
            )  # fmt: skip
        return table

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        drop_x, drop_y, both = ctx.saved_tensors
        kind, gamma, dtype = ctx.setting
        batch, m, n = grad.shape
        grad, grad_cost = grad.contiguous(), torch.empty_like(grad, memory_format=torch.contiguous_format)
        to_x, to_y = torch.empty_like(drop_x, dtype=torch.float64), torch.zeros_like(drop_y, dtype=torch.float64)
        # The gradients that a strip passes to the row before it: to D by drops, to P, and to D by matches.
        edges = torch.zeros((batch, 3, n + 1), dtype=torch.float64, device=grad.device)
        with _on(grad):
            _backward[(batch,)](
                grad, drop_x, drop_y, both, edges, grad_cost, to_x, to_y, m, n, -(-m // 32), *two_floats(gamma), kind,
                num_warps=1,
            )  # fmt: skip
        # D(0, j) is the sum of the drop costs of y up to j.
        to_y += (edges[:, 0, 1:] + edges[:, 2, 1:]).flip(1).cumsum(1).flip(1)
        return grad_cost, to_x.to(dtype), to_y.to(dtype), None, None


def _on(tensor: Tensor) -> Any:
    """Make the device of a tensor the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@triton.jit(do_not_specialize=SIZES)
def _forward(
    cost, drop_x, drop_y, x_sums, edges, table, both, m, n, strips, gamma, gamma_rest,
    kind: tl.constexpr, keep: tl.constexpr,
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
    both += pair * 2 * (m + 1) * (n + 1)
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
            if keep:
                cell = (row + 1).to(tl.int64) * (n + 1) + column + 1
                tl.store(both + cell, value, mask=real)
                tl.store(both + (m + 1).to(tl.int64) * (n + 1) + cell, matched, mask=real)
            last = real & (lane == LANES - 1)
            tl.store(edge + column + 1, value, mask=last)
            tl.store(edge_p + column + 1, matched, mask=last)
        last_sum = tl.load(x_sums + strip * LANES + LANES - 1, mask=strip * LANES + LANES - 1 < m, other=0.0)
        tl.store(edge, last_sum)
        tl.debug_barrier()


@triton.jit(do_not_specialize=SIZES)
def _backward(
    grad, drop_x, drop_y, both, edges, grad_cost, to_x, to_y, m, n, strips, gamma, gamma_rest, kind: tl.constexpr
):  # fmt: skip
    dtype: tl.constexpr = grad_cost.dtype.element_ty
    pair, width = tl.program_id(0).to(tl.int64), n + 1
    lane = tl.arange(0, LANES)
    gamma = tl.zeros([], tl.float64) + gamma + gamma_rest
    grad += pair * m * n
    grad_cost += pair * m * n
    drop_x += pair * m
    drop_y += pair * n
    to_x += pair * m
    to_y += pair * n
    p_d = both + pair * 2 * (m + 1) * width
    p_p = p_d + (m + 1).to(tl.int64) * width
    edge_u, edge_b, edge_a = edges + pair * 3 * width, edges + (pair * 3 + 1) * width, edges + (pair * 3 + 2) * width
    for back in range(0, strips):
        strip = strips - 1 - back
        row = strip * LANES + lane + 1  # in the tables with their borders
        inside = row <= m
        x = tl.load(drop_x + row - 1, mask=inside, other=0.0).to(tl.float64)
        own, above = row.to(tl.int64) * width, (row - 1).to(tl.int64) * width
        none = tl.zeros([LANES], tl.float64)
        # What the cells of the steps after pass on: by v and d in their own lane, by u, b and (a step later) a above.
        by_v, by_d, by_above, by_b, by_a, sum_x = none, none, none, none, none, none
        t = n + LANES  # a step before the first cell, whose P is then at the left
        here = none  # P(i, j)
        left, left_p, up, up_p = _neighbors(p_d, p_p, own, above, t, inside, n)
        while t >= 0:
            column = t - lane
            real, border = inside & (column >= 1) & (column <= n), inside & (column == 0)
            left_next, left_next_p, up_next, up_next_p = _neighbors(p_d, p_p, own, above, t - 1, inside, n)
            y = tl.load(drop_y + column - 1, mask=real, other=0.0).to(tl.float64)
            g = tl.load(grad + (row - 1).to(tl.int64) * n + column - 1, mask=real, other=0.0).to(tl.float64)
            a, b, d = _weights(up_next, up_p, left_p, gamma, kind, dtype)
            p, u, v = _weights(here, up + x, left + y, gamma, kind, dtype)
            u = tl.where(border, 1.0, u)
            bottom = (lane == LANES - 1) & (real | border)
            from_below = tl.load(edge_u + column, mask=bottom, other=0.0)
            from_below += tl.load(edge_a + column, mask=bottom, other=0.0)
            e = g + by_v + _below(by_above, from_below)
            e = tl.where(real | border, e, 0.0)
            e_p = p * e + by_d + _below(by_b, tl.load(edge_b + column, mask=bottom, other=0.0))
            e_p = tl.where(real, e_p, 0.0)
            tl.store(grad_cost + (row - 1).to(tl.int64) * n + column - 1, e_p.to(dtype), mask=real)
            by_v, by_u = tl.where(real, v * e, 0.0), tl.where(real | border, u * e, 0.0)
            # Carried as one sum: Triton 3 miscompiles a loop that hands `by_a` on to a second variable.
            by_above = by_u + by_a
            by_a, by_b, by_d = a * e_p, b * e_p, d * e_p
            sum_x += by_u
            # Lanes of a step have columns of their own, and a pair has one warp: the sum has one order.
            tl.atomic_add(to_y + column - 1, by_v, mask=real)
            first = lane == 0
            tl.store(edge_u + column, by_u, mask=first & (real | border))
            tl.store(edge_b + column, by_b, mask=first & (real | border))
            tl.store(edge_a + column - 1, by_a, mask=first & real)
            here, left, left_p, up, up_p = left_p, left_next, left_next_p, up_next, up_next_p
            t -= 1
        tl.store(to_x + row - 1, sum_x, mask=inside)
        tl.debug_barrier()


@triton.jit
def _neighbors(p_d, p_p, own, above, t, inside, n):
    """Load D and P at the left of the cells of step t, and above them, which the lane above has at its left."""
    lane = tl.arange(0, LANES)
    column = t - lane
    m_left = inside & (column >= 1) & (column <= n + 1)
    left = tl.load(p_d + own + column - 1, mask=m_left, other=BORDER)
    left_p = tl.load(p_p + own + column - 1, mask=m_left, other=BORDER)
    m_top = (lane == 0) & (column >= 0) & (column <= n)
    top = tl.load(p_d + above + column, mask=m_top, other=BORDER)
    top_p = tl.load(p_p + above + column, mask=m_top, other=BORDER)
    return left, left_p, _above(left, top), _above(left_p, top_p)


@triton.jit
def _weights(a, b, d, gamma, kind: tl.constexpr, dtype: tl.constexpr):
    """Differentiate the minimum of three by each of them."""
    if kind == HARD:
        u = tl.where((a <= b) & (a <= d), 1.0, 0.0).to(tl.float64)
        v = tl.where((b < a) & (b <= d), 1.0, 0.0).to(tl.float64)
        w = tl.where((d < a) & (d < b), 1.0, 0.0).to(tl.float64)
    else:
        low = tl.minimum(tl.minimum(a, b), d)
        r, s, z = _scaled(a - low, gamma, dtype), _scaled(b - low, gamma, dtype), _scaled(d - low, gamma, dtype)
        e, f, g = tl.exp2(-LOG2E * r), tl.exp2(-LOG2E * s), tl.exp2(-LOG2E * z)
        share = 1 / (e + f + g)
        u, v, w = e * share, f * share, g * share
        if kind == SMOOTH:
            penalty = r * u + s * v + z * w
            u, v, w = u * (1 - (r - penalty)), v * (1 - (s - penalty)), w * (1 - (z - penalty))
        u, v, w = u.to(tl.float64), v.to(tl.float64), w.to(tl.float64)
    return u, v, w


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


@triton.jit
def _below(x, last):
    """Shift values up by a lane; the last lane gets `last`."""
    lane = tl.arange(0, LANES)
    return tl.where(lane == LANES - 1, last, tl.gather(x, tl.minimum(lane + 1, LANES - 1), 0))
