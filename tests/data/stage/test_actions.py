"""Every action says what it must, and monotone interpolation keeps what key poses say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.data.stage import ACTIONS
from inphase.data.stage.controls import CONTROLS, STANDING, Action, interpolate

EVERY = pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda action: action.name)


def test_there_are_enough_actions_of_either_kind() -> None:
    symmetric = [action for action in ACTIONS.values() if action.symmetric]
    assert len(ACTIONS) >= 10
    assert {"squat", "push_up"} <= {action.name for action in symmetric}
    assert len(symmetric) < len(ACTIONS) / 2


@EVERY
def test_an_action_has_phases_in_order_and_an_event(action: Action) -> None:
    starts = list(action.phases.values())
    assert 3 <= len(starts) <= 6
    assert starts[0] == 0
    assert (np.diff(starts) > 0.04).all()
    assert starts[-1] < 0.96
    assert all(0.1 < time < 0.95 for time in action.events.values())


@EVERY
def test_phases_change_at_their_canonical_times(action: Action) -> None:
    starts = np.array(list(action.phases.values()))
    assert action.phase_at(starts).tolist() == list(range(len(starts)))
    assert action.phase_at(starts[1:] - 1e-9).tolist() == list(range(len(starts) - 1))
    assert action.phase_at(np.array([1.0]))[0] == len(starts) - 1


@EVERY
def test_only_repetitions_look_the_same_backwards(action: Action) -> None:
    at = np.linspace(0, 1, 101)
    there = interpolate(action.times, action.poses, at)
    assert np.allclose(there, there[::-1], atol=1e-9) == action.symmetric


@EVERY
def test_interpolation_passes_through_every_key_pose(action: Action) -> None:
    np.testing.assert_allclose(interpolate(action.times, action.poses, action.times), action.poses, atol=1e-9)


@given(st.lists(st.integers(-1000, 1000).map(lambda value: value / 100), min_size=3, max_size=8), st.integers(0, 2**31))
def test_interpolation_never_passes_a_neighbour(values: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.concatenate([[0.0], np.cumsum(rng.uniform(0.05, 1.0, len(values) - 1))])
    poses = np.array(values)[:, None]
    at = np.linspace(0, times[-1], 200)
    left = np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(times) - 2)
    low = np.minimum(poses[left, 0], poses[left + 1, 0])
    high = np.maximum(poses[left, 0], poses[left + 1, 0])
    curve = interpolate(times, poses, at)[:, 0]
    assert (curve >= low - 1e-9).all()
    assert (curve <= high + 1e-9).all()


def test_a_pose_carries_over_what_it_does_not_set() -> None:
    action = Action(
        name="nod",
        keys=((0.0, "up", {"nod": -10}), (0.5, "down", {"nod": 30, "x": 1}), (1.0, "rest", {})),
        phases={"all": 0.0},
        events={"down": 0.5},
        sound="pop",
    )
    assert action.poses[2].tolist() == action.poses[1].tolist()
    assert action.poses[0, CONTROLS.index("z")] == STANDING["z"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (((0.0, "a", {"elbow": 1.0}), (1.0, "b", {})), "elbow"),
        (((0.0, "a", {}), (0.9, "b", {})), r"from 0 to 1, got \[0.0, 0.9\]"),
        (((0.0, "a", {}), (0.5, "b", {}), (0.5, "c", {}), (1.0, "d", {})), "must rise"),
    ],
)
def test_mistaken_keys_are_named(keys: tuple[tuple[float, str, dict[str, float]], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Action(name="wrong", keys=keys, phases={"all": 0.0}, events={"x": 0.5}, sound="pop")
