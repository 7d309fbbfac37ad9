"""The poses of videos: in which joints, and where they come from."""

from collections.abc import Iterable
from dataclasses import replace

from inphase.data.video import Video
from inphase.media.pose import JOINTS13 as JOINTS13
from inphase.media.pose_store import PoseStore
from inphase.media.skeleton import bones as bones
from inphase.media.skeleton import mirrored as mirrored


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
