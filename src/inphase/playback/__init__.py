"""The document the viewer plays: media files, time maps, curves, phases, costs, 3-D poses, heat maps, found moments.

    playback = Playback("Two swings", tracks=(Track("a", duration=3.2, rate=30, media=add_media(folder, "a.mp4")), …))
    write_playback(folder, playback)             # playback.json and its arrays
    playback = read_playback(folder)             # or a PlaybackError that says what is wrong and where

Every part is a frozen dataclass that checks itself. docs/playback.md describes the files.
"""

from inphase.playback.curves import principal_curves
from inphase.playback.document import (
    Curves,
    Event,
    Keypoints,
    Moment,
    Pair,
    Phase,
    Playback,
    Result,
    Skeleton,
    TimeMap,
    Track,
)
from inphase.playback.files import INDEX, Opened, add_media, open_playback, read_playback, write_playback
from inphase.playback.part import PlaybackError

__all__ = [
    "INDEX",
    "Curves",
    "Event",
    "Keypoints",
    "Moment",
    "Opened",
    "Pair",
    "Phase",
    "Playback",
    "PlaybackError",
    "Result",
    "Skeleton",
    "TimeMap",
    "Track",
    "add_media",
    "open_playback",
    "principal_curves",
    "read_playback",
    "write_playback",
]
