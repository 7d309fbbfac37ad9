"""Slates identify takes, cameras frame them, styles keep what they must, and time warps rise at every pace."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.data.video import SPLITS
from inphase.pose.pose import place_camera
from inphase.stage import ACTIONS
from inphase.stage.physique import COLUMN
from inphase.stage.take import (
    UP,
    Slate,
    fit_camera,
    sample_take,
    sample_warp,
    smooth_noise,
    stretch_error,
)


def test_random_generators_are_independent() -> None:
    aspects = ("body", "look", "timing", "style", "sway", "camera", "light", "shake", "background", "noise", "sound")
    first = {
        Slate(action, split, index).rng(aspect).integers(2**63)
        for action in ACTIONS
        for split in SPLITS
        for index in (0, 1)
        for aspect in aspects
    }
    assert len(first) == len(ACTIONS) * len(SPLITS) * 2 * len(aspects)


def test_seeds_and_levels_give_other_recordings() -> None:
    def body(seed: int) -> object:
        return sample_take(Slate("kick", "train", 0, seed=seed)).body

    assert body(0) != body(1)
    plain, hard = (sample_take(Slate("kick", "train", 0, level=level)) for level in ("plain", "hard"))
    np.testing.assert_array_equal(plain.progress, hard.progress)
    assert plain.appearance.clutter.shape != hard.appearance.clutter.shape


def test_an_id_names_its_slate() -> None:
    slate = Slate("bat_swing", "test", 12, seed=3, level="hard")
    assert Slate.parse(slate.id) == slate


def test_an_id_of_another_data_set_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"'0001' is not the id of a stage video; an example is 'stage-medium-0-train-squat"
    ):
        Slate.parse("0001")


def test_hands_on_one_club_stay_together_in_every_style() -> None:
    left, right = ([COLUMN[f"{side}{axis}"] for axis in "xyz"] for side in "lr")
    for index in range(5):
        take = sample_take(Slate("golf_swing", "train", index, level="hard"))
        np.testing.assert_array_equal(take.poses[:, left], take.poses[:, right])
        bar = sample_take(Slate("clean_and_jerk", "train", index, level="hard"))
        np.testing.assert_allclose(bar.poses[:, left], bar.poses[:, right] * np.array([1, -1, 1]))


def test_style_moves_no_event_and_keeps_repetitions_symmetric() -> None:
    for index in range(5):
        take = sample_take(Slate("serve", "train", index, level="hard"))
        fixed = np.isin(take.action.times, [*take.action.phases.values(), *take.action.events.values()])
        np.testing.assert_array_equal(take.times[fixed], take.action.times[fixed])
        assert (np.diff(take.times) > 0).all()
        assert np.abs(take.poses - take.action.poses).max() > 1
        joints = sample_take(Slate("squat", "train", index, level="hard")).grid_posture.joints
        np.testing.assert_allclose(joints, joints[::-1], atol=1e-9)


def test_projection_by_hand() -> None:
    # Four meters in front of the performer, one meter up, looking back at the performer: left is on the right.
    camera = place_camera(np.array([4.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0]), up=UP, focal=2.0)
    np.testing.assert_allclose(camera.project(np.array([0.0, 0.0, 1.0])), [0.5, 0.5, 4.0])
    np.testing.assert_allclose(camera.project(np.array([0.0, 0.5, 1.0])), [0.5 + 2 * 0.5 / 4, 0.5, 4.0])
    np.testing.assert_allclose(camera.project(np.array([2.0, 0.0, 1.4])), [0.5, 0.5 - 2 * 0.4 / 2, 2.0])


@given(st.floats(-180, 180), st.floats(0, 40), st.integers(0, 2**31))
def test_a_ray_leads_back_to_its_point(azimuth: float, elevation: float, seed: int) -> None:
    points = np.random.default_rng(seed).uniform([-1, -1, 0], [1, 1, 2], (20, 3))
    camera = fit_camera(points, azimuth=azimuth, elevation=elevation, distance=6.0, fill=0.8)
    seen = camera.project(points)
    back = camera.position + camera.rays(seen[:, 0], seen[:, 1]) * seen[:, 2:]
    np.testing.assert_allclose(back, points, atol=1e-9)


@given(st.floats(-180, 180), st.floats(0, 40), st.floats(0.3, 0.9), st.integers(0, 2**31))
def test_framing_fills_the_image_as_asked(azimuth: float, elevation: float, fill: float, seed: int) -> None:
    points = np.random.default_rng(seed).uniform([-1, -1, 0], [1, 1, 2], (20, 3))
    camera = fit_camera(points, azimuth=azimuth, elevation=elevation, distance=6.0, fill=fill)
    assert np.abs(camera.project(points)[:, :2] - 0.5).max() == pytest.approx(fill / 2)
    np.testing.assert_allclose(camera.axes @ camera.axes.T, np.eye(3), atol=1e-9)


def test_azimuth_0_is_in_front_and_90_to_the_left() -> None:
    points = np.random.default_rng(0).uniform([-1, -1, 0], [1, 1, 2], (20, 3))
    assert fit_camera(points, azimuth=0, elevation=5, distance=6, fill=0.8).position[0] > 4
    assert fit_camera(points, azimuth=90, elevation=5, distance=6, fill=0.8).position[1] > 4


@given(st.integers(0, 2**31), st.integers(2, 300))
def test_canonical_time_rises_strictly_from_0_to_1(seed: int, frames: int) -> None:
    progress = sample_warp(np.random.default_rng(seed), frames=frames)
    assert len(progress) == frames
    assert progress[0] == 0
    assert progress[-1] == 1
    assert (np.diff(progress) > 0).all()


def test_linear_stretch_misses_by_about_015_of_the_duration() -> None:
    errors = []
    for action in ACTIONS.values():
        warps = [sample_warp(np.random.default_rng(i), frames=90, rush=action.rush) for i in range(12)]
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
        progress = sample_warp(np.random.default_rng(seed), frames=400, rush=(0.4, 0.8))
        pace = np.diff(progress) * 400
        inside = (progress[1:] > 0.42) & (progress[1:] < 0.78)
        slow.append(pace[~inside].min())
        rushed.append(pace[inside].min())
    assert np.median(slow) < 0.15, "every performer pauses somewhere"
    assert np.median(rushed) > 2.5 * np.median(slow)


def test_a_warp_needs_two_frames() -> None:
    with pytest.raises(ValueError, match="at least 2 frames, got 1"):
        sample_warp(np.random.default_rng(0), frames=1)


@given(st.integers(0, 2**31), st.integers(5, 200))
def test_smooth_noise_has_no_trend(seed: int, frames: int) -> None:
    curve = smooth_noise(np.random.default_rng(seed), frames=frames, columns=2)
    clock = np.arange(frames) - (frames - 1) / 2
    np.testing.assert_allclose(clock @ curve / frames, 0, atol=1e-9)


def test_smooth_noise_is_smooth_and_of_unit_variance() -> None:
    curve = smooth_noise(np.random.default_rng(0), frames=20_000, columns=1)[:, 0]
    assert curve.std() == pytest.approx(1, abs=0.1)
    assert np.diff(curve).std() < 0.4
