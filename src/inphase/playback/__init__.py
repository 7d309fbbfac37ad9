"""The document that the viewer plays: media files, time maps, curves, phases, costs, 3-D poses, heat maps, search hits.

    track = VideoTrack("a", duration=3.2, rate=30, size=(720, 1280), media=add_media(folder, "a.mp4"))
    write_playback(folder, Playback("Two swings", tracks=(track, …)))    # playback.json and its arrays
    playback = read_playback(folder)                                     # or a PlaybackError that names the field

Every part is immutable and checks itself. docs/reference/playback.md describes the files.
"""

from inphase.playback.document import (
    Certainty,
    Curves,
    Keypoints,
    Pair,
    Phase,
    Playback,
    PlaybackEvent,
    PlaybackMoment,
    Result,
    Skeleton,
    TimeMap,
    VideoTrack,
    principal_curves,
)
from inphase.playback.part import PlaybackError
from inphase.playback.playback_folder import (
    INDEX,
    OpenedPlayback,
    add_media,
    open_playback,
    read_playback,
    write_playback,
)

__all__ = [
    "INDEX",
    "Certainty",
    "Curves",
    "Keypoints",
    "OpenedPlayback",
    "Pair",
    "Phase",
    "Playback",
    "PlaybackError",
    "PlaybackEvent",
    "PlaybackMoment",
    "Result",
    "Skeleton",
    "TimeMap",
    "VideoTrack",
    "add_media",
    "open_playback",
    "principal_curves",
    "read_playback",
    "write_playback",
]
