import numpy as np
import pytest
from scipy.interpolate import make_smoothing_spline

from inphase.apps.align_videos import smooth_time_map


def test_constant_speed_is_left_alone() -> None:
    clock = np.arange(90) / 30
    np.testing.assert_allclose(smooth_time_map(clock, 1.5 * clock + 0.2, period=0.5), 1.5 * clock + 0.2, atol=1e-9)


def test_a_staircase_becomes_the_curve_behind_it() -> None:
    clock = np.arange(240) / 30
    curve = clock + 0.4 * np.sin(clock)
    stairs = np.round(curve * 10) / 10
    smooth = smooth_time_map(clock, stairs, period=1.0)
    assert np.abs(smooth - curve).max() < 0.04 < np.abs(stairs - curve).max()
    assert np.diff(smooth).min() > 0


def test_it_is_a_smoothing_spline_where_no_bound_is_reached() -> None:
    clock = np.linspace(0, 4, 161)
    rough = clock + 0.3 * np.sin(2 * clock) + np.random.default_rng(0).normal(0, 0.01, len(clock))
    rough = np.maximum.accumulate(rough)
    period = 1.0
    gap = clock[1] - clock[0]
    spline = make_smoothing_spline(clock, rough, lam=(period / (2 * np.pi)) ** 4 / gap)(clock)
    assert np.abs(smooth_time_map(clock, rough, period=period, bound=100) - spline)[40:-40].max() < 0.004


def test_speeds_stay_within_the_bound() -> None:
    clock = np.arange(120) / 30
    jump = np.where(clock < 2, 0.1 * clock, 3.8 + 0.1 * (clock - 4))
    speeds = np.diff(smooth_time_map(clock, jump, period=0.1, bound=3)) / np.diff(clock)
    average = (jump[-1] - jump[0]) / (clock[-1] - clock[0])
    assert speeds.max() <= 3 * average + 1e-4
    assert speeds.min() >= average / 3 - 1e-4


def test_a_long_period_gives_constant_speed() -> None:
    clock = np.arange(120) / 30
    smooth = smooth_time_map(clock, clock + 0.3 * np.sin(3 * clock), period=500)
    np.testing.assert_allclose(np.diff(smooth, 2), 0, atol=1e-6)
    assert smooth[[0, -1]].tolist() == (clock + 0.3 * np.sin(3 * clock))[[0, -1]].tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_frames_are_left_alone(count: int) -> None:
    clock = np.arange(count) / 30
    np.testing.assert_array_equal(smooth_time_map(clock, clock, period=1), clock)


def test_a_period_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="period"):
        smooth_time_map(np.arange(9.0), np.arange(9.0), period=0)
