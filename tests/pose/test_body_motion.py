from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.pose.body import MOTION_NUMBERS, compare_motion
from inphase.pose.pose import JOINTS13, mirrored


def joints(seed: int = 0, frames: int = 40) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Draw an upright person whose joints move smoothly."""
    rng = np.random.default_rng(seed)
    up = np.array([70, 58, 58, 46, 46, 34, 34, 34, 34, 18, 18, 0, 0], float)
    rest = np.stack([np.array([0, -8, 8, -12, 12, -12, 12, -6, 6, -6, 6, -6, 6], float), -up], axis=-1)
    sway = np.sin(np.linspace(0, 3, frames)[:, None, None] + rng.uniform(0, 6, (1, 13, 2)))
    return (rest + 6 * sway).astype(np.float32), np.ones((frames, 13), bool)


def compared(x: Any, y: Any) -> dict[str, float]:
    frames = np.arange(len(x[0]))
    path = np.stack([frames, frames], axis=1)
    found = compare_motion(x, y, path, frames=frames.astype(float), reach=4)
    return dict(zip(MOTION_NUMBERS, found.tolist(), strict=True))


def test_equal_motions_have_no_distance_and_the_same_way() -> None:
    x = joints()
    same = compared(x, (x[0] * 3 + 100, x[1]))  # larger, elsewhere
    assert same["posture"] == pytest.approx(0, abs=1e-5)
    assert same["upright"] == 1
    for group in ("wrists", "arms", "body"):
        assert same[f"{group}_way"] == pytest.approx(1)
        assert same[f"{group}_place"] == pytest.approx(1)
        assert same[f"{group}_extent"] == pytest.approx(0, abs=1e-5)


def test_a_mirrored_reversed_or_hanging_person_differs() -> None:
    points, shown = joints()
    mirror = compared((points, shown), (points[:, mirrored(JOINTS13)] * np.array([-1, 1], np.float32), shown))
    assert mirror["mirrored_posture"] == pytest.approx(0, abs=1e-5)
    assert mirror["posture"] > 0.05
    assert mirror["body_mirrored_way"] == pytest.approx(1)
    assert mirror["body_way"] < 0.99
    backwards = compared((points, shown), (points[::-1], shown))
    assert backwards["body_way"] < 0.5
    assert compared((points, shown), (points * np.array([1, -1], np.float32), shown))["upright"] == 0
    assert compared((points, shown), joints(seed=1))["wrists_way"] < 0.9


def test_joints_that_one_video_does_not_show_have_no_distance() -> None:
    points, shown = joints()
    moved, hidden = points.copy(), shown.copy()
    moved[:, 11:] += 50
    hidden[:, 11:] = False
    found = compared((points, shown), (moved, hidden))
    assert found["posture"] == pytest.approx(0, abs=1e-5)
    assert found["legs"] == pytest.approx(0.5)
    assert found["visible"] == pytest.approx(11 / 13)
