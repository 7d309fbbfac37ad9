"""The hard path on the CPU, compiled by numba: the table of one cost, and the trace back through it.

R(i, j) = c(i, j) + min(R(i−1, j−1), R(i−1, j), R(i, j−1)),    in float64 whatever the type of the cost

The first few small tables of a process are filled and traced without numba, to the same values: compiling the kernels
takes a second, loading them from the disk a third, and a command that aligns two videos needs about ten tables.
"""

from itertools import count
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from inphase.align.numba import announce_compilation, compiled

Floats = NDArray[np.float64]
MAX_COPIED_CELLS = 2**20  # small costs share one type, so that one kernel is compiled
# Tables that numpy fills, at a millisecond or two each, and paths that Python traces, before the kernels take over.
MAX_PLAIN_TABLES, MAX_PLAIN_CELLS = 64, 2**16
BORDER = 1e30  # finite: times a weight of 0 it is 0, and the difference of two is finite


def hard_table(cost: NDArray[Any], free_start: bool) -> NDArray[np.float64]:
    """Accumulate one cost [M, N] by the hard minimum, in float64 whatever its type."""
    if cost.size <= MAX_PLAIN_CELLS and next(_tables) < MAX_PLAIN_TABLES:
        return fill_diagonals(cost, free_start)
    announce_compilation(scan)
    table = np.empty(cost.shape)
    scan(cost.astype(np.float64) if cost.size <= MAX_COPIED_CELLS else cost, table, free_start)
    return table


def backtrack(table: NDArray[np.float64], end: int, free_start: bool) -> NDArray[np.int64]:
    """Walk from the last row, column `end`, to the start of the cheapest path through a hard table; [L, 2]."""
    if table.size <= MAX_PLAIN_CELLS and next(_paths) < MAX_PLAIN_TABLES:
        return np.array(walk_back(table.tolist(), end, free_start), np.int64)
    announce_compilation(_backtrack)
    return cast("NDArray[np.int64]", _backtrack(table, end, free_start))


_tables, _paths = count(), count()


def fill_diagonals(cost: NDArray[Any], free_start: bool) -> NDArray[np.float64]:
    """Accumulate one cost [M, N] in numpy, diagonal by diagonal, to the values of `scan`."""
    m, n = cost.shape
    bordered = np.full((m + 1, n + 1), BORDER)
    bordered[0, : n + 1 if free_start else 1] = 0.0
    bordered[1:, 1:] = cost
    cells = bordered.reshape(-1)  # of a diagonal every n-th; the row above lies n + 1 back
    for k in range(m + n - 1):
        top, bottom = max(1, k - n + 2), min(k + 1, m)  # rows of the diagonal
        start, length = top * (n + 1) + k - top + 2, (bottom - top + 1) * n
        a, b, d, here = (cells[at : at + length : n] for at in (start - n - 2, start - n - 1, start - 1, start))
        here += np.minimum(np.minimum(a, b), d)
    return np.ascontiguousarray(bordered[1:, 1:])


@compiled
def scan_pairs(cost, table, first, last, free_start):
    """Accumulate pairs `first` to `last` of a batch."""
    for pair in range(first, last):
        scan(cost[pair], table[pair], free_start)


@compiled
def scan(cost, table, free_start):
    """Accumulate a pair by the hard minimum, two rows at a time, the second a column behind the first.

    A comparison and an addition are too little work to pay for diagonals; two rows hide the latency of each other.
    """
    m, n = cost.shape
    above = np.full(n + 1, 0.0 if free_start else BORDER)  # the row before, from column −1 on
    above[0] = 0.0
    for i in range(0, m, 2):
        upper, upper_out = cost[i], table[i]
        lower, lower_out = cost[min(i + 1, m - 1)], table[min(i + 1, m - 1)]
        a, value, lower_a, lower_value = above[0], BORDER, BORDER, BORDER
        for j in range(n):
            b = value  # of the row above the lower one, a column back
            if j > 0 and i + 1 < m:
                lower_value = lower[j - 1] + least(least(lower_a, b), lower_value)
                lower_out[j - 1] = lower_value
                lower_a = b
            b = above[j + 1]
            value = upper_out[j] = upper[j] + least(least(a, b), value)
            a = b
            above[j] = lower_value
        if i + 1 < m:
            lower_value = lower[n - 1] + least(least(lower_a, value), lower_value)
            lower_out[n - 1] = lower_value
            above[n] = lower_value
        above[0] = BORDER


@compiled
def least(a, b):
    """Take the lesser of two numbers, NaN where either is."""
    return a if (a < b) | (a != a) else b


def walk_back(table: list[list[float]], end: int, free_start: bool) -> list[tuple[int, int]]:
    """Walk the path of `_backtrack` in Python."""
    i, j = len(table) - 1, end
    path = [(i, j)]
    while i or (j and not (free_start and table[0][j - 1] >= 0.0)):
        if i and j:
            a, b, d = table[i - 1][j - 1], table[i - 1][j], table[i][j - 1]
            diagonal = a <= b and a <= d
            up, left = diagonal or b <= d, diagonal or not b <= d
        else:
            up, left = i > 0, i == 0
        i, j = i - up, j - left
        path.append((i, j))
    return path[::-1]


@compiled
def _backtrack(table, end, free_start):
    m, _ = table.shape
    path = np.empty((m + end, 2), np.int64)
    at = m + end
    i, j = m - 1, end
    while True:
        at -= 1
        path[at, 0], path[at, 1] = i, j
        if i == 0 and (j == 0 or (free_start and table[0, j - 1] >= 0.0)):
            return path[at:].copy()
        # On the border only one step is possible, whatever the table holds: costs may be infinite.
        if i == 0:
            j -= 1
            continue
        if j == 0:
            i -= 1
            continue
        a, b, d = table[i - 1, j - 1], table[i - 1, j], table[i, j - 1]
        if a <= b and a <= d:
            i, j = i - 1, j - 1
        elif b <= d:
            i -= 1
        else:
            j -= 1


def hard_tables(cost: NDArray[Any], x_drops: Floats, y_drops: Floats) -> tuple[Floats, Floats]:
    """Accumulate one cost [M, N] with drops by the hard minimum: D and P with their borders, [M + 1, N + 1]."""
    announce_compilation(_scan_with_drops)
    m, n = cost.shape
    everything, matched = np.empty((m + 1, n + 1)), np.empty((m + 1, n + 1))
    _scan_with_drops(cost, x_drops, y_drops, everything, matched)
    return everything, matched


@compiled
def _scan_with_drops(cost, x_drops, y_drops, everything, matched):
    m, n = cost.shape
    everything[0, 0] = 0.0
    matched[:, 0], matched[0] = np.inf, np.inf
    for j in range(n):
        everything[0, j + 1] = everything[0, j] + y_drops[j]
    for i in range(m):
        row, drop = cost[i], x_drops[i]
        above, above_p, out, out_p = everything[i], matched[i], everything[i + 1], matched[i + 1]
        value, p = above[0] + drop, np.inf
        out[0] = value
        for j in range(n):
            p = row[j] + least(least(above[j], above_p[j + 1]), p)
            value = least(least(p, above[j + 1] + drop), value + y_drops[j])
            out[j + 1], out_p[j + 1] = value, p


def backtrack_with_drops(everything: Floats, matched: Floats, x_drops: Floats, y_drops: Floats) -> NDArray[np.int64]:
    """Walk from the end of the tables of `hard_tables` to their start; the pairs of frames that match, [L, 2]."""
    announce_compilation(_backtrack_with_drops)
    return cast("NDArray[np.int64]", _backtrack_with_drops(everything, matched, x_drops, y_drops))


@compiled
def _backtrack_with_drops(everything, matched, x_drops, y_drops):
    i, j = everything.shape[0] - 1, everything.shape[1] - 1
    path = np.empty((i + j, 2), np.int64)
    at = i + j
    in_match = False
    while i > 0 and j > 0:  # at a border only drops remain
        if in_match:
            at -= 1
            path[at, 0], path[at, 1] = i - 1, j - 1
            a, b, d = everything[i - 1, j - 1], matched[i - 1, j], matched[i, j - 1]
            if a <= b and a <= d:
                i, j, in_match = i - 1, j - 1, False
            elif b <= d:
                i -= 1
            else:
                j -= 1
        else:
            p, u, v = matched[i, j], everything[i - 1, j] + x_drops[i - 1], everything[i, j - 1] + y_drops[j - 1]
            if p <= u and p <= v:
                in_match = True
            elif u <= v:
                i -= 1
            else:
                j -= 1
    return path[at:].copy()


# Bins of the template that a frame may advance, at most.
MAX_ADVANCE = 3


def track_template(
    x: Floats, template: Floats, rest: Floats, *, pace: float, switch: float
) -> tuple[NDArray[np.int64], float]:
    """Match frames x [T, D] with the bins of a cyclic template [K, D]; return the bin of each frame, and the cost.

    A frame costs its squared distance from its bin and `pace` for every bin that it advances more or less than one; a
    frame outside the template (bin K) costs `rest` [T], and entering or leaving the template costs `switch`. The path
    is the cheapest one (Viterbi). O(T K D) time, T · K bytes.
    """
    announce_compilation(_fill_tracks)
    moves, left = np.zeros((len(x), len(template)), np.uint8), np.full(len(x), len(template), np.int64)
    last, total = _fill_tracks(x, template, rest, pace, switch, moves, left)
    return cast("NDArray[np.int64]", _trace_bins(moves, left, last)), float(total)


@compiled
def _fill_tracks(x, template, rest, pace, switch, moves, left):
    frames, bins = moves.shape
    score, before, outside = np.zeros(bins), np.empty(bins), 0.0
    for t in range(frames):
        before[:] = score
        lowest = before.argmin()
        enter = outside + (switch if t else 0.0)
        for k in range(bins):
            best, step, origin = enter, MAX_ADVANCE + 1, k
            for advance in range(MAX_ADVANCE + 1 if t else 0):
                value = before[origin] + pace * abs(advance - 1)
                if value < best:
                    best, step = value, advance
                origin = (origin or bins) - 1
            for d in range(x.shape[1]):
                best += (x[t, d] - template[k, d]) ** 2
            score[k], moves[t, k] = best, step
        if t and before[lowest] + switch < outside:
            outside, left[t] = before[lowest] + switch, lowest
        outside += rest[t]
    last = score.argmin()
    return (bins, outside) if outside < score[last] else (last, score[last])


@compiled
def _trace_bins(moves, left, last):
    frames, bins = moves.shape
    path = np.empty(frames, np.int64)
    k = last
    for t in range(frames - 1, -1, -1):
        path[t] = k
        if k == bins:
            k = left[t]
        elif moves[t, k] == MAX_ADVANCE + 1:
            k = bins
        else:
            k = (k - moves[t, k]) % bins
    return path
