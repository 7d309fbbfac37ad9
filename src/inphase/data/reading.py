"""How the frames of a video are got: one signature for pictures, poses and whatever else has a frame number."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.data.sampling import Frames
from inphase.data.video import Video

# A video and some of its frames, distinct and increasing → their values [T, …] and their seconds [T].
Read = Callable[[Video, Frames], tuple[NDArray[Any], NDArray[np.float64]]]


def read_pose(video: Video, frames: Frames) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read some frames of a video's pose: x, y in pixels and visibility 0 or 1 as [T, J, 3], and their seconds.

    Without a known rate a second is a frame long.
    """
    if video.keypoints is None:
        raise ValueError(f"{video.id} has no keypoints: run pose estimation on it, or read its pictures")
    points = video.keypoints[frames]
    seen = np.ones(points.shape[:2], np.bool_) if video.visibility is None else video.visibility[frames]
    values = np.concatenate([points, seen[..., None].astype(np.float32)], axis=-1)
    return values.astype(np.float32), frames / float(video.rate or 1.0)


def annotated_length(video: Video) -> int:
    """Give the length a video's annotation or its labels state."""
    for known in (video.length, video.phases, video.keypoints):
        if known is not None:
            return known if isinstance(known, int) else len(known)
    raise ValueError(f"the length of {video.id} is not annotated: pass frame_count, or cache the collection first")
