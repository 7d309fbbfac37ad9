"""A store of poses beside the frames, read without a codec and without MediaPipe.

The poses of a store of frames lie in its folder `poses`; neither needs the other.
"""
# MERGED: Fill a store of poses: find and follow the person of every recording once.
# MERGED: The pose of a recording, read once: what was found is kept, and so is that nobody was.

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.media.frame_store import FillSummary, Source, fill
from inphase.media.frames import describe_damage, open_recording
from inphase.pose.blazepose import LANDMARKS, require_mediapipe
from inphase.pose.pose import Pose, pose_of, read_pose
from inphase.progress import Progress
from inphase.storage.array_store import ArrayStore, StoreFormat
from inphase.storage.cache import Cache, cache_key
from inphase.storage.errors import NoPersonError
from inphase.storage.files import write_blocks

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


class PoseStore(ArrayStore[Pose]):
    """The poses of a store by the id of their recording; `broken` holds those that show nobody, too."""

    frame_bytes = FRAME.itemsize

    def __init__(self, folder: Path | str) -> None:
        """Open the poses in `folder` as far as they are written."""
        super().__init__(Path(folder) / FOLDER, format=POSES)

    def _read(self, file: Path, frames: int) -> Pose:
        """Read the pose of one recording."""
        return unpack(np.fromfile(file, dtype=FRAME))


def kind_of_poses(*, complexity: int) -> StoreFormat:
    """Describe a store of poses made with a network of that complexity."""
    return StoreFormat(POSES, ".pose", FRAME.itemsize, {"complexity": complexity})


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


def fill_poses(
    folder: Path | str,
    sources: Mapping[str, Source],
    *,
    complexity: int = 1,
    workers: int = 0,
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> FillSummary:
    """Read the poses that a store lacks and add them under the ids of their recordings, as `fill_store` adds frames.

    A recording that shows nobody counts as broken: it is recorded with the reason and not tried again until its file
    changes. `folder` may be that of a store of frames. With a `shelf`, whole recordings that were followed before are
    not followed again, and those followed now are known to whoever uses it.
    """
    require_mediapipe()
    kind, write = kind_of_poses(complexity=complexity), partial(write_pose, complexity=complexity, cache=cache)
    return fill(
        Path(folder) / FOLDER,
        sources,
        kind=kind,
        write=write,
        workers=workers,
        stage="estimating poses",
        progress=progress,
    )


def write_pose(source: Source, file: Path, *, complexity: int, cache: Cache | None = None) -> tuple[int, str, str]:
    """Read the pose of one source into its file."""
    damage = ""  # what was kept has been complained of when it was found

    def read() -> Pose:
        nonlocal damage
        recording = open_recording(source.path, native_fps=source.native_fps)
        pose = pose_of(recording, spans=source.spans, fps=source.fps, complexity=complexity)
        damage = describe_damage(recording)
        return pose

    if cache is not None and not source.spans and source.native_fps is None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="nothing is cached")  # the store does, whatever the shelf does
            pose = cached_pose(source.path, cache=cache, fps=source.fps, complexity=complexity, read=read)
    else:
        pose = read()
    return len(pose), write_blocks(file, [pack(pose).tobytes()]), damage


def cached_pose(
    path: Path | str,
    *,
    cache: Cache,
    fps: float | None = None,
    complexity: int = 1,
    progress: Callable[[int, int], None] | None = None,
    read: Callable[[], Pose] | None = None,
) -> Pose:
    """Give the pose that `read_pose` finds in a video file, from the shelf where it was found before.

    Following somebody takes a second of processor time for every second of video; a shelf answers at once. Whoever has
    another way to the same pose gives it as `read`.
    """
    key = _pose_key(path, complexity=complexity, fps=fps)
    kept = cache.get(key)
    if kept is not None and "nobody" in kept:
        raise NoPersonError(str(kept["nobody"]).replace("{path}", str(path)))
    if kept is not None and "pose" in kept:
        pose = unpack(kept["pose"])
        if progress is not None:
            progress(len(pose), len(pose))
        return pose
    try:
        pose = read() if read else read_pose(path, fps=fps, complexity=complexity, progress=progress)
    except NoPersonError as error:
        # Kept without the name of the file, which may be another the next time.
        cache.put(key, {"nobody": np.array(str(error).replace(str(path), "{path}"))})
        raise
    cache.put(key, {"pose": pack(pose)})
    return pose


def is_pose_cached(path: Path | str, *, cache: Cache, fps: float | None = None, complexity: int = 1) -> bool:
    """Tell whether `cached_pose` would answer at once."""
    return cache.folder is not None and cache.get(_pose_key(path, complexity=complexity, fps=fps)) is not None


def _pose_key(path: Path | str, *, complexity: int, fps: float | None) -> str:
    return cache_key(path, "pose", complexity, fps)
