"""The poses of videos: in which joints, and where they come from."""
# MERGED: What an encoder sees of videos: their pictures or their poses, from files, from labels or from a store.

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from warnings import warn

import numpy as np

from inphase.data.reading import Drawings, Read, measured_length, read_pictures, read_pose, read_stored
from inphase.data.video import Problem, Video, present, summarise
from inphase.media.frame_store import FrameStore
from inphase.pose.pose import JOINTS13
from inphase.pose.pose_store import PoseStore


def select_joints(video: Video, joints: tuple[str, ...] = JOINTS13) -> Video:
    """Reduce a video's poses to the named joints, in that order."""
    absent = [name for name in joints if name not in video.joints]
    if absent:
        raise ValueError(f"{video.id} has no joint {', '.join(absent)}: it has {', '.join(video.joints) or 'none'}")
    columns = [video.joints.index(name) for name in joints]
    return replace(
        video,
        joints=joints,
        keypoints=None if video.keypoints is None else video.keypoints[:, columns],
        joints3d=None if video.joints3d is None else video.joints3d[:, columns],
        visibility=None if video.visibility is None else video.visibility[:, columns],
    )


def add_poses(videos: Iterable[Video], *, store: PoseStore) -> list[Video]:
    """Give videos the poses a store has of them, in the joints of PennAction, as if they were labels."""
    return [_posed(video, store=store) if video.id in store else video for video in videos]


def _posed(video: Video, *, store: PoseStore) -> Video:
    pose = store[video.id]
    points, seen = pose.joints13()
    return replace(video, keypoints=points, visibility=seen, joints=JOINTS13, size=pose.size, length=len(pose))


@dataclass(frozen=True, eq=False)
class FrameSource:
    """Videos, how their frames are read, and how many each has; `source` names where frames come from.

    Where `precomputed`, what is read is not a frame but the features that a frozen network found in it.
    """

    videos: list[Video]
    read: Read
    frame_count: Callable[[Video], int]
    source: str = ""
    precomputed: bool = False


class FrameEncoder(Protocol):
    """What has to be known of an encoder."""

    @property
    def modality(self) -> str:
        """Pictures, poses or sounds."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one frame."""

    @property
    def config(self) -> dict[str, Any]:
        """The joints of poses, among other things."""


def open_frame_source(
    seer: FrameEncoder, videos: Sequence[Video], *, store: Path | str | None = None, name: str = ""
) -> FrameSource:
    """Choose how an encoder sees videos.

    Poses come from the store, where one is given, or from the labels, reduced to the encoder's joints. Pictures come
    from the store, or are decoded or drawn, which is slow where many are wanted. Videos that cannot be seen so are left
    out with a warning. `name` is the collection's, with its options: in another one a video of the same name is
    another.
    """
    if seer.modality == "pose":
        joints = tuple(seer.config["joints"])
        _require_plane(seer.shape)
        seen = _labelled_poses(videos, joints) if store is None else _stored_poses(videos, joints, Path(store))
    elif seer.modality == "image":
        size = (seer.shape[0], seer.shape[1])
        seen = _files_or_drawings(videos, size) if store is None else _stored_pictures(videos, size, Path(store))
    else:
        raise ValueError(f"videos are seen frame by frame as pictures or as poses, not as {seer.modality}")
    return replace(seen, source=f"{name} {seen.source}")


def _labelled_poses(videos: Sequence[Video], joints: tuple[str, ...]) -> FrameSource:
    posed = [video for video in videos if video.keypoints is not None]
    _warn_of_absent(videos, posed, "no keypoints", "find them with `inphase data pose` and name the store")
    return FrameSource([select_joints(video, joints) for video in posed], read_pose, measured_length, "labels")


def _stored_poses(videos: Sequence[Video], joints: tuple[str, ...], store: Path) -> FrameSource:
    """Take poses into memory, a hundred bytes a frame, as if they were labels."""
    if not set(joints) <= set(JOINTS13):
        raise ValueError(f"stores hold the joints {', '.join(JOINTS13)}; this encoder wants {', '.join(joints)}")
    poses = PoseStore(store)
    found = [video for video in videos if video.id in poses]
    _warn_of_absent(videos, found, f"not in {store}", "fill it with `inphase data pose`")
    posed = [select_joints(_timed(video, poses), joints) for video in add_poses(found, store=poses)]
    return FrameSource(posed, read_pose, lambda video: poses.frames(video.id), f"poses {store.resolve()}")


def _timed(video: Video, poses: PoseStore) -> Video:
    """Give a video whose annotation does not say its rate that of its frames."""
    times = poses[video.id].times
    gap = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return video if video.rate or not gap > 0 else replace(video, rate=1 / gap)


def _require_plane(shape: Sequence[int]) -> None:
    if shape[-1] != 3:
        raise ValueError(f"labels and stores hold x, y and visibility of a joint; {shape[-1]} numbers are wanted")


def _files_or_drawings(videos: Sequence[Video], size: tuple[int, int]) -> FrameSource:
    here, _ = present(videos)
    shown = [video for video in here if video.path is not None or video.draw is not None]
    _warn_of_absent(videos, shown, "no pictures", "name a run on poses, or get the files")
    drawn = all(video.draw is not None for video in shown)
    read: Read = Drawings() if drawn else partial(read_pictures, size=size)
    return FrameSource(shown, read, measured_length, f"pictures {size[0]}×{size[1]}")


def _stored_pictures(videos: Sequence[Video], size: tuple[int, int], store: Path) -> FrameSource:
    frames = FrameStore(store)
    if frames.size != size:
        height, width = size
        raise ValueError(
            f"{store} holds pictures of {frames.size}, {size} are wanted: "
            f"fill another with `inphase data cache … --size {height} {width}`"
        )
    found = [video for video in videos if video.id in frames]
    _warn_of_absent(videos, found, f"not in {store}", "fill it with `inphase data cache`")
    read = partial(read_stored, store=frames)
    return FrameSource(found, read, lambda video: frames.frames(video.id), f"pictures {store.resolve()}")


def _warn_of_absent(wanted: Iterable[Video], found: Iterable[Video], what: str, fix: str) -> None:
    here = {video.id for video in found}
    absent = [video.id for video in wanted if video.id not in here]
    if absent and not here:
        raise ValueError(f"{what}: all {len(absent)} videos; {fix}")
    if absent:
        warn(Problem(f"{len(absent)} videos ({summarise(absent)})", what, f"they are left out; {fix}"), stacklevel=4)
