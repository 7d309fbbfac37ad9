"""Angles in the picture plane: measured right, smoothed, with gaps where joints cannot be trusted."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.pose.body import ANGLES, angle_differences, facing, joint_angles, mirror_pose, view_angles
from inphase.pose.pose import JOINTS13, Pose

# A person of 100 pixels' trunk, seen from the front: their left is on the right of the picture.
STANDING = {
    "head": (100, 20),
    "left_shoulder": (136, 50),
    "right_shoulder": (64, 50),
    "left_elbow": (136, 110),
    "right_elbow": (64, 110),
    "left_wrist": (136, 160),
    "right_wrist": (64, 160),
    "left_hip": (121, 150),
    "right_hip": (79, 150),
    "left_knee": (121, 240),
    "right_knee": (79, 240),
    "left_ankle": (121, 330),
    "right_ankle": (79, 330),
}


def make_pose(frames: int = 30, rate: float = 30.0, **moved: NDArray[np.float64]) -> Pose:
    """Make a standing person; joints named in `moved` have positions [T, 2] of their own."""
    points = np.repeat(np.array([list(STANDING.values())], np.float32), frames, axis=0)
    for name, places in moved.items():
        points[:, JOINTS13.index(name)] = places
    seen = np.ones((frames, len(JOINTS13)), np.float32)
    return Pose(JOINTS13, points, seen, np.ones(frames, np.bool_), np.arange(frames) / rate, (360, 200))


def angle(pose: Pose, name: str) -> NDArray[np.float64]:
    return joint_angles(pose).values[:, ANGLES.index(name)]


def around(center: tuple[float, float], degrees: NDArray[np.float64], length: float = 50.0) -> NDArray[np.float64]:
    """Place a joint around another; 0 degrees is down, 90 to the right."""
    turn = np.radians(degrees)
    return np.stack([center[0] + length * np.sin(turn), center[1] + length * np.cos(turn)], axis=1)


def test_a_bent_elbow_is_measured_and_straight_limbs_are_180() -> None:
    bend = np.linspace(0, 120, 30)
    pose = make_pose(left_wrist=around(STANDING["left_elbow"], bend))
    np.testing.assert_allclose(angle(pose, "left_elbow")[2:-2], 180 - bend[2:-2], atol=0.5)
    for name in ("right_elbow", "left_knee", "right_knee"):
        np.testing.assert_allclose(angle(pose, name), 180, atol=0.1)


def test_lines_and_spine_are_measured_against_the_picture() -> None:
    still = make_pose()
    for name in ("shoulder_line", "hip_line", "spine_tilt"):
        np.testing.assert_allclose(angle(still, name), 0, atol=1e-3)
    raised = make_pose(left_shoulder=np.full((30, 2), (136, 14)), right_shoulder=np.full((30, 2), (64, 86)))
    np.testing.assert_allclose(angle(raised, "shoulder_line"), 45, atol=1e-3)
    leaning = make_pose(left_shoulder=np.full((30, 2), (236, 50)), right_shoulder=np.full((30, 2), (164, 50)))
    np.testing.assert_allclose(angle(leaning, "spine_tilt"), 45, atol=1e-3)


def test_the_difference_of_two_lines_is_the_smaller_turn() -> None:
    some, others = np.zeros((1, len(ANGLES))), np.zeros((1, len(ANGLES)))
    for name, a, b in (("shoulder_line", 85, -85), ("spine_tilt", 170, -170), ("left_elbow", 170, 20)):
        some[0, ANGLES.index(name)], others[0, ANGLES.index(name)] = a, b
    found = dict(zip(ANGLES, angle_differences(some, others)[0], strict=True))
    assert (found["shoulder_line"], found["spine_tilt"], found["left_elbow"]) == (-10, -20, 150)


def test_a_hidden_joint_leaves_a_gap_and_a_short_one_is_bridged() -> None:
    pose = make_pose()
    seen = pose.visibility.copy()
    seen[10:20, JOINTS13.index("left_wrist")] = 0.1
    seen[5:7, JOINTS13.index("right_wrist")] = 0.1
    hidden = replace(pose, visibility=seen)
    assert np.flatnonzero(np.isnan(angle(hidden, "left_elbow"))).tolist() == list(range(10, 20))
    assert np.isfinite(angle(hidden, "right_elbow")).all()
    at = joint_angles(hidden).at(np.array([9 / 30, 9.5 / 30, 15 / 30, 20 / 30]))[:, ANGLES.index("left_elbow")]
    assert np.isfinite(at).tolist() == [True, False, False, True], "nothing is interpolated across a gap"


def test_frames_without_the_person_are_gaps() -> None:
    found = np.ones(30, np.bool_)
    found[10:] = False
    pose = replace(make_pose(), found=found)
    assert np.isnan(joint_angles(pose).values[10:]).all()
    assert np.isfinite(joint_angles(pose).values[:10]).all()


def test_a_limb_that_points_to_the_camera_has_no_angle() -> None:
    pose = make_pose(left_wrist=np.full((30, 2), STANDING["left_elbow"]) + 4.0)
    assert np.isnan(angle(pose, "left_elbow")).all()
    assert np.isfinite(angle(pose, "right_elbow")).all()


def test_a_pose_that_lacks_joints_has_gaps_for_their_angles() -> None:
    pose = make_pose()
    kept = [k for k, name in enumerate(JOINTS13) if "ankle" not in name]
    lacking = Pose(
        tuple(JOINTS13[k] for k in kept),
        pose.keypoints[:, kept],
        pose.visibility[:, kept],
        pose.found,
        pose.times,
        pose.size,
    )
    assert np.isnan(angle(lacking, "left_knee")).all()
    assert np.isfinite(angle(lacking, "left_elbow")).all()


@pytest.mark.parametrize("rate", [30.0, 120.0])
def test_jitter_is_smoothed_and_motion_is_kept(rate: float) -> None:
    frames = round(2 * rate)
    bend = 60 + 50 * np.sin(2 * np.pi * np.arange(frames) / rate)  # one swing a second
    noise = np.random.default_rng(0).normal(0, 1.5, (frames, 2))
    rough = make_pose(frames, rate, left_wrist=around(STANDING["left_elbow"], bend) + noise)
    error = np.abs(angle(rough, "left_elbow") - (180 - bend))
    raw = np.abs(np.degrees(np.arctan2(noise[:, 0], 50.0)))
    assert error[3:-3].mean() < 0.8 * raw.mean() if rate > 60 else error[3:-3].mean() < raw.mean()
    clean = make_pose(frames, rate, left_wrist=around(STANDING["left_elbow"], bend))
    assert np.abs(angle(clean, "left_elbow") - (180 - bend))[3:-3].max() < 2


def test_a_mirror_image_exchanges_the_sides() -> None:
    pose = make_pose(left_wrist=around(STANDING["left_elbow"], np.full(30, 70.0)))
    other = mirror_pose(pose)
    np.testing.assert_allclose(angle(other, "right_elbow"), angle(pose, "left_elbow"), atol=1e-3)
    np.testing.assert_allclose(angle(other, "left_elbow"), 180, atol=0.1)
    np.testing.assert_allclose(mirror_pose(other).keypoints, pose.keypoints, atol=1e-4)


def test_the_view_follows_from_the_widths_of_the_trunk() -> None:
    pose = make_pose()
    middle = pose.keypoints[..., :1].mean(1, keepdims=True)
    for degrees in (0, 45, 90, 135, 180):
        turned = pose.keypoints.copy()
        turned[..., :1] = middle + (turned[..., :1] - middle) * np.cos(np.radians(degrees))
        assert np.median(view_angles(replace(pose, keypoints=turned))) == pytest.approx(degrees, abs=12)
    assert facing(pose) == "", "unknown without a nose and ears"


def test_the_face_separates_left_from_right() -> None:
    pose = make_pose()
    extra = np.repeat(np.array([[[115, 20], [98, 20], [102, 20]]], np.float32), len(pose), axis=0)
    joints = (*pose.joints, "nose", "left_ear", "right_ear")
    points = np.concatenate([pose.keypoints, extra], axis=1)
    faced = Pose(joints, points, np.ones(points.shape[:2], np.float32), pose.found, pose.times, pose.size)
    assert facing(faced) == "right"
    assert facing(mirror_pose(faced)) == "left"
