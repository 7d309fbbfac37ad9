"""The pose of one person through a recording, in named joints; mirror images of joints and the bones between them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LIMBS = ("shoulder elbow", "elbow wrist", "wrist hand", "hip knee", "knee ankle", "ankle foot")
# The centers of shoulders and hips have other names on the stage than in UTD-MHAD.
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
# Without joints at the centers of shoulders and hips, the trunk is a quadrilateral with a head.
_TRUNK_WITHOUT_CENTER = (
    "head left_shoulder",
    "head right_shoulder",
    "left_shoulder right_shoulder",
    "left_hip right_hip",
    "left_shoulder left_hip",
    "right_shoulder right_hip",
)


def mirrored(joints: tuple[str, ...]) -> NDArray[np.int64]:
    """List for each joint its mirror image: [J] indices, left and right exchanged."""
    if not joints:
        raise ValueError("a pose without joint names cannot be mirrored: name its joints")
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
    trunk = (*_TRUNK, "crown head") if {"shoulder_center", "neck"} & set(joints) else _TRUNK_WITHOUT_CENTER
    limbs = [f"{side}_{a} {side}_{b}" for a, b in map(str.split, _LIMBS) for side in ("left", "right")]
    pairs = [pair.split() for pair in (*trunk, *limbs)]
    return [(joints.index(a), joints.index(b)) for a, b in pairs if a in joints and b in joints]


# PennAction's joints in its order.
JOINTS13 = (
    "head",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hip",
    "right_hip",
    "left_knee",
    "right_knee",
    "left_ankle",
    "right_ankle",
)
# The joints whose middle is the head, in order of preference.
HEADS = (("left_ear", "right_ear"), ("head",), ("left_eye", "right_eye"), ("nose",))


@dataclass(frozen=True, eq=False)
class Pose:
    """One person through a clip, in J named joints; left and right are the person's own.

    `keypoints` [T, J, 2] float32 pixels of the original frame, (0, 0) the center of its first pixel; they can lie
    outside of it. `visibility` [T, J] float32 from 0 to 1. `found` [T] is False where the person was not found: there
    positions are interpolated, or those of the nearest frame at the ends, and visibility is 0. `times` [T] float64
    seconds; `size` (height, width) of the frame. `world` [T, J, 3] float32 meters from the middle of the hips, x to the
    right, y down and z away from the camera, where the estimator knows them.
    """

    joints: tuple[str, ...]
    keypoints: NDArray[np.float32]
    visibility: NDArray[np.float32]
    found: NDArray[np.bool_]
    times: NDArray[np.float64]
    size: tuple[int, int]
    world: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        """Raise if the shapes of the arrays do not match."""
        length, joints = len(self.times), len(self.joints)
        shapes = {"keypoints": (length, joints, 2), "visibility": (length, joints), "found": (length,)}
        if self.world is not None:
            shapes["world"] = (length, joints, 3)
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must be {list(shape)}, got {list(getattr(self, name).shape)}")

    def __len__(self) -> int:
        """Count the frames."""
        return len(self.times)

    def joints13(self, *, threshold: float = 0.5) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the joints of PennAction, `JOINTS13`: pixels [T, 13, 2], and [T, 13] which are visible.

        The head is the middle of the ears; without ears the head, the middle of the eyes, or the nose.
        """
        heads = next((names for names in HEADS if set(names) <= set(self.joints)), None)
        missing = [name for name in JOINTS13[1:] if name not in self.joints]
        if heads is None or missing:
            lacks = ", ".join([*(["head, ears, eyes or nose"] if heads is None else []), *missing])
            raise ValueError(f"a pose with the joints {', '.join(self.joints)} lacks {lacks}: use another estimator")
        head, body = ([self.joints.index(name) for name in names] for names in (heads, JOINTS13[1:]))
        points = np.concatenate([self.keypoints[:, head].mean(1, keepdims=True), self.keypoints[:, body]], axis=1)
        visibility = np.concatenate([self.visibility[:, head].max(1, keepdims=True), self.visibility[:, body]], axis=1)
        return points, visibility >= threshold
