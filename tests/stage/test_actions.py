"""Actions are complete and parse from TOML; interpolation passes through key poses without overshoot."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.stage import ACTIONS
from inphase.stage.actions import VECTORS, Action, interpolate, parse_actions
from inphase.stage.figure import Ball, Slab, Waypoint
from inphase.stage.physique import CONTROLS, STANDING

EVERY = pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda action: action.name)


def test_the_set_has_enough_symmetric_and_other_actions() -> None:
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
def test_only_symmetric_actions_equal_their_reverse(action: Action) -> None:
    at = np.linspace(0, 1, 101)
    there = interpolate(action.times, action.poses, at)
    assert np.allclose(there, there[::-1], atol=1e-9) == action.symmetric


@EVERY
def test_interpolation_passes_through_every_key_pose(action: Action) -> None:
    np.testing.assert_allclose(interpolate(action.times, action.poses, action.times), action.poses, atol=1e-9)


@given(st.lists(st.integers(-1000, 1000).map(lambda value: value / 100), min_size=3, max_size=8), st.integers(0, 2**31))
def test_interpolation_never_overshoots_a_neighbor(values: list[float], seed: int) -> None:
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
def test_errors_name_wrong_key_poses(keys: tuple[tuple[float, str, dict[str, float]], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Action(name="wrong", keys=keys, phases={"all": 0.0}, events={"x": 0.5}, sound="pop")


MINIMAL = """
[wave]
sound = "pop"
phases = { up = 0.0, down = 0.5 }
events = { top = 0.5 }
KEYS
"""


def parse(keys: str = 'keys = [[0, "low", {}], [1, "high", {}]]', *, more: str = "") -> Action:
    return parse_actions(MINIMAL.replace("KEYS", f"{keys}\n{more}"))["wave"]


def test_the_parser_keeps_the_order_of_the_file() -> None:
    text = MINIMAL.replace("KEYS", 'keys = [[0, "low", {}], [1, "high", {}]]')
    names = ["wave", "bow", "nod", "abc"]
    parsed = parse_actions("".join(text.replace("wave", name) for name in names))
    assert list(parsed) == [action.name for action in parsed.values()] == names
    assert list(ACTIONS)[:2] + list(ACTIONS)[-1:] == ["golf_swing", "pitch", "push_up"]


def test_a_vector_key_sets_its_controls() -> None:
    keys = """keys = [
      [0.0, "low", { hands = [0.1, 0.2, 0.3], left_foot = [1.0, 2.0, 3.0] }, { x = 4.0, pitch = 30 }],
      [1.0, "high", { grip = [0.5, 0.6, 0.7], club = [0.0, 0.8, 0.9], rfz = 0.1 }],
    ]"""
    (_, _, low), (_, _, high) = parse(keys).keys
    assert low == {
        **{"lx": 0.1, "ly": 0.2, "lz": 0.3, "rx": 0.1, "ry": -0.2, "rz": 0.3},
        **{"lfx": 1.0, "lfy": 2.0, "lfz": 3.0, "x": 4.0, "pitch": 30},
    }
    assert high == {
        **{"lx": 0.5, "ly": 0.6, "lz": 0.7, "rx": 0.5, "ry": 0.6, "rz": 0.7},
        **{"px": 0.0, "py": 0.8, "pz": 0.9, "rfz": 0.1},
    }


@pytest.mark.parametrize("key", VECTORS)
def test_vector_keys_name_controls(key: str) -> None:
    assert {control.removeprefix("-") for control in VECTORS[key]} <= set(CONTROLS)
    assert key not in CONTROLS


def test_props_parse_into_their_classes() -> None:
    more = """props = [
      { kind = "ball", radius = 0.1, track = [
        { time = 0, place = "left", when = 0.5 },
        { time = 1, place = [1, 2, 3] },
      ] },
      { kind = "slab", half_size = [0.2, 0.3], height = 0.5 },
    ]
    rush = [0.2, 0.4]"""
    action = parse(more=more)
    track = (Waypoint(0, "left", when=0.5), Waypoint(1, (1, 2, 3)))
    assert action.props == (Ball(radius=0.1, track=track), Slab(half_size=(0.2, 0.3), height=0.5))
    assert action.rush == (0.2, 0.4)


@pytest.mark.parametrize(
    ("keys", "more", "message"),
    [
        (
            'keys = [[0, "a", { elbow = 1 }]]',
            "",
            "wave: key pose 'a' at 0 sets the unknown control elbow: choose from x, ",
        ),
        ('keys = [[0, "a", { x = "far" }]]', "", "wave: key pose 'a' at 0: x must be a number, got 'far'"),
        ('keys = [[0, "a", { grip = [1, 2] }]]', "", r"grip must be three numbers \[x, y, z\], got \[1, 2\]"),
        ('keys = [[0, "a", { grip = [1, 2, 3] }, { lx = 1 }]]', "", "key pose 'a' at 0 sets lx twice"),
        (
            "keys = [[0, { x = 1 }]]",
            "",
            r'wave: a key pose is \[time, "name", { controls }, ...\], got \[0, {\'x\': 1}\]',
        ),
        ("keys = []", "", "must rise from 0 to 1"),
        ("", "", "wave lacks keys"),
        ("", "color = 1", "wave has unknown fields color: choose from name, keys, phases"),
        ("", 'props = [{ kind = "hammer" }]', "wave: unknown kind of prop 'hammer': choose from club, bar, ball"),
        ("", 'props = [{ kind = "bar", overhang = 1 }]', "wave: bar lacks plate"),
        (
            "",
            'props = [{ kind = "bar", weight = 1 }]',
            "wave: bar has unknown fields weight: choose from overhang, plate",
        ),
        (
            "",
            'props = [{ kind = "ball", radius = 1, track = [{ time = 0, where = "tip" }] }]',
            r"wave: ball\.track has unknown fields where: choose from time, place, when, rise",
        ),
        (
            "",
            'props = [{ kind = "ball", radius = 1, track = [{ time = 0, place = "nose" }] }]',
            "unknown place 'nose': choose from left, right, hands, fingers, foot, tip",
        ),
    ],
)
def test_errors_of_the_parser_name_the_value_and_the_choices(keys: str, more: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(keys, more=more)
