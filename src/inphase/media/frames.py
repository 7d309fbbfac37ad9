"""What a video file and a folder of pictures offer alike."""
# MERGED: Which frames a request means: indices, seconds, a span, a rate.
# MERGED: A folder of numbered pictures as a recording.
# MERGED: Pictures on their own clock, from a video file or a folder of numbered pictures.

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import av
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import ArrayLike, NDArray

from inphase.media.decode import Upright
from inphase.storage.errors import DamagedMediaWarning, MediaError


class Recording(Protocol):
    """What files and folders offer alike: the time of every frame at once, and the pictures one after the other."""

    path: Path
    times: NDArray[np.float64]  # [N] of every frame there is, or was before damage
    rate: float  # frames a second, on average
    has_sound: bool
    lost: int  # frames asked for so far that could not be decoded
    damaged: int  # frames given so far although some of their data was missing

    def pictures(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the time and the RGB picture of the `wanted` frames, all where None, in order of presentation."""
        ...


def open_recording(path: Path | str, *, native_rate: float | None = None) -> Recording:
    """Open a video file, or a folder of numbered pictures shown at `native_rate`."""
    # Both need the codec, which the machines that train on a frame store do without.
    from inphase.media.decode import VideoFile

    path = Path(path)
    if path.is_dir():
        return PictureFolder(path, native_rate=native_rate)
    if native_rate is not None:
        raise ValueError(f"native_rate={native_rate} is for folders of pictures; {path} has its own clock: drop it")
    return VideoFile(path)


def describe_damage(recording: Recording) -> str:
    """Say what a decoded recording lost; nothing where it lost nothing."""
    if not recording.lost and not recording.damaged:
        return ""
    return (
        f"{recording.path} is damaged: {recording.lost} of the frames asked for are lost and {recording.damaged} are "
        "shown with faults; get an undamaged copy if you need them"
    )


# Containers round timestamps, Matroska to a millisecond: a frame counts as shown from half of one before its time.
ROUNDING = 0.0005


def choose(
    times: NDArray[np.float64],
    *,
    indices: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
    span: tuple[float, float] | None = None,
    rate: float | None = None,
) -> NDArray[np.int64] | None:
    """Turn a request into positions among `times`; None stands for all of them."""
    if sum(request is not None for request in (indices, seconds)) + (span is not None or rate is not None) > 1:
        raise ValueError("give indices, or seconds, or span and rate: not two of these")
    if indices is not None:
        return _checked_indices(np.atleast_1d(np.asarray(indices)), len(times))
    if seconds is not None:
        asked = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        if asked.ndim != 1 or not len(asked):
            raise ValueError(f"seconds must be a list of at least one number, got {seconds!r}")
        end = times[-1] + (times[-1] - times[0]) / max(len(times) - 1, 1)
        outside = asked[~((asked >= 0) & (asked <= end + ROUNDING))]
        if len(outside):
            raise ValueError(f"second {outside[0]} lies outside the recording, which runs from 0 to {end:.3f}")
        return np.unique(shown_at(times, asked))
    inside = None if span is None else _inside(times, span)
    if rate is None:
        return inside
    return _at_rate(times if inside is None else times[inside], rate) + (0 if inside is None else inside[0])


def _checked_indices(indices: NDArray[np.generic], count: int) -> NDArray[np.int64]:
    if indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer) or not len(indices):
        raise ValueError(f"indices must be a list of at least one whole number, got {indices!r}")
    positions = indices.astype(np.int64)
    outside = positions[(positions < 0) | (positions >= count)]
    if len(outside):
        raise ValueError(f"frame {outside[0]} does not exist: the recording has frames 0 to {count - 1}")
    if np.any(np.diff(positions) <= 0):
        raise ValueError("indices must increase: pass np.unique(indices) and pick repeats from the clip")
    return positions


def _inside(times: NDArray[np.float64], span: tuple[float, float]) -> NDArray[np.int64]:
    start, end = span
    if not start < end:
        raise ValueError(f"span must run from an earlier to a later second, got {span}")
    inside = np.flatnonzero((times >= start - ROUNDING) & (times < end - ROUNDING))
    if not len(inside):
        raise ValueError(
            f"no frame lies in span {span}: the recording has frames from {times[0]:.3f} to {times[-1]:.3f} s"
        )
    return inside


def _at_rate(times: NDArray[np.float64], rate: float) -> NDArray[np.int64]:
    if not 0 < rate < np.inf:
        raise ValueError(f"rate must be a positive number of frames a second, got {rate}")
    ticks = times[0] + np.arange(int((times[-1] - times[0]) * rate + 1e-6) + 1) / rate
    after = np.clip(np.searchsorted(times, ticks), 1, max(len(times) - 1, 1))
    before = after - 1
    nearest = np.where(ticks - times[before] <= times[np.minimum(after, len(times) - 1)] - ticks, before, after)
    return np.unique(np.minimum(nearest, len(times) - 1)).astype(np.int64)


def shown_at(times: ArrayLike, seconds: ArrayLike) -> NDArray[np.int64]:
    """Find the frame a player shows at each second: the last that has begun, the first before any has."""
    begun = np.searchsorted(np.asarray(times), np.asarray(seconds, dtype=np.float64) + ROUNDING, side="right")
    return np.maximum(begun - 1, 0).astype(np.int64)


SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}


class PictureFolder:
    """A recording whose frames are the pictures of a folder, ordered by the last number in their names.

    The number is the clock: a picture missing from the sequence leaves a gap and counts as a lost frame.
    """

    def __init__(self, path: Path, *, native_rate: float | None) -> None:
        """List the pictures without reading them."""
        if native_rate is None or not native_rate > 0:
            raise ValueError(
                f"{path} is a folder of pictures without a clock: pass native_rate= (frames/s), got {native_rate}"
            )
        self.path = path
        self._files = numbered_pictures(path)
        self._first = min(self._files)
        self.times = np.arange(max(self._files) - self._first + 1) / native_rate
        self.rate = float(native_rate)
        self.has_sound = False
        self.lost = 0
        self.damaged = 0

    def pictures(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the time and the picture of the `wanted` frames, all where None."""
        upright = Upright(size=size)
        for position in range(len(self.times)) if wanted is None else wanted.tolist():
            frame = _decode(self._files.get(self._first + position))
            if frame is None:
                self.lost += 1
            else:
                yield float(self.times[position]), upright(frame)


def numbered_pictures(folder: Path) -> dict[int, Path]:
    """Map the numbers of a folder's pictures to their files."""
    pictures = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if not pictures:
        raise MediaError(
            f"{folder} holds no pictures ({', '.join(sorted(SUFFIXES))}): point to a folder of numbered frames"
        )
    numbered: dict[int, Path] = {}
    for file in pictures:
        numbers = re.findall(r"\d+", file.stem)
        if not numbers:
            raise MediaError(f"{file} has no number in its name: rename it, or move it out of the folder of frames")
        if int(numbers[-1]) in numbered:
            raise MediaError(
                f"{numbered[int(numbers[-1])]} and {file.name} are both number {int(numbers[-1])}: keep one"
            )
        numbered[int(numbers[-1])] = file
    return numbered


def _decode(file: Path | None) -> VideoFrame | None:
    if file is None:
        return None
    try:
        # Named by its path alone, `frame_%d.png` would be read as a pattern; the content decides the format.
        with file.open("rb") as opened, av.open(opened, "r") as container:
            return next(container.decode(video=0), None)
    except av.error.FFmpegError:
        return None


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
