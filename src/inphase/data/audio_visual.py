"""Groups of one clip's pictures and its own sound: consecutive seconds of sound against randomly drawn frames."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.data.groups import Group, Stream
from inphase.data.reading import Read, annotated_measure
from inphase.data.sampling import Context, Rule, sample
from inphase.data.skips import Skip, try_reading
from inphase.data.strip import Prepare, pad, read_strip, stack
from inphase.data.video import Video, summarise

# A video and the second at which each stretch of sound begins, and how long each is → [N, …]: waveforms or spectra.
ReadSound = Callable[[Video, NDArray[np.float64], float], NDArray[Any] | Tensor]
Measure = Callable[[Video], tuple[int, float]]  # how many frames, how many seconds


class AudioVisualStream(Stream):
    """A stream of groups of one clip each: `count` of its frames, and all or `sounds` of its stretches of sound.

    The stretches are `seconds` long and follow each other without a gap from a drawn second on; the frames are drawn
    from the time they cover.
    """

    def __init__(
        self,
        videos: Iterable[Video],
        *,
        read: Read,
        read_sound: ReadSound,
        measure: Measure | None = None,
        prepare: Prepare | None = None,
        groups: int = 4,
        rule: Rule = "random",
        count: int = 20,
        sounds: int | None = None,
        seconds: float = 1.0,
        context: Context | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Refuse clips without sound."""
        super().__init__(videos, groups=groups, seed=seed, rank=rank, world=world)
        silent = [video.id for found in self._by_action.values() for video in found if not (video.sound or video.hear)]
        if silent:
            raise ValueError(f"audio-visual training needs clips with sound; {summarise(silent)} has none")
        if seconds <= 0 or (sounds is not None and sounds < 1):
            raise ValueError(f"need sounds ≥ 1 of more than 0 seconds, got {sounds=}, {seconds=}")
        self._read, self._read_sound, self._prepare = read, read_sound, prepare
        self._measure = measure or annotated_measure
        self._rule: Rule = rule
        self._count, self._sounds, self._seconds, self._context = count, sounds, seconds, context or Context()

    def _draw_group(self, action: str, *, step: int, slot: int, skipped: list[Skip]) -> Group | None:
        """Read the first clip of a sound, in a drawn order, that can be read."""
        videos = self._by_action[action]
        for attempt, index in enumerate(self._generator(step, slot).permutation(len(videos))):
            video, rng = videos[index], self._generator(step, slot, attempt)
            group = try_reading(video, partial(self._read_group, video, rng), failed=self._failed, skipped=skipped)
            if group is not None:
                return group
        return None

    def _read_group(self, video: Video, rng: np.random.Generator) -> Group:
        """Read one clip's frames and sounds of the same stretch of time."""
        length, duration = self._measure(video)
        fitting = int(duration / self._seconds + 1e-6)
        number = fitting if self._sounds is None else min(self._sounds, fitting)
        if number < 1:
            raise ValueError(f"{duration:.2f} s hold no sound of {self._seconds} s")
        begin = float(rng.uniform(0, max(0.0, duration - number * self._seconds)))
        starts = begin + self._seconds * np.arange(number, dtype=np.float64)
        sound = torch.as_tensor(self._read_sound(video, starts, self._seconds))
        if len(sound) != number:
            raise ValueError(f"{number} stretches of sound asked for, {len(sound)} read")
        rate = length / duration
        within = range(int(np.ceil(begin * rate)), min(length, int((begin + number * self._seconds) * rate + 1e-6)))
        drawn = sample(length, rule=self._rule, count=self._count, context=self._context, within=within, rng=rng)
        strip = read_strip(
            video, drawn, length=length, context=self._context, read=self._read, prepare=self._prepare, rng=rng
        )
        return Group(
            action=video.action,
            ids=(video.id, video.id),
            values=stack([strip]),
            frames=pad([torch.from_numpy(strip.frames), torch.arange(number)]),
            times=pad([torch.from_numpy(strip.times), torch.from_numpy(starts + self._seconds / 2)]),
            lengths=torch.tensor([len(strip.frames), number]),
            totals=torch.tensor([strip.total, number]),
            sound=sound[None],
        )
