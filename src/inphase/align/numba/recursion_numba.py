"""The recursion on the CPU, compiled by numba: any length, float64 inside, vectorized for the CPU at hand.

With a, b, d the predecessors R(i−1, j−1), R(i−1, j), R(i, j−1) of a cell, lo the least and e_r = e^(−(r − lo)/γ):

    smooth   R = c + lo + Σ (r − lo) e_r / Σ e_r        ∂R/∂r = (e_r / Σ e) (1 − (r − lo − Σ (r − lo) e_r / Σ e_r)/γ)
    soft     R = c + lo − γ log Σ e_r                   ∂R/∂r = e_r / Σ e
    hard     R = c + lo                                 ∂R/∂r = 1 for the first of a, b, d that is least
    E(i, j) = G(i, j) + E(i+1, j+1) ∂R/∂a + E(i+1, j) ∂R/∂b + E(i, j+1) ∂R/∂d,   each ∂ taken at the successor

`accumulate_reference` in `recursion.py` is the same in torch operations. Cells on one anti-diagonal do not depend on
each other, so a pair is cut into strips of at most 96 rows ("lanes") and a strip is swept diagonal by diagonal: at step
t lane r handles column t − r, which makes every inner loop a run over consecutive memory. Loops over lanes are
functions of their own that read and write different buffers, or the compiler does not vectorize them.
"""

import math
import threading
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.numba import announce_compilation, compiled, exp2_for, log
from inphase.align.numba.path_numba import BORDER, least, scan_pairs

SMOOTH, SOFT, HARD = 0, 1, 2
KINDS = {"smooth": SMOOTH, "soft": SOFT, "hard": HARD}
LANES, MANY_LANES, MANY_ROWS = 32, 96, 129  # rows swept together, of short sequences and of those with many rows
ONE = np.uintp(1)
STEP = 8  # lanes are taken in eights: one AVX-512 or two AVX2 registers of float64
BLOCK = 128  # diagonals laid out at a time: 32 KiB, so that rows far apart in memory are read in long runs
MAX_KEPT_WEIGHTS = 750_000  # up to here, 6 MB, the weights of the backward pass are kept; beyond, recomputed
NO_WEIGHTS = np.empty((0,) * 5)
CELLS_PER_THREAD = 30_000  # about 0.3 ms of work; a thread costs 0.05 ms


def accumulate(cost: Tensor, kind: str, gamma: float, free_start: bool) -> Tensor:
    """Accumulate cost [B, M, N] on the CPU; see `inphase.align.accumulate`."""
    if torch.is_grad_enabled() and cost.requires_grad:
        return cast("Tensor", _AccumulateNumba.apply(cost, KINDS[kind], gamma, free_start))
    values = cost.detach().contiguous().numpy()
    if kind == "hard":
        table = np.empty_like(values)
        over_pairs(scan_pairs, (values, table), (free_start,))
    else:
        table, _ = launch_forward(values, NO_WEIGHTS, (KINDS[kind], gamma, free_start))
    return torch.from_numpy(table)


class _AccumulateNumba(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, kind: int, gamma: float, free_start: bool) -> Tensor:
        cost = cost.detach().contiguous()
        weights = make_weights(*cost.shape, states=3)
        table, ctx.edges = launch_forward(cost.numpy(), weights, (kind, gamma, free_start))
        ctx.weights, ctx.setting = [], (kind, gamma)
        if weights is NO_WEIGHTS:
            ctx.save_for_backward(cost)
        else:
            ctx.weights.append(weights)
            # For a possible second backward pass. `save_for_backward` would add 2 µs to calls of about 80 µs.
            ctx.cost, ctx.version = cost, cost._version
        return torch.from_numpy(table)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        given, weights = grad.contiguous().numpy(), take(ctx.weights)
        grad_cost = np.empty_like(given)
        cost = given if weights is not NO_WEIGHTS else _cost_of(ctx).numpy()  # not read where there are weights
        over_pairs(run_back, (given, cost, ctx.edges, weights, grad_cost), ctx.setting)
        if weights is not NO_WEIGHTS:
            reuse(weights)
        return torch.from_numpy(grad_cost), None, None, None


def _cost_of(ctx: Any) -> Tensor:
    """Return the cost, to recompute weights that were not stored or whose memory was reused after a backward pass."""
    if ctx.saved_tensors:
        return cast("Tensor", ctx.saved_tensors[0])
    if ctx.cost._version != ctx.version:
        raise RuntimeError("cost was changed in place between two backward passes: pass a copy of it to accumulate")
    return cast("Tensor", ctx.cost)


# Memory for weights, passed from one call to the next: new pages from the system can take as long as filling them.
_spare_memory: list[NDArray[np.float64]] = []


def make_weights(batch: int, m: int, n: int, *, states: int) -> NDArray[np.float64]:
    """Allocate the derivatives of every cell, [B, strip, which, t, r], unless they exceed MAX_KEPT_WEIGHTS.

    Of the plain recursion they are ∂R/∂a, ∂R/∂b and ∂R/∂d. Entry r = lanes stands for the row after the strip.
    """
    strips, lanes = cut_into_strips(m)
    shape = batch, strips, states, n + lanes + 1, lanes + 1
    size = math.prod(shape)
    if size > MAX_KEPT_WEIGHTS:
        return NO_WEIGHTS
    memory = take(_spare_memory)
    return (memory if memory.size >= size else np.empty(size))[:size].reshape(shape)


def reuse(weights: NDArray[np.float64]) -> None:
    """Leave the memory of weights to the next call."""
    _spare_memory[:] = [cast("NDArray[np.float64]", weights.base)]


def take(arrays: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Pop the last array, so that no other thread uses it, or return `NO_WEIGHTS`."""
    try:
        return arrays.pop()
    except IndexError:
        return NO_WEIGHTS


def launch_forward(
    cost: NDArray[Any], weights: NDArray[np.float64], setting: tuple[int, float, bool]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Fill the table of cost [B, M, N], its weights unless they are `NO_WEIGHTS`, and the row before each strip."""
    batch, m, n = cost.shape
    strips, lanes = cut_into_strips(m)
    table = np.empty_like(cost)
    # The row before each strip, from column −1 on: all that a strip needs of the strips before it.
    edges = np.empty((batch, strips + 1, n + lanes + 1))
    over_pairs(_forward, (cost, table, edges, weights), setting)
    return table, edges


def cut_into_strips(rows: int) -> tuple[int, int]:
    """Cut rows into as few strips as the lanes allow, no wider than needed."""
    strips = -(-rows // (LANES if rows < MANY_ROWS else MANY_LANES))
    lanes = -(-rows // strips)
    return strips, -(-lanes // STEP) * STEP


def over_pairs(kernel: Any, arrays: tuple[NDArray[Any], ...], setting: tuple[Any, ...]) -> None:
    """Divide the pairs of a batch among the threads torch may use, where the work is worth it."""
    announce_compilation(kernel)
    batch, cells = len(arrays[0]), arrays[0].size
    count = min(torch.get_num_threads(), batch, cells // CELLS_PER_THREAD) if cells >= 2 * CELLS_PER_THREAD else 1
    if count == 1:
        kernel(*arrays, 0, batch, *setting)
        return
    edges = [batch * k // count for k in range(count + 1)]
    # New threads each time: a pool would not survive a fork, and data loaders fork.
    others = [threading.Thread(target=kernel, args=(*arrays, *edges[k : k + 2], *setting)) for k in range(1, count)]
    for thread in others:
        thread.start()
    kernel(*arrays, 0, edges[1], *setting)
    for thread in others:
        thread.join()


@compiled
def _forward(cost, table, edges, weights, first, last, kind, gamma, free_start):
    _, m, n = cost.shape
    lanes = edges.shape[2] - n - 1
    size = min(BLOCK, n + lanes - 1), lanes
    costs, values, recent = np.empty(size, cost.dtype), np.empty(size, cost.dtype), np.empty((3, lanes + 1))
    for pair in range(first, last):
        edges[pair] = BORDER
        if free_start:
            edges[pair, 0] = 0.0
        edges[pair, 0, 0] = 0.0
        for number in range(edges.shape[1] - 1):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            edge, next_edge = edges[pair, number], edges[pair, number + 1]
            rows, out = cost[pair, top:bottom], table[pair, top:bottom]
            if len(weights) > 0:
                _weigh(rows, edge, next_edge, out, costs, values, recent, weights[pair, number], kind, gamma)
            else:
                _sweep(rows, edge, next_edge, out, costs, values, recent, kind, gamma)


@compiled
def run_back(grad, cost, edges, weights, grad_cost, first, last, kind, gamma):
    """Run the gradients of pairs `first` to `last` back from their tables to their costs."""
    _, m, n = grad.shape
    lanes = edges.shape[2] - n - 1
    steps = n + lanes - 1
    size = min(BLOCK, steps), lanes
    block, values, recent = np.empty(size, grad.dtype), np.empty(size, grad.dtype), np.empty((3, lanes + 1))
    kept = len(weights) > 0
    own = np.empty((3, 1 if kept else steps + 2, lanes + 1))
    # Gradients that a strip passes to the row before it, from column −1.
    below, above = np.empty(steps + 2), np.empty(steps + 2)
    for pair in range(first, last):
        below[:] = 0.0
        for number in range(edges.shape[1] - 2, -1, -1):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            if not kept:  # sweep the strip again: in a large batch that costs less than the memory
                rows, edge, none = cost[pair, top:bottom], edges[pair, number], grad_cost[pair, :0]
                _weigh(rows, edge, edges[pair, number + 1], none, block, values, recent, own, kind, gamma)
            by = weights[pair, number] if kept else own
            by_a, by_b, by_d = by[0], by[1], by[2]
            above[:], recent[:] = 0.0, 0.0
            older, newer, current = recent[0], recent[1], recent[2]  # E of diagonals t + 2, t + 1 and t
            for stop in range(steps, 0, -BLOCK):
                start = max(0, stop - BLOCK)
                skew(grad[pair, top:bottom], block, start, stop, 0.0)
                for t in range(stop - 1, start - 1, -1):
                    newer[lanes] = below[max(0, t - lanes + 2)]
                    g, out, (begin, end) = block[t - start], values[t - start], _active(t, n, lanes)
                    _gather(g, by_a[t + 2], by_b[t + 1], by_d[t + 1], older, newer, current, out, begin, end)
                    if begin == 0:  # lane 0 passes on to the row before the strip: by b to column t, by a to t − 1
                        above[t + 1] += by_b[t, 0] * current[0]
                        above[t] += by_a[t, 0] * current[0]
                    older, newer, current = newer, current, older
                unskew(values, grad_cost[pair, top:bottom], start, stop)
            below, above = above, below


@compiled
def _sweep(cost, edge, next_edge, table, block, values, recent, kind, gamma):
    """Accumulate the rows of one strip."""
    n, lanes = cost.shape[1], block.shape[1]
    recent[:] = BORDER
    older, newer, current = recent[0], recent[1], recent[2]
    for start in range(0, n + lanes - 1, BLOCK):
        stop = min(start + BLOCK, n + lanes - 1)
        skew(cost, block, start, stop, BORDER)
        for t in range(start, stop):
            older[0], newer[0] = edge[t], edge[t + 1]
            c, out, (begin, end) = block[t - start], values[t - start], _active(t, n, lanes)
            if kind == SMOOTH:
                smooth_cells(c, older, newer, current, out, begin, end, gamma)
            elif kind == SOFT:
                soft_cells(c, older, newer, current, out, begin, end, gamma)
            else:
                hard_cells(c, older, newer, current, out, begin, end)
            if t >= lanes - 1:
                next_edge[t - lanes + 2] = current[lanes]
            older, newer, current = newer, current, older
        unskew(values, table, start, stop)


@compiled
def _weigh(cost, edge, next_edge, table, block, values, recent, weights, kind, gamma):
    """Accumulate the rows of one strip and keep how each cell depends on its predecessors."""
    n, lanes = cost.shape[1], block.shape[1]
    by_a, by_b, by_d = weights[0], weights[1], weights[2]
    for by in (by_a, by_b, by_d):  # lanes that have ended, and the row after the strip
        by[n:] = 0.0
        by[:, lanes] = 0.0
    by_b[:, lanes] = 1.0
    recent[:] = BORDER
    older, newer, current = recent[0], recent[1], recent[2]
    for start in range(0, n + lanes - 1, BLOCK):
        stop = min(start + BLOCK, n + lanes - 1)
        skew(cost, block, start, stop, BORDER)
        for t in range(start, stop):
            older[0], newer[0] = edge[t], edge[t + 1]
            c, out, (begin, end) = block[t - start], values[t - start], _active(t, n, lanes)
            a, b, d = by_a[t], by_b[t], by_d[t]
            if kind == SMOOTH:
                smooth_weights(c, older, newer, current, out, a, b, d, begin, end, gamma)
            elif kind == SOFT:
                soft_weights(c, older, newer, current, out, a, b, d, begin, end, gamma)
            else:
                hard_weights(c, older, newer, current, out, a, b, d, begin, end)
            if t >= lanes - 1:
                next_edge[t - lanes + 2] = current[lanes]
            older, newer, current = newer, current, older
        unskew(values, table, start, stop)


@compiled
def _active(t, n, lanes):
    """Bound the lanes that have a cell at step t, rounded out to whole vectors; unsigned, or indexing would branch."""
    return np.uintp(max(0, t - n + 1) // STEP * STEP), np.uintp(min(lanes, (t // STEP + 1) * STEP))


@compiled
def skew(rows, diagonals, start, stop, fill):
    """Copy cells (r, t − r) of rows [height, N] to diagonals [t − start, r], `fill` where there is no cell."""
    height, n = rows.shape
    lanes = diagonals.shape[1]
    if start < lanes or stop > n or height < lanes:
        diagonals[:] = fill
    for r in range(height):
        begin, end = max(start, r), min(stop, n + r)
        row, lane = rows[r, begin - r :], diagonals[begin - start :, r]
        for k in range(end - begin):
            lane[k] = row[k]


@compiled
def unskew(diagonals, rows, start, stop):
    """Undo `skew`."""
    height, n = rows.shape
    for r in range(height):
        begin, end = max(start, r), min(stop, n + r)
        row, lane = rows[r, begin - r :], diagonals[begin - start :, r]
        for k in range(end - begin):
            row[k] = lane[k]


@compiled
def smooth_cells(cost, older, newer, current, out, begin, end, gamma):
    """Accumulate the cells of one step by smoothMin."""
    scale = -1.0 / (gamma * math.log(2.0))
    for r in range(begin, end):
        a, b, d = older[r], newer[r], newer[r + ONE]
        # Sorted, so that one of the three exponentials is 1 and need not be computed.
        less, more = (a if a <= b else b), (b if a <= b else a)
        low, rest = (less if less <= d else d), (d if less <= d else less)
        u, v = rest - low, more - low
        e, f = exp2_for(u * scale, out[r]), exp2_for(v * scale, out[r])
        value = cost[r] + (low + (u * e + v * f) * (1.0 / (1.0 + e + f)))
        current[r + ONE] = out[r] = value


@compiled
def smooth_weights(cost, older, newer, current, out, by_a, by_b, by_d, begin, end, gamma):
    """Accumulate the cells of one step by smoothMin, and keep their derivatives."""
    scale, sharpness = -1.0 / (gamma * math.log(2.0)), 1.0 / gamma
    for r in range(begin, end):
        a, b, d = older[r], newer[r], newer[r + ONE]
        less, more = (a if a <= b else b), (b if a <= b else a)
        low, rest = (less if less <= d else d), (d if less <= d else less)
        u, v = rest - low, more - low
        e, f = exp2_for(u * scale, out[r]), exp2_for(v * scale, out[r])
        share = 1.0 / (1.0 + e + f)
        penalty = (u * e + v * f) * share
        value = cost[r] + (low + penalty)
        current[r + ONE] = out[r] = value
        # The derivatives by the least, by d or the lesser of a and b, and by the greater of these.
        by_low, slope = share * (1.0 + penalty * sharpness), share * sharpness
        by_rest, by_more = e * (by_low - u * slope), f * (by_low - v * slope)
        by_less = by_low if less <= d else by_rest
        by_d[r] = by_rest if less <= d else by_low
        by_a[r] = by_less if a <= b else by_more
        by_b[r] = by_more if a <= b else by_less


@compiled
def soft_cells(cost, older, newer, current, out, begin, end, gamma):
    """Accumulate the cells of one step by min^γ."""
    scale = -1.0 / (gamma * math.log(2.0))
    for r in range(begin, end):
        a, b, d = older[r], newer[r], newer[r + ONE]
        less, more = (a if a < b else b), (b if a < b else a)
        low, rest = (less if less < d else d), (d if less < d else less)
        e, f = exp2_for((rest - low) * scale, out[r]), exp2_for((more - low) * scale, out[r])
        value = cost[r] + (low - gamma * log(1.0 + e + f))
        current[r + ONE] = out[r] = value


@compiled
def soft_weights(cost, older, newer, current, out, by_a, by_b, by_d, begin, end, gamma):
    """Accumulate the cells of one step by min^γ, and keep their derivatives."""
    scale = -1.0 / (gamma * math.log(2.0))
    for r in range(begin, end):
        a, b, d = older[r], newer[r], newer[r + ONE]
        less, more = (a if a < b else b), (b if a < b else a)
        low, rest = (less if less < d else d), (d if less < d else less)
        e, f = exp2_for((rest - low) * scale, out[r]), exp2_for((more - low) * scale, out[r])
        total = 1.0 + e + f
        share = 1.0 / total
        value = cost[r] + (low - gamma * log(total))
        current[r + ONE] = out[r] = value
        by_less = share if less < d else share * e
        by_d[r] = share * e if less < d else share
        by_a[r] = by_less if a < b else share * f
        by_b[r] = share * f if a < b else by_less


@compiled
def hard_cells(cost, older, newer, current, out, begin, end):
    """Accumulate the cells of one step by the minimum."""
    for r in range(begin, end):
        a, b, d = older[r], newer[r], newer[r + ONE]
        value = cost[r] + least(least(a, b), d)
        current[r + ONE] = out[r] = value


@compiled
def hard_weights(cost, older, newer, current, out, by_a, by_b, by_d, begin, end):
    """Accumulate the cells of one step by the minimum, and keep their derivatives."""
    for r in range(begin, end):
        a, b, d = older[r], newer[r], newer[r + ONE]
        value = cost[r] + least(least(a, b), d)
        current[r + ONE] = out[r] = value
        other = b if b < d else d
        by_a[r] = 1.0 if a <= other else 0.0
        by_b[r] = 1.0 if (b < a) & (b <= d) else 0.0
        by_d[r] = 1.0 if (d < a) & (d < b) else 0.0


@compiled
def _gather(grad, by_a, by_b, by_d, older, newer, current, out, begin, end):
    for r in range(begin, end):
        e = grad[r] + by_a[r + ONE] * older[r + ONE] + by_b[r + ONE] * newer[r + ONE] + by_d[r] * newer[r]
        current[r] = e
        out[r] = e
