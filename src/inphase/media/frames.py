"""Pictures on their own clock, from a video file or a folder of numbered pictures.

Second 0 is where a player starts: the earliest timestamp of any picture or sound of the file. Sound read by
`inphase.media.audio` is on the same clock. Frame `i` is the `i`-th in order of presentation, counting those that damage
made undecodable, so that labels made on the whole file stay true.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inphase.media.errors import DamagedMediaWarning, MediaError
from inphase.media.recording import Recording, describe_damage, open_recording
from inphase.media.selection import choose


@dataclass(frozen=True, eq=False)
class Clip:
    """Decoded pictures and the second at which each is shown.

    `frames` [T, H, W, 3] uint8 RGB; `times` [T] float64 seconds, strictly increasing, from presentation timestamps.
    """

    frames: NDArray[np.uint8]
    times: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Refuse frames and times that do not belong together."""
        if self.frames.ndim != 4 or self.frames.shape[-1] != 3 or self.frames.dtype != np.uint8:
            raise ValueError(f"frames must be [T, H, W, 3] uint8, got {list(self.frames.shape)} {self.frames.dtype}")
        if self.times.shape != self.frames.shape[:1]:
            raise ValueError(f"{len(self.frames)} frames need as many times, got shape {self.times.shape}")

    def __len__(self) -> int:
        """Count the frames."""
        return len(self.frames)


def read_clip(
    path: Path | str,
    *,
    indices: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
    span: tuple[float, float] | None = None,
    rate: float | None = None,
    size: tuple[int, int] | None = None,
    native_rate: float | None = None,
) -> Clip:
    """Read all frames of a recording, or those asked for.

    - `indices`: these frames, increasing.
    - `seconds`: the frames a player shows at these seconds, each frame once.
    - `span`: the frames whose time lies in [start, end).
    - `rate`: the frames nearest to a regular clock of that many a second, each once, so that a rate above the file's
      own gives the file's frames. Combines with `span`.
    - `size`: height and width to scale to, bilinear (smoothed where it shrinks), aspect not kept.
    - `native_rate`: frames a second of a folder of pictures, which has no clock of its own.

    A damaged file gives what can be decoded and a `DamagedMediaWarning`; one that gives nothing, a `MediaError`.
    """
    recording = open_recording(path, native_rate=native_rate)
    wanted = choose(recording.times, indices=indices, seconds=seconds, span=span, rate=rate)
    clip = gather(recording, wanted, size=size)
    warn_of_damage(recording)
    return clip


def read_spans(
    path: Path | str,
    spans: Sequence[tuple[float, float]],
    *,
    rate: float | None = None,
    size: tuple[int, int] | None = None,
    native_rate: float | None = None,
) -> Clip:
    """Read several spans of a recording, in the order given, as one clip whose clock starts at 0 and has no gaps."""
    clips = list(stream_spans(path, spans, rate=rate, size=size, native_rate=native_rate))
    return Clip(np.concatenate([clip.frames for clip in clips]), np.concatenate([clip.times for clip in clips]))


def stream_clips(
    path: Path | str,
    *,
    length: int = 64,
    span: tuple[float, float] | None = None,
    rate: float | None = None,
    size: tuple[int, int] | None = None,
    native_rate: float | None = None,
) -> Iterator[Clip]:
    """Yield a recording as consecutive clips of `length` frames, in memory for one of them, however long it is."""
    recording = open_recording(path, native_rate=native_rate)
    wanted = choose(recording.times, span=span, rate=rate)
    yield from in_clips(recording, wanted, size=size, length=length)
    warn_of_damage(recording)


def stream_spans(
    path: Path | str,
    spans: Sequence[tuple[float, float]],
    *,
    length: int = 64,
    rate: float | None = None,
    size: tuple[int, int] | None = None,
    native_rate: float | None = None,
) -> Iterator[Clip]:
    """Yield spans of a recording, in the order given, on one clock from 0, as clips of at most `length` frames."""
    recording = open_recording(path, native_rate=native_rate)
    yield from spliced(recording, spans, rate=rate, size=size, length=length)
    warn_of_damage(recording)


def spliced(
    recording: Recording,
    spans: Sequence[tuple[float, float]],
    *,
    rate: float | None,
    size: tuple[int, int] | None,
    length: int,
) -> Iterator[Clip]:
    """Decode spans one after the other into clips on one clock from 0."""
    if not spans:
        raise ValueError("spans is empty: give at least one (start, end) in seconds")
    begin = 0.0
    for start, end in spans:
        wanted = choose(recording.times, span=(start, end), rate=rate)
        for clip in in_clips(recording, wanted, size=size, length=length):
            yield Clip(clip.frames, clip.times - start + begin)
        begin += end - start


def gather(recording: Recording, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None) -> Clip:
    """Decode the wanted frames into one clip, allocated once."""
    length = len(recording.times) if wanted is None else len(wanted)
    clips = list(in_clips(recording, wanted, size=size, length=length))
    if len(clips) == 1:
        return clips[0]
    return Clip(np.concatenate([clip.frames for clip in clips]), np.concatenate([clip.times for clip in clips]))


def in_clips(
    recording: Recording, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None, length: int
) -> Iterator[Clip]:
    """Decode the wanted frames into clips of `length`."""
    if length < 1:
        raise ValueError(f"length must be at least 1 frame, got {length}")
    if size is not None and min(size) < 1:
        raise ValueError(f"size must be (height, width) in pixels, got {size}")
    frames, times, filled = np.empty((0, 0, 0, 3), np.uint8), np.empty(length), 0
    empty = True
    for time, picture in recording.pictures(wanted, size=size):
        if not filled:
            frames, times = np.empty((length, *picture.shape), np.uint8), np.empty(length)
        frames[filled], times[filled] = picture, time
        filled, empty = filled + 1, False
        if filled == length:
            yield Clip(frames, times)
            filled = 0
    if filled:
        yield Clip(frames[:filled], times[:filled])
    if empty:
        raise MediaError(f"{recording.path}: no frame asked for could be decoded; get an undamaged copy of the file")


def warn_of_damage(recording: Recording) -> None:
    """Warn once of what a decoded recording lost."""
    message = describe_damage(recording)
    if message:
        warnings.warn(message, DamagedMediaWarning, stacklevel=3)
