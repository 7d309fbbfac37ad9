"""Joints: what they are called, which are each other's mirror image, and which a stick figure connects."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from inphase.data.video import Video
from inphase.media.pose import JOINTS13 as JOINTS13
from inphase.media.pose_store import PoseStore

_LIMBS = ("shoulder elbow", "elbow wrist", "wrist hand", "hip knee", "knee ankle", "ankle foot")
# The centres of shoulders and hips have other names on the stage than in UTD-MHAD.
_TRUNK = tuple(
    pair
    for shoulders, hips in (("shoulder_center", "hip_center"), ("neck", "pelvis"))
    for pair in (
        f"head {shoulders}",
        f"{shoulders} spine",
        f"spine {hips}",
        f"left_shoulder {shoulders}",
        f"right_shoulder {shoulders}",
        f"left_hip {hips}",
        f"right_hip {hips}",
    )
)
# Where the centre of the shoulders and hips is not a joint, the trunk is a quadrilateral with a head.
_TRUNK_WITHOUT_CENTRE = (
    "head left_shoulder",
    "head right_shoulder",
    "left_shoulder right_shoulder",
    "left_hip right_hip",
    "left_shoulder left_hip",
    "right_shoulder right_hip",
)


def mirrored(joints: tuple[str, ...]) -> NDArray[np.int64]:
    """List for each joint the one that takes its place in a mirror: [J] indices, left and right exchanged."""
    if not joints:
        raise ValueError("a pose without joint names cannot be mirrored: set Video.joints")
    order = []
    for name in joints:
        side, _, rest = name.partition("_")
        other = {"left": f"right_{rest}", "right": f"left_{rest}"}.get(side, name)
        if other not in joints:
            raise ValueError(f"joint {name!r} has no counterpart {other!r} among {', '.join(joints)}")
        order.append(joints.index(other))
    return np.array(order, dtype=np.int64)


def bones(joints: tuple[str, ...]) -> list[tuple[int, int]]:
    """List the pairs of joints that a stick figure connects."""
    trunk = (*_TRUNK, "crown head") if {"shoulder_center", "neck"} & set(joints) else _TRUNK_WITHOUT_CENTRE
    limbs = [f"{side}_{a} {side}_{b}" for a, b in map(str.split, _LIMBS) for side in ("left", "right")]
    pairs = [pair.split() for pair in (*trunk, *limbs)]
    return [(joints.index(a), joints.index(b)) for a, b in pairs if a in joints and b in joints]


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
