"""Groups: the unit of training. K videos of one action, or the pictures and the sound of one clip.

A stream is indexed by the step and nothing else: `stream[step]` is a pure function of (seed, step), of which each rank
takes its share, so a run resumes at any step and depends neither on who reads for it nor on how many work on it:

    prefetch(stream, range(start, stop), threads=4)                                   # inphase.data.prefetch
    DataLoader(stream, sampler=range(start, stop), batch_size=None, num_workers=4)    # processes, where codecs decode
"""
# MERGED: Batches read ahead of their use, by threads.

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, count, cycle, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from inphase.data.augmentation import ImageAugmentation
from inphase.data.batches import Epochs, Prepare, SampledFrames, Skip, pad, read_sampled_frames, stack, try_reading
from inphase.data.reading import Read, annotated_length
from inphase.data.video import Video, summarise
from inphase.media.sampling import Context, Frames, Rule, sample, usable


@dataclass(frozen=True, eq=False)
class Group:
    """K sequences of one process, padded to the longest of them by repeating each one's last frame.

    With sound, one sequence of pictures is followed by one of sounds: K is 2, and `times` and `lengths` tell of both.
    """

    action: str
    ids: tuple[str, ...]  # K
    values: Tensor  # [K, T, C, …] C context frames a step; pictures [1, T, C, …] where there is sound
    frames: Tensor  # [K, T] int64, which frame of its video, which stretch of the sound
    times: Tensor  # [K, T] float64 seconds
    lengths: Tensor  # [K] int64, on the CPU
    totals: Tensor  # [K] int64, of how many frames they were chosen
    sound: Tensor | None = None  # [1, N, …] consecutive stretches of equal length
    labels: Tensor | None = None  # [K, T] int64 phase, numbered through over actions; −1 where unknown
    progress: Tensor | None = None  # [K, T, E] frames since each key event over the video's frames
    looks: tuple[
        ImageAugmentation, ...
    ] = ()  # K, what `apply_image_augmentations` is to make of the pictures; none where nothing was drawn

    def to(self, device: torch.device | str) -> "Group":
        """Copy the tensors to a device; what is pinned is fetched while the computation goes on.

        Lengths stay: who looks at them on a GPU waits for all that it was given to do before.
        """
        return replace(self._each(lambda tensor: tensor.to(device, non_blocking=True)), lengths=self.lengths)

    def pin_memory(self) -> "Group":
        """Copy the tensors to where a CUDA device fetches them by itself."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Group":
        changed: dict[str, Any] = {
            name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **changed)


@dataclass(frozen=True, eq=False)
class Batch:
    """What one step trains on, and the videos it had to do without."""

    step: int
    groups: tuple[Group, ...]
    skipped: tuple[Skip, ...] = ()

    def pin_memory(self) -> "Batch":
        """Copy the tensors to where a CUDA device fetches them by itself."""
        return replace(self, groups=tuple(group.pin_memory() for group in self.groups))


class Stream(Dataset[Batch]):
    """An endless sequence of batches, a group of each of `actions` actions; `rank` of `world` reads its share.

    The actions of a step are distinct as long as there are enough of them, and each is equally likely. One of which too
    few videos can be read gives way to the next.
    """

    def __init__(self, collection: Iterable[Video], *, actions: int, seed: int, rank: int, world: int) -> None:
        """Sort the videos by action."""
        self._by_action: dict[str, list[Video]] = defaultdict(list)
        for video in collection:
            self._by_action[video.action].append(video)
        if not self._by_action:
            raise ValueError("no videos to draw from: check the collection with `inphase data check`")
        if actions < 1 or seed < 0 or not 0 <= rank < world:
            raise ValueError(
                f"need actions ≥ 1, seed ≥ 0 and 0 ≤ rank < world; got {actions=}, {seed=}, {rank=}, {world=}"
            )
        if actions % world:
            raise ValueError(
                f"{actions} actions per step cannot be shared evenly by {world} processes: take a multiple"
            )
        self._actions = sorted(self._by_action)
        self._groups, self._rank, self._world, self._seed = actions, rank, world, seed
        self._failed: dict[str, str] = {}

    def __getitem__(self, step: int) -> Batch:
        """Read what `step` trains on."""
        order = self._generator(step).permutation(len(self._actions))
        skipped: list[Skip] = []
        groups: list[Group] = []
        for slot in count(self._rank, self._world):
            if len(groups) == self._groups // self._world:
                break
            # Every action comes up once in as many of any rank's slots as there are actions, or never.
            if slot >= len(order) * self._world and not groups:
                reasons = summarise(f"{name}: {reason}" for name, reason in self._failed.items())
                raise RuntimeError(f"no action has enough videos that can be read ({reasons})")
            # Slots that follow one another hold distinct actions, whoever they belong to.
            action = self._actions[order[slot % len(order)]]
            group = self._draw_group(action, step=step, slot=slot, skipped=skipped)
            groups.extend([group] if group is not None else [])
        return Batch(step, tuple(groups), tuple(skipped))

    def _draw_group(self, action: str, *, step: int, slot: int, skipped: list[Skip]) -> Group | None:
        """Read one group of an action, or nothing where too few of its videos can be read."""
        raise NotImplementedError

    def _generator(self, step: int, *part: int) -> np.random.Generator:
        """Make the chance of one part of one step: nothing else shares it."""
        if step < 0:
            raise IndexError(f"steps count from 0, got {step}")
        # numpy takes [1, 2] and [1, 2, 0] for the same seed, so the number of parts goes first.
        return np.random.default_rng([len(part), self._seed, step, *part])


class GroupStream(Stream):
    """A stream of groups of K = `videos` videos of one action, `frames` frames of each.

    The videos of a group are distinct; an action with fewer than K shows some of them again, at other frames. `read`
    gives a video's frames, `prepare` changes them once per video, `frame_count` measures videos whose annotation does
    not say their length. `choose` makes the frames a method wants out of the plain draw: `loss.frames` is one.
    With `epochs` every video is in one group of an epoch, and so is read by one process: one that cannot be read is
    left out of its group. `context` may depend on the video, whose rate it is. `look` draws how a video's pictures are
    to be changed, which `apply_image_augmentations` does where they are used: images travel as bytes, a quarter of
    floats.
    """

    def __init__(
        self,
        collection: Iterable[Video],
        *,
        read: Read,
        prepare: Prepare | None = None,
        look: Callable[..., ImageAugmentation] | None = None,
        frame_count: Callable[[Video], int] | None = None,
        actions: int = 1,
        videos: int = 4,
        rule: Rule = "random",
        frames: int = 20,
        stride: int = 1,
        choose: Callable[..., Frames] | None = None,
        context: Context | Callable[[Video], Context] | None = None,
        epochs: bool = False,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Refuse an action with a single video: there is nothing to align it with."""
        super().__init__(collection, actions=actions, seed=seed, rank=rank, world=world)
        lonely = [action for action, found in self._by_action.items() if len(found) < 2]
        if lonely or videos < 2:
            raise ValueError(
                f"alignment needs two videos of an action; {summarise(lonely)} has one"
                if lonely
                else f"alignment needs videos ≥ 2 of each action, got {videos}"
            )
        self._size = videos
        counts = [len(self._by_action[action]) for action in self._actions]
        self._epochs = Epochs(counts, size=videos, seed=seed) if epochs else None
        self._lengths: dict[str, int] = {}
        self._read, self._prepare, self._look = read, prepare, look
        self._frame_count = frame_count or annotated_length
        self._draw = partial(sample, rule=rule, stride=stride)
        self._count, self._choose = frames, choose
        self._context = Context() if context is None else context
        phases = [_count_phases(self._by_action[action]) for action in self._actions]
        self.phases = sum(phases)  # of all actions together
        self._first_phase = dict(zip(self._actions, accumulate([0, *phases]), strict=False))

    def __getitem__(self, step: int) -> Batch:
        """Read what `step` trains on."""
        if self._epochs is None:
            return super().__getitem__(step)
        first = step * self._groups
        skipped: list[Skip] = []
        slots = range(first + self._rank, first + self._groups, self._world)
        return Batch(
            step, tuple(self._epoch_group(self._epochs, step, slot, skipped) for slot in slots), tuple(skipped)
        )

    def _epoch_group(self, epochs: Epochs, step: int, slot: int, skipped: list[Skip]) -> Group:
        """Read the group of a slot, or another of this process in the same epoch where too little of it can be read."""
        if step < 0:
            raise IndexError(f"steps count from 0, got {step}")
        for place in epochs.instead(slot, world=self._world):
            action, numbers = epochs.group(place)
            videos = [self._by_action[self._actions[action]][number] for number in numbers]
            strips: list[SampledFrames] = []
            for attempt, video in enumerate(videos):
                rng = self._generator(step, place, attempt)
                strip = try_reading(video, partial(self._read_strip, video, rng), failed=self._failed, skipped=skipped)
                strips.extend([strip] if strip is not None else [])
            if len(strips) > 1:
                return _group_of(self._actions[action], strips)
        reasons = summarise(f"{name}: {reason}" for name, reason in self._failed.items())
        raise RuntimeError(f"no group of this process' share of an epoch can be read ({reasons})")

    def _draw_group(self, action: str, *, step: int, slot: int, skipped: list[Skip]) -> Group | None:
        """Read the first K videos, in a drawn order, that can be read; one alone is no group."""
        videos = self._by_action[action]
        order = self._generator(step, slot).permutation(len(videos))
        strips: list[SampledFrames] = []
        for attempt, index in enumerate(cycle(order)):
            if len(strips) == self._size:
                break
            if attempt == len(videos) and len(strips) < 2:
                return None
            video = videos[index]
            rng = self._generator(step, slot, attempt)
            strip = try_reading(video, partial(self._read_strip, video, rng), failed=self._failed, skipped=skipped)
            strips.extend([strip] if strip is not None else [])
        return _group_of(action, strips)

    def _read_strip(self, video: Video, rng: np.random.Generator) -> SampledFrames:
        """Read one video at some of its frames."""
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
        strip = read_sampled_frames(
            video,
            kept.start + frames,
            length=length,
            context=context,
            read=self._read,
            prepare=self._prepare,
            first_phase=self._first_phase[video.action],
            rng=rng,
        )
        return strip if self._look is None else replace(strip, look=self._look(rng=rng))


def _group_of(action: str, strips: list[SampledFrames]) -> Group:
    """Put sequences together."""
    return Group(
        action=action,
        ids=tuple(strip.id for strip in strips),
        values=stack(strips),
        frames=pad([torch.from_numpy(strip.frames) for strip in strips]),
        times=pad([torch.from_numpy(strip.times) for strip in strips]),
        lengths=torch.tensor([len(strip.frames) for strip in strips]),
        totals=torch.tensor([strip.total for strip in strips]),
        labels=_stack_known([strip.labels for strip in strips]),
        progress=_stack_known([strip.progress for strip in strips]),
        looks=tuple(strip.look for strip in strips if strip.look is not None),
    )


def _count_phases(videos: Iterable[Video]) -> int:
    """Count the phases of an action: the labels that occur are 0 … one less."""
    known = [int(video.phases.max(initial=-1)) for video in videos if video.phases is not None]
    timed = [phase for video in videos for _, _, phase in video.intervals]
    return 1 + max([*known, *timed], default=-1)


def _stack_known(sequences: list[Any]) -> Tensor | None:
    """Stack what is known of every sequence, or nothing where it is unknown of one."""
    if any(sequence is None for sequence in sequences) or len({sequence.shape[1:] for sequence in sequences}) > 1:
        return None
    return pad([torch.from_numpy(sequence) for sequence in sequences])


def prefetch(
    stream: Stream, steps: Iterable[int], *, threads: int = 2, ahead: int = 4, pin: bool = False
) -> Generator[Batch, None, None]:
    """Yield the batches of `steps` in their order while `threads` read those of the next `ahead` steps.

    Without threads a batch is read when it is asked for. `pin` puts them where a CUDA device fetches them by itself:
    `group.to(device)` then returns at once.
    """
    if threads < 0 or ahead < 1:
        raise ValueError(f"need no fewer than 0 threads and 1 step ahead, got {threads=}, {ahead=}")

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
            # Whoever stops early does not wait for what nobody will use.
            pool.shutdown(cancel_futures=True)
