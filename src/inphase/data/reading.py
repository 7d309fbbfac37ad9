"""Read frames of annotated videos: one signature, `Read`, for images, poses and anything else by frame number."""

from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from inphase.data.video import Video
from inphase.media.frame_store import FrameStore, Source
from inphase.media.frames import Clip, read_clip, read_spans
from inphase.media.recording import open_recording, probe
from inphase.media.sampling import Frames
from inphase.pose.pose_store import PoseStore

# (video, frame numbers, distinct and increasing) → the values of these frames [T, …] and their seconds [T].
Read = Callable[[Video, Frames], tuple[NDArray[Any], NDArray[np.float64]]]


def read_images(
    video: Video, frames: Frames, *, size: tuple[int, int] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Decode some frames of a video: images [T, H, W, 3] and their seconds.

    If spans cut the file, all of their frames are decoded to find a few: use `read_stored` for training.
    """
    if video.render is not None:
        clip = video.render()
        return clip.frames[frames], clip.times[frames]
    if video.path is None:
        raise ValueError(f"{video.id} has no images: read its pose")
    if video.spans:
        clip = read_spans(video.path, video.spans, size=size)
        return clip.frames[frames], clip.times[frames]
    clip = read_clip(video.path, indices=frames, size=size, native_fps=_native_fps(video))
    return clip.frames, clip.times


def read_stored(video: Video, frames: Frames, *, store: FrameStore) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Read some frames of a cached video, without a codec: `partial(read_stored, store=store)` is a `Read`."""
    clip = store[video.id]
    return clip.frames[frames], clip.times[frames]


class RenderedFrames:
    """A `Read` of rendered videos with an LRU cache of clips, so that training does not render at every step.

    The cache is bounded by `max_bytes`, shared by threads and separate for each process. Its key is `Video.render`.
    """

    def __init__(self, *, max_bytes: int = 2**30) -> None:
        """Start with an empty cache."""
        self._max_bytes = max_bytes
        clips: LRUCache[Any, Clip] = LRUCache(maxsize=max_bytes, getsizeof=lambda clip: clip.frames.nbytes)
        self._render = cached(clips, lock=Lock())(_render)

    def __call__(self, video: Video, frames: Frames) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Return some frames of a video, rendered or from the cache."""
        if video.render is None:
            raise ValueError(f"{video.id} is not rendered: use read_images or read_stored")
        clip = self._render(video.render)
        return clip.frames[frames], clip.times[frames]

    def __reduce__(self) -> tuple[Callable[[], "RenderedFrames"], tuple[()]]:
        """Pickle without the clips."""
        return partial(RenderedFrames, max_bytes=self._max_bytes), ()


def _render(render: Callable[[], Clip]) -> Clip:
    return render()


def read_pose(video: Video, frames: Frames) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read some frames of a video's pose: x, y in pixels and visibility 0 or 1 as [T, J, 3], and their seconds.

    If the frame rate is unknown, a second is one frame long.
    """
    if video.keypoints is None:
        raise ValueError(f"{video.id} has no keypoints: run pose estimation on it, or read its images")
    points = video.keypoints[frames]
    visible = np.ones(points.shape[:2], np.bool_) if video.visibility is None else video.visibility[frames]
    return _with_visibility(points, visible), frames / float(video.rate or 1.0)


def read_pose3d(video: Video, frames: Frames) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read some frames of a video's 3-D joints: x, y, z and visibility 0 or 1 as [T, J, 4], and their seconds."""
    if video.joints3d is None:
        raise ValueError(f"{video.id} has no 3-D joints: read its pose, or its images")
    points = video.joints3d[frames]
    visible = np.ones(points.shape[:2], np.bool_) if video.visibility is None else video.visibility[frames]
    return _with_visibility(points, visible), frames / float(video.rate or 1.0)


def read_stored_pose(
    video: Video, frames: Frames, *, store: PoseStore
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read some frames of an estimated pose, like `read_pose` of labeled ones, with the times of the images.

    `partial(read_stored_pose, store=store)` is a `Read`. The joints are those of PennAction; `add_poses` sets them, and
    the image size, on the video, which augmentation needs.
    """
    pose = store[video.id]
    points, visible = pose.joints13()
    return _with_visibility(points[frames], visible[frames]), pose.times[frames]


def _with_visibility(points: NDArray[np.float32], visible: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.concatenate([points, visible[..., None].astype(np.float32)], axis=-1).astype(np.float32)


def annotated_length(video: Video) -> int:
    """Return the number of frames by the annotation or the labels of a video."""
    for known in (video.length, video.phases, video.keypoints):
        if known is not None:
            return known if isinstance(known, int) else len(known)
    raise ValueError(f"the length of {video.id} is not annotated: pass frame_count, or fill a frame store first")


def annotated_measure(video: Video) -> tuple[int, float]:
    """Return the numbers of frames and of seconds by the annotation of a video."""
    if video.length is None or video.rate is None:
        raise ValueError(f"length and rate of {video.id} are not annotated: pass measure, or fill a frame store first")
    return video.length, video.length / video.rate


def measured_length(video: Video) -> int:
    """Count the frames of a video: as annotated, or by opening its file."""
    return annotated_length(video) if video.path is None or video.length is not None else file_length(video)


def file_length(video: Video) -> int:
    """Count the frames of a video by opening its file or rendering it, whatever its annotation."""
    if video.render is not None:
        return len(video.render())
    if video.path is None:
        raise ValueError(f"{video.id} has no file to open")
    if not video.spans:
        return probe(video.path, native_fps=_native_fps(video)).frames
    times = open_recording(video.path).times
    return sum(int(((times >= start) & (times < end)).sum()) for start, end in video.spans)


def measure(video: Video) -> tuple[int, float]:
    """Count frames and seconds of a video by opening its file; those of a rendered one are annotated."""
    if video.render is not None:
        return annotated_measure(video)
    if video.path is None or video.spans:
        raise ValueError(f"{video.id} is not one whole file: images and sound are read together from whole files")
    properties = probe(video.path, native_fps=_native_fps(video))
    return properties.frames, properties.duration


def sources(videos: Iterable[Video]) -> dict[str, Source]:
    """List the sources to fill a frame store with; videos without a file need none."""
    return {
        video.id: Source(video.path, spans=video.spans, native_fps=_native_fps(video))
        for video in videos
        if video.path is not None
    }


def _native_fps(video: Video) -> float | None:
    """Return the fps of a folder of images; if it is unknown, 1, as for poses."""
    return (video.rate or 1.0) if video.path is not None and video.path.is_dir() else None
