"""Open a file with the codec library, and the clock its pictures and sound share."""

from fractions import Fraction
from pathlib import Path

import av
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from inphase.media.errors import MediaError


def open_container(path: Path) -> InputContainer:
    """Open a file for reading, or say in words why it cannot be."""
    if not path.exists():
        raise MediaError(f"{path} does not exist: check the path")
    if path.is_file() and path.stat().st_size == 0:
        raise MediaError(f"{path} is empty (0 bytes): copy or download it again")
    try:
        return av.open(str(path), metadata_errors="replace")
    except PermissionError as error:
        raise MediaError(f"{path} may not be read: give yourself the right to, as `chmod u+r` does") from error
    except av.error.FFmpegError as error:
        raise MediaError(
            f"{path} cannot be opened ({error.strerror}): it is not a video or sound file, or it was cut short before "
            "its index was written; copy or download it again"
        ) from error


def video_stream(container: InputContainer, path: Path) -> VideoStream:
    """Find the pictures of a file; the cover of a sound file is none."""
    moving = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not moving:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise MediaError(f"{path} has no video stream (it holds {kinds}): give a file with moving pictures")
    return moving[0]


def clock_origin(container: InputContainer) -> Fraction:
    """Find second 0 of a file: its earliest picture or sound, in seconds of its own timestamps."""
    starts = [
        stream.start_time * stream.time_base
        for stream in (*container.streams.video, *container.streams.audio)
        if stream.start_time is not None and stream.time_base is not None
        if not stream.disposition & Disposition.attached_pic
    ]
    return min(starts, default=Fraction(0))
