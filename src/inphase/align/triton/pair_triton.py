"""The whole loss of short pairs on a GPU, cost to cycle and back to its gradient, in one kernel; paths of many pairs.

At the paper's twenty frames every step of the loss takes microseconds and launching it takes longer, so a program does
one pair from end to end. It computes what `losses/gta.py` composes from `cost.py` and `recursion.py`,
which stays the specification:

    s_ij = x̃_i · ỹ_j                    c_xy = −log softmax_j(s/β)          c_yx = −log softmax_i(s/β)        eq. (8)
    R, R' = the tables of c_xy, c_yx     align = R(M, N) + R'(M, N)                                            eq. (9)
    A = log softmax_j(−R/α)              B = log softmax_i(−R'/α)            cycle = −Σ_i logsumexp_j(A + B)   eq. (13)

and backwards, with G, G' the slopes of the loss in R, R' and E, E' their backward recursion:

    G = ∂cycle/∂R                        G' = ∂cycle/∂R'                     both plus the weight of align at (M, N)
    ∂L/∂s = (e^(−c_xy) Σ_j E − E + e^(−c_yx) Σ_i E' − E')/β
    ∂L/∂x_i = (Σ_j ∂L/∂s_ij ỹ_j − x̃_i Σ_j ∂L/∂s_ij s_ij)/‖x_i‖            and likewise for y
"""

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.libdevice import mul_rn

from inphase.align.cost import first_order_only
from inphase.align.triton import KINDS, Launcher, aligned, low_size, two_floats
from inphase.align.triton.recursion_triton import sweep, sweep_back
from inphase.align.triton.tiles_triton import BORDER, LANES, low_room, steps_of

DEPTH = tl.constexpr(32)  # embedding dimensions at a time
TINY = tl.constexpr(1e-12)  # the least norm a vector is divided by, as in torch.nn.functional.normalize
SMOOTHING = tl.constexpr(0.1)  # of the released labels
GRIDS = tl.constexpr(6)  # work space of a pair beside `low`: two costs, two tables, two slopes


def align_pairs(
    x: Tensor,
    y: Tensor,
    *,
    kind: str,
    released: bool,
    gamma: float,
    beta: float,
    alpha: float,
    weights: tuple[float, float],
) -> tuple[Tensor, Tensor, Tensor]:
    """Score x [B, M, D] against y [B, N, D], at most 32 frames long: loss, align and cycle, means over the batch."""
    if torch.compiler.is_compiling():
        out, _, _ = _align_pairs_operator(x, y, KINDS[kind], released, gamma, beta, alpha, *weights)
        return out[0], out[1].detach(), out[2].detach()
    setting = KINDS[kind], released, *two_floats(gamma), beta, alpha
    loss, align, cycle = _AlignPairs.apply(x, y, setting, weights)
    return loss, align, cycle


class _AlignPairs(torch.autograd.Function):
    """The forward pass also computes the gradient; the backward pass, on another and slower thread, only scales it.

    Where align or cycle is differentiated by itself, it is scored again as a loss of that term alone.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, setting: tuple[Any, ...], weights: tuple[float, float]
    ) -> tuple[Tensor, ...]:
        out, *slopes = _score(x, y, setting, weights, differentiate=any(ctx.needs_input_grad))
        ctx.save_for_backward(x, y, *slopes)
        ctx.setting = setting
        ctx.set_materialize_grads(False)
        loss, align, cycle, _ = out.unbind()
        return loss, align, cycle

    @staticmethod
    @first_order_only
    def backward(
        ctx: Any, by_loss: Tensor | None, by_align: Tensor | None, by_cycle: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, y, *slopes = ctx.saved_tensors
        parts = [] if by_loss is None else [torch._foreach_mul(slopes, by_loss)]
        for by, weights in (by_align, (1.0, 0.0)), (by_cycle, (0.0, 1.0)):
            if by is not None:
                _, *slopes = _score(x, y, ctx.setting, weights, differentiate=True)
                parts.append(torch._foreach_mul(slopes, by))
        if not parts:
            return None, None, None, None
        grad_x, grad_y = parts[0] if len(parts) == 1 else [sum(terms) for terms in zip(*parts, strict=True)]
        return grad_x.to(x.dtype), grad_y.to(y.dtype), None, None


@torch.library.custom_op("inphase::align_pairs", mutates_args=())
def _align_pairs_operator(
    x: Tensor,
    y: Tensor,
    kind: int,
    released: bool,
    gamma: float,
    beta: float,
    alpha: float,
    align_weight: float,
    cycle_weight: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Give loss, align and cycle as one tensor, and the gradients of the loss, for `torch.compile`."""
    setting = kind, released, *two_floats(gamma), beta, alpha
    return _score(x, y, setting, (align_weight, cycle_weight), differentiate=True)


@_align_pairs_operator.register_fake
def _(x: Tensor, y: Tensor, *setting: object) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(x.new_empty(shape, dtype=torch.float32) for shape in ((4,), x.shape, y.shape))  # type: ignore[return-value]


def _keep_slopes(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, *slopes = output
    ctx.types = inputs[0].dtype, inputs[1].dtype
    ctx.save_for_backward(*slopes)
    ctx.mark_non_differentiable(*slopes)


@first_order_only
def _scale_slopes(ctx: Any, by_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    grads = [(slope * by_out[0]).to(kind) for slope, kind in zip(ctx.saved_tensors, ctx.types, strict=True)]
    return *grads, *[None] * 7


_align_pairs_operator.register_autograd(_scale_slopes, setup_context=_keep_slopes)


def _score(
    x: Tensor, y: Tensor, setting: tuple[Any, ...], weights: tuple[float, float], *, differentiate: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Give loss, align, cycle and a count as one tensor, and the gradients of the loss in float32, if asked for."""
    x, y = x.contiguous(), y.contiguous()
    batch, m, dimension = x.shape
    n = y.shape[1]
    out = torch.zeros(4, dtype=torch.float32, device=x.device)  # the last one counts the finished pairs
    work = out.new_empty(batch * (GRIDS.value * m * n + low_size(m, n, chained=False) + 2))
    grad_x, grad_y = (out.new_empty(frames.shape if differentiate else 1) for frames in (x, y))
    kind, released, *temperatures = setting
    alike = x.dtype, aligned(x), aligned(y), dimension, kind, released, differentiate
    _launch(
        batch, alike, (x, y, work, out, grad_x, grad_y), batch, m, n, dimension, *temperatures,
        *weights, kind, released, differentiate,
    )  # fmt: skip
    return out, grad_x, grad_y


@triton.jit(do_not_specialize=["batch", "m", "n"])
def _align_pair(
    x, y, work, out, grad_x, grad_y, batch, m, n, dimension,
    gamma, gamma_rest, beta, alpha, align_weight, cycle_weight,
    kind: tl.constexpr, released: tl.constexpr, differentiate: tl.constexpr,
):  # fmt: skip
    i_pair = tl.program_id(0).to(tl.int64)
    p_x, p_y = x + i_pair * m * dimension, y + i_pair * n * dimension
    size, room = m * n, low_room(steps_of(n))
    work_size = size * GRIDS + room
    costs = work + i_pair * work_size
    tables, slopes, low = costs + 2 * size, costs + 4 * size, (costs + 6 * size).to(tl.pointer_type(tl.float16))
    i, j = tl.arange(0, LANES)[:, None], tl.arange(0, LANES)[None, :]
    there, back, real = i * n + j, size + i * n + j, (i < m) & (j < n)
    cosine, x_norm, y_norm = _cosine(p_x, p_y, m, n, dimension)
    tl.store(costs + there, -_log_softmax(cosine * (1 / beta), j < n, 1), mask=real)
    tl.store(costs + back, -_log_softmax(cosine * (1 / beta), i < m, 0), mask=real)
    tl.debug_barrier()
    for k in range(2):
        sweep(
            costs + k * size, tables + k * size, low + k * room, work, 0, m, n, n, 1,
            gamma + gamma_rest, BORDER, kind, False, differentiate, False, False,
        )  # fmt: skip
    tl.debug_barrier()
    b_there = tl.load(tables + there, mask=real, other=0.0)
    b_back = tl.load(tables + back, mask=real, other=0.0)
    log_a, log_b = _log_softmax(b_there * (-1 / alpha), j < n, 1), _log_softmax(b_back * (-1 / alpha), i < m, 0)
    if released:
        cycle, by_there, by_back = _released_cycle(log_a, log_b, m, real)
    else:
        cycle, by_there, by_back = _cycle(log_a, log_b, m, real)
    is_end = (i == m - 1) & (j == n - 1)
    terms = work + batch.to(tl.int64) * work_size
    tl.store(terms + 2 * i_pair, tl.sum(tl.where(is_end, b_there + b_back, 0.0)))
    tl.store(terms + 2 * i_pair + 1, cycle)
    if differentiate:
        at_end, by_cycle = tl.where(is_end, align_weight / batch, 0.0), cycle_weight / (alpha * batch)
        tl.store(slopes + there, at_end + by_cycle * by_there, mask=real)
        tl.store(slopes + back, at_end + by_cycle * by_back, mask=real)
        tl.debug_barrier()
        for k in range(2):
            sweep_back(
                slopes + k * size, tables + k * size, low + k * room, slopes + k * size, work, 0, m, n, n, 1,
                gamma + gamma_rest, BORDER, kind, False, False, False,
            )  # fmt: skip
        tl.debug_barrier()
        slope = _slope(costs + there, slopes + there, 1, real) + _slope(costs + back, slopes + back, 0, real)
        p_grad_x, p_grad_y = grad_x + i_pair * m * dimension, grad_y + i_pair * n * dimension
        _to_frames(slope * (1 / beta), cosine, x_norm, y_norm, p_x, p_y, p_grad_x, p_grad_y, m, n, dimension)
    # The program that finishes last adds up, always in the same order.
    tl.debug_barrier()
    if tl.atomic_add(out + 3, 1.0, sem="acq_rel", scope="gpu") == batch - 1:
        tl.debug_barrier()
        _mean(terms, out, batch, align_weight, cycle_weight)


_launch = Launcher(_align_pair)


@triton.jit
def _cycle(log_a, log_b, m, real):
    """Give eq. (13) and α times its slopes in both tables: with P = softmax_j(A + B), P − e^A and P − e^B Σ_i P."""
    both = tl.where(real, log_a + log_b, float("-inf"))
    high = tl.max(both, 1)
    returned = high + tl.log(tl.sum(tl.exp(both - high[:, None]), 1))
    p = tl.where(real, tl.exp(both - returned[:, None]), 0.0)
    cycle = -tl.sum(tl.where(tl.arange(0, LANES) < m, returned, 0.0))
    return cycle, p - tl.exp(log_a), p - tl.exp(log_b) * tl.sum(p, 0)[None, :]


@triton.jit
def _released_cycle(log_a, log_b, m, real):
    """Give the released term and α times its slopes: the cross entropy of softmax(Q), Q = e^A e^Bᵀ, to smoothed labels.

    S = (softmax(Q) − labels)/M is its slope in Q, S e^B that in e^A and Sᵀ e^A that in e^B.
    """
    a, b = tl.where(real, tl.exp(log_a), 0.0), tl.where(real, tl.exp(log_b), 0.0)
    i, to = tl.arange(0, LANES)[:, None], tl.arange(0, LANES)[None, :]
    inside = (i < m) & (to < m)
    log_q = _log_softmax(tl.dot(a, tl.trans(b), input_precision="tf32x3"), to < m, 1)
    label = tl.where(i == to, 1.0 - SMOOTHING, 0.0) + SMOOTHING / m
    cycle = -tl.sum(tl.where(inside, label * log_q, 0.0)) / m
    slope = tl.where(inside, (tl.exp(log_q) - label) / m, 0.0)
    by_a, by_b = tl.dot(slope, b, input_precision="tf32x3"), tl.dot(tl.trans(slope), a, input_precision="tf32x3")
    return cycle, a * (tl.sum(a * by_a, 1)[:, None] - by_a), b * (tl.sum(b * by_b, 0)[None, :] - by_b)


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


@triton.jit
def _slope(p_cost, p_slope, axis: tl.constexpr, real):
    """Turn E of one direction into ∂L/∂(s/β)."""
    e = tl.load(p_slope, mask=real, other=0.0)
    share = tl.exp(-tl.load(p_cost, mask=real, other=float("inf")))
    return share * tl.expand_dims(tl.sum(e, axis), axis) - e


@triton.jit
def _to_frames(slope, cosine, x_norm, y_norm, p_x, p_y, p_grad_x, p_grad_y, m, n, dimension):
    """Pass ∂L/∂s on to the frames of x and y."""
    # A vector shorter than the least norm was only scaled: it keeps its radial part.
    x_radial = tl.where(x_norm > TINY, tl.sum(slope * cosine, 1), 0.0)
    y_radial = tl.where(y_norm > TINY, tl.sum(slope * cosine, 0), 0.0)
    x_scale, y_scale = 1 / x_norm, 1 / y_norm
    frame = tl.arange(0, LANES)[:, None]
    for start in range(0, dimension, DEPTH):
        b_x, at_x = _frames(p_x, m, start, dimension)
        b_y, at_y = _frames(p_y, n, start, dimension)
        b_x, b_y = b_x * x_scale[:, None], b_y * y_scale[:, None]
        b_grad_x = (tl.dot(slope, b_y, input_precision="tf32x3") - b_x * x_radial[:, None]) * x_scale[:, None]
        b_grad_y = (tl.dot(tl.trans(slope), b_x, input_precision="tf32x3") - b_y * y_radial[:, None]) * y_scale[:, None]
        depth = start + tl.arange(0, DEPTH)[None, :]
        tl.store(p_grad_x + at_x, b_grad_x, mask=(frame < m) & (depth < dimension))
        tl.store(p_grad_y + at_y, b_grad_y, mask=(frame < n) & (depth < dimension))


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
    return product * (1 / x_norm)[:, None] * (1 / y_norm)[None, :], x_norm, y_norm


@triton.jit
def _frames(p_frames, length, start, dimension):
    """Load some dimensions of all frames; return them and their offsets."""
    frame, depth = tl.arange(0, LANES)[:, None], start + tl.arange(0, DEPTH)[None, :]
    at = frame * dimension + depth
    return tl.load(p_frames + at, mask=(frame < length) & (depth < dimension), other=0.0).to(tl.float32), at


@triton.jit
def _log_softmax(values, real, axis: tl.constexpr):
    values = tl.where(real, values, float("-inf"))
    high = tl.expand_dims(tl.max(values, axis), axis)
    return values - high - tl.expand_dims(tl.log(tl.sum(tl.exp(values - high), axis)), axis)


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
