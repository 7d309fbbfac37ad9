"""The whole loss of short pairs on a GPU, cost to cycle, in one kernel forward and one backward.

At the paper's twenty frames every step of the loss takes microseconds and launching it takes longer, so a program does
one pair from end to end. It computes what `objectives/gta.py` composes from `cost.py`, `recursion.py` and `cycle.py`,
which stays the specification:

    s_ij = x̃_i · ỹ_j                    c_xy = −log softmax_j(s/β)          c_yx = −log softmax_i(s/β)        eq. (8)
    R, R' = the tables of c_xy, c_yx     align = R(M, N) + R'(M, N)                                            eq. (9)
    A = log softmax_j(−R/α)              B = log softmax_i(−R'/α)            cycle = −Σ_i logsumexp_j(A + B)   eq. (13)

and backwards, with P = softmax_j(A + B) and E, E' what the recursion makes of G, G':

    G = (P − e^A)/α                      G' = (P − e^B Σ_i P)/α              both plus the weight of align at (M, N)
    ∂L/∂s = (e^(−c_xy) Σ_j E − E + e^(−c_yx) Σ_i E' − E')/β
    ∂L/∂x_i = (Σ_j ∂L/∂s_ij ỹ_j − x̃_i Σ_j ∂L/∂s_ij s_ij)/‖x_i‖            and likewise for y
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.libdevice import mul_rn

from inphase.align.recursion_triton import KINDS, on, sweep, sweep_back, two_floats
from inphase.align.tile_triton import LANES

DEPTH = tl.constexpr(32)  # embedding dimensions at a time
TINY = tl.constexpr(1e-12)  # the least norm a vector is divided by, as in torch.nn.functional.normalize


def align_pairs(
    x: Tensor, y: Tensor, *, kind: str, gamma: float, beta: float, alpha: float, weights: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor]:
    """Score x [B, M, D] against y [B, N, D], at most 32 frames long: loss, align and cycle, means over the batch."""
    loss, align, cycle = _AlignPairs.apply(x, y, (KINDS[kind], gamma, beta, alpha, *weights))
    return loss, align, cycle


class _AlignPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, setting: tuple[Any, ...]) -> tuple[Tensor, ...]:
        kind, gamma, *temperatures = setting
        x, y = x.contiguous(), y.contiguous()
        batch, m, dimension = x.shape
        n = y.shape[1]
        tables = torch.empty((2, batch, m, n), dtype=torch.float32, device=x.device)
        low = torch.empty((2, batch, m, n), dtype=torch.float16, device=x.device)
        terms = torch.empty((batch, 2), dtype=torch.float32, device=x.device)
        out = torch.zeros(4, dtype=torch.float32, device=x.device)  # loss, align, cycle and how many pairs are done
        with on(x.device):
            _forward[(batch,)](
                x, y, tables, low, terms, out, batch, m, n, dimension,
                *two_floats(gamma), *temperatures, kind, num_warps=1,
            )  # fmt: skip
        ctx.save_for_backward(x, y, tables, low)
        ctx.setting = setting
        ctx.set_materialize_grads(False)
        loss, align, cycle, _ = out.unbind()
        return loss, align, cycle

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        if all(grad is None for grad in grads):
            return None, None, None
        x, y, tables, low = ctx.saved_tensors
        kind, gamma, *temperatures = ctx.setting
        _, batch, m, n = tables.shape
        work, grad_x, grad_y = torch.empty_like(tables), torch.empty_like(x), torch.empty_like(y)
        given = [tables if grad is None else grad for grad in grads]  # any pointer where there is no gradient
        with on(x.device):
            _backward[(batch,)](
                *given, x, y, tables, low, work, grad_x, grad_y, batch, m, n, x.shape[2],
                *two_floats(gamma), *temperatures, kind, *(grad is not None for grad in grads), num_warps=1,
            )  # fmt: skip
        return grad_x, grad_y, None


@triton.jit(do_not_specialize=["batch", "m", "n"])
def _forward(
    x, y, tables, low, terms, out, batch, m, n, dimension,
    gamma, gamma_rest, beta, alpha, align_weight, cycle_weight, kind: tl.constexpr,
):  # fmt: skip
    i_pair = tl.program_id(0).to(tl.int64)
    p_x, p_y = x + i_pair * m * dimension, y + i_pair * n * dimension
    there, back = i_pair * m * n, (batch + i_pair) * m * n
    i, j = tl.arange(0, LANES)[:, None], tl.arange(0, LANES)[None, :]
    real = (i < m) & (j < n)
    cosine, _, _ = _cosine(p_x, p_y, m, n, dimension)
    tl.store(tables + there + i * n + j, -_log_softmax(cosine / beta, j < n, 1), mask=real)
    tl.store(tables + back + i * n + j, -_log_softmax(cosine / beta, i < m, 0), mask=real)
    tl.debug_barrier()
    # The tables grow in the place of their costs.
    for direction in range(2):
        at = (direction * batch + i_pair) * m * n
        sweep(
            tables + at, tables + at, low + at, tables, 0, m, n, n, 1, gamma + gamma_rest, kind, False, False, True
        )  # fmt: skip
    tl.debug_barrier()
    b_there = tl.load(tables + there + i * n + j, mask=real, other=0.0)
    b_back = tl.load(tables + back + i * n + j, mask=real, other=0.0)
    log_a, log_b = _log_softmax(b_there / -alpha, j < n, 1), _log_softmax(b_back / -alpha, i < m, 0)
    both = tl.where(j < n, log_a + log_b, float("-inf"))
    high = tl.max(both, 1)
    returned = high + tl.log(tl.sum(tl.exp(both - high[:, None]), 1))
    cycle = -tl.sum(tl.where(tl.arange(0, LANES) < m, returned, 0.0))
    align = tl.sum(tl.where((i == m - 1) & (j == n - 1), b_there + b_back, 0.0))
    tl.store(terms + 2 * i_pair, align)
    tl.store(terms + 2 * i_pair + 1, cycle)
    # Whoever is last adds up, always in the same order.
    tl.debug_barrier()
    done = tl.atomic_add(out + 3, 1.0, sem="acq_rel", scope="gpu")
    if done == batch - 1:
        tl.debug_barrier()
        _mean(terms, out, batch, align_weight, cycle_weight)


@triton.jit
def _mean(terms, out, batch, align_weight, cycle_weight):
    b_align, b_cycle = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    for start in range(0, batch, LANES):
        pair = start + tl.arange(0, LANES)
        b_align += tl.load(terms + 2 * pair, mask=pair < batch, other=0.0, cache_modifier=".cg")
        b_cycle += tl.load(terms + 2 * pair + 1, mask=pair < batch, other=0.0, cache_modifier=".cg")
    align, cycle = tl.sum(b_align) / batch, tl.sum(b_cycle) / batch
    tl.store(out, align_weight * align + cycle_weight * cycle)
    tl.store(out + 1, align)
    tl.store(out + 2, cycle)


@triton.jit(do_not_specialize=["batch", "m", "n"])
def _backward(
    by_loss, by_align, by_cycle, x, y, tables, low, work, grad_x, grad_y, batch, m, n, dimension,
    gamma, gamma_rest, beta, alpha, align_weight, cycle_weight, kind: tl.constexpr,
    has_loss: tl.constexpr, has_align: tl.constexpr, has_cycle: tl.constexpr,
):  # fmt: skip
    i_pair = tl.program_id(0).to(tl.int64)
    there, back = i_pair * m * n, (batch + i_pair) * m * n
    i, j = tl.arange(0, LANES)[:, None], tl.arange(0, LANES)[None, :]
    real = (i < m) & (j < n)
    to_align, to_cycle = 0.0, 0.0
    if has_loss:
        to_align += tl.load(by_loss) * align_weight
        to_cycle += tl.load(by_loss) * cycle_weight
    if has_align:
        to_align += tl.load(by_align)
    if has_cycle:
        to_cycle += tl.load(by_cycle)
    b_there = tl.load(tables + there + i * n + j, mask=real, other=0.0)
    b_back = tl.load(tables + back + i * n + j, mask=real, other=0.0)
    log_a, log_b = _log_softmax(b_there / -alpha, j < n, 1), _log_softmax(b_back / -alpha, i < m, 0)
    both = tl.where(j < n, log_a + log_b, float("-inf"))
    share = tl.exp(both - tl.max(both, 1)[:, None])
    p = tl.where(real, share / tl.sum(share, 1)[:, None], 0.0)
    at_end = tl.where((i == m - 1) & (j == n - 1), to_align / batch, 0.0)
    to_cycle /= alpha * batch
    tl.store(work + there + i * n + j, at_end + to_cycle * (p - tl.exp(log_a)), mask=real)
    tl.store(work + back + i * n + j, at_end + to_cycle * (p - tl.exp(log_b) * tl.sum(p, 0)[None, :]), mask=real)
    tl.debug_barrier()
    for direction in range(2):
        at = (direction * batch + i_pair) * m * n
        sweep_back(
            work + at, tables + at, low + at, work + at, tables, 0, False, m, n, n, 1,
            gamma + gamma_rest, kind, False, False,
        )  # fmt: skip
    tl.debug_barrier()
    p_x, p_y = x + i_pair * m * dimension, y + i_pair * n * dimension
    cosine, x_norm, y_norm = _cosine(p_x, p_y, m, n, dimension)
    e_there = tl.load(work + there + i * n + j, mask=real, other=0.0)
    e_back = tl.load(work + back + i * n + j, mask=real, other=0.0)
    slope = tl.exp(_log_softmax(cosine / beta, j < n, 1)) * tl.sum(e_there, 1)[:, None] - e_there
    slope += tl.exp(_log_softmax(cosine / beta, i < m, 0)) * tl.sum(e_back, 0)[None, :] - e_back
    slope = tl.where(real, slope / beta, 0.0)
    # A vector shorter than the least norm was only scaled: it keeps its radial part.
    x_radial = tl.where(x_norm > TINY, tl.sum(slope * cosine, 1), 0.0)
    y_radial = tl.where(y_norm > TINY, tl.sum(slope * cosine, 0), 0.0)
    for start in range(0, dimension, DEPTH):
        b_x, at_x = _frames(p_x, m, start, dimension)
        b_y, at_y = _frames(p_y, n, start, dimension)
        b_x, b_y = b_x / x_norm[:, None], b_y / y_norm[:, None]
        b_grad_x = (tl.dot(slope, b_y, input_precision="tf32x3") - b_x * x_radial[:, None]) / x_norm[:, None]
        b_grad_y = (tl.dot(tl.trans(slope), b_x, input_precision="tf32x3") - b_y * y_radial[:, None]) / y_norm[:, None]
        depth = start + tl.arange(0, DEPTH)[None, :]
        tl.store(grad_x + i_pair * m * dimension + at_x, b_grad_x, mask=(i < m) & (depth < dimension))
        tl.store(grad_y + i_pair * n * dimension + at_y, b_grad_y, mask=(i < n) & (depth < dimension))


@triton.jit
def _cosine(p_x, p_y, m, n, dimension):
    """Give x̃ · ỹ of all frames, and the norms they were divided by."""
    product = tl.zeros([LANES, LANES], tl.float32)
    x_square, y_square = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    for start in range(0, dimension, DEPTH):
        b_x, _ = _frames(p_x, m, start, dimension)
        b_y, _ = _frames(p_y, n, start, dimension)
        product += tl.dot(b_x, tl.trans(b_y), input_precision="tf32x3")
        # Rounded first: a square fused into the sum over lanes would round differently in each of them.
        x_square += tl.sum(mul_rn(b_x, b_x), 1)
        y_square += tl.sum(mul_rn(b_y, b_y), 1)
    x_norm, y_norm = tl.maximum(tl.sqrt(x_square), TINY), tl.maximum(tl.sqrt(y_square), TINY)
    return product / x_norm[:, None] / y_norm[None, :], x_norm, y_norm


@triton.jit
def _frames(p_frames, length, start, dimension):
    """Load some dimensions of all frames, and say where they lie."""
    frame, depth = tl.arange(0, LANES)[:, None], start + tl.arange(0, DEPTH)[None, :]
    at = frame * dimension + depth
    return tl.load(p_frames + at, mask=(frame < length) & (depth < dimension), other=0.0).to(tl.float32), at


@triton.jit
def _log_softmax(values, real, axis: tl.constexpr):
    values = tl.where(real, values, float("-inf"))
    high = tl.expand_dims(tl.max(values, axis), axis)
    return values - high - tl.expand_dims(tl.log(tl.sum(tl.exp(values - high), axis)), axis)
