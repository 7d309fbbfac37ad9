"""Retrieval: how many of the frames most alike, in other videos of the action, show the same phase (AP@K of CARL).

A frame is asked for its K nearest among the frames of all other videos of its action; the fraction of them that has its
phase is averaged over the frames of a video, then over videos, then over actions. Frames without a label neither ask
nor answer.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from inphase.evaluation.embedded import Embedded, NotApplicableError, all_constant, by_action, mean, with_phases

CELLS = 2**24  # of similarities held at a time


def retrieval(
    train: Sequence[Embedded],
    test: Sequence[Embedded],
    *,
    ks: Sequence[int] = (5, 10, 15),
    stride: int = 1,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Measure precision at each of `ks`, of every `stride`-th frame among all frames of the other videos.

    Keys: ap@K, and ap@K/ACTION for each action. Undefined where all embeddings are one vector. O(N² D) time for the N
    frames of an action. `train` is not used.
    """
    if stride < 1 or not ks or min(ks) < 1:
        raise ValueError(f"need stride ≥ 1 and every k ≥ 1, got {stride} and {list(ks)}")
    groups = {
        action: videos
        for action, videos in by_action(with_phases(test, role="test")).items()
        if sum(int((item.phases >= 0).sum()) for item in videos) > max(ks) and len(videos) > 1
    }
    if not groups:
        raise NotApplicableError(f"no action has two labelled videos and more than {max(ks)} frames to retrieve")
    found = {action: _precisions(videos, ks=ks, stride=stride, device=device) for action, videos in groups.items()}
    numbers = {f"ap@{k}": mean(row[n] for row in found.values()) for n, k in enumerate(ks)}
    return numbers | {f"ap@{k}/{action}": row[n] for action, row in found.items() for n, k in enumerate(ks)}


def _precisions(
    videos: Sequence[Embedded], *, ks: Sequence[int], stride: int, device: torch.device | str
) -> list[float]:
    if all_constant(videos):
        return [float("nan")] * len(ks)
    labelled = [item.phases >= 0 for item in videos]
    values = _tensor([item.values[kept] for item, kept in zip(videos, labelled, strict=True)], device)
    phases = _tensor([item.phases[kept] for item, kept in zip(videos, labelled, strict=True)], device)
    owner = torch.repeat_interleave(torch.tensor([int(kept.sum()) for kept in labelled])).to(device)
    means = []
    for video in range(len(videos)):
        mine = torch.nonzero(owner == video)[::stride, 0]
        hits = torch.cat(list(_hits(mine, video, values, phases, owner, most=max(ks))))
        means.append([float(hits[:, :k].double().mean()) for k in ks])
    return [float(column) for column in np.mean(means, axis=0)]


def _hits(mine: Tensor, video: int, values: Tensor, phases: Tensor, owner: Tensor, *, most: int) -> Iterator[Tensor]:
    """Yield for some of a video's frames at a time whether each of the nearest has the same phase, [Q, K]."""
    others = owner != video
    candidates, labels = values[others], phases[others]
    for part in torch.split(mine, max(1, CELLS // max(1, len(candidates)))):
        # ‖x‖² is the same for all candidates.
        gaps = candidates.square().sum(1) - 2 * values[part] @ candidates.T
        nearest = gaps.topk(min(most, len(candidates)), largest=False).indices
        yield labels[nearest] == phases[part][:, None]


def _tensor(parts: Sequence[np.ndarray], device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(device)
