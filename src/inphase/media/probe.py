"""What a recording is, before any of it is used."""
# MERGED: Files that every browser plays: those that are such already, and the rest encoded anew.

from dataclasses import dataclass
from pathlib import Path

from inphase.media.frames import open_recording
from inphase.storage.errors import MediaError


@dataclass(frozen=True)
class Properties:
    """What a recording announces of itself: `size` is the (height, width) of its upright pictures."""

    frames: int
    rate: float  # frames a second, on average
    duration: float  # seconds from 0 to the end of the last frame
    size: tuple[int, int]
    has_sound: bool


def probe(path: Path | str, *, native_rate: float | None = None) -> Properties:
    """Count the frames of a recording and measure it, decoding one frame only.

    The packets are counted one by one, since headers lie or say nothing; frames whose packets are damaged still count.
    """
    recording = open_recording(path, native_rate=native_rate)
    first = next((picture for _, picture in recording.pictures(None)), None)
    if first is None:
        raise MediaError(f"{path}: not one frame can be decoded; get an undamaged copy of the file")
    duration = float(recording.times[-1]) + 1 / recording.rate
    height, width = first.shape[:2]
    return Properties(len(recording.times), recording.rate, duration, (height, width), recording.has_sound)
