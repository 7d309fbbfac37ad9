"""A store of poses beside the frames, read without a codec and without MediaPipe.

The poses of a store of frames lie in its folder `poses`; neither needs the other.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.media.index import Kind
from inphase.media.landmarks import LANDMARKS
from inphase.media.pose import Pose
from inphase.media.store import Store

POSES = "inphase poses 1"
FOLDER = "poses"

# A frame in the file of a recording.
FRAME = np.dtype(
    [
        ("time", "<f8"),
        ("size", "<i4", (2,)),
        ("keypoints", "<f4", (len(LANDMARKS), 2)),
        ("world", "<f4", (len(LANDMARKS), 3)),
        ("visibility", "<f4", (len(LANDMARKS),)),
        ("found", "?"),
    ]
)


class PoseStore(Store[Pose]):
    """The poses of a store by the id of their recording; `broken` holds those that show nobody, too."""

    frame_bytes = FRAME.itemsize

    def __init__(self, folder: Path | str) -> None:
        """Open the poses in `folder` as far as they are written."""
        super().__init__(Path(folder) / FOLDER, format=POSES)

    def _read(self, file: Path, frames: int) -> Pose:
        """Read the pose of one recording."""
        return unpack(np.fromfile(file, dtype=FRAME))


def kind_of_poses(*, complexity: int) -> Kind:
    """Describe a store of poses made with a network of that complexity."""
    return Kind(POSES, ".pose", FRAME.itemsize, {"complexity": complexity})


def pack(pose: Pose) -> NDArray[Any]:
    """Lay out a pose as it is stored."""
    rows = np.zeros(len(pose), dtype=FRAME)
    rows["time"], rows["size"] = pose.times, pose.size
    for name in ("keypoints", "world", "visibility", "found"):
        rows[name] = getattr(pose, name)
    return rows


def unpack(rows: NDArray[Any]) -> Pose:
    """Turn what is stored back into a pose."""
    parts = {name: np.ascontiguousarray(rows[name]) for name in ("keypoints", "world", "visibility", "found")}
    height, width = rows["size"][0].tolist()
    return Pose(**parts, times=rows["time"].astype(np.float64), size=(height, width))
