"""What was made last, kept within bounds."""
# MERGED: How the frames of a video are got: one signature for pictures, poses and whatever else has a frame number.

from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from inphase.data.video import Video
from inphase.media.frame_store import FrameStore, Source
from inphase.media.frames import Clip, open_recording, read_clip, read_spans
from inphase.media.probe import probe
from inphase.media.sampling import Frames
from inphase.pose.pose_store import PoseStore

# A video and some of its frames, distinct and increasing → their values [T, …] and their seconds [T].
Read = Callable[[Video, Frames], tuple[NDArray[Any], NDArray[np.float64]]]


def read_pictures(
    video: Video, frames: Frames, *, size: tuple[int, int] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Decode some frames of a video: pictures [T, H, W, 3] and their seconds.

    Frames count what is shown: where spans cut the file, all of them are decoded to find a few. `read_stored` is for
    training.
    """
    if video.draw is not None:
        clip = video.draw()
        return clip.frames[frames], clip.times[frames]
    if video.path is None:
        raise ValueError(f"{video.id} has no pictures: read its pose")
    if video.spans:
        clip = read_spans(video.path, video.spans, size=size)
        return clip.frames[frames], clip.times[frames]
    clip = read_clip(video.path, indices=frames, size=size, native_fps=_native_fps(video))
    return clip.frames, clip.times


def read_stored(video: Video, frames: Frames, *, store: FrameStore) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Read some frames of a cached video, without a codec: `partial(read_stored, store=store)` is a `Read`."""
    clip = store[video.id]
    return clip.frames[frames], clip.times[frames]


class Drawings:
    """A `Read` of drawn videos that keeps the clips it drew last, so that training does not draw at every step.

    Within `room` bytes, for all threads together and for each process on its own. A video is known by its `draw`.
    """

    def __init__(self, *, room: int = 2**30) -> None:
        """Begin with nothing drawn."""
        self._room = room
        clips: LRUCache[Any, Clip] = LRUCache(maxsize=room, getsizeof=lambda clip: clip.frames.nbytes)
        self._draw = cached(clips, lock=Lock())(_draw)

    def __call__(self, video: Video, frames: Frames) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Give some frames of a video, drawn now or before."""
        if video.draw is None:
            raise ValueError(f"{video.id} is not drawn: use read_pictures or read_stored")
        clip = self._draw(video.draw)
        return clip.frames[frames], clip.times[frames]

    def __reduce__(self) -> tuple[Callable[[], "Drawings"], tuple[()]]:
        """Go to another process without the clips."""
        return partial(Drawings, room=self._room), ()


def _draw(draw: Callable[[], Clip]) -> Clip:
    return draw()


def read_pose(video: Video, frames: Frames) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read some frames of a video's pose: x, y in pixels and visibility 0 or 1 as [T, J, 3], and their seconds.

    Without a known rate a second is a frame long.
    """
    if video.keypoints is None:
        raise ValueError(f"{video.id} has no keypoints: run pose estimation on it, or read its pictures")
    points = video.keypoints[frames]
    seen = np.ones(points.shape[:2], np.bool_) if video.visibility is None else video.visibility[frames]
    return _with_visibility(points, seen), frames / float(video.rate or 1.0)


def read_stored_pose(
    video: Video, frames: Frames, *, store: PoseStore
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read some frames of a pose found in a video, as `read_pose` does those of labels, on the clock of its pictures.

    `partial(read_stored_pose, store=store)` is a `Read`. The joints are those of PennAction; `add_poses` tells the
    video of them, and of the size of its picture, for what changes poses at random.
    """
    pose = store[video.id]
    points, seen = pose.joints13()
    return _with_visibility(points[frames], seen[frames]), pose.times[frames]


def _with_visibility(points: NDArray[np.float32], seen: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.concatenate([points, seen[..., None].astype(np.float32)], axis=-1).astype(np.float32)


def annotated_length(video: Video) -> int:
    """Give the length a video's annotation or its labels state."""
    for known in (video.length, video.phases, video.keypoints):
        if known is not None:
            return known if isinstance(known, int) else len(known)
    raise ValueError(f"the length of {video.id} is not annotated: pass frame_count, or cache the collection first")


def annotated_measure(video: Video) -> tuple[int, float]:
    """Give the frames and seconds a video's annotation states."""
    if video.length is None or video.rate is None:
        raise ValueError(
            f"length and rate of {video.id} are not annotated: pass measure, or cache the collection first"
        )
    return video.length, video.length / video.rate


def measured_length(video: Video) -> int:
    """Count the frames a video shows: as annotated, or by opening its file."""
    return annotated_length(video) if video.path is None or video.length is not None else file_length(video)


def file_length(video: Video) -> int:
    """Count the frames a video shows by opening its file or drawing it, whatever the annotation says."""
    if video.draw is not None:
        return len(video.draw())
    if video.path is None:
        raise ValueError(f"{video.id} has no file to open")
    if not video.spans:
        return probe(video.path, native_fps=_native_fps(video)).frames
    times = open_recording(video.path).times
    return sum(int(((times >= start) & (times < end)).sum()) for start, end in video.spans)


def measure(video: Video) -> tuple[int, float]:
    """Count a video's frames and seconds by opening its file; of one that is drawn they are known."""
    if video.draw is not None:
        return annotated_measure(video)
    if video.path is None or video.spans:
        raise ValueError(f"{video.id} is not one whole file: picture and sound are read together from those")
    properties = probe(video.path, native_fps=_native_fps(video))
    return properties.frames, properties.duration


def sources(videos: Iterable[Video]) -> dict[str, Source]:
    """Say what to put into a frame store for these videos; those without a file need none."""
    return {
        video.id: Source(video.path, spans=video.spans, native_fps=_native_fps(video))
        for video in videos
        if video.path is not None
    }


def _native_fps(video: Video) -> float | None:
    """Give a folder of pictures its rate; where nobody knows it a second is a frame long, as for poses."""
    return (video.rate or 1.0) if video.path is not None and video.path.is_dir() else None
