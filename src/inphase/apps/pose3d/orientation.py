"""Resolve the depth reversal of orthographic views, and the typical proportions of a body.

From very far, a body and its mirror image turned the other way round project alike in every view. Two cues distinguish
them: knees bend forwards and elbows backwards, where left and up define forwards; and an occluded joint is more often
behind the body than before it.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def reflect(rotations: Array, joints: Array) -> tuple[Array, Array]:
    """Negate depth in the query's frame: return the cameras and the body that project alike."""
    other = np.diag([1.0, 1.0, -1.0])
    rows = rotations[:, :2] @ other
    return np.concatenate([rows, np.cross(rows[:, 0], rows[:, 1])[:, None]], axis=1), joints @ other


def uprightness_votes(joints: Array, names: tuple[str, ...]) -> Array:
    """Measure how far knees bend forwards and elbows backwards: [2] mean torso lengths, above 0 for a human body."""
    at = {name: joints[:, index] for index, name in enumerate(names)}
    left = at["left_shoulder"] - at["right_shoulder"] + at["left_hip"] - at["right_hip"]
    up = at["left_shoulder"] + at["right_shoulder"] - at["left_hip"] - at["right_hip"]
    forward = np.cross(left, up)
    forward /= np.maximum(np.linalg.norm(forward, axis=-1, keepdims=True), 1e-9)
    votes = np.zeros(2)
    for number, (limb, sign) in enumerate(((("hip", "knee", "ankle"), 1.0), (("shoulder", "elbow", "wrist"), -1.0))):
        for side in ("left", "right"):
            if all(f"{side}_{part}" in at for part in limb):
                start, middle, end = (at[f"{side}_{part}"] for part in limb)
                votes[number] += sign * float(np.mean(((middle - (start + end) / 2) * forward).sum(-1))) / 2
    return votes


def occlusion_vote(rotations: Array, joints: Array, seen: NDArray[np.bool_], trust: Array) -> float:
    """Measure how far unseen joints lie behind seen ones, in torso lengths, mean over views and frames."""
    depth = np.einsum("va,tja->vtj", rotations[:, 2], joints)
    hidden = ~seen
    both = seen.any(-1) & hidden.any(-1)
    if not both.any():
        return 0.0
    behind, before = ((depth * which).sum(-1) / np.maximum(which.sum(-1), 1) for which in (hidden, seen))
    weights = trust * both
    return float((weights * (behind - before)).sum() / max(weights.sum(), 1e-9))


def procrustes(points: Array, target: Array, *, reflection: bool = False) -> Array:
    """Rotate, scale and translate points [N, 3] to minimize the distance to the target [N, 3]; reflect if allowed."""
    middle, goal = points.mean(0), target.mean(0)
    left, values, right = np.linalg.svd((points - middle).T @ (target - goal))
    signs = np.ones(3)
    if not reflection and np.linalg.det(left @ right) < 0:
        signs[2] = -1
    scale = (values * signs).sum() / max(float(((points - middle) ** 2).sum()), 1e-12)
    return np.asarray(scale * (points - middle) @ (left * signs) @ right + goal)


# Bone lengths in torso lengths.
_TYPICAL = {
    ("shoulder", "shoulder"): 0.75,
    ("hip", "hip"): 0.45,
    ("hip", "shoulder"): 1.02,
    ("elbow", "shoulder"): 0.65,
    ("elbow", "wrist"): 0.51,
    ("hip", "knee"): 0.85,
    ("ankle", "knee"): 0.85,
    ("head", "shoulder"): 0.6,
}


def typical_lengths(joints: tuple[str, ...], bones: list[tuple[int, int]]) -> NDArray[np.float64]:
    """Return the typical length of each bone, NaN where none is listed."""
    names = [tuple(sorted(joints[end].removeprefix("left_").removeprefix("right_") for end in bone)) for bone in bones]
    return np.array([_TYPICAL.get((name[0], name[1]), np.nan) for name in names])
