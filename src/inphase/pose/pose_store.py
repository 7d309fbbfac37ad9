"""Cached pose estimation, and stores of poses for training.

The poses of a store of frames lie in its folder `poses`; neither needs the other. Stores are read without a codec and
without a pose estimator.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.media.frame_store import FillSummary, Source, fill
from inphase.media.recording import Recording, describe_damage, open_recording
from inphase.pose.estimator import (
    DEFAULT_ESTIMATOR,
    complete_options,
    estimate_pose,
    estimate_recording,
    find_estimator,
    require_estimator,
)
from inphase.pose.pose import Pose
from inphase.progress import Progress
from inphase.storage.cache import ArrayStore, Cache, StoreFormat, cache_key
from inphase.storage.errors import NoPersonError
from inphase.storage.files import write_blocks
from inphase.storage.processes import DEFAULT_LIMITS, VideoLimits

POSES = "inphase poses 2"
FOLDER = "poses"
_ARRAYS = ("keypoints", "visibility", "found")


class PoseStore(ArrayStore[Pose]):
    """The poses of a store by the id of their recording; `broken` includes recordings without a person."""

    def __init__(self, folder: Path | str) -> None:
        """Open the poses in `folder`; recordings added later are not visible."""
        super().__init__(Path(folder) / FOLDER, format=POSES)
        self.joints: tuple[str, ...] = tuple(self.settings["joints"])
        self.frame_bytes = frame_dtype(len(self.joints)).itemsize

    def _read(self, file: Path, frames: int) -> Pose:
        """Read the pose of one recording."""
        return unpack(np.fromfile(file, dtype=frame_dtype(len(self.joints))), joints=self.joints)


def frame_dtype(joints: int) -> np.dtype[Any]:
    """Describe the record of one frame with that many joints; `world` is NaN where the estimator has none."""
    return np.dtype(
        [
            ("time", "<f8"),
            ("size", "<i4", (2,)),
            ("keypoints", "<f4", (joints, 2)),
            ("world", "<f4", (joints, 3)),
            ("visibility", "<f4", (joints,)),
            ("found", "?"),
        ]
    )


def pose_format(estimator: str, options: Mapping[str, Any] | None = None) -> StoreFormat:
    """Describe a store of poses made by an estimator."""
    joints = find_estimator(estimator).joints  # type: ignore[attr-defined]
    settings = {
        "estimator": estimator,
        "options": json.loads(json.dumps(complete_options(estimator, options))),
        "joints": list(joints),
    }
    return StoreFormat(POSES, ".pose", frame_dtype(len(joints)).itemsize, settings)


def pack(pose: Pose) -> NDArray[Any]:
    """Lay out a pose as an array of frame records."""
    rows = np.zeros(len(pose), dtype=frame_dtype(len(pose.joints)))
    rows["time"], rows["size"] = pose.times, pose.size
    rows["world"] = np.nan if pose.world is None else pose.world
    for name in _ARRAYS:
        rows[name] = getattr(pose, name)
    return rows


def unpack(rows: NDArray[Any], *, joints: tuple[str, ...]) -> Pose:
    """Turn frame records back into a pose."""
    arrays = {name: np.ascontiguousarray(rows[name]) for name in _ARRAYS}
    world = None if np.isnan(rows["world"]).all() else np.ascontiguousarray(rows["world"])
    height, width = rows["size"][0].tolist()
    return Pose(joints, **arrays, times=rows["time"].astype(np.float64), size=(height, width), world=world)


def fill_poses(
    folder: Path | str,
    sources: Mapping[str, Source],
    *,
    estimator: str = DEFAULT_ESTIMATOR,
    options: Mapping[str, Any] | None = None,
    workers: int = 0,
    limits: VideoLimits = DEFAULT_LIMITS,
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> FillSummary:
    """Estimate the poses that a store lacks and add them under the ids of their recordings, like `fill_store`.

    A recording without a person counts as broken: it is recorded with the reason and not tried again until its file
    changes. `folder` may be that of a store of frames. Poses in the `cache` are not estimated again.
    """
    require_estimator(estimator)
    write = partial(write_pose, estimator=estimator, options=options, cache=cache or Cache(None))
    return fill(
        Path(folder) / FOLDER,
        sources,
        kind=pose_format(estimator, options),
        write=write,
        workers=workers,
        limits=limits,
        stage="estimating poses",
        progress=progress,
    )


def write_pose(
    source: Source, file: Path, *, estimator: str, options: Mapping[str, Any] | None, cache: Cache
) -> tuple[int, str, str]:
    """Estimate the pose of one source, or find it in the cache, and write its file."""
    damage = ""  # of a cached pose it was reported when the pose was estimated

    def estimate() -> Pose:
        nonlocal damage
        recording = open_recording(source.path, native_fps=source.native_fps)
        pose = estimate_recording(recording, spans=source.spans, fps=source.fps, estimator=estimator, options=options)
        damage = describe_damage(recording)
        return pose

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="nothing is cached")  # the store has it all the same
        pose = cached_pose(
            source.path,
            cache=cache,
            spans=source.spans,
            fps=source.fps,
            native_fps=source.native_fps,
            estimator=estimator,
            options=options,
            estimate=estimate,
        )
    return len(pose), write_blocks(file, [pack(pose).tobytes()]), damage


def cached_pose(
    path: Path | str,
    *,
    cache: Cache,
    spans: Sequence[tuple[float, float]] = (),
    fps: float | None = None,
    native_fps: float | None = None,
    estimator: str = DEFAULT_ESTIMATOR,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    recording: Recording | None = None,
    estimate: Callable[[], Pose] | None = None,
) -> Pose:
    """Estimate the pose in a recording like `estimate_pose`, with a cache; a negative result is cached too.

    Estimation takes about half a second of CPU time per second of video. `recording` is the file, if it is already
    open; `estimate` replaces the call of `estimate_pose`.
    """
    how: dict[str, Any] = {"spans": tuple(spans), "fps": fps, "native_fps": native_fps, "estimator": estimator}
    key = _pose_key(path, options=options, **how) if cache.folder else ""
    stored = cache.get(key)
    if stored is not None and "nobody" in stored:
        raise NoPersonError(str(stored["nobody"]).replace("{path}", str(path)))
    if stored is not None and {"pose", "joints"} <= stored.keys():
        pose = unpack(stored["pose"], joints=tuple(stored["joints"].tolist()))
        if progress is not None:
            progress("estimating pose", len(pose), len(pose))
        return pose
    try:
        pose = estimate() if estimate else estimate_pose(recording or path, **how, options=options, progress=progress)
    except NoPersonError as error:
        # Cached without the path, which may be another one the next time.
        cache.put(key, {"nobody": np.array(str(error).replace(str(path), "{path}"))})
        raise
    cache.put(key, {"pose": pack(pose), "joints": np.array(pose.joints)})
    return pose


def is_pose_cached(
    path: Path | str, *, cache: Cache, fps: float | None = None, estimator: str = DEFAULT_ESTIMATOR
) -> bool:
    """Report whether `cached_pose` finds a recording in the cache."""
    return cache.folder is not None and cache.get(_pose_key(path, fps=fps, estimator=estimator)) is not None


def _pose_key(
    path: Path | str,
    *,
    spans: tuple[tuple[float, float], ...] = (),
    fps: float | None = None,
    native_fps: float | None = None,
    estimator: str = DEFAULT_ESTIMATOR,
    options: Mapping[str, Any] | None = None,
) -> str:
    settings = sorted(complete_options(estimator, options).items())
    return cache_key(path, "pose", estimator, settings, spans, fps, native_fps)
