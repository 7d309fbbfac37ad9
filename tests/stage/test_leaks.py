"""Only the performer reveals the progress: light, camera, noise and background do not.

A ridge regression, fitted on some recordings, predicts for others the position of a frame and its canonical time from
images without the performer and from their borders. It must be at chance; with a light that brightens, or a camera
that drifts, it must be better.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.stage import ACTIONS, LEVELS
from inphase.stage.scene import render
from inphase.stage.take import Slate, Take, sample_take

pytestmark = pytest.mark.slow

Array = NDArray[np.float64]
CHANCE = 0.02


Recording = tuple[Take, Array]  # and its images [T, 32, 32, 3] without the performer
Describe = Callable[[Recording], Array]
Target = Callable[[Take], Array]


def same(take: Take) -> Take:
    return take


def dawn(take: Take) -> Take:
    return replace(take, flicker=take.flicker * (1 + 0.1 * take.progress))


def drift(take: Take) -> Take:
    return replace(take, shake=take.shake + 0.02 * take.progress[:, None])


@cache
def recordings(split: str, level: str, change: Callable[[Take], Take]) -> list[Recording]:
    takes = [change(sample_take(Slate(action, split, i, level=level))) for action in ACTIONS for i in range(3)]
    return [(take, render(take, size=32, performer=False).frames / 255) for take in takes]


def whole(recording: Recording) -> Array:
    """Describe frames by a grid of 8 × 8 patches: their brightness and its change, and the roughness of the grain."""
    _, images = recording
    patches = images.reshape(len(images), 8, 4, 8, 4, 3)
    return _center(patches.mean((2, 4)).reshape(len(images), -1), patches.std((2, 4)).mean((1, 2)))


def border(recording: Recording) -> Array:
    """Describe frames by the outermost two pixels."""
    _, images = recording
    sides = (images[:, :2], images[:, -2:], images[:, :, :2].swapaxes(1, 2), images[:, :, -2:].swapaxes(1, 2))
    strips = [side.mean(1).reshape(len(images), 8, 4, 3).mean(2).reshape(len(images), -1) for side in sides]
    return _center(np.concatenate(strips, axis=1))


def shake(recording: Recording) -> Array:
    """Describe frames by the true camera shake, which an image shows only in part."""
    take, _ = recording
    return _center(take.shake, np.diff(take.shake, axis=0, prepend=take.shake[:1]), take.flicker[:, None])


def _center(*columns: Array) -> Array:
    """Subtract the mean of a recording and append the absolute deviations, for the strictest probe."""
    features = np.concatenate(columns, axis=1)
    features = features - features.mean(0)
    return np.concatenate([features, np.abs(features)], axis=1)


def position(take: Take) -> Array:
    return np.linspace(-0.5, 0.5, len(take.progress))


def canonical(take: Take) -> Array:
    return take.progress - 0.5


def score(describe: Describe, target: Target, *, level: str = "medium", change: Callable[[Take], Take] = same) -> float:
    """Fit on training recordings and give R² on validation recordings."""
    (x, y), (x_test, y_test) = (
        (np.concatenate([describe(one) for one in many]), np.concatenate([target(take) for take, _ in many]))
        for many in (recordings(split, level, change) for split in ("train", "val"))
    )
    scale = x.std(0) + 1e-9
    x, x_test = x / scale, x_test / scale
    weights = np.linalg.solve(x.T @ x + 3.0 * len(x) * np.eye(x.shape[1]), x.T @ y)
    return float(1 - ((y_test - x_test @ weights) ** 2).sum() / (y_test**2).sum())


@pytest.mark.parametrize("target", [position, canonical])
@pytest.mark.parametrize("describe", [whole, border, shake])
@pytest.mark.parametrize("level", LEVELS)
def test_the_background_does_not_reveal_progress(level: str, describe: Describe, target: Target) -> None:
    assert score(describe, target, level=level) < CHANCE


@pytest.mark.parametrize("describe", [whole, border])
def test_a_brightening_light_is_detected(describe: Describe) -> None:
    assert score(describe, position, change=dawn) > 0.3


def test_a_drifting_camera_is_detected() -> None:
    assert score(shake, position, change=drift) > 0.3
