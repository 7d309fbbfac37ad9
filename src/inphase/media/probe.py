"""Measure a recording before using it, and check whether browsers can play it."""

from dataclasses import dataclass
from pathlib import Path

from inphase.media.frames import open_recording
from inphase.storage.errors import MediaError

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
    from inphase.media.decode import clock_origin, decoded, open_container, orientation, video_stream

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
        sounds = {sound.codec_context.codec.canonical_name for sound in container.streams.audio}
        if not sounds <= PLAYABLE_SOUND[name]:
            return False
        first = next(decoded(container, stream), None)
        return first is not None and orientation(first) == (False, False, False)
