"""Skeletons: the mirror image of each joint, and the bones of a stick figure."""

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
