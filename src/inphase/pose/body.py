"""Measures of a person's joints: angles in the picture plane, the side a camera sees, and the plausibility of a track.

A picture-plane angle is the angle between two lines as they appear in the image. It equals the angle of the joint in
space only where the limb moves parallel to the image; comparisons hold between videos taken from the same side.

A track is plausible where its joints can be those of one real person. Each factor lies between 0 and 1 and is close to
1 for a person who is tracked well:

coverage      the fraction of the frames in which the person was found
confidence    the visibility of the better half of the main joints
upright       the torso does not hang upside down
steadiness    the joints do not jitter between frames
constancy     the limbs keep their lengths, in meters where the estimator has them, and the torso its length in pixels
size          the torso has enough pixels to read joints from, and fits into the picture
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from inphase.pose.pose import JOINTS13, Pose, mirrored

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
    torso = _body_middle(pose, "shoulder") - _body_middle(pose, "hip")  # [T, 2]
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


def _body_middle(pose: Pose, joint: str) -> NDArray[np.float64]:
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


Degrees = NDArray[np.float64]  # [T], NaN where the angle is not known
Points = NDArray[np.float64]  # [T, 2] pixels, NaN where a joint is not visible

_SIDES = ("left", "right")
# The angle at the joint in the middle, 0 to 180 degrees; 180 is a straight limb.
LIMB_ANGLES: dict[str, tuple[str, str, str]] = {
    f"{side}_{name}": (f"{side}_{a}", f"{side}_{b}", f"{side}_{c}")
    for name, a, b, c in (
        ("elbow", "shoulder", "elbow", "wrist"),
        ("knee", "hip", "knee", "ankle"),
        ("hip", "shoulder", "hip", "knee"),
    )
    for side in _SIDES
}
# The slope of the line through two joints, −90 to 90 degrees; positive where its right end in the picture is higher.
LINE_ANGLES: dict[str, tuple[str, str]] = {
    "shoulder_line": ("left_shoulder", "right_shoulder"),
    "hip_line": ("left_hip", "right_hip"),
}
# The direction from the hips to the shoulders, 0 upright, positive to the right of the picture.
SPINE = "spine_tilt"
ANGLES = (*LIMB_ANGLES, *LINE_ANGLES, SPINE)
# Degrees after which an angle repeats; limb angles do not.
PERIODS: dict[str, float] = {**dict.fromkeys(LINE_ANGLES, 180.0), SPINE: 360.0}

MIN_VISIBILITY = 0.5
# Seconds: standard deviation of the Gaussian that smooths positions (half the amplitude is left at 7.5 Hz), and the
# longest gap that is interpolated.
SMOOTHING_SECONDS, MAX_GAP_SECONDS = 0.025, 0.12
# A segment that appears shorter than this fraction of the trunk points toward the camera: its direction is noise.
MIN_SEGMENT = 0.15
# Widths of shoulders and hips seen from the front, as fractions of the trunk's length.
SHOULDER_WIDTH, HIP_WIDTH = 0.72, 0.42
# The nose is this fraction of the trunk's length or more to one side of the ears where a face is seen from the side.
MIN_NOSE_OFFSET = 0.06


@dataclass(frozen=True, eq=False)
class JointAngles:
    """Angles in the picture plane over time: `values` [T, A] degrees in the order of `ANGLES`, NaN where not known."""

    times: NDArray[np.float64]
    values: NDArray[np.float64]

    def at(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Interpolate at seconds [S]: [S, A]; NaN where a neighboring frame has none, or outside the recording."""
        columns = []
        for name, column in zip(ANGLES, self.values.T, strict=True):
            period = PERIODS.get(name)
            turns = np.exp(2j * np.pi * column / period) if period else column
            found = np.interp(seconds, self.times, turns, left=np.nan, right=np.nan)
            columns.append(np.angle(found) / (2 * np.pi) * period if period else np.real(found))
        return np.stack(columns, axis=1)


def joint_angles(pose: Pose) -> JointAngles:
    """Measure the angles of `ANGLES` in every frame; a joint that the pose lacks or that is hidden leaves a gap."""
    points = smooth_points(pose)
    shoulders, hips = (_middle(points, f"left_{name}", f"right_{name}") for name in ("shoulder", "hip"))
    unit = trunk_length(points)
    columns = [_limb_angle(*(points[name] for name in names), unit=unit) for names in LIMB_ANGLES.values()]
    for a, b in LINE_ANGLES.values():
        across, down = _segment(points[a], points[b], unit=unit).T
        # Modulo 180: which of the two joints is on the right of the picture does not matter.
        columns.append((np.degrees(np.arctan2(-down, across)) + 90) % 180 - 90)
    across, down = _segment(hips, shoulders, unit=unit).T
    columns.append(np.degrees(np.arctan2(across, -down)))
    return JointAngles(pose.times, np.stack(columns, axis=1))


def angle_differences(some: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Subtract angles [S, A], in the order of `ANGLES`; the difference of two directions is the smaller turn."""
    difference = some - others
    for number, name in enumerate(ANGLES):
        if period := PERIODS.get(name):
            difference[:, number] = (difference[:, number] + period / 2) % period - period / 2
    return difference


def smooth_points(pose: Pose) -> Mapping[str, Points]:
    """Smooth the positions of visible joints over time; short gaps are interpolated, long ones are NaN."""
    step = float(np.median(np.diff(pose.times))) if len(pose) > 1 else 1.0
    reach = int(np.ceil(3 * SMOOTHING_SECONDS / step))
    seen = (pose.visibility >= MIN_VISIBILITY) & pose.found[:, None]
    smooth = {name: np.full((len(pose), 2), np.nan) for a in LIMB_ANGLES.values() for name in a}
    for name in smooth:
        if name in pose.joints:
            j = pose.joints.index(name)
            smooth[name] = _smooth(pose.times, pose.keypoints[:, j].astype(np.float64), seen[:, j], reach=reach)
    return smooth


def trunk_length(points: Mapping[str, Points]) -> float:
    """Measure the trunk from hips to shoulders, in pixels, as the median over time; NaN where it is never visible."""
    shoulders, hips = (_middle(points, f"left_{name}", f"right_{name}") for name in ("shoulder", "hip"))
    lengths = np.linalg.norm(shoulders - hips, axis=1)
    return float(np.median(lengths[np.isfinite(lengths)])) if np.isfinite(lengths).any() else np.nan


def mirror_pose(pose: Pose) -> Pose:
    """Mirror a pose in the picture: a left-handed person becomes a right-handed one."""
    order = mirrored(pose.joints)
    keypoints = pose.keypoints[:, order].copy()
    keypoints[..., 0] = pose.size[1] - 1 - keypoints[..., 0]
    world = None if pose.world is None else pose.world[:, order] * np.array([-1, 1, 1], np.float32)
    return replace(pose, keypoints=keypoints, visibility=pose.visibility[:, order], world=world)


def view_angles(pose: Pose) -> Degrees:
    """Estimate how far the trunk is turned from the camera, [T]: 0 faces it, 90 is seen from the side, 180 from behind.

    Shoulders and hips seen from an angle α appear cos α times as wide; from behind, left and right are exchanged.
    """
    points = smooth_points(pose)
    width = sum(points[f"left_{name}"][:, 0] - points[f"right_{name}"][:, 0] for name in ("shoulder", "hip"))
    full = (SHOULDER_WIDTH + HIP_WIDTH) * trunk_length(points)
    return np.asarray(np.degrees(np.arccos(np.clip(width / full, -1, 1))))


def facing(pose: Pose) -> str:
    """Find the side of the picture to which the face usually points: "left", "right", or "" for neither."""
    needed = ("nose", "left_ear", "right_ear")
    if not set(needed) <= set(pose.joints):
        return ""
    nose, left, right = (pose.keypoints[:, pose.joints.index(name), 0] for name in needed)
    unit = trunk_length(smooth_points(pose))
    if not (pose.found.any() and unit > 0):
        return ""
    offset = float(np.median(((nose - (left + right) / 2) / unit)[pose.found]))
    return "" if abs(offset) < MIN_NOSE_OFFSET else "right" if offset > 0 else "left"


def _smooth(times: NDArray[np.float64], points: Points, seen: NDArray[np.bool_], *, reach: int) -> Points:
    """Average positions [T, 2] of seen frames by a Gaussian over time, after short gaps are interpolated."""
    if not seen.any():
        return np.full_like(points, np.nan)
    known = np.flatnonzero(seen)
    after = known[np.minimum(np.searchsorted(known, np.arange(len(seen))), len(known) - 1)]
    before = known[np.maximum(np.searchsorted(known, np.arange(len(seen)), side="right") - 1, 0)]
    inside = (before <= np.arange(len(seen))) & (after >= np.arange(len(seen)))
    usable = seen | (inside & (times[after] - times[before] <= MAX_GAP_SECONDS + 1e-9))
    filled = np.stack([np.interp(times, times[known], column) for column in points[known].T], axis=1)
    total, weights = np.zeros_like(points), np.zeros(len(seen))
    for offset in range(-reach, reach + 1):
        here = np.arange(max(0, -offset), min(len(seen), len(seen) - offset))
        lag = (times[here + offset] - times[here]) / SMOOTHING_SECONDS
        weight = np.exp(-0.5 * lag**2) * usable[here + offset]
        total[here] += weight[:, None] * filled[here + offset]
        weights[here] += weight
    smooth = total / np.maximum(weights, 1e-12)[:, None]
    smooth[~usable] = np.nan
    return np.asarray(smooth)


def _middle(points: Mapping[str, Points], left: str, right: str) -> Points:
    return (points[left] + points[right]) / 2


def _segment(start: Points, end: Points, *, unit: float) -> Points:
    """Subtract two joints; NaN where they appear so near each other that the direction is noise."""
    segment = end - start
    short = np.linalg.norm(segment, axis=1) < (MIN_SEGMENT * unit if np.isfinite(unit) else 1.0)
    return np.where(short[:, None], np.nan, segment)


def _limb_angle(a: Points, b: Points, c: Points, *, unit: float) -> Degrees:
    first, second = _segment(b, a, unit=unit), _segment(b, c, unit=unit)
    turn = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    return np.asarray(np.degrees(np.abs(np.arctan2(turn, (first * second).sum(1)))))


# Groups of joints of `JOINTS13` whose motion is compared; the names of all numbers of a comparison.
_GROUPS = {"wrists": (5, 6), "arms": (3, 4, 5, 6), "body": tuple(range(13))}
MOTION_NUMBERS = (
    *("posture", "mirrored_posture", "posture_ratio", "mirrored_posture_ratio"),
    *("mirrored", "upright", "legs", "visible"),
    *(
        f"{name}_{number}"
        for name in _GROUPS
        for number in ("way", "mirrored_way", "rise", "place", "height", "extent")
    ),
)


def compare_motion(
    x: tuple[NDArray[np.float32], NDArray[np.bool_]],
    y: tuple[NDArray[np.float32], NDArray[np.bool_]],
    path: NDArray[np.int64],
    *,
    frames: NDArray[np.float64],
    reach: int,
) -> NDArray[np.float64]:
    """Compare joints [M, 13, 2] and their visibility with others along a path [L, 2]: `MOTION_NUMBERS`.

    Distances of postures are in torso lengths, along the path and over the mean of all pairs; the motion over `reach`
    frames to either side, and the places of joints without their means, by cosines. `frames` [M] are those of y that go
    with the frames of x.
    """
    (a, shown), (b, others) = ((_in_torsos(points), visible) for points, visible in (x, y))
    order = mirrored(JOINTS13)
    mirror = b[:, order] * np.array([-1, 1], np.float32)
    i, j = path.T
    rows, columns = (np.unique(np.linspace(0, len(side) - 1, 40).astype(int)) for side in (a, b))
    grid = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2).T
    near, far = (_distance(a[m], shown[m], b[n], others[n]) for m, n in ((i, j), grid))
    near2, far2 = (_distance(a[m], shown[m], mirror[n], others[n][:, order]) for m, n in ((i, j), grid))
    ratios = near / max(far, 1e-9), near2 / max(far2, 1e-9)
    upright = min(float((side[:, [1, 2], 1].mean(1) < 0).mean()) for side in (a, b))
    legs = abs(float(shown[:, 9:].mean()) - float(others[:, 9:].mean()))
    numbers = [near, min(near, near2), ratios[0], min(ratios), near - near2, upright, legs]
    numbers.append(float(min(shown.mean(), others.mean())))
    at = np.clip(np.rint(frames), 0, len(b) - 1).astype(int)
    k = min(max(1, reach), (len(a) - 1) // 2)
    for joints in _GROUPS.values():
        mine, theirs, flipped = (side[:, joints] for side in (a, b[at], mirror[at]))
        ways = [side[2 * k :] - side[: -2 * k] for side in (mine, theirs, flipped)]
        same = _cosine(ways[0], ways[1])
        numbers += [same, max(same, _cosine(ways[0], ways[2])), _cosine(ways[0][..., 1], ways[1][..., 1])]
        places = [side - side.mean(0) for side in (mine, theirs, b[:, joints])]
        extents = [max(float(np.abs(each).mean()), 1e-3) for each in (places[0], places[2])]
        numbers += [_cosine(places[0], places[1]), _cosine(places[0][..., 1], places[1][..., 1])]
        numbers.append(abs(float(np.log(extents[0] / extents[1]))))
    return np.array(numbers, np.float64)


def _in_torsos(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Center poses [T, 13, 2] between the hips, in torso lengths of the clip."""
    hips = points[:, [7, 8]].mean(1, keepdims=True)
    torso = float(np.median(np.linalg.norm(points[:, [1, 2]].mean(1) - hips[:, 0], axis=1)))
    return np.asarray((points - hips) / max(torso, 1e-3), np.float32)


def _distance(
    a: NDArray[np.float32], shown: NDArray[np.bool_], b: NDArray[np.float32], others: NDArray[np.bool_]
) -> float:
    """Average the distance of the joints that both show over pairs of poses [L, 13, 2]."""
    weight = (shown & others).astype(np.float64)
    apart = (np.linalg.norm(a - b, axis=-1) * weight).sum(1) / np.maximum(weight.sum(1), 1)
    return float(apart.mean())


def _cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float((a * b).sum() / max(np.sqrt(float(np.square(a).sum()) * float(np.square(b).sum())), 1e-12))
