"""Strips: some frames of one video with their context, and how several become one tensor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.data.augment import Look
from inphase.data.reading import Read
from inphase.data.sampling import Context, Frames, context_frames
from inphase.data.video import Video

Prepare = Callable[[NDArray[Any], Video, np.random.Generator], NDArray[Any] | Tensor]  # once a video, before context


@dataclass(frozen=True, eq=False)
class Strip:
    """Some frames of one video and their context, each distinct one once."""

    id: str
    values: NDArray[Any]  # [D, …]
    rows: Frames  # [T, C] which of the values each context is
    frames: Frames  # [T]
    times: NDArray[np.float64]  # [T]
    look: Look | None = None


def read_strip(
    video: Video,
    frames: Frames,
    *,
    length: int,
    context: Context,
    read: Read,
    prepare: Prepare | None = None,
    rng: np.random.Generator,
) -> Strip:
    """Read frames with their context."""
    wanted = context_frames(frames, length=length, context=context)
    distinct, places = np.unique(np.concatenate([wanted.ravel(), frames]), return_inverse=True)
    values, times = read(video, distinct)
    if len(values) != len(distinct) or len(times) != len(distinct):
        raise ValueError(f"{len(distinct)} frames asked for, {len(values)} read with {len(times)} times")
    ready = np.asarray(values if prepare is None else prepare(values, video, rng))
    return Strip(video.id, ready, places[: wanted.size].reshape(wanted.shape), frames, times[places[wanted.size :]])


def stack(strips: Sequence[Strip]) -> Tensor:
    """Lay strips out as [K, T, C, …], each one's last step repeated to the length of the longest.

    Every frame is copied once: for pictures this is what reading a store costs.
    """
    longest = max(len(strip.rows) for strip in strips)
    first = strips[0]
    whole = np.empty((len(strips), longest, first.rows.shape[1], *first.values.shape[1:]), first.values.dtype)
    for strip, place in zip(strips, whole, strict=True):
        rows = strip.rows[np.minimum(np.arange(longest), len(strip.rows) - 1)]
        # The default mode would go through a copy of the output, and the rows cannot be out of range.
        np.take(strip.values, rows, axis=0, out=place, mode="clip")
    return torch.from_numpy(whole)


def pad(sequences: Sequence[Tensor]) -> Tensor:
    """Stack sequences [T, …] of different lengths, each one's last entry repeated to the length of the longest."""
    longest = max(len(sequence) for sequence in sequences)
    return torch.stack([sequence[torch.arange(longest).clamp_(max=len(sequence) - 1)] for sequence in sequences])
