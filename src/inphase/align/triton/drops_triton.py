"""The recursion with drops on a GPU, in Triton: any length, float64 state, one warp to a pair.

With P, D, their predecessors a, b, d and P, u, v, and the gradients as in `drops_numba.py`: at step t lane r of a strip
of 32 rows handles column t − r. A pair's strips follow one another; the row between two goes through memory. Both
minima have derivatives that add up to 1, so four numbers a cell are kept for the backward pass, in the order of steps.

State is float64, since differences of long sums decide; exponentials have the precision of the cost. Gradients of the
borders, Σ x̂ and Σ ŷ, are summed by torch.
"""

from contextlib import nullcontext
from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.triton.strips_triton import two_floats

SMOOTH, SOFT, HARD = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
KINDS = {"smooth": 0, "soft": 1, "hard": 2}
BORDER = tl.constexpr(1e30)
LANES = tl.constexpr(32)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
SIZES = ["m", "n", "strips"]  # a kernel compiled for one size serves all


def accumulate_with_drops(cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: str, gamma: float) -> Tensor:
    """Accumulate cost [B, M, N] with drops on a CUDA device; see `inphase.align.accumulate_with_drops`."""
    return cast("Tensor", _AccumulateWithDropsTriton.apply(cost, drop_x, drop_y, KINDS[kind], gamma))


class _AccumulateWithDropsTriton(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, drop_x: Tensor, drop_y: Tensor, kind: int, gamma: float) -> Tensor:
        cost, drop_x, drop_y = cost.contiguous(), drop_x.contiguous(), drop_y.contiguous()
        batch, m, n = cost.shape
        strips, keep = -(-m // 32), any(ctx.needs_input_grad[:3])
        table = torch.empty_like(cost)
        weights = cost.new_empty((batch, strips, 4, n + 31, 32) if keep else (1,))
        x_sums = drop_x.double().cumsum(1)
        # The rows of D and of P before a strip, from column −1 on.
        edges = torch.full((batch, 2, n + 1), 1e30, dtype=torch.float64, device=cost.device)
        edges[:, 0, 0] = 0
        edges[:, 0, 1:] = drop_y.double().cumsum(1)
        with _on(cost):
            _forward[(batch,)](
                cost, drop_x, drop_y, x_sums, edges, table, weights, m, n, strips, *two_floats(gamma), kind, keep,
                num_warps=1,
            )  # fmt: skip
        if keep:
            ctx.save_for_backward(weights)
        return table

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        grad = grad.contiguous()
        batch, m, n = grad.shape
        grad_cost, to_x, to_y = torch.empty_like(grad), grad.new_empty(batch, m), grad.new_zeros(batch, n)
        border = grad.new_empty(batch, m)  # gradients of D(i, 0)
        edges = grad.new_zeros(batch, 2, n + 1)
        with _on(grad):
            _backward[(batch,)](
                grad, weights, edges, grad_cost, to_x, to_y, border, m, n, weights.shape[1], num_warps=1
            )
        to_x += border.flip(1).cumsum(1).flip(1)
        to_y += edges[:, 0, 1:].flip(1).cumsum(1).flip(1)
        return grad_cost, to_x, to_y, None, None


def _on(tensor: Tensor) -> Any:
    """Make the device of a tensor the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@triton.jit(do_not_specialize=SIZES)
def _forward(
    cost, drop_x, drop_y, x_sums, edges, table, weights, m, n, strips, gamma, gamma_rest,
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
    step = (n + LANES - 1) * LANES
    weights += pair * strips * 4 * step
    for strip in range(0, strips):
        row = strip * LANES + lane
        inside = row < m
        p_weights = weights + (tl.zeros([], tl.int64) + strip) * 4 * step
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
            best, w_a, w_b = _minimum(a, b_p, matched, gamma, kind, dtype)
            p = c + best
            chosen, w_p, w_u = _minimum(p, b + x, value + y, gamma, kind, dtype)
            matched = tl.where(column < 0, BORDER, p)
            value = tl.where(column < 0, border, chosen)
            a = b
            tl.store(table + row.to(tl.int64) * n + column, value.to(dtype), mask=real)
            last = real & (lane == LANES - 1)
            tl.store(edge + column + 1, value, mask=last)
            tl.store(edge_p + column + 1, matched, mask=last)
            if keep:
                at = p_weights + t * LANES + lane
                tl.store(at, w_a)
                tl.store(at + step, w_b)
                tl.store(at + 2 * step, w_p)
                tl.store(at + 3 * step, w_u)
        last_sum = tl.load(x_sums + strip * LANES + LANES - 1, mask=strip * LANES + LANES - 1 < m, other=0.0)
        tl.store(edge, last_sum)
        tl.debug_barrier()


@triton.jit
def _minimum(a, b, d, gamma, kind: tl.constexpr, dtype: tl.constexpr):
    """Take the minimum of three, and how it depends on the first and the second."""
    low = tl.minimum(tl.minimum(a, b), d)
    if kind == HARD:
        low += 0 * (a + b + d)  # NaN where one of them is
        first = (a <= b) & (a <= d)
        w_a, w_b = first.to(dtype), ((b <= d) & (b < a)).to(dtype)
    else:
        u, v, w = _scaled(a - low, gamma, dtype), _scaled(b - low, gamma, dtype), _scaled(d - low, gamma, dtype)
        e, f, g = tl.exp2(-LOG2E * u), tl.exp2(-LOG2E * v), tl.exp2(-LOG2E * w)
        total = e + f + g
        w_a, w_b = e / total, f / total
        if kind == SMOOTH:
            penalty = (u * e + v * f + w * g) / total
            w_a, w_b = w_a * (1 - (u - penalty)), w_b * (1 - (v - penalty))
        else:
            penalty = -LN2 * tl.log2(total)
        low += gamma * penalty.to(tl.float64)
    return low, w_a, w_b


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


@triton.jit(do_not_specialize=SIZES)
def _backward(grad, weights, edges, grad_cost, to_x, to_y, border, m, n, strips):
    dtype: tl.constexpr = grad_cost.dtype.element_ty
    pair = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    grad += pair * m * n
    grad_cost += pair * m * n
    to_x += pair * m
    to_y += pair * n
    border += pair * m
    edge, edge_p = edges + pair * 2 * (n + 1), edges + pair * 2 * (n + 1) + n + 1
    step = (n + LANES - 1) * LANES
    weights += pair * strips * 4 * step
    for order in range(0, strips):
        strip = strips - 1 - order
        row = strip * LANES + lane
        inside = row < m
        p_weights = weights + (tl.zeros([], tl.int64) + strip) * 4 * step
        zero = tl.zeros([LANES], dtype)
        # What the step after passes on: to the left, up, and a step later to the upper left.
        left, left_p, up, up_p, corner, next_corner = zero, zero, zero, zero, zero, zero
        sum_x, at_border = zero, zero
        for back in range(0, n + LANES):
            t = n + LANES - 2 - back
            column = t - lane
            real = inside & (column >= 0) & (column < n)
            # What the strip after, if any, passes to column t − 31 of the row that the last lane holds.
            passed = (t - LANES + 1 >= -1) & (t - LANES + 1 < n)
            from_below = tl.load(edge + t - LANES + 2, mask=passed, other=0.0)
            from_below_p = tl.load(edge_p + t - LANES + 2, mask=passed, other=0.0)
            g = tl.load(grad + row.to(tl.int64) * n + column, mask=real, other=0.0)
            at = p_weights + t * LANES + lane
            w_a = tl.load(at, mask=real, other=0.0)
            w_b = tl.load(at + step, mask=real, other=0.0)
            w_p = tl.load(at + 2 * step, mask=real, other=0.0)
            w_u = tl.load(at + 3 * step, mask=real, other=0.0)
            e = g + left + _below(up, from_below) + _below(corner, 0.0)
            e_p = w_p * e + left_p + _below(up_p, from_below_p)
            at_border = tl.where(column == -1, e, at_border)
            e, e_p = tl.where(real, e, 0.0), tl.where(real, e_p, 0.0)
            tl.store(grad_cost + row.to(tl.int64) * n + column, e_p, mask=real)
            left, left_p = (1 - w_p - w_u) * e, (1 - w_a - w_b) * e_p
            up, up_p = w_u * e, w_b * e_p
            corner, next_corner = next_corner, w_a * e_p
            sum_x += up
            tl.atomic_add(to_y + column, left, mask=real)
            # Lane 0 passes on to the row before the strip: to column t, and to t what column t + 1 left for the corner.
            first = (lane == 0) & (t < n)
            tl.store(edge + t + 1 + lane, up + corner, mask=first)
            tl.store(edge_p + t + 1 + lane, up_p, mask=first)
        tl.store(to_x + row, sum_x, mask=inside)
        tl.store(border + row, at_border, mask=inside)
        tl.debug_barrier()
