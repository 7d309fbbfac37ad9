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
from inphase.data.sampling import Context, Frames, context_frames, usable
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
    total: int  # frames they were chosen of
    labels: Frames | None = None  # [T] phase, −1 where unknown
    progress: NDArray[np.float32] | None = None  # [T, E] frames since each key event over the video's frames
    look: Look | None = None


def read_strip(
    video: Video,
    frames: Frames,
    *,
    length: int,
    context: Context,
    read: Read,
    prepare: Prepare | None = None,
    first_phase: int = 0,
    rng: np.random.Generator,
) -> Strip:
    """Read frames with their context and what is known of them; the action's phases count from `first_phase`."""
    wanted = context_frames(frames, length=length, context=context)
    distinct, places = np.unique(np.concatenate([wanted.ravel(), frames]), return_inverse=True)
    values, times = read(video, distinct)
    if len(values) != len(distinct) or len(times) != len(distinct):
        raise ValueError(f"{len(distinct)} frames asked for, {len(values)} read with {len(times)} times")
    ready = np.asarray(values if prepare is None else prepare(values, video, rng))
    seconds = times[places[wanted.size :]]
    return Strip(
        id=video.id,
        values=ready,
        rows=places[: wanted.size].reshape(wanted.shape),
        frames=frames,
        times=seconds,
        total=len(usable(length, context=context)),
        labels=_labels(video, frames, seconds, first=first_phase),
        progress=_progress(video, frames, length=length),
    )


def _labels(video: Video, frames: Frames, times: NDArray[np.float64], *, first: int) -> Frames | None:
    """Give the phase of each frame, where the video has phases."""
    if video.phases is None and not video.intervals:
        return None
    phases = video.phases[frames] if video.phases is not None else video.phases_at(times)
    return np.where(phases < 0, -1, first + phases)


def _progress(video: Video, frames: Frames, *, length: int) -> NDArray[np.float32] | None:
    """Give the frames since each key event over the video's length, where the video has events."""
    if not video.events:
        return None
    events = np.array(list(video.events.values()))
    return np.asarray((frames[:, None] - events) / length, dtype=np.float32)


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
