"""A track is plausible where one person is seen steadily, upright and large enough; each flaw lowers its factor."""

from dataclasses import replace

import numpy as np
import pytest

from inphase.pose.body import plausibility, plausibility_factors
from inphase.pose.pose import Pose
from tests.pose.people import JOINTS

_FIGURE = {
    "shoulder": (0.25, -1.0),
    "elbow": (0.4, -0.5),
    "wrist": (0.4, 0.0),
    "hip": (0.15, 0.0),
    "knee": (0.15, 0.8),
    "ankle": (0.15, 1.6),
}


def make_person(length: int = 60, *, torso: float = 40.0, fps: float = 30.0) -> Pose:
    """Make somebody with a torso of so many pixels who bends the left arm to and fro."""
    points = np.zeros((length, len(JOINTS), 2))
    for joint, (x, y) in _FIGURE.items():
        for side, sign in (("left", 1), ("right", -1)):
            points[:, JOINTS.index(f"{side}_{joint}")] = sign * x, y
    angle = np.sin(np.arange(length) / fps * 6)
    elbow = points[:, JOINTS.index("left_elbow")]
    points[:, JOINTS.index("left_wrist")] = elbow + 0.5 * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    world = np.concatenate([points, np.zeros((*points.shape[:2], 1))], axis=2) * 0.5
    return Pose(
        JOINTS,
        keypoints=(points * torso + [160, 120]).astype(np.float32),
        visibility=np.full(points.shape[:2], 0.98, np.float32),
        found=np.ones(length, np.bool_),
        times=np.arange(length) / fps,
        size=(240, 320),
        world=world.astype(np.float32),
    )


def turned(pose: Pose) -> Pose:
    return replace(pose, keypoints=np.float32(240) - pose.keypoints)


def test_somebody_seen_well_is_plausible() -> None:
    factors = plausibility_factors(make_person())
    assert list(factors) == ["coverage", "confidence", "upright", "steadiness", "constancy", "size"]
    assert min(factors.values()) > 0.95
    assert plausibility(make_person()) == pytest.approx(np.prod(list(factors.values())))
    assert plausibility(make_person(fps=10)) > 0.9, "images far apart differ by motion"


def test_each_flaw_lowers_its_own_factor() -> None:
    good, rng = make_person(), np.random.default_rng(0)
    noise = rng.normal(0, 8, good.keypoints.shape).astype(np.float32)
    assert good.world is not None
    stretch = rng.uniform(0.5, 1.5, (60, 1, 1)).astype(np.float32)
    flawed = {
        "coverage": replace(good, found=np.arange(60) < 12),
        "confidence": replace(good, visibility=np.full((60, 33), 0.3, np.float32)),
        "upright": turned(good),
        "steadiness": replace(good, keypoints=good.keypoints + noise),
        "constancy": replace(good, world=good.world * stretch),
        "size": make_person(torso=9.0),
    }
    for name, pose in flawed.items():
        factors = plausibility_factors(pose)
        assert min(factors, key=lambda key: factors[key]) == name
        assert factors[name] < 0.6
        assert plausibility(pose) < 0.6 < plausibility(good)


def test_a_body_larger_than_the_picture_is_not_plausible() -> None:
    assert plausibility_factors(make_person(torso=100))["size"] == 1
    assert plausibility_factors(make_person(torso=400))["size"] < 0.5


def test_nobody_has_no_plausibility_and_one_frame_has_some() -> None:
    good = make_person()
    assert plausibility(replace(good, found=np.zeros(60, np.bool_))) == 0
    assert plausibility(make_person(1)) > 0.9


def test_factors_without_their_joints_are_left_out() -> None:
    pose = make_person(5)
    order = [JOINTS.index(name) for name in ("nose", "left_wrist")]
    bare = Pose(
        ("nose", "left_wrist"), pose.keypoints[:, order], pose.visibility[:, order], pose.found, pose.times, pose.size
    )
    assert list(plausibility_factors(bare)) == ["coverage", "confidence"]
