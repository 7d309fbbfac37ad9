"""Plausibility of a pose track: whether its joints can be those of one real person.

Each factor lies between 0 and 1 and is close to 1 for a person who is tracked well:

coverage      the fraction of the frames in which the person was found
confidence    the visibility of the better half of the main joints
upright       the torso does not hang upside down
steadiness    the joints do not jitter between frames
constancy     the limbs keep their lengths, in meters where the estimator has them, and the torso its length in pixels
size          the torso has enough pixels to read joints from, and fits into the picture
"""

import numpy as np
from numpy.typing import NDArray

from inphase.pose.pose import Pose

# Jitter (second difference of the joints, in torso lengths) and relative changes of length at which a factor is 1/2.
JITTER, LIMB_CHANGE, TORSO_CHANGE = 0.25, 0.3, 0.35
# The factor of a torso that is always upside down: gymnasts are, but false detections more often.
UPSIDE_DOWN = 0.2
# Joints of a torso with fewer pixels than this cannot be read well; a torso longer than this fraction of the picture
# does not leave room for a person.
MIN_TORSO_PIXELS, MAX_TORSO_FRACTION = 20.0, 0.8
# The frame rate that the jitter is stated for: images further apart differ more by motion.
JITTER_FPS = 30.0

_MAIN_JOINTS = tuple(
    f"{side}_{joint}" for joint in ("shoulder", "elbow", "wrist", "hip", "knee", "ankle") for side in ("left", "right")
)
_LIMBS = (("shoulder", "elbow"), ("elbow", "wrist"), ("hip", "knee"), ("knee", "ankle"))


def plausibility(pose: Pose) -> float:
    """Return how plausible a pose track is, from 0 to 1: the product of its factors."""
    return float(np.prod(list(plausibility_factors(pose).values())))


def plausibility_factors(pose: Pose) -> dict[str, float]:
    """Return the factors of a track's plausibility by name; those whose joints the estimator lacks are left out."""
    found = pose.found
    if not found.any():
        return {"coverage": 0.0}
    factors = {"coverage": float(found.mean())}
    main = [pose.joints.index(name) for name in _MAIN_JOINTS if name in pose.joints]
    if main:
        better = np.sort(pose.visibility[found][:, main], axis=1)[:, len(main) // 2 :]
        factors["confidence"] = float(np.clip(better.mean(), 0, 1))
    if not {f"{side}_{joint}" for side in ("left", "right") for joint in ("shoulder", "hip")} <= set(pose.joints):
        return factors
    torso = _middle(pose, "shoulder") - _middle(pose, "hip")  # [T, 2]
    length = np.maximum(np.linalg.norm(torso, axis=1), 1e-3)
    size = float(np.median(length[found]))
    hanging = float((torso[found, 1] > 0.3 * length[found]).mean())
    factors["upright"] = 1 - (1 - UPSIDE_DOWN) * hanging
    factors["steadiness"] = _half_at(_jitter(pose, main, size=size), JITTER)
    change = float(np.std(np.log(length[found])))
    factors["constancy"] = _half_at(change, TORSO_CHANGE) * _half_at(_limb_change(pose), LIMB_CHANGE)
    room = MAX_TORSO_FRACTION * max(pose.size)
    factors["size"] = min(1.0, size / MIN_TORSO_PIXELS, (room / size) ** 2)
    return factors


def _half_at(value: float, half: float) -> float:
    """Fall from 1 at 0 to 1/2 at `half`."""
    return 1 / (1 + (value / half) ** 2)


def _middle(pose: Pose, joint: str) -> NDArray[np.float64]:
    """Return the middle of a left and a right joint, [T, 2]."""
    both = [pose.joints.index(f"{side}_{joint}") for side in ("left", "right")]
    return np.asarray(pose.keypoints[:, both].mean(1), np.float64)


def _jitter(pose: Pose, main: list[int], *, size: float) -> float:
    """Return the median second difference of the main joints over found frames, in torso lengths."""
    together = pose.found[2:] & pose.found[1:-1] & pose.found[:-2]
    if not together.any():
        return 0.0
    points = pose.keypoints[:, main].astype(np.float64)
    bend = np.linalg.norm(points[2:] - 2 * points[1:-1] + points[:-2], axis=-1).mean(1)[together]
    interval = float(np.median(np.diff(pose.times)))
    return float(np.median(bend)) / size * min(1.0, 1 / JITTER_FPS / max(interval, 1e-6))


def _limb_change(pose: Pose) -> float:
    """Return the mean relative standard deviation of the limbs' lengths in meters; 0 without them."""
    if pose.world is None:
        return 0.0
    limbs = [tuple(f"{side}_{joint}" for joint in limb) for limb in _LIMBS for side in ("left", "right")]
    lengths = [
        np.linalg.norm(
            pose.world[pose.found, pose.joints.index(a)] - pose.world[pose.found, pose.joints.index(b)], axis=-1
        )
        for a, b in limbs
        if a in pose.joints and b in pose.joints
    ]
    return float(np.mean([length.std() / max(float(length.mean()), 1e-6) for length in lengths])) if lengths else 0.0
