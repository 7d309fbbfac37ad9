"""Strips: some frames of one video with their context, and how several become one tensor."""
# MERGED: Epochs: every video in one group, so that of several processes one reads it.
# MERGED: One bad video never stops a run: it is skipped, reported once, and counted.

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.data.augmentation import ImageAugmentation
from inphase.data.reading import Read
from inphase.data.video import Video, summarise
from inphase.media.sampling import Context, Frames, context_frames, usable

Prepare = Callable[[NDArray[Any], Video, np.random.Generator], NDArray[Any] | Tensor]  # once a video, before context


@dataclass(frozen=True, eq=False)
class SampledFrames:
    """Some frames of one video and their context, each distinct one once."""

    id: str
    values: NDArray[Any]  # [D, …]
    rows: Frames  # [T, C] which of the values each context is
    frames: Frames  # [T]
    times: NDArray[np.float64]  # [T]
    total: int  # frames they were chosen of
    labels: Frames | None = None  # [T] phase, −1 where unknown
    progress: NDArray[np.float32] | None = None  # [T, E] frames since each key event over the video's frames
    look: ImageAugmentation | None = None


def read_sampled_frames(
    video: Video,
    frames: Frames,
    *,
    length: int,
    context: Context,
    read: Read,
    prepare: Prepare | None = None,
    first_phase: int = 0,
    rng: np.random.Generator,
) -> SampledFrames:
    """Read frames with their context and what is known of them; the action's phases count from `first_phase`."""
    wanted = context_frames(frames, length=length, context=context)
    distinct, places = np.unique(np.concatenate([wanted.ravel(), frames]), return_inverse=True)
    values, times = read(video, distinct)
    if len(values) != len(distinct) or len(times) != len(distinct):
        raise ValueError(f"{len(distinct)} frames asked for, {len(values)} read with {len(times)} times")
    ready = np.asarray(values if prepare is None else prepare(values, video, rng))
    seconds = times[places[wanted.size :]]
    return SampledFrames(
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


def stack(strips: Sequence[SampledFrames]) -> Tensor:
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


Planned = tuple[int, NDArray[np.int64]]  # the action, and which of its videos


class Epochs:
    """The groups of every epoch, for actions of which the numbers of videos are `counts`."""

    def __init__(self, counts: Sequence[int], *, size: int, seed: int) -> None:
        """Count the groups of an epoch."""
        self._counts, self._seed = list(counts), seed
        # A last group of one video would be none: it goes with another, which for K = 2 makes one of three.
        self._cuts = [max(1, min(-(-count // size), count // 2)) for count in self._counts]
        self.groups = sum(self._cuts)
        self._plan = lru_cache(maxsize=2)(self._make_plan)  # at a boundary two are in use

    def group(self, slot: int) -> Planned:
        """Give the group of a slot."""
        epoch, place = divmod(slot, self.groups)
        return self._plan(epoch)[place]

    def instead(self, slot: int, *, world: int) -> Iterator[int]:
        """Name the slots of the same epoch that belong to the same of `world` processes, this one first.

        They stand in for a group that cannot be read: no other process' videos do.
        """
        epoch = slot // self.groups
        begin, end = epoch * self.groups, (epoch + 1) * self.groups
        yield from range(slot, end, world)
        yield from range(begin + (slot - begin) % world, slot, world)

    def _make_plan(self, epoch: int) -> list[Planned]:
        rng = np.random.default_rng([7, self._seed, epoch])  # no stream draws from a seed of this form
        planned: list[Planned] = []
        places: list[float] = []
        for action, (count, cuts) in enumerate(zip(self._counts, self._cuts, strict=True)):
            parts = np.array_split(rng.permutation(count), cuts)
            planned += [(action, part) for part in parts]
            places += ((np.arange(cuts) + rng.random()) / cuts).tolist()
        return [planned[k] for k in np.argsort(places, kind="stable")]


Result = TypeVar("Result")


@dataclass(frozen=True)
class Skip:
    """A video that could not be read, and why."""

    id: str
    reason: str


class SkipLog:
    """A count of the videos that could not be read, kept where the batches arrive."""

    def __init__(self) -> None:
        """Begin with none."""
        self.counts: Counter[str] = Counter()

    def note(self, skipped: Iterable[Skip]) -> list[str]:
        """Count a batch's skips and give a message for each video that is seen to fail for the first time."""
        listed = list(skipped)
        new = {skip.id: skip.reason for skip in listed if skip.id not in self.counts}
        self.counts.update(skip.id for skip in listed)
        return [f"{name} cannot be read and is skipped: {reason}" for name, reason in new.items()]

    def summary(self) -> str:
        """Say at the end what was missing."""
        if not self.counts:
            return "every video could be read"
        return (
            f"{len(self.counts)} videos could not be read and were skipped {self.counts.total()} times: "
            + summarise(sorted(self.counts))
        )


def try_reading(
    video: Video, work: Callable[[], Result], *, failed: dict[str, str], skipped: list[Skip]
) -> Result | None:
    """Do something with a video, or note why that is impossible; what has failed once is not tried again."""
    if video.id not in failed:
        try:
            return work()
        # Whatever a codec or a file system says about one video must not end a run of days.
        except Exception as error:
            failed[video.id] = f"{type(error).__name__}: {error}"
    skipped.append(Skip(video.id, failed[video.id]))
    return None
