"""Bones keep their lengths in every pose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.pose.pose import JOINTS13, bones
from inphase.stage import ACTIONS, JOINTS
from inphase.stage.actions import Action, interpolate
from inphase.stage.physique import COLUMN, JOINT, STANDING, Physique, pose_body, reach, sample_physique

coordinate = st.floats(-2, 2)
vectors = st.tuples(coordinate, coordinate, coordinate).map(lambda v: np.array([v]))


@given(vectors, vectors, st.floats(0.1, 0.6), st.floats(0.1, 0.6), vectors)
def test_inverse_kinematics_keeps_both_bones(
    start: np.ndarray, target: np.ndarray, first: float, second: float, pole: np.ndarray
) -> None:
    middle, end = reach(start, target, first, second, pole + 1e-3)
    distance = np.linalg.norm(target - start)
    along = (target - start) / max(distance, 1e-9)
    if distance < 1e-3 or np.linalg.norm(np.cross(pole + 1e-3, along)) < 1e-3:
        return  # no direction to bend in
    assert np.linalg.norm(middle - start) == pytest.approx(first, abs=1e-6)
    assert np.linalg.norm(end - middle) == pytest.approx(second, abs=1e-6)


def test_inverse_kinematics_by_hand() -> None:
    middle, end = reach(np.zeros((1, 3)), np.array([[0.6, 0.0, 0.0]]), 0.5, 0.5, np.array([[0.0, 0.0, 1.0]]))
    np.testing.assert_allclose(middle, [[0.3, 0.0, 0.4]], atol=1e-9)  # the 3-4-5 triangle
    np.testing.assert_allclose(end, [[0.6, 0.0, 0.0]], atol=1e-9)


def test_a_target_out_of_reach_is_approached() -> None:
    _, end = reach(np.zeros((1, 3)), np.array([[0.0, 5.0, 0.0]]), 0.3, 0.2, np.array([[1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(end, [[0.0, 0.4995, 0.0]], atol=1e-9)


@pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda action: action.name)
def test_bones_keep_their_lengths_through_every_action(action: Action) -> None:
    body = sample_physique(np.random.default_rng(7))
    joints = pose_body(body, interpolate(action.times, action.poses, np.linspace(0, 1, 60))).joints
    assert len(bones(JOINTS)) == 16
    for start, end in bones(JOINTS):
        length = np.linalg.norm(joints[:, end] - joints[:, start], axis=-1)
        np.testing.assert_allclose(length, length[0], rtol=1e-6, err_msg=f"{JOINTS[start]} to {JOINTS[end]}")
    assert joints[..., 2].min() > 0, "no joint is below the floor"


def test_standing_at_ease() -> None:
    body = Physique()
    joints = pose_body(body, np.array([list(STANDING.values())])).joints[0]
    assert joints[JOINT["left_shoulder"], 1] == pytest.approx(body.shoulders)
    assert joints[JOINT["right_shoulder"], 1] == pytest.approx(-body.shoulders)
    assert joints[JOINT["neck"], 2] == pytest.approx(STANDING["z"] * body.leg + body.ankle + body.trunk)
    np.testing.assert_allclose(joints[[JOINT["left_ankle"], JOINT["right_ankle"]], 2], body.ankle, atol=2e-3)
    assert joints[JOINT["crown"], 2] == joints[:, 2].max()
    assert joints[JOINT["left_knee"], 0] > joints[JOINT["left_hip"], 0], "knees bend forward"


def test_turning_to_the_left_brings_the_right_shoulder_forward() -> None:
    controls = np.array([list(STANDING.values())])
    controls[0, COLUMN["yaw"]] = 90
    joints = pose_body(Physique(), controls).joints[0]
    assert joints[JOINT["right_shoulder"], 0] == pytest.approx(Physique().shoulders)
    controls[0, COLUMN["yaw"]], controls[0, COLUMN["pitch"]] = 0, 90
    assert pose_body(Physique(), controls).joints[0, JOINT["neck"], 0] == pytest.approx(Physique().trunk)


def test_the_joints_of_penn_action_are_thirteen_in_its_order() -> None:
    assert len(JOINTS) == 17
    names = [
        f"{side}_{part}"
        for part in ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
        for side in ("left", "right")
    ]
    assert list(JOINTS13) == ["head", *names]
    assert set(JOINTS13) < set(JOINTS)


def test_bodies_differ() -> None:
    bodies = {sample_physique(np.random.default_rng(seed)) for seed in range(50)}
    assert len(bodies) == 50
    heights = [body.leg + body.trunk for body in bodies]
    assert 0.1 < max(heights) - min(heights) < 0.9
