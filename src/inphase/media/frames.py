"""Read frames and their times from a recording: a video file or a folder of numbered images.

A request names frames by index, by second, or by span and frame rate; `choose` turns it into positions. The codec is
imported when a recording is opened: machines that train on a frame store do without it.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inphase.storage.errors import DamagedMediaWarning, MediaError

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

# Containers round timestamps, Matroska to a millisecond: a frame counts as shown from half of one before its time.
ROUNDING = 0.0005


class Recording(Protocol):
    """An opened video file or folder of images: the times of all frames, and the images one after the other."""

    path: Path
    times: NDArray[np.float64]  # [N] of every frame, lost ones included
    fps: float  # on average
    has_sound: bool
    lost: int  # requested frames that could not be decoded, so far
    damaged: int  # decoded frames with missing data, so far

    def images(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the time and the RGB image of each `wanted` frame (None: all) in order of presentation."""
        ...


def open_recording(path: Path | str, *, native_fps: float | None = None) -> Recording:
    """Open a video file, or a folder of numbered images recorded at `native_fps`."""
    from inphase.media.decode import VideoFile

    path = Path(path)
    if path.is_dir():
        return ImageFolder(path, native_fps=native_fps)
    if native_fps is not None:
        raise ValueError(f"native_fps={native_fps} is for folders of images; {path} has its own clock: drop it")
    return VideoFile(path)


def describe_damage(recording: Recording) -> str:
    """Describe the frames that a decoded recording lost; empty if it lost none."""
    if not recording.lost and not recording.damaged:
        return ""
    return (
        f"{recording.path} is damaged: {recording.lost} of the requested frames are lost and {recording.damaged} have "
        "faults; get an undamaged copy if you need them"
    )


def choose(
    times: NDArray[np.float64],
    *,
    indices: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
    span: tuple[float, float] | None = None,
    fps: float | None = None,
) -> NDArray[np.int64] | None:
    """Turn a request into positions among `times`; None stands for all of them."""
    if sum(request is not None for request in (indices, seconds)) + (span is not None or fps is not None) > 1:
        raise ValueError("give indices, or seconds, or span and fps: not two of these")
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
    if fps is None:
        return inside
    return _at_fps(times if inside is None else times[inside], fps) + (0 if inside is None else inside[0])


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


def _at_fps(times: NDArray[np.float64], fps: float) -> NDArray[np.int64]:
    if not 0 < fps < np.inf:
        raise ValueError(f"fps must be a positive number of frames per second, got {fps}")
    ticks = times[0] + np.arange(int((times[-1] - times[0]) * fps + 1e-6) + 1) / fps
    after = np.clip(np.searchsorted(times, ticks), 1, max(len(times) - 1, 1))
    before = after - 1
    nearest = np.where(ticks - times[before] <= times[np.minimum(after, len(times) - 1)] - ticks, before, after)
    return np.unique(np.minimum(nearest, len(times) - 1)).astype(np.int64)


def shown_at(times: ArrayLike, seconds: ArrayLike) -> NDArray[np.int64]:
    """Find the frame a player shows at each second: the last one that has begun, or the first."""
    begun = np.searchsorted(np.asarray(times), np.asarray(seconds, dtype=np.float64) + ROUNDING, side="right")
    return np.maximum(begun - 1, 0).astype(np.int64)


FRAME_SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}


class ImageFolder:
    """A recording whose frames are the images of a folder, ordered by the last number in their names.

    The number is the clock: an image missing from the sequence leaves a gap and counts as a lost frame.
    """

    def __init__(self, path: Path, *, native_fps: float | None) -> None:
        """List the images without reading them."""
        if native_fps is None or not native_fps > 0:
            raise ValueError(
                f"{path} is a folder of images without a clock: pass native_fps= (frames/s), got {native_fps}"
            )
        self.path = path
        self._files = numbered_images(path)
        self._first = min(self._files)
        self.times = np.arange(max(self._files) - self._first + 1) / native_fps
        self.fps = float(native_fps)
        self.has_sound = False
        self.lost = 0
        self.damaged = 0

    def images(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the time and the image of each `wanted` frame (None: all)."""
        from inphase.media.decode import UprightConverter

        convert = UprightConverter(size=size)
        for position in range(len(self.times)) if wanted is None else wanted.tolist():
            frame = _decode(self._files.get(self._first + position))
            if frame is None:
                self.lost += 1
            else:
                yield float(self.times[position]), convert(frame)


def numbered_images(folder: Path) -> dict[int, Path]:
    """Map the numbers of a folder's images to their files."""
    images = sorted(file for file in folder.iterdir() if file.suffix.lower() in FRAME_SUFFIXES)
    if not images:
        raise MediaError(
            f"{folder} holds no images ({', '.join(sorted(FRAME_SUFFIXES))}): point to a folder of numbered frames"
        )
    numbered: dict[int, Path] = {}
    for file in images:
        numbers = re.findall(r"\d+", file.stem)
        if not numbers:
            raise MediaError(f"{file} has no number in its name: rename it, or move it out of the folder of frames")
        if int(numbers[-1]) in numbered:
            raise MediaError(
                f"{numbered[int(numbers[-1])]} and {file.name} are both number {int(numbers[-1])}: keep one"
            )
        numbered[int(numbers[-1])] = file
    return numbered


def _decode(file: Path | None) -> "VideoFrame | None":
    import av

    if file is None:
        return None
    try:
        # The codec would take the path `frame_%d.png` for a pattern; given a stream, it detects the format.
        with file.open("rb") as opened, av.open(opened, "r") as container:
            return next(container.decode(video=0), None)
    except av.error.FFmpegError:
        return None


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
    recording: Recording, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None, length: int
) -> Iterator[Clip]:
    """Decode the wanted frames into clips of `length`."""
    if length < 1:
        raise ValueError(f"length must be at least 1 frame, got {length}")
    if size is not None and min(size) < 1:
        raise ValueError(f"size must be (height, width) in pixels, got {size}")
    frames, times, filled = np.empty((0, 0, 0, 3), np.uint8), np.empty(length), 0
    empty = True
    for time, image in recording.images(wanted, size=size):
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


def warn_of_damage(recording: Recording) -> None:
    """Warn once if a decoded recording lost frames."""
    message = describe_damage(recording)
    if message:
        warnings.warn(message, DamagedMediaWarning, stacklevel=3)
