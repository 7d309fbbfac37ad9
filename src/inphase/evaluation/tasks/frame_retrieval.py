"""Frame retrieval: the fraction of the nearest frames in other videos of the action with the same phase (AP@K of CARL).

Each frame retrieves its K nearest among the frames of all other videos of its action; the fraction of them that has its
phase is averaged over the frames of a video, then over videos, then over actions. Frames without a label neither query
nor are retrieved.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError, all_constant, by_action, with_phases
from inphase.evaluation.scores import Score, mean

CELLS = 2**24  # similarities in memory at a time


def frame_retrieval(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    ks: Sequence[int] = (5, 10, 15),
    stride: int = 1,
    device: torch.device | str = "cpu",
) -> list[Score]:
    """Measure precision at each of `ks`, of every `stride`-th frame among all frames of the other videos.

    Metrics: `ap@K`, by action. Undefined if all embeddings are one vector. O(N² D) time for the N frames of an action.
    `train` is not used.
    """
    if stride < 1 or not ks or min(ks) < 1:
        raise ValueError(f"need stride ≥ 1 and every k ≥ 1, got {stride} and {list(ks)}")
    groups = {
        action: videos
        for action, videos in by_action(with_phases(test, role="test")).items()
        if sum(int((item.phases >= 0).sum()) for item in videos) > max(ks) and len(videos) > 1
    }
    if not groups:
        raise NotApplicableError(f"no action has two labeled videos and more than {max(ks)} frames to retrieve")
    found = {action: _precisions(videos, ks=ks, stride=stride, device=device) for action, videos in groups.items()}
    score = partial(Score, "frame_retrieval")
    over_actions = [score(f"ap@{k}", mean(row[n] for row in found.values())) for n, k in enumerate(ks)]
    return over_actions + [
        score(f"ap@{k}", row[n], action=action) for action, row in found.items() for n, k in enumerate(ks)
    ]


def _precisions(
    videos: Sequence[EmbeddedVideo], *, ks: Sequence[int], stride: int, device: torch.device | str
) -> list[float]:
    if all_constant(videos):
        return [float("nan")] * len(ks)
    labeled = [item.phases >= 0 for item in videos]
    values = _tensor([item.values[kept] for item, kept in zip(videos, labeled, strict=True)], device)
    phases = _tensor([item.phases[kept] for item, kept in zip(videos, labeled, strict=True)], device)
    owner = torch.repeat_interleave(torch.tensor([int(kept.sum()) for kept in labeled])).to(device)
    means = []
    for video in range(len(videos)):
        mine = torch.nonzero(owner == video)[::stride, 0]
        hits = torch.cat(list(_hits(mine, video, values, phases, owner, most=max(ks))))
        means.append([float(hits[:, :k].double().mean()) for k in ks])
    return [float(column) for column in np.mean(means, axis=0)]


def _hits(mine: Tensor, video: int, values: Tensor, phases: Tensor, owner: Tensor, *, most: int) -> Iterator[Tensor]:
    """Yield, for a batch of a video's frames at a time, whether each of the nearest has the same phase, [Q, K]."""
    others = owner != video
    candidates, labels = values[others], phases[others]
    for part in torch.split(mine, max(1, CELLS // max(1, len(candidates)))):
        # ‖x‖² is the same for all candidates.
        gaps = candidates.square().sum(1) - 2 * values[part] @ candidates.T
        nearest = gaps.topk(min(most, len(candidates)), largest=False).indices
        yield labels[nearest] == phases[part][:, None]


def _tensor(parts: Sequence[np.ndarray], device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(device)
