"""The pose of one person through a recording, in named joints."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
