"""Streams of training batches. A batch holds groups: K videos of one action, or the images and the sound of a clip.

`stream[step]` is a pure function of (seed, step), of which each rank reads its share. So a run resumes at any step and
does not depend on the number of readers or of processes:

    prefetch(stream, range(start, stop), threads=4)                                   # inphase.data.prefetch
    DataLoader(stream, sampler=range(start, stop), batch_size=None, num_workers=4)    # processes, if codecs decode
"""

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, count, cycle, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from inphase.data.batches import (
    Augmentation,
    Epochs,
    Prepare,
    SampledFrames,
    Skip,
    ViewAugmentation,
    join_views,
    pad,
    read_sampled_frames,
    stack,
    try_reading,
)
from inphase.data.video import Read, Video, annotated_length
from inphase.media.sampling import Context, Frames, Rule, sample, usable
from inphase.progress import summarize
from inphase.storage.settings import Count

# A step reads its frames into memory: this many small images take 10 GB.
MAX_STEP_FRAMES = 250_000


@dataclass(frozen=True, eq=False)
class Group:
    """K sequences of one action, padded to the longest by repeating the last frame of each.

    With sound, one sequence of images is followed by one of sound windows: K is 2, and `frames`, `times`, `lengths` and
    `totals` have a row for each.
    """

    action: str
    ids: tuple[str, ...]  # K
    values: Tensor  # [K, T, C, …] C context frames per step; images [1, T, C, …] with sound
    frames: Tensor  # [K, T] int64, the number of the frame in its video, or of the sound window
    times: Tensor  # [K, T] float64 seconds
    lengths: Tensor  # [K] int64, on the CPU
    totals: Tensor  # [K] int64, the number of frames they were sampled from
    sound: Tensor | None = None  # [1, N, …] consecutive windows of equal length
    labels: Tensor | None = None  # [K, T] int64 phase, numbered across actions; −1 if unknown
    progress: Tensor | None = None  # [K, T, E] frames since each key event divided by the video's frames
    augmentations: tuple[Augmentation, ...] = ()  # K samples to apply on the device, or none

    @property
    def annotation(self) -> dict[str, Any]:
        """Return all that a loss needs beside the embeddings: the other fields of `losses.Sequences`."""
        return {name: getattr(self, name) for name in ("lengths", "frames", "totals", "labels", "progress")}

    def to(self, device: torch.device | str) -> "Group":
        """Copy the tensors to a device, pinned ones asynchronously.

        Lengths stay on the CPU: reading them from a GPU would wait for its queue.
        """
        return replace(self._each(lambda tensor: tensor.to(device, non_blocking=True)), lengths=self.lengths)

    def pin_memory(self) -> "Group":
        """Copy the tensors to pinned memory, from which a GPU copies asynchronously."""
        return self._each(Tensor.pin_memory)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Return the fields that are tensors, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Group":
        changed: dict[str, Any] = {name: change(value) for name, value in self.tensors.items()}
        return replace(self, **changed)


class Batch:
    """The groups of one step, and the skipped videos. Not a dataclass: Fabric would copy it field by field."""

    def __init__(self, step: int, groups: Iterable[Group], skipped: Iterable[Skip] = ()) -> None:
        """Set step, groups and skipped videos."""
        self.step, self.groups, self.skipped = step, tuple(groups), tuple(skipped)

    @property
    def ids(self) -> list[str]:
        """List the ids of the videos."""
        return [name for group in self.groups for name in group.ids]

    @property
    def frame_count(self) -> int:
        """Count the frames to embed."""
        return sum(group.values.shape[0] * group.values.shape[1] for group in self.groups)

    def to(self, device: torch.device | str) -> "Batch":
        """Copy the tensors to a device, pinned ones asynchronously."""
        return Batch(self.step, (group.to(device) for group in self.groups), self.skipped)

    def pin_memory(self) -> "Batch":
        """Copy the tensors to pinned memory, from which a GPU copies asynchronously."""
        return Batch(self.step, (group.pin_memory() for group in self.groups), self.skipped)


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Join the batches that are accumulated into one optimizer step."""
    groups = (group for batch in batches for group in batch.groups)
    return Batch(batches[-1].step, groups, (skip for batch in batches for skip in batch.skipped))


class Stream(Dataset[Batch]):
    """An endless sequence of batches, a group of each of `actions` actions; `rank` of `world` reads its share.

    The actions of a step are distinct if there are enough, and equally likely. An action of which too few videos can be
    read is replaced by the next one. A group is never divided: with one action per step, each process reads a group of
    its own.
    """

    def __init__(
        self, collection: Iterable[Video], *, actions: int, seed: int, rank: int, world: int, step_frames: int
    ) -> None:
        """Group the videos by action; raise if a step has too many frames."""
        if step_frames > MAX_STEP_FRAMES:
            raise ValueError(
                f"[batch] asks for {step_frames:,} frames a step, more than {MAX_STEP_FRAMES:,}: "
                "lower actions, videos or frames"
            )
        self._by_action: dict[str, list[Video]] = defaultdict(list)
        for video in collection:
            self._by_action[video.action].append(video)
        if not self._by_action:
            raise ValueError("no videos to sample from: check the data set with `inphase data check`")
        if actions < 1 or seed < 0 or not 0 <= rank < world:
            raise ValueError(
                f"need actions ≥ 1, seed ≥ 0 and 0 ≤ rank < world; got {actions=}, {seed=}, {rank=}, {world=}"
            )
        if actions == 1:
            actions = world
        if actions % world:
            raise ValueError(
                f"{actions} actions per step cannot be shared evenly by {world} processes: take a multiple"
            )
        self._actions = sorted(self._by_action)
        self._groups, self._rank, self._world, self._seed = actions, rank, world, seed
        self._failed: dict[str, str] = {}

    def __getitem__(self, step: int) -> Batch:
        """Read the batch of a step."""
        order = self._generator(step).permutation(len(self._actions))
        skipped: list[Skip] = []
        groups: list[Group] = []
        for slot in count(self._rank, self._world):
            if len(groups) == self._groups // self._world:
                break
            # In as many slots of a rank as there are actions, every action occurs once or never.
            if slot >= len(order) * self._world and not groups:
                reasons = summarize(f"{name}: {reason}" for name, reason in self._failed.items())
                raise RuntimeError(f"no action has enough videos that can be read ({reasons})")
            # Consecutive slots hold distinct actions, whichever rank they belong to.
            action = self._actions[order[slot % len(order)]]
            group = self._sample_group(action, step=step, slot=slot, skipped=skipped)
            groups.extend([group] if group is not None else [])
        return Batch(step, tuple(groups), tuple(skipped))

    def _sample_group(self, action: str, *, step: int, slot: int, skipped: list[Skip]) -> Group | None:
        """Read one group of an action; None if too few of its videos can be read."""
        raise NotImplementedError

    def _generator(self, step: int, *part: int) -> np.random.Generator:
        """Create the random generator of one part of one step, independent of all others."""
        if step < 0:
            raise IndexError(f"steps count from 0, got {step}")
        # numpy treats [1, 2] and [1, 2, 0] as the same seed, so the number of parts comes first.
        return np.random.default_rng([len(part), self._seed, step, *part])


class GroupStream(Stream):
    """A stream of groups of K = `videos` videos of one action, `frames` frames of each.

    The videos of a group are distinct; of an action with fewer than K, some occur again at other frames. `read` returns
    frames of a video, `prepare` changes them once per video, `frame_count` counts frames of videos without an annotated
    length. `choose` selects the frames that a loss needs, given the random sample: `loss.frames` is one; each of
    `views` equal parts of them is augmented by itself. With `epochs`
    every video is in one group of an epoch and is read by one process; a video that cannot be read is omitted from its
    group. `context` may depend on the video and its frame rate. `augmentation` samples how the frames of a video are
    changed on the device of the encoder: images travel as bytes, a quarter of floats.
    """

    def __init__(
        self,
        collection: Iterable[Video],
        *,
        read: Read,
        prepare: Prepare | None = None,
        augmentation: Callable[..., Augmentation] | None = None,
        frame_count: Callable[[Video], int] | None = None,
        actions: Count = 1,
        videos: Count = 4,
        rule: Rule = "random",
        frames: Count = 20,
        stride: Count = 1,
        choose: Callable[..., Frames] | None = None,
        views: int = 1,
        context: Context | Callable[[Video], Context] | None = None,
        epochs: bool = False,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Raise if an action has a single video: it cannot be aligned with another one."""
        step_frames = actions * videos * frames
        super().__init__(collection, actions=actions, seed=seed, rank=rank, world=world, step_frames=step_frames)
        lonely = [action for action, found in self._by_action.items() if len(found) < 2]
        if lonely or videos < 2:
            raise ValueError(
                f"alignment needs two videos of an action; {summarize(lonely)} has one"
                if lonely
                else f"alignment needs videos ≥ 2 of each action, got {videos}"
            )
        self._size = videos
        counts = [len(self._by_action[action]) for action in self._actions]
        self._epochs = Epochs(counts, size=videos, seed=seed) if epochs else None
        self._lengths: dict[str, int] = {}
        self._read, self._prepare, self._augmentation = read, prepare, augmentation
        self._frame_count = frame_count or annotated_length
        self._draw = partial(sample, rule=rule, stride=stride)
        self._count, self._choose, self._views = frames, choose, views
        self._context = Context() if context is None else context
        phases = [_count_phases(self._by_action[action]) for action in self._actions]
        self.phases = sum(phases)  # of all actions together
        self._first_phase = dict(zip(self._actions, accumulate([0, *phases]), strict=False))

    def __getitem__(self, step: int) -> Batch:
        """Read the batch of a step."""
        if self._epochs is None:
            return super().__getitem__(step)
        first = step * self._groups
        skipped: list[Skip] = []
        slots = range(first + self._rank, first + self._groups, self._world)
        return Batch(
            step, tuple(self._epoch_group(self._epochs, step, slot, skipped) for slot in slots), tuple(skipped)
        )

    def _epoch_group(self, epochs: Epochs, step: int, slot: int, skipped: list[Skip]) -> Group:
        """Read the group of a slot; if too few of its videos can be read, another one of this rank and epoch."""
        if step < 0:
            raise IndexError(f"steps count from 0, got {step}")
        for place in epochs.alternatives(slot, world=self._world):
            action, numbers = epochs.group(place)
            videos = [self._by_action[self._actions[action]][number] for number in numbers]
            sequences: list[SampledFrames] = []
            for attempt, video in enumerate(videos):
                rng = self._generator(step, place, attempt)
                sampled = try_reading(
                    video, partial(self._read_frames, video, rng), failed=self._failed, skipped=skipped
                )
                sequences.extend([sampled] if sampled is not None else [])
            if len(sequences) > 1:
                return _group_of(self._actions[action], sequences)
        reasons = summarize(f"{name}: {reason}" for name, reason in self._failed.items())
        raise RuntimeError(f"no group of this process in an epoch can be read ({reasons})")

    def _sample_group(self, action: str, *, step: int, slot: int, skipped: list[Skip]) -> Group | None:
        """Read the first K readable videos in a random order; None if there is only one."""
        videos = self._by_action[action]
        order = self._generator(step, slot).permutation(len(videos))
        sequences: list[SampledFrames] = []
        for attempt, index in enumerate(cycle(order)):
            if len(sequences) == self._size:
                break
            if attempt == len(videos) and len(sequences) < 2:
                return None
            video = videos[index]
            rng = self._generator(step, slot, attempt)
            sampled = try_reading(video, partial(self._read_frames, video, rng), failed=self._failed, skipped=skipped)
            sequences.extend([sampled] if sampled is not None else [])
        return _group_of(action, sequences)

    def _read_frames(self, video: Video, rng: np.random.Generator) -> SampledFrames:
        """Sample frames of one video and read them."""
        if video.id not in self._lengths:
            self._lengths[video.id] = self._frame_count(video)
        length, context = self._lengths[video.id], self._context
        if not isinstance(context, Context):
            context = context(video)
        kept = usable(length, context=context)
        if self._choose is None:
            frames = self._draw(len(kept), count=self._count, rng=rng)
        else:
            frames = self._choose(len(kept), count=self._count, rng=rng, draw=self._draw)
        views = [
            read_sampled_frames(
                video,
                kept.start + part,
                length=length,
                context=context,
                read=self._read,
                prepare=self._prepare,
                first_phase=self._first_phase[video.action],
                rng=rng,
            )
            for part in np.split(frames, self._views)
        ]
        sampled = views[0] if len(views) == 1 else join_views(views)
        if self._augmentation is None:
            return sampled
        samples = tuple(self._augmentation(rng=rng) for _ in views)
        return replace(sampled, augmentation=samples[0] if len(samples) == 1 else ViewAugmentation(samples))


def _group_of(action: str, sequences: list[SampledFrames]) -> Group:
    """Stack the sampled frames of several videos."""
    return Group(
        action=action,
        ids=tuple(each.id for each in sequences),
        values=stack(sequences),
        frames=pad([torch.from_numpy(each.frames) for each in sequences]),
        times=pad([torch.from_numpy(each.times) for each in sequences]),
        lengths=torch.tensor([len(each.frames) for each in sequences]),
        totals=torch.tensor([each.total for each in sequences]),
        labels=_stack_known([each.labels for each in sequences]),
        progress=_stack_known([each.progress for each in sequences]),
        augmentations=tuple(each.augmentation for each in sequences if each.augmentation is not None),
    )


def _count_phases(videos: Iterable[Video]) -> int:
    """Count the phases of an action: 1 + the greatest label."""
    known = [int(video.phases.max(initial=-1)) for video in videos if video.phases is not None]
    timed = [phase for video in videos for _, _, phase in video.intervals]
    return 1 + max([*known, *timed], default=-1)


def _stack_known(sequences: list[Any]) -> Tensor | None:
    """Stack labels; None if one sequence has none, or if their shapes differ."""
    if any(sequence is None for sequence in sequences) or len({sequence.shape[1:] for sequence in sequences}) > 1:
        return None
    return pad([torch.from_numpy(sequence) for sequence in sequences])


def prefetch(
    stream: Stream, steps: Iterable[int], *, threads: int = 2, ahead: int = 4, pin: bool = False
) -> Generator[Batch, None, None]:
    """Yield the batches of `steps` in their order while `threads` read those of the next `ahead` steps.

    Without threads a batch is read when it is needed. `pin` copies batches to pinned memory: `batch.to(device)` then
    returns at once.
    """
    if threads < 0 or ahead < 1:
        raise ValueError(f"need at least 0 threads and 1 step ahead, got {threads=}, {ahead=}")

    def read(step: int) -> Batch:
        return stream[step].pin_memory() if pin else stream[step]

    if not threads:
        return (read(step) for step in steps)
    return _in_order(read, iter(steps), threads=threads, ahead=ahead)


def _in_order(
    read: Callable[[int], Batch], steps: Iterator[int], *, threads: int, ahead: int
) -> Generator[Batch, None, None]:
    with ThreadPoolExecutor(threads) as pool:
        try:
            waiting = deque(pool.submit(read, step) for step in islice(steps, ahead))
            while waiting:
                batch = waiting.popleft().result()
                waiting.extend(pool.submit(read, step) for step in islice(steps, 1))
                yield batch
        finally:
            # A consumer that stops early does not wait for batches that it will not use.
            pool.shutdown(cancel_futures=True)
