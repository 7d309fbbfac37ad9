"""Audio-visual training: the sound of videos, and groups of a clip's images and its sound.

A group has consecutive windows of sound, and frames sampled at random from the time they cover.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from cachetools import LRUCache, cached
from numpy.typing import NDArray
from torch import Tensor

from inphase.data.batches import (
    Augmentation,
    Prepare,
    SampledFrames,
    Skip,
    pad,
    read_sampled_frames,
    stack,
    try_reading,
)
from inphase.data.stream import Group, Stream
from inphase.data.video import Read, Video, annotated_measure
from inphase.media.audio import RATE, Sound, log_mel_windows, read_sound
from inphase.media.sampling import Context, Rule, sample
from inphase.progress import summarize
from inphase.storage.settings import Count


def read_video_sound(video: Video, *, rate: int = RATE) -> Sound:
    """Return the whole sound of a video, synthesized or decoded."""
    if video.synthesize is not None:
        sound = video.synthesize()
        if sound.rate != rate:
            raise ValueError(f"{video.id} has {sound.rate} samples per second, not {rate}: request that rate")
        return sound
    if video.sound is None or video.spans:
        raise ValueError(f"{video.id} has no sound: sound is read from whole files")
    return read_sound(video.sound, rate=rate)


class LogMelReader:
    """A `ReadSound` of the first 0.96 s of each window as log-mel spectra [N, 96, 64], the input of `AudioEncoder`.

    An LRU cache of sounds, bounded by `max_bytes`, is shared by threads and separate for each process, so that training
    does not decode or synthesize at every step.
    """

    def __init__(self, *, max_bytes: int = 2**29) -> None:
        """Start with an empty cache."""
        self._max_bytes = max_bytes
        sounds: LRUCache[Any, Sound] = LRUCache(maxsize=max_bytes, getsizeof=lambda sound: sound.samples.nbytes)
        self._read = cached(sounds, key=lambda video: video.id, lock=Lock())(read_video_sound)

    def __call__(self, video: Video, starts: NDArray[np.float64], seconds: float) -> NDArray[np.float32]:
        """Return the spectra of some windows of a video's sound."""
        return log_mel_windows(self.sound(video), starts, seconds=seconds)

    def sound(self, video: Video) -> Sound:
        """Return the whole sound of a video, read or from the cache."""
        return self._read(video)

    def __reduce__(self) -> tuple[Callable[[], "LogMelReader"], tuple[()]]:
        """Pickle without the sounds."""
        return partial(LogMelReader, max_bytes=self._max_bytes), ()


# (video, starts of windows in seconds, their duration) → [N, …]: waveforms or spectra.
ReadSound = Callable[[Video, NDArray[np.float64], float], NDArray[Any] | Tensor]
Measure = Callable[[Video], tuple[int, float]]  # numbers of frames and of seconds


class AudioVisualStream(Stream):
    """A stream of groups: `frames` frames of a clip, and all or `sounds` of its sound windows.

    The windows are `seconds` long and follow each other without a gap from a random time on; the frames are sampled
    from the time they cover. With several `clips` a group joins them end to end, of different actions if there are
    enough, `frames` frames of each: a sound is then contrasted with those of other clips as well. `context` may depend
    on the video and its frame rate. `prepare` changes the frames of each clip, `augmentation` the images of a whole
    group.
    """

    def __init__(
        self,
        collection: Iterable[Video],
        *,
        read: Read,
        read_sound: ReadSound,
        measure: Measure | None = None,
        prepare: Prepare | None = None,
        augmentation: Callable[..., Augmentation] | None = None,
        actions: Count = 4,
        clips: Count = 1,
        rule: Rule = "random",
        frames: Count = 20,
        sounds: Count | None = None,
        seconds: float = 1.0,
        context: Context | Callable[[Video], Context] | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Raise if a clip has no sound."""
        step_frames = actions * clips * max(frames, sounds or 1)
        super().__init__(collection, actions=actions, seed=seed, rank=rank, world=world, step_frames=step_frames)
        everything = (video for found in self._by_action.values() for video in found)
        silent = [video.id for video in everything if not (video.sound or video.synthesize)]
        if silent:
            raise ValueError(f"audio-visual training needs clips with sound; {summarize(silent)} has none")
        if seconds <= 0 or clips < 1 or (sounds is not None and sounds < 1):
            raise ValueError(
                f"need clips ≥ 1 and sounds ≥ 1 of more than 0 seconds, got {clips=}, {sounds=}, {seconds=}"
            )
        self._read, self._read_sound, self._prepare, self._augmentation = read, read_sound, prepare, augmentation
        self._measure = measure or annotated_measure
        self._measured: dict[str, tuple[int, float]] = {}
        self._rule: Rule = rule
        self._clips, self._count, self._sounds, self._seconds = clips, frames, sounds, seconds
        self._context = Context() if context is None else context

    def _sample_group(self, action: str, *, step: int, slot: int, skipped: list[Skip]) -> Group | None:
        """Read a clip of the action and, if a group has several, clips of other actions in a random order."""
        others = [other for other in self._actions if other != action]
        order = [others[index] for index in self._generator(step, slot, 0).permutation(len(others))]
        samples: list[_ClipSample] = []
        for place in range(self._clips):
            name = [action, *order][place % len(self._actions)]
            clip = self._read_first(name, step=step, slot=slot, place=place, skipped=skipped)
            if clip is None and not place:
                return None
            samples.extend([clip] if clip is not None else [])
        group = _join(samples, action=action, seconds=self._seconds)
        if self._augmentation is None:
            return group
        return replace(group, augmentations=(self._augmentation(rng=self._generator(step, slot, 1)),))

    def _read_first(
        self, action: str, *, step: int, slot: int, place: int, skipped: list[Skip]
    ) -> "_ClipSample | None":
        """Read the first readable clip of an action in a random order."""
        videos = self._by_action[action]
        for attempt, index in enumerate(self._generator(step, slot, place, 0).permutation(len(videos))):
            video, rng = videos[index], self._generator(step, slot, place, 1, attempt)
            clip = try_reading(video, partial(self._read_clip, video, rng), failed=self._failed, skipped=skipped)
            if clip is not None:
                return clip
        return None

    def _read_clip(self, video: Video, rng: np.random.Generator) -> "_ClipSample":
        """Read frames and sound windows of one clip from the same time."""
        if video.id not in self._measured:
            self._measured[video.id] = self._measure(video)
        length, duration = self._measured[video.id]
        context = self._context if isinstance(self._context, Context) else self._context(video)
        fitting = int(duration / self._seconds + 1e-6)
        number = fitting if self._sounds is None else min(self._sounds, fitting)
        if number < 1:
            raise ValueError(f"{duration:.2f} s are too short for a sound window of {self._seconds} s")
        begin = float(rng.uniform(0, max(0.0, duration - number * self._seconds)))
        starts = begin + self._seconds * np.arange(number, dtype=np.float64)
        sound = torch.as_tensor(self._read_sound(video, starts, self._seconds))
        if len(sound) != number:
            raise ValueError(f"{number} sound windows requested, {len(sound)} read")
        rate = length / duration
        within = range(int(np.ceil(begin * rate)), min(length, int((begin + number * self._seconds) * rate + 1e-6)))
        drawn = sample(length, rule=self._rule, count=self._count, context=context, within=within, rng=rng)
        sampled = read_sampled_frames(
            video, drawn, length=length, context=context, read=self._read, prepare=self._prepare, rng=rng
        )
        return _ClipSample(sampled, sound, starts, length, duration)


@dataclass(frozen=True, eq=False)
class _ClipSample:
    """Frames and sound windows of one clip."""

    sampled: SampledFrames
    sound: Tensor  # [N, …]
    starts: NDArray[np.float64]  # [N]
    length: int
    duration: float


def _join(samples: Sequence[_ClipSample], *, action: str, seconds: float) -> Group:
    """Join clips end to end: their images form one sequence, their sounds another, on one time axis."""
    begins = np.cumsum([0.0, *(each.duration for each in samples)])[:-1]
    firsts = np.cumsum([0, *(each.length for each in samples)])[:-1]
    frames = np.concatenate([each.sampled.frames + first for each, first in zip(samples, firsts, strict=True)])
    shown = np.concatenate([each.sampled.times + begin for each, begin in zip(samples, begins, strict=True)])
    centers = np.concatenate([each.starts + seconds / 2 + begin for each, begin in zip(samples, begins, strict=True)])
    number = len(centers)
    name = " + ".join(each.sampled.id for each in samples)
    return Group(
        action=action,
        ids=(name, name),
        values=torch.cat([stack([each.sampled]) for each in samples], dim=1),
        frames=pad([torch.from_numpy(frames), torch.arange(number)]),
        times=pad([torch.from_numpy(shown), torch.from_numpy(centers)]),
        lengths=torch.tensor([len(frames), number]),
        totals=torch.tensor([sum(each.sampled.total for each in samples), number]),
        sound=torch.cat([each.sound for each in samples])[None],
    )
