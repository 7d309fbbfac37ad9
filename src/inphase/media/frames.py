"""Read frames and their times from a recording: a video file or a folder of numbered images.

A request names frames by index, by second, or by span and frame rate; `choose` turns it into positions. The codec is
imported when a recording is opened: machines that train on a frame store do without it.
"""

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inphase.media.recording import Recording, describe_damage, open_recording
from inphase.media.sampling import choose
from inphase.storage.errors import DamagedMediaWarning, MediaError


@dataclass(frozen=True, eq=False)
class Clip:
    """Decoded frames and the second at which each is shown.

    `frames` [T, H, W, 3] uint8 RGB; `times` [T] float64 seconds, strictly increasing, from presentation timestamps.
    """

    frames: NDArray[np.uint8]
    times: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Raise if frames and times do not match."""
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
    fps: float | None = None,
    size: tuple[int, int] | None = None,
    native_fps: float | None = None,
) -> Clip:
    """Read all frames of a recording, or the requested ones.

    - `indices`: these frames, increasing.
    - `seconds`: the frames a player shows at these seconds, each frame once.
    - `span`: the frames whose time lies in [start, end).
    - `fps`: the frames nearest to a regular clock of `fps` ticks per second, each once; a value above the file's own
      frame rate gives all frames. Combines with `span`.
    - `size`: height and width to scale to, bilinear with smoothing, aspect not kept.
    - `native_fps`: the frame rate of a folder of images, which has no clock of its own.

    A damaged file gives its decodable frames and a `DamagedMediaWarning`; one without any, a `MediaError`.
    """
    recording = open_recording(path, native_fps=native_fps)
    wanted = choose(recording.times, indices=indices, seconds=seconds, span=span, fps=fps)
    clip = gather(recording, wanted, size=size)
    warn_of_damage(recording)
    return clip


def read_spans(
    path: Path | str,
    spans: Sequence[tuple[float, float]],
    *,
    fps: float | None = None,
    size: tuple[int, int] | None = None,
    native_fps: float | None = None,
) -> Clip:
    """Read several spans of a recording, in the order given, as one clip whose clock starts at 0 and has no gaps."""
    clips = list(stream_spans(path, spans, fps=fps, size=size, native_fps=native_fps))
    return Clip(np.concatenate([clip.frames for clip in clips]), np.concatenate([clip.times for clip in clips]))


def stream_clips(
    path: Path | str,
    *,
    length: int = 64,
    span: tuple[float, float] | None = None,
    fps: float | None = None,
    size: tuple[int, int] | None = None,
    native_fps: float | None = None,
) -> Iterator[Clip]:
    """Yield a recording as consecutive clips of `length` frames; memory for one clip, whatever the duration."""
    recording = open_recording(path, native_fps=native_fps)
    wanted = choose(recording.times, span=span, fps=fps)
    yield from in_clips(recording, wanted, size=size, length=length)
    warn_of_damage(recording)


def stream_spans(
    path: Path | str,
    spans: Sequence[tuple[float, float]],
    *,
    length: int = 64,
    fps: float | None = None,
    size: tuple[int, int] | None = None,
    native_fps: float | None = None,
) -> Iterator[Clip]:
    """Yield spans of a recording, in the order given, on one clock from 0, as clips of at most `length` frames."""
    recording = open_recording(path, native_fps=native_fps)
    yield from spliced(recording, spans, fps=fps, size=size, length=length)
    warn_of_damage(recording)


def spliced(
    recording: Recording,
    spans: Sequence[tuple[float, float]],
    *,
    fps: float | None,
    size: tuple[int, int] | None,
    length: int,
) -> Iterator[Clip]:
    """Decode spans one after the other into clips on one clock from 0."""
    if not spans:
        raise ValueError("spans is empty: give at least one (start, end) in seconds")
    begin = 0.0
    for start, end in spans:
        wanted = choose(recording.times, span=(start, end), fps=fps)
        for clip in in_clips(recording, wanted, size=size, length=length):
            yield Clip(clip.frames, clip.times - start + begin)
        begin += end - start


def gather(recording: Recording, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None) -> Clip:
    """Decode the wanted frames into one clip."""
    length = len(recording.times) if wanted is None else len(wanted)
    clips = list(in_clips(recording, wanted, size=size, length=length))
    if len(clips) == 1:
        return clips[0]
    return Clip(np.concatenate([clip.frames for clip in clips]), np.concatenate([clip.times for clip in clips]))


def in_clips(
    recording: Recording,
    wanted: NDArray[np.int64] | None,
    *,
    size: tuple[int, int] | None,
    length: int,
    single_bytes: float = inf,
) -> Iterator[Clip]:
    """Decode the wanted frames into clips of `length`; images of `single_bytes` come one by one, without a copy."""
    if length < 1:
        raise ValueError(f"length must be at least 1 frame, got {length}")
    if size is not None and min(size) < 1:
        raise ValueError(f"size must be (height, width) in pixels, got {size}")
    frames, times, filled = np.empty((0, 0, 0, 3), np.uint8), np.empty(length), 0
    empty = True
    for time, image in recording.images(wanted, size=size):
        if image.nbytes >= single_bytes:
            empty = False
            yield Clip(image[None], np.array([time]))
            continue
        if not filled:
            frames, times = np.empty((length, *image.shape), np.uint8), np.empty(length)
        frames[filled], times[filled] = image, time
        filled, empty = filled + 1, False
        if filled == length:
            yield Clip(frames, times)
            filled = 0
    if filled:
        yield Clip(frames[:filled], times[:filled])
    if empty:
        raise MediaError(f"{recording.path}: no requested frame could be decoded; get an undamaged copy of the file")


def decode_ahead(clips: Iterator[Clip], *, number: int) -> Iterator[Clip]:
    """Decode up to `number` clips ahead in a thread, so that codec and network work at the same time."""
    with ThreadPoolExecutor(1) as codec:
        waiting = deque(codec.submit(next, clips, None) for _ in range(number))
        while (clip := waiting.popleft().result()) is not None:
            waiting.append(codec.submit(next, clips, None))
            yield clip


def warn_of_damage(recording: Recording) -> None:
    """Warn once if a decoded recording lost frames."""
    message = describe_damage(recording)
    if message:
        warnings.warn(message, DamagedMediaWarning, stacklevel=3)
