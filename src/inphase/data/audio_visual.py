"""How the sound of a video is got: waveforms, and the spectra that an encoder of sounds takes."""
# MERGED: Groups of one clip's pictures and its own sound: consecutive seconds of sound against randomly drawn frames.

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

from inphase.data.augmentation import ImageAugmentation
from inphase.data.batches import Prepare, SampledFrames, Skip, pad, read_sampled_frames, stack, try_reading
from inphase.data.reading import Read, annotated_measure
from inphase.data.stream import Group, Stream
from inphase.data.video import Video, summarise
from inphase.media.audio import RATE, Sound, cut_sound, log_mel_windows, read_sound
from inphase.media.sampling import Context, Rule, sample


def read_video_sound(video: Video, *, rate: int = RATE) -> Sound:
    """Give the whole sound of a video: made, where the video is, or decoded."""
    if video.hear is not None:
        sound = video.hear()
        if sound.rate != rate:
            raise ValueError(f"{video.id} is heard at {sound.rate} samples a second, not {rate}: ask for that rate")
        return sound
    if video.sound is None or video.spans:
        raise ValueError(f"{video.id} has no sound of its own: sound is read from whole files")
    return read_sound(video.sound, rate=rate)


def read_sounds(video: Video, starts: NDArray[np.float64], seconds: float, *, rate: int = RATE) -> NDArray[np.float32]:
    """Read stretches of a video's sound that begin at `starts`, each `seconds` long: waveforms [N, samples]."""
    sound = read_video_sound(video, rate=rate)
    return np.stack([cut_sound(sound, start=start, end=start + seconds).samples for start in starts.tolist()])


class LogMelReader:
    """A `ReadSound` of the first 0.96 s of each stretch as log-mel spectra [N, 96, 64], `AudioEncoder`'s input.

    It keeps the sounds it heard last, within `room` bytes, for all threads together and for each process on its own:
    training neither decodes nor makes a sound at every step.
    """

    def __init__(self, *, room: int = 2**29) -> None:
        """Begin with nothing heard."""
        self._room = room
        sounds: LRUCache[Any, Sound] = LRUCache(maxsize=room, getsizeof=lambda sound: sound.samples.nbytes)
        self._read = cached(sounds, key=lambda video: video.id, lock=Lock())(read_video_sound)

    def __call__(self, video: Video, starts: NDArray[np.float64], seconds: float) -> NDArray[np.float32]:
        """Give the spectra of some stretches of a video's sound."""
        return log_mel_windows(self.sound(video), starts, seconds=seconds)

    def sound(self, video: Video) -> Sound:
        """Give the whole sound of a video, heard now or before."""
        return self._read(video)

    def __reduce__(self) -> tuple[Callable[[], "LogMelReader"], tuple[()]]:
        """Go to another process without the sounds."""
        return partial(LogMelReader, room=self._room), ()


# A video and the second at which each stretch of sound begins, and how long each is → [N, …]: waveforms or spectra.
ReadSound = Callable[[Video, NDArray[np.float64], float], NDArray[Any] | Tensor]
Measure = Callable[[Video], tuple[int, float]]  # how many frames, how many seconds


class AudioVisualStream(Stream):
    """A stream of groups: `frames` frames of a clip, and all or `sounds` of its stretches of sound.

    The stretches are `seconds` long and follow each other without a gap from a drawn second on; the frames are drawn
    from the time they cover. With several `clips` a group lays them end to end, each of another action as far as there
    are enough, `frames` frames of each: a sound is then told from those of other clips as well. `context` may depend on
    the video, whose rate it is. `prepare` changes each clip's frames, `look` the pictures of all of a group alike.
    """

    def __init__(
        self,
        collection: Iterable[Video],
        *,
        read: Read,
        read_sound: ReadSound,
        measure: Measure | None = None,
        prepare: Prepare | None = None,
        look: Callable[..., ImageAugmentation] | None = None,
        actions: int = 4,
        clips: int = 1,
        rule: Rule = "random",
        frames: int = 20,
        sounds: int | None = None,
        seconds: float = 1.0,
        context: Context | Callable[[Video], Context] | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Refuse clips without sound."""
        super().__init__(collection, actions=actions, seed=seed, rank=rank, world=world)
        silent = [video.id for found in self._by_action.values() for video in found if not (video.sound or video.hear)]
        if silent:
            raise ValueError(f"audio-visual training needs clips with sound; {summarise(silent)} has none")
        if seconds <= 0 or clips < 1 or (sounds is not None and sounds < 1):
            raise ValueError(
                f"need clips ≥ 1 and sounds ≥ 1 of more than 0 seconds, got {clips=}, {sounds=}, {seconds=}"
            )
        self._read, self._read_sound, self._prepare, self._look = read, read_sound, prepare, look
        self._measure = measure or annotated_measure
        self._measured: dict[str, tuple[int, float]] = {}
        self._rule: Rule = rule
        self._clips, self._count, self._sounds, self._seconds = clips, frames, sounds, seconds
        self._context = Context() if context is None else context

    def _draw_group(self, action: str, *, step: int, slot: int, skipped: list[Skip]) -> Group | None:
        """Read a clip of the action and, where a group has several, clips of other actions in a drawn order."""
        others = [other for other in self._actions if other != action]
        order = [others[index] for index in self._generator(step, slot, 0).permutation(len(others))]
        takes: list[_Take] = []
        for place in range(self._clips):
            name = [action, *order][place % len(self._actions)]
            take = self._read_first(name, step=step, slot=slot, place=place, skipped=skipped)
            if take is None and not place:
                return None
            takes.extend([take] if take is not None else [])
        look = () if self._look is None else (self._look(rng=self._generator(step, slot, 1)),)
        return replace(_join(takes, action=action, seconds=self._seconds), looks=look)

    def _read_first(self, action: str, *, step: int, slot: int, place: int, skipped: list[Skip]) -> "_Take | None":
        """Read the first clip of an action, in a drawn order, that can be read."""
        videos = self._by_action[action]
        for attempt, index in enumerate(self._generator(step, slot, place, 0).permutation(len(videos))):
            video, rng = videos[index], self._generator(step, slot, place, 1, attempt)
            take = try_reading(video, partial(self._read_take, video, rng), failed=self._failed, skipped=skipped)
            if take is not None:
                return take
        return None

    def _read_take(self, video: Video, rng: np.random.Generator) -> "_Take":
        """Read one clip's frames and sounds of the same stretch of time."""
        if video.id not in self._measured:
            self._measured[video.id] = self._measure(video)
        length, duration = self._measured[video.id]
        context = self._context if isinstance(self._context, Context) else self._context(video)
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
        drawn = sample(length, rule=self._rule, count=self._count, context=context, within=within, rng=rng)
        strip = read_sampled_frames(
            video, drawn, length=length, context=context, read=self._read, prepare=self._prepare, rng=rng
        )
        return _Take(strip, sound, starts, length, duration)


@dataclass(frozen=True, eq=False)
class _Take:
    """Frames and sounds of one stretch of a clip."""

    strip: SampledFrames
    sound: Tensor  # [N, …]
    starts: NDArray[np.float64]  # [N]
    length: int
    duration: float


def _join(takes: Sequence[_Take], *, action: str, seconds: float) -> Group:
    """Lay clips end to end: their pictures one sequence, their sounds another, on one clock."""
    begins = np.cumsum([0.0, *(take.duration for take in takes)])[:-1]
    firsts = np.cumsum([0, *(take.length for take in takes)])[:-1]
    frames = np.concatenate([take.strip.frames + first for take, first in zip(takes, firsts, strict=True)])
    shown = np.concatenate([take.strip.times + begin for take, begin in zip(takes, begins, strict=True)])
    heard = np.concatenate([take.starts + seconds / 2 + begin for take, begin in zip(takes, begins, strict=True)])
    number = len(heard)
    name = " + ".join(take.strip.id for take in takes)
    return Group(
        action=action,
        ids=(name, name),
        values=torch.cat([stack([take.strip]) for take in takes], dim=1),
        frames=pad([torch.from_numpy(frames), torch.arange(number)]),
        times=pad([torch.from_numpy(shown), torch.from_numpy(heard)]),
        lengths=torch.tensor([len(frames), number]),
        totals=torch.tensor([sum(take.strip.total for take in takes), number]),
        sound=torch.cat([take.sound for take in takes])[None],
    )
