"""Nearest neighbours and Kendall's τ-b, compiled by numba.

    τ-b = (concordant − discordant) / √(n₀ (n₀ − n₂)),   n₀ = n (n − 1)/2 pairs, n₂ of them tied among the neighbours

The frames themselves are in order and never tie. Concordant pairs are counted by a binary indexed tree of the
neighbours met so far: O(m log n) for m frames and their neighbours among n.
"""

import numpy as np
from numpy.typing import NDArray

from inphase.align.numba.intrinsics import announce_compilation, compiled


def first_nearest(
    gaps: NDArray[np.float32],
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    starts: NDArray[np.int64],
    slack: float,
) -> NDArray[np.int32]:
    """Find for each row of x [M, D] the nearest of y [N, D] within each segment of y, [S, M]; of equals the first.

    `gaps` [N, M] are squared distances up to an error of `slack` (less what all of a column share), from a product of
    matrices; where that cannot tell candidates apart, their differences are squared and added up in float64.
    `starts` [S + 1] are where the segments begin and the last one ends.
    """
    announce_compilation(_first_nearest)
    found = np.empty((len(starts) - 1, len(x)), np.int32)
    _first_nearest(gaps, x, y, starts, np.float32(slack), found)
    return found


def tau_b(neighbours: NDArray[np.int32], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Correlate each row of neighbours [S, M], indices below `sizes` [S], with its own order: τ-b [S].

    NaN where it is undefined: all neighbours are one frame, or there are fewer than two.
    """
    announce_compilation(_tau_b)
    found = np.empty(len(neighbours))
    _tau_b(neighbours, sizes, found)
    return found


@compiled
def _first_nearest(gaps, x, y, starts, slack, found):
    m = gaps.shape[1]
    least, near = np.empty(m, gaps.dtype), np.empty(m, np.int32)
    for s in range(len(starts) - 1):
        begin, end = starts[s], starts[s + 1]
        _least(gaps[begin:end], least, found[s])
        _count_near(gaps[begin:end], least, slack, near)
        for i in range(m):
            if near[i] > 1:
                found[s, i] = _first_exact(gaps[begin:end, i], x[i], y[begin:end], least[i] + slack)


@compiled
def _least(gaps, least, best):
    """Take the least of each column and the first row that has it; columns side by side fill the vector registers."""
    least[:] = gaps[0]
    best[:] = 0
    for j in range(1, gaps.shape[0]):
        row = gaps[j]
        for i in range(len(row)):
            closer = row[i] < least[i]
            least[i] = row[i] if closer else least[i]
            best[i] = j if closer else best[i]


@compiled
def _count_near(gaps, least, slack, near):
    """Count in each column what rounding cannot tell from its least."""
    near[:] = 0
    for j in range(gaps.shape[0]):
        row = gaps[j]
        for i in range(len(row)):
            near[i] += row[i] <= least[i] + slack


@compiled
def _first_exact(gaps, frame, candidates, bound):
    """Take the first of the nearest among the candidates within `bound`."""
    best, least = 0, np.inf
    for j in range(len(candidates)):
        if gaps[j] <= bound:
            gap = _squared_distance(frame, candidates[j])
            if gap < least:
                best, least = j, gap
    return best


@compiled
def _squared_distance(a, b):
    total = 0.0
    for k in range(len(a)):
        gap = np.float64(a[k]) - np.float64(b[k])
        total += gap * gap
    return total


@compiled
def _tau_b(neighbours, sizes, found):
    rows, m = neighbours.shape
    tree = np.empty(sizes.max() + 1, np.int64)
    counts = np.empty(sizes.max(), np.int64)
    for s in range(rows):
        n = sizes[s]
        tree[: n + 1] = 0
        counts[:n] = 0
        balance, ties = 0, 0  # concordant − discordant; tied
        for i in range(m):
            at = neighbours[s, i]
            below = 0
            k = at
            while k > 0:
                below += tree[k]
                k -= k & -k
            balance += below - (i - below - counts[at])
            ties += counts[at]
            counts[at] += 1
            k = at + 1
            while k <= n:
                tree[k] += 1
                k += k & -k
        total = m * (m - 1) // 2
        if ties == total:
            found[s] = np.nan
        else:
            # The order of operations is scipy's, and so is the last bit.
            value = balance / np.sqrt(float(total)) / np.sqrt(float(total - ties))
            found[s] = min(1.0, max(-1.0, value))
