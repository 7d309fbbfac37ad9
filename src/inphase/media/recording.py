"""Recordings: open a video file or a folder of numbered images, measure it, name it, check that browsers play it.

The codec is imported when a recording is opened: machines that train on a frame store do without it.
"""

import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from inphase.media.sampling import choose
from inphase.storage.errors import MediaError, MissingExtraError, describe_error

if TYPE_CHECKING:
    from av.video.frame import VideoFrame


class Recording(Protocol):
    """An opened video file or folder of images: the times of all frames, and the images one after the other."""

    path: Path
    times: NDArray[np.float64]  # [N] of every frame, lost ones included
    fps: float  # on average
    has_sound: bool
    lost: int  # requested frames that could not be decoded, so far
    damaged: int  # decoded frames with missing data, so far
    on_frame: "Callable[[float, VideoFrame], None] | None"  # receives every frame of a video file that is read

    def images(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None, halve_color: bool = False
    ) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the time and the RGB image of each `wanted` frame (None: all) in order of presentation.

        `halve_color` may scale colors to half of the resolution, for images that are encoded again.
        """
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


# Memory for scaled copies of the frames of a recording: two minutes at 30 frames/s and 112 pixels.
MAX_COPY_BYTES = 2**27


class ScaledCopies:
    """Copies of the frames of a recording at another size, made as another reader decodes them."""

    def __init__(self, recording: Recording, *, size: tuple[int, int], fps: float | None) -> None:
        """Copy the frames at `fps` that are decoded for another reader, if they take at most `MAX_COPY_BYTES`.

        Only frames of video files are copied: the images of a folder are read twice.
        """
        from inphase.media.decode import UprightConverter

        self.recording, self._convert = recording, UprightConverter(size=size)
        wanted = choose(recording.times, fps=fps)
        self._count = len(recording.times) if wanted is None else len(wanted)
        self._images: list[NDArray[np.uint8]] = []
        self._times: list[float] = []
        if self._count * size[0] * size[1] * 3 <= MAX_COPY_BYTES:
            recording.on_frame = self._add

    def _add(self, second: float, frame: "VideoFrame") -> None:
        if not self._times or second > self._times[-1]:  # not when the recording is decoded again
            self._times.append(second)
            self._images.append(self._convert(frame))

    def take(self) -> tuple[NDArray[np.uint8], NDArray[np.float64]] | None:
        """Return the copies [T, H, W, 3] and their times [T]; None if the recording is too long or was read in part."""
        if not self._times or len(self._times) + self.recording.lost != self._count:
            return None
        return np.stack(self._images), np.array(self._times)


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
        self.on_frame: Callable[[float, VideoFrame], None] | None = None

    def images(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None, halve_color: bool = False
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


# Codecs that Chrome, Firefox and Safari all play, by the format name of the container.
_MP4, _WEBM = "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"
PLAYABLE_VIDEO = {_MP4: {"h264"}, _WEBM: {"vp8", "vp9"}}
PLAYABLE_SOUND = {_MP4: {"aac", "mp3"}, _WEBM: {"opus", "vorbis"}}
PLAYABLE_SUFFIXES = {".mp4": _MP4, ".m4v": _MP4, ".webm": _WEBM}
PLAYABLE_PIXELS = {"yuv420p", "yuvj420p"}


@dataclass(frozen=True)
class Properties:
    """The measures of a recording: `size` is the (height, width) of its upright frames."""

    frames: int
    fps: float  # on average
    duration: float  # seconds from 0 to the end of the last frame
    size: tuple[int, int]
    has_sound: bool


def probe(path: Path | str, *, native_fps: float | None = None) -> Properties:
    """Count the frames of a recording and measure it, decoding one frame only.

    The packets are counted one by one, since headers may be wrong; frames with damaged packets count too.
    """
    recording = open_recording(path, native_fps=native_fps)
    first = next((image for _, image in recording.images(None)), None)
    if first is None:
        raise MediaError(f"{path}: not one frame can be decoded; get an undamaged copy of the file")
    duration = float(recording.times[-1]) + 1 / recording.fps
    height, width = first.shape[:2]
    return Properties(len(recording.times), recording.fps, duration, (height, width), recording.has_sound)


def is_playable(path: Path | str) -> bool:
    """Report whether browsers play a file as it is: container, codecs, 8-bit 4:2:0, upright, clock from 0."""
    from inphase.media.decode import clock_origin, decoded, has_decoder, open_container, orientation, video_stream

    path = Path(path)
    if path.is_dir() or path.suffix.lower() not in PLAYABLE_SUFFIXES:
        return False
    with open_container(path) as container:
        stream, name = video_stream(container, path), container.format.name
        if name != PLAYABLE_SUFFIXES[path.suffix.lower()]:
            return False
        if stream.codec_context.codec.canonical_name not in PLAYABLE_VIDEO[name]:
            return False
        if stream.codec_context.pix_fmt not in PLAYABLE_PIXELS or clock_origin(container) != 0:
            return False
        if not all(map(has_decoder, container.streams.audio)):
            return False
        sounds = {sound.codec_context.codec.canonical_name for sound in container.streams.audio}
        if not sounds <= PLAYABLE_SOUND[name]:
            return False
        first = next(decoded(container, stream), None)
        return first is not None and orientation(first) == (False, False, False)


@dataclass(frozen=True)
class NamedVideo:
    """A video file, the name to show for it, its properties, and whether browsers play it as it is.

    `span` is the part that counts, in seconds of the file: a repetition of a session. None: all of it.
    """

    path: Path
    name: str
    properties: Properties
    playable: bool
    span: tuple[float, float] | None = None

    @property
    def end(self) -> float:
        """Return the second of the file at which the video, or its part, ends."""
        return self.properties.duration if self.span is None else self.span[1]

    @property
    def duration(self) -> float:
        """Return the seconds that the video, or its part, lasts."""
        return self.end - (0.0 if self.span is None else self.span[0])

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Return name, file, and start and end of the span in seconds, for a table; both are empty without a span."""
        start, end = ("", "") if self.span is None else (f"{second:.3f}" for second in self.span)
        return self.name, str(self.path), start, end


def open_recordings(paths: Sequence[Path | str]) -> list[NamedVideo]:
    """Probe video files and name them by their stems, with as many parent folders as make the names unique."""
    files = [Path(path) for path in paths]
    for path in files:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name video files")
    return [open_named(path, name) for path, name in zip(files, names_of(files), strict=True)]


def open_named(path: Path, name: str) -> NamedVideo:
    """Probe a video file that is shown as `name`; raise MediaError for a photo."""
    properties = probe(path)
    if properties.frames < 2 and (mimetypes.guess_type(path.name)[0] or "").startswith("image/"):
        raise MediaError(f"{path} is a photo: name a video")
    return NamedVideo(path, name, properties, is_playable(path))


def names_of(paths: Sequence[Path]) -> list[str]:
    """Name files by their stems; add parent folders, or failing that a number, where two names are equal."""
    for parts in range(1, 1 + max((len(path.parts) for path in paths), default=0)):
        names = ["/".join((*path.parent.parts[len(path.parts) - parts :], path.stem)) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.stem} ({number})" for number, path in enumerate(paths, start=1)]


def open_usable(paths: Sequence[Path], *, required: Sequence[int] = ()) -> tuple[list[NamedVideo], dict[str, str]]:
    """Probe and name video files, like `open_recordings`; return the readable ones, and a reason for each other.

    Raise the error of a video whose number, from 0, is `required`, and where fewer than two can be read.
    """
    found, left_out = list[NamedVideo](), dict[str, str]()
    for number, (path, name) in enumerate(zip(paths, names_of(paths), strict=True)):
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name video files")
        try:
            found.append(open_named(path, name))
        except Exception as error:
            if number in required or isinstance(error, MissingExtraError):
                raise
            left_out[str(path)] = reason_of(path, error)
    require_two_usable(found, left_out)
    return found, left_out


def reason_of(path: Path, error: Exception) -> str:
    """Return a sentence on why a video cannot be used."""
    return str(error) if isinstance(error, (MediaError, ValueError)) else describe_error(path, error)


def require_two_usable(videos: Sequence[NamedVideo], left_out: Mapping[str, str]) -> None:
    """Raise, with the reasons, if fewer than two videos can be used."""
    if len(videos) < 2:
        reasons = "; ".join(left_out.values())
        raise ValueError(f"fewer than two videos can be used: {reasons}")


def require_reference(wish: str, paths: Sequence[Path], *, shortest: bool) -> tuple[str, list[int]]:
    """Return the requested reference by name, whichever videos are left out, and the number of that video, from 0.

    No video is required where the wish is "medoid" or, by default, the `shortest`.
    """
    names = names_of(paths)
    named = [k for k, (name, path) in enumerate(zip(names, paths, strict=True)) if wish in (name, path.name, str(path))]
    if not named and wish.isdecimal() and 1 <= int(wish) <= len(paths):
        named = [int(wish) - 1]
    if not wish and not shortest:
        named = [0]
    return (names[named[0]], named) if len(named) == 1 else (wish, [])


def find_reference(wish: str, recordings: Sequence[NamedVideo], *, shortest: bool) -> int | None:
    """Find the number of the reference before anything is embedded; None for the medoid, which needs embeddings.

    Without a wish it is the first recording, or the `shortest`.
    """
    named = [number for number, each in enumerate(recordings) if wish in (each.name, each.path.name, str(each.path))]
    if wish == "medoid":
        return None
    if not wish:
        return min(range(len(recordings)), key=lambda k: recordings[k].duration) if shortest else 0
    if len(named) == 1:  # before numbers, since a name may be a number: 0002.mp4
        return named[0]
    if wish.isdecimal() and 1 <= int(wish) <= len(recordings):
        return int(wish) - 1
    names = ", ".join(each.name for each in recordings)
    raise ValueError(f"reference {wish}: give a number from 1 to {len(recordings)}, medoid, or one of {names}")


def require_inside(recordings: Sequence[NamedVideo], reference: int) -> None:
    """Raise if the reference is longer than a video it is to be located in."""
    lengths = [each.properties.duration for each in recordings]
    if lengths[reference] > min(lengths):
        short = recordings[lengths.index(min(lengths))]
        raise ValueError(
            f"{recordings[reference].path} lasts {lengths[reference]:.1f} s and cannot be found inside {short.path}, "
            f"which lasts {min(lengths):.1f} s: make the short one the reference"
        )


# Recordings of at least this many frames per second are embedded at about `USUAL_FPS`, unless another rate is chosen.
HIGH_FPS, USUAL_FPS = 50.0, 30.0


def usual_fps(native: float) -> float | None:
    """Return a whole fraction, of about 30, of a high frame rate; None for others: every frame is embedded."""
    return native / round(native / USUAL_FPS) if native >= HIGH_FPS else None
