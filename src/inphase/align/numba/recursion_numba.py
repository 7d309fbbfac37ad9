"""The recursion on the CPU, compiled by numba: any length, float64 inside, vectorized for the CPU at hand.

With a, b, d the predecessors R(i−1, j−1), R(i−1, j), R(i, j−1) of a cell, lo the least and e_r = e^(−(r − lo)/γ):

    smooth   R = c + lo + Σ (r − lo) e_r / Σ e_r        ∂R/∂r = (e_r / Σ e) (1 − (r − lo − Σ (r − lo) e_r / Σ e_r)/γ)
    soft     R = c + lo − γ log Σ e_r                   ∂R/∂r = e_r / Σ e
    hard     R = c + lo                                 ∂R/∂r = 1 for the first of a, b, d that is least
    E(i, j) = G(i, j) + E(i+1, j+1) ∂R/∂a + E(i+1, j) ∂R/∂b + E(i, j+1) ∂R/∂d,   each ∂ taken at the successor

`accumulate_reference` in `recursion.py` is the same in torch operations. Cells on one anti-diagonal do not depend on
each other, so a pair is cut into strips of at most 64 rows ("lanes") and a strip is swept diagonal by diagonal: at step
t lane r handles column t − r, so that eight cells of a diagonal are one vector. The backward pass takes the derivatives
from R in float64, which the forward pass keeps, diagonal by diagonal, or which it accumulates again strip by strip.
"""

import math
import threading
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import first_order_only
from inphase.align.numba import WIDTH as STEP
from inphase.align.numba import (
    announce_compilation,
    compiled,
    exp2_for,
    inlined,
    load,
    log,
    prefetch,
    select,
    store,
    transpose,
)
from inphase.align.numba.path_numba import BORDER, scan_pairs

SMOOTH, SOFT, HARD = 0, 1, 2
KINDS = {"smooth": SMOOTH, "soft": SOFT, "hard": HARD}
MAX_LANES = 64  # rows swept together
AHEAD = 6  # diagonals that are fetched before the backward pass reads them: caches do not expect descending rows
BLOCK = 256  # diagonals laid out at a time: 64 KiB, so that rows far apart in memory are read in long runs
MAX_KEPT_STATE = 5_000_000  # numbers of a table, 40 MB, that are kept for the backward pass; more are recomputed
NO_STATE = np.empty((0,) * 4)
CELLS_PER_THREAD = 50_000  # about 0.3 ms of work; a thread costs 0.05 ms


def accumulate(cost: Tensor, kind: str, gamma: float, free_start: bool) -> Tensor:
    """Accumulate cost [B, M, N] on the CPU; see `inphase.align.accumulate`."""
    if torch.is_grad_enabled() and cost.requires_grad:
        return cast("Tensor", _AccumulateNumba.apply(cost, KINDS[kind], gamma, free_start))
    values = cost.detach().contiguous().numpy()
    if kind == "hard":
        table = np.empty_like(values)
        over_pairs(scan_pairs, (values, table), (free_start,))
    else:
        table, _ = launch_forward(values, NO_STATE, (KINDS[kind], gamma, free_start))
    return torch.from_numpy(table)


class _AccumulateNumba(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, kind: int, gamma: float, free_start: bool) -> Tensor:
        cost = cost.detach().contiguous()
        state = make_state(*cost.shape, tables=1)
        table, ctx.edges = launch_forward(cost.numpy(), state, (kind, gamma, free_start))
        ctx.kept, ctx.setting = [], (kind, gamma)
        if state is NO_STATE:
            ctx.save_for_backward(cost)
        else:
            ctx.kept.append(state)
            # For a possible second backward pass. `save_for_backward` would add 2 µs to calls of about 80 µs.
            ctx.cost, ctx.version = cost, cost._version
        return torch.from_numpy(table)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        given, state = grad.contiguous().numpy(), take(ctx.kept)
        grad_cost = np.empty_like(given)
        cost = given if state is not NO_STATE else _cost_of(ctx).numpy()  # not read where the state was kept
        over_pairs(run_back, (given, cost, ctx.edges, state, grad_cost), ctx.setting)
        if state is not NO_STATE:
            reuse(state)
        return torch.from_numpy(grad_cost), None, None, None


def _cost_of(ctx: Any) -> Tensor:
    """Return the cost, to recompute state that was not kept or whose memory was reused after a backward pass."""
    if ctx.saved_tensors:
        return cast("Tensor", ctx.saved_tensors[0])
    if ctx.cost._version != ctx.version:
        raise RuntimeError("cost was changed in place between two backward passes: pass a copy of it to accumulate")
    return cast("Tensor", ctx.cost)


# Memory for the state, passed from one call to the next: new pages from the system can take as long as filling them.
_spare_memory: list[NDArray[np.float64]] = []


def make_state(batch: int, m: int, n: int, *, tables: int) -> NDArray[np.float64]:
    """Allocate the diagonals of tables in float64, [B, strip, t + 2, table · r], unless one exceeds MAX_KEPT_STATE.

    The first two diagonals are the border; the first of lanes + 1 columns is the row before the strip.
    """
    strips, lanes = cut_into_strips(m)
    shape = batch, strips, n + lanes + 1, tables * (lanes + 1)
    size = math.prod(shape)
    if size > tables * MAX_KEPT_STATE:
        return NO_STATE
    memory = take(_spare_memory)
    return (memory if memory.size >= size else np.empty(size))[:size].reshape(shape)


def reuse(state: NDArray[np.float64]) -> None:
    """Leave the memory of a state to the next call."""
    _spare_memory[:] = [cast("NDArray[np.float64]", state.base)]


def take(arrays: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Pop the last array, so that no other thread uses it, or return `NO_STATE`."""
    try:
        return arrays.pop()
    except IndexError:
        return NO_STATE


def launch_forward(
    cost: NDArray[Any], state: NDArray[np.float64], setting: tuple[int, float, bool]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Fill the table of cost [B, M, N], its state unless that is `NO_STATE`, and the row before each strip."""
    batch, m, n = cost.shape
    strips, lanes = cut_into_strips(m)
    table = np.empty_like(cost)
    # The row before each strip, from column −1 on: all that a strip needs of the strips before it.
    edges = np.empty((batch, strips + 1, n + lanes + 1))
    over_pairs(_forward, (cost, table, edges, state), setting)
    return table, edges


def cut_into_strips(rows: int) -> tuple[int, int]:
    """Cut rows into as few strips as the lanes allow, no wider than needed."""
    strips = -(-rows // MAX_LANES)
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
def _forward(cost, table, edges, kept, first, last, kind, gamma, free_start):
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
            state = kept[pair, number] if len(kept) > 0 else recent
            _sweep(cost[pair, top:bottom], edge, next_edge, table[pair, top:bottom], costs, values, state, kind, gamma)


@compiled
def _sweep(cost, edge, next_edge, table, block, values, state, kind, gamma):
    """Accumulate the rows of one strip; `state` holds the diagonals, all of them or the last three."""
    n, lanes = cost.shape[1], block.shape[1]
    state[:2] = BORDER
    state[0, 0] = edge[0]
    first, second, third = 0, 1, 2
    for start in range(0, n + lanes - 1, BLOCK):
        stop = min(start + BLOCK, n + lanes - 1)
        skew(cost, block, start, stop, BORDER)
        for t in range(start, stop):
            older, newer, current = state[first], state[second], state[third]
            begin, end = active(t, n, lanes)
            newer[0] = edge[t + 1]
            outline(current, begin, end, lanes)
            c, out = block[t - start], values[t - start]
            for r in range(begin, end, STEP):
                value = load(c, r) + minimum(load(older, r), load(newer, r), load(newer, r + 1), out, kind, gamma)
                store(current, r + 1, value)
                store(out, r, value)
            if t >= lanes - 1:
                next_edge[t - lanes + 2] = current[lanes]
            first, second, third = second, third, third + 1 if third + 1 < len(state) else 0
        unskew(values, table, start, stop)


@compiled
def run_back(grad, cost, edges, kept, grad_cost, first, last, kind, gamma):
    """Run the gradients of pairs `first` to `last` back from their tables to their costs."""
    _, m, n = grad.shape
    lanes = edges.shape[2] - n - 1
    steps = n + lanes - 1
    size = min(BLOCK, steps), lanes
    block, values = np.empty(size, grad.dtype), np.empty(size, grad.dtype)
    passed = np.empty((3, lanes + 1))
    own = np.empty((0 if len(kept) > 0 else steps + 2, lanes + 1))
    across = np.empty(n)  # gradients that a strip passes to the row before it
    for pair in range(first, last):
        across[:] = 0.0
        for number in range(edges.shape[1] - 2, -1, -1):
            top, bottom = number * lanes, min(number * lanes + lanes, m)
            if len(kept) == 0:  # sweep the strip again: in a large batch that costs less than the memory
                rows, edge, none = cost[pair, top:bottom], edges[pair, number], grad_cost[pair, :0]
                _sweep(rows, edge, edges[pair, number + 1], none, block, values, own, kind, gamma)
            state = kept[pair, number] if len(kept) > 0 else own
            _sweep_back(
                grad[pair, top:bottom], state, across, grad_cost[pair, top:bottom], block, values, passed, kind, gamma
            )


@compiled
def _sweep_back(grad, state, across, grad_cost, block, values, passed, kind, gamma):
    """Run the gradient of one strip back; `across` comes from the row after it and leaves for the row before it."""
    n, lanes = grad.shape[1], block.shape[1]
    passed[:] = 0.0
    to_above, to_a, to_d = passed[0], passed[1], passed[2]
    for stop in range(n + lanes - 1, 0, -BLOCK):
        start = max(0, stop - BLOCK)
        skew(grad, block, start, stop, 0.0)
        for t in range(stop - 1, start - 1, -1):
            older, newer, early = state[t], state[t + 1], state[max(0, t - AHEAD)]
            begin, end = active(t, n, lanes)
            to_above[lanes] = across[t - lanes + 1] if t >= lanes - 1 else 0.0
            g, out = block[t - start], values[t - start]
            for r in range(begin, end, STEP):
                prefetch(early, r)
                by_a, by_b, by_d = weights(load(older, r), load(newer, r), load(newer, r + 1), out, kind, gamma)
                e = load(g, r) + load(to_d, r) + load(to_above, r + 1)
                store(out, r, e)
                store(to_above, r, load(to_a, r) + by_b * e)
                store(to_a, r, by_a * e)
                store(to_d, r, by_d * e)
            if t < n:
                across[t] = to_above[0]
        unskew(values, grad_cost, start, stop)


@inlined
def active(t, n, lanes):
    """Bound the lanes that have a cell at step t, rounded out to whole vectors."""
    return max(0, t - n + 1) // STEP * STEP, min(lanes, (t // STEP + 1) * STEP)


@inlined
def outline(current, begin, end, lanes):
    """Write the border beside the active lanes of a step: the lane before them, and the eight after them."""
    current[begin] = BORDER
    if end < lanes:
        for r in range(end + 1, end + STEP + 1):
            current[r] = BORDER


@compiled
def skew(rows, diagonals, start, stop, fill):
    """Copy cells (r, t − r) of rows [height, N] to diagonals [t − start, r], `fill` where there is no cell."""
    height, n = rows.shape
    lanes = diagonals.shape[1]
    if start < lanes or stop > n or height < lanes:
        diagonals[:] = fill
    for r in range(height):
        begin, end = max(start, r), min(stop, n + r)
        first, last = _tiles(r, height, n, start, stop)
        if r % STEP == 0:
            for t in range(first, last, STEP):
                transpose(rows, r * n + t - r, n - 1, diagonals, (t - start) * lanes + r, lanes)
        for t in range(begin, min(first, end)):
            diagonals[t - start, r] = rows[r, t - r]
        for t in range(max(begin, last), end):
            diagonals[t - start, r] = rows[r, t - r]


@compiled
def unskew(diagonals, rows, start, stop):
    """Undo `skew`."""
    height, n = rows.shape
    lanes = diagonals.shape[1]
    for r in range(height):
        begin, end = max(start, r), min(stop, n + r)
        first, last = _tiles(r, height, n, start, stop)
        if r % STEP == 0:
            for t in range(first, last, STEP):
                transpose(diagonals, (t - start) * lanes + r, lanes, rows, r * n + t - r, n - 1)
        for t in range(begin, min(first, end)):
            rows[r, t - r] = diagonals[t - start, r]
        for t in range(max(begin, last), end):
            rows[r, t - r] = diagonals[t - start, r]


@compiled
def _tiles(r, height, n, start, stop):
    """Bound the steps, in eights, at which row r and the seven beside it in a vector all have a cell."""
    top = r // STEP * STEP
    if top + STEP > height:
        return stop, stop
    first = max(start, top + STEP)
    return first, first + max(0, min(stop, n + top) - first) // STEP * STEP


@inlined
def minimum(a, b, d, like, kind, gamma):
    """Take the minimum of three numbers with the precision of the array `like`."""
    if kind == HARD:
        return _least(_least(a, b), d)
    scale = -1.0 / (gamma * math.log(2.0))
    # Sorted, so that one of the three exponentials is 1 and need not be computed.
    less, more = select(a < b, a, b), select(a < b, b, a)
    low, rest = select(less < d, less, d), select(less < d, d, less)
    u, v = rest - low, more - low
    e, f = exp2_for(u * scale, like), exp2_for(v * scale, like)
    if kind == SOFT:
        return low - gamma * log(1.0 + e + f)
    return low + (u * e + v * f) * (1.0 / (1.0 + e + f))


@inlined
def weights(a, b, d, like, kind, gamma):
    """Take the derivatives of the minimum by a, b and d."""
    if kind == HARD:
        other = select(b < d, b, d)
        by_b = select((b < a) & (b <= d), 1.0, 0.0)
        return select(a <= other, 1.0, 0.0), by_b, select((d < a) & (d < b), 1.0, 0.0)
    scale, sharpness = -1.0 / (gamma * math.log(2.0)), 1.0 / gamma
    less, more = select(a < b, a, b), select(a < b, b, a)
    low, rest = select(less < d, less, d), select(less < d, d, less)
    u, v = rest - low, more - low
    e, f = exp2_for(u * scale, like), exp2_for(v * scale, like)
    share = 1.0 / (1.0 + e + f)
    # By the least, by d or the lesser of a and b, and by the greater of these.
    by_low, by_rest, by_more = share, share * e, share * f
    if kind == SMOOTH:
        slope = share * sharpness
        by_low = share + (u * e + v * f) * share * slope
        by_rest, by_more = e * (by_low - u * slope), f * (by_low - v * slope)
    by_less, by_d = select(less < d, by_low, by_rest), select(less < d, by_rest, by_low)
    return select(a < b, by_less, by_more), select(a < b, by_more, by_less), by_d


@inlined
def _least(a, b):
    return select((a < b) | (a != a), a, b)  # NaN where either is
