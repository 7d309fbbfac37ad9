"""Time passes forwards, at every pace, and linear stretch is not enough."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.data.stage import ACTIONS
from inphase.data.stage.warp import draw_warp, stretch_error, wander


@given(st.integers(0, 2**31), st.integers(2, 300))
def test_canonical_time_rises_strictly_from_0_to_1(seed: int, frames: int) -> None:
    progress = draw_warp(np.random.default_rng(seed), frames=frames)
    assert len(progress) == frames
    assert progress[0] == 0
    assert progress[-1] == 1
    assert (np.diff(progress) > 0).all()


def test_linear_stretch_misses_by_about_015_of_the_duration() -> None:
    errors = []
    for action in ACTIONS.values():
        warps = [draw_warp(np.random.default_rng(i), frames=90, rush=action.rush) for i in range(12)]
        errors += [stretch_error(a, b) for a in warps for b in warps if a is not b]
    assert 0.13 < np.mean(errors) < 0.18


def test_stretch_error_by_hand() -> None:
    # One performer is at s at time s, the other at time s²: the error is the mean of s − s², 1/6.
    even = np.linspace(0, 1, 1001)
    assert stretch_error(even, even) == pytest.approx(0, abs=1e-12)
    assert stretch_error(even, np.sqrt(even)) == pytest.approx(1 / 6, abs=1e-3)


def test_there_are_pauses_but_not_while_something_flies() -> None:
    slow, rushed = [], []
    for seed in range(200):
        progress = draw_warp(np.random.default_rng(seed), frames=400, rush=(0.4, 0.8))
        pace = np.diff(progress) * 400
        inside = (progress[1:] > 0.42) & (progress[1:] < 0.78)
        slow.append(pace[~inside].min())
        rushed.append(pace[inside].min())
    assert np.median(slow) < 0.15, "somewhere everybody lingers"
    assert np.median(rushed) > 2.5 * np.median(slow)


def test_one_frame_is_no_performance() -> None:
    with pytest.raises(ValueError, match="at least 2 frames, got 1"):
        draw_warp(np.random.default_rng(0), frames=1)


@given(st.integers(0, 2**31), st.integers(5, 200))
def test_wandering_has_no_trend(seed: int, frames: int) -> None:
    curve = wander(np.random.default_rng(seed), frames=frames, columns=2)
    clock = np.arange(frames) - (frames - 1) / 2
    np.testing.assert_allclose(clock @ curve / frames, 0, atol=1e-9)


def test_wandering_is_smooth_and_of_unit_size() -> None:
    curve = wander(np.random.default_rng(0), frames=20_000, columns=1)[:, 0]
    assert curve.std() == pytest.approx(1, abs=0.1)
    assert np.diff(curve).std() < 0.4
