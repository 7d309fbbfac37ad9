"""Nearest frames in every other video and Kendall's τ-b, compiled by numba; the results are those of a loop over pairs.

    τ-b = (concordant − discordant) / √(n₀ (n₀ − n₂)),   n₀ = n (n − 1)/2 pairs, n₂ of them tied among the neighbors

The frames themselves are in order and never tie. Concordant pairs are counted by a binary indexed tree of the
neighbors visited so far: O(m log n) for m frames and their neighbors among n.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from os import cpu_count
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.numba import announce_compilation, compiled

Result = TypeVar("Result")


def over_neighbors(
    videos: Sequence[NDArray[np.float32]],
    work: Callable[[int, NDArray[np.int32]], Result],
    *,
    device: torch.device | str = "cpu",
) -> list[Result]:
    """Call `work` with each video's index and its neighbors: the nearest frame in each of the videos, [V, M].

    By Euclidean distance; the first of equally near frames. `videos` are [M, D] each, and a video is among its own
    neighbors. One matrix product [N, M] per video, for the N frames of all videos: O(N² D) time in all, O(M N) memory.
    In float32 on the CPU, with sums in float64 where rounding could change the result; in float64 on other devices.
    """
    frames = np.concatenate(videos)
    sizes = [len(video) for video in videos]
    # Centering keeps distances and avoids the loss of precision by a large common mean.
    centered = frames - frames.mean(0, dtype=np.float64)
    if torch.device(device).type != "cpu":
        pool = torch.from_numpy(centered).to(device)
        return [work(video, found) for video, found in enumerate(_on_device(pool, sizes))]
    find = _Finder(frames, centered.astype(np.float32), starts=np.concatenate([[0], np.cumsum(sizes)]))
    # For products this small, one thread per video is faster than threads within each product.
    with _one_blas_thread(), ThreadPoolExecutor(cpu_count()) as threads:
        return list(threads.map(lambda video: work(video, find(video)), range(len(videos))))


def _one_blas_thread() -> AbstractContextManager[object]:
    """Limit matrix products to one thread each; without threadpoolctl (extra `eval`) they are only slower."""
    if find_spec("threadpoolctl") is None:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, "blas")
    return limits


class _Finder:
    """Finds the nearest neighbors of one video at a time, on the CPU."""

    def __init__(
        self, frames: NDArray[np.float32], centered: NDArray[np.float32], *, starts: NDArray[np.int64]
    ) -> None:
        self._frames, self._centered, self._starts = frames, centered, starts
        self._squares = np.square(centered, dtype=np.float64).sum(1).astype(np.float32)
        # An upper bound on the float32 rounding error of products and sums of D terms, for two compared distances.
        self._slack = 8 * (centered.shape[1] + 2) * 2.0**-24 * float(self._squares.max())

    def __call__(self, video: int) -> NDArray[np.int32]:
        begin, end = self._starts[video], self._starts[video + 1]
        # ‖x‖² is equal for all candidates of a column and left out.
        gaps = self._centered @ (-2 * self._centered[begin:end]).T
        gaps += self._squares[:, None]
        return first_nearest(gaps, self._frames[begin:end], self._frames, self._starts, self._slack)


def _on_device(pool: Tensor, sizes: list[int]) -> Iterator[NDArray[np.int32]]:
    """Yield the first frame of each video that is as near as the nearest, up to float64 rounding."""
    squares = pool.square().sum(1)
    slack = 8 * (pool.shape[1] + 2) * 2.0**-53 * squares.max()
    for x in torch.split(pool, sizes):
        gaps = torch.addmm(squares[:, None], pool, x.T, alpha=-2)
        near = [part <= part.amin(0) + slack for part in torch.split(gaps, sizes)]
        yield torch.stack([part.to(torch.uint8).argmax(0) for part in near]).to(torch.int32).cpu().numpy()


def first_nearest(
    gaps: NDArray[np.float32],
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    starts: NDArray[np.int64],
    slack: float,
) -> NDArray[np.int32]:
    """Find for each row of x [M, D] the nearest of y [N, D] within each segment of y, [S, M]; the first of equals.

    `gaps` [N, M] are squared distances with an error of at most `slack`, minus a constant per column. Candidates that
    differ by less than `slack` are compared by squared differences summed in float64. `starts` [S + 1] are the first
    rows of the segments, and the end of the last.
    """
    announce_compilation(_first_nearest)
    found = np.empty((len(starts) - 1, len(x)), np.int32)
    _first_nearest(gaps, x, y, starts, np.float32(slack), found)
    return found


def tau_b(neighbors: NDArray[np.int32], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Correlate each row of neighbors [S, M], indices below `sizes` [S], with its order: τ-b [S].

    NaN (undefined) if all neighbors are one frame, or if there are fewer than two.
    """
    announce_compilation(_tau_b)
    found = np.empty(len(neighbors))
    _tau_b(neighbors, sizes, found)
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
    """Find the minimum of each column and its first row; the inner loop over columns vectorizes."""
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
    """Count the entries of each column within rounding error of its minimum."""
    near[:] = 0
    for j in range(gaps.shape[0]):
        row = gaps[j]
        for i in range(len(row)):
            near[i] += row[i] <= least[i] + slack


@compiled
def _first_exact(gaps, frame, candidates, bound):
    """Return the first nearest candidate among those within `bound`."""
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
def _tau_b(neighbors, sizes, found):
    rows, m = neighbors.shape
    tree = np.empty(sizes.max() + 1, np.int64)
    counts = np.empty(sizes.max(), np.int64)
    for s in range(rows):
        n = sizes[s]
        tree[: n + 1] = 0
        counts[:n] = 0
        balance, ties = 0, 0  # concordant − discordant; tied
        for i in range(m):
            at = neighbors[s, i]
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
            # The same order of operations as scipy, so that the last bit is equal.
            value = balance / np.sqrt(float(total)) / np.sqrt(float(total - ties))
            found[s] = min(1.0, max(-1.0, value))
