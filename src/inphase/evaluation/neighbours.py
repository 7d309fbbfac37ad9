"""The nearest frame of every other video, for every frame: the same ones that a loop over pairs would find."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from inphase.evaluation.neighbours_numba import first_nearest

Result = TypeVar("Result")


def over_neighbours(
    videos: Sequence[NDArray[np.float32]],
    work: Callable[[int, NDArray[np.int32]], Result],
    *,
    device: torch.device | str = "cpu",
) -> list[Result]:
    """Do some work on each video, by its number, and its neighbours: the nearest frame in each of the videos, [V, M].

    By Euclidean distance; of equally near frames the first. `videos` are [M, D] each, and a video is among its own
    neighbours. A product of matrices [N, M] at a time, for the N frames of all videos: O(N² D) time in all, O(M N)
    memory. On the CPU in float32, with sums in float64 where that leaves a doubt; elsewhere in float64.
    """
    frames = np.concatenate(videos)
    sizes = [len(video) for video in videos]
    # Centring leaves distances alone and keeps them from drowning in a length that all frames share.
    centred = frames - frames.mean(0, dtype=np.float64)
    if torch.device(device).type != "cpu":
        pool = torch.from_numpy(centred).to(device)
        return [work(video, found) for video, found in enumerate(_on_device(pool, sizes))]
    find = _Finder(frames, centred.astype(np.float32), starts=np.concatenate([[0], np.cumsum(sizes)]))
    # Products this small gain more from a thread a video than from threads within each.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(cpu_count()) as threads:
        return list(threads.map(lambda video: work(video, find(video)), range(len(videos))))


class _Finder:
    """The nearest neighbours of one video at a time, on the CPU."""

    def __init__(self, frames: NDArray[np.float32], centred: NDArray[np.float32], *, starts: NDArray[np.int64]) -> None:
        self._frames, self._centred, self._starts = frames, centred, starts
        self._squares = np.square(centred, dtype=np.float64).sum(1).astype(np.float32)
        # A bound on what products and sums of D terms in float32 err by, for either of two distances compared.
        self._slack = 8 * (centred.shape[1] + 2) * 2.0**-24 * float(self._squares.max())

    def __call__(self, video: int) -> NDArray[np.int32]:
        begin, end = self._starts[video], self._starts[video + 1]
        # ‖x‖² is the same for all candidates of a column and left out.
        gaps = self._centred @ (-2 * self._centred[begin:end]).T
        gaps += self._squares[:, None]
        return first_nearest(gaps, self._frames[begin:end], self._frames, self._starts, self._slack)


def _on_device(pool: Tensor, sizes: list[int]) -> Iterator[NDArray[np.int32]]:
    """Take of each video the first frame that is as near as the nearest, up to the rounding of float64."""
    squares = pool.square().sum(1)
    slack = 8 * (pool.shape[1] + 2) * 2.0**-53 * squares.max()
    for x in torch.split(pool, sizes):
        gaps = torch.addmm(squares[:, None], pool, x.T, alpha=-2)
        near = [part <= part.amin(0) + slack for part in torch.split(gaps, sizes)]
        yield torch.stack([part.to(torch.uint8).argmax(0) for part in near]).to(torch.int32).cpu().numpy()
