"""Time warps: how canonical time passes in one performance, with hurry, delay and pauses."""

import numpy as np
from numpy.typing import NDArray

GRID = 2001


def draw_warp(
    rng: np.random.Generator, *, frames: int, strength: float = 0.9, rush: tuple[float, float] = (2.0, 2.0)
) -> NDArray[np.float64]:
    """Draw the canonical time of each frame, [T], strictly rising from 0 to 1.

    The time spent at canonical time s is exp(g(s)), g a smooth random function, plus some pauses: narrow peaks, none
    between the two times of `rush`. Even a pause creeps on, so the true alignment of two performances is one-to-one.
    """
    if frames < 2:
        raise ValueError(f"a performance needs at least 2 frames, got {frames}")
    s = np.linspace(0.0, 1.0, GRID)
    density = np.exp(strength * _smooth(rng, s))
    density /= density.mean()
    for _ in range(rng.integers(1, 4)):
        centre = _pause_between(rng, rush)
        weight = strength * rng.uniform(0.1, 0.45)
        width = rng.uniform(0.006, 0.02)
        peak = np.exp(-0.5 * ((s - centre) / width) ** 2)
        density += weight * peak / peak.mean()
    spent = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    progress = np.interp(np.linspace(0.0, 1.0, frames), spent / spent[-1], s)
    progress[0], progress[-1] = 0.0, 1.0
    return progress


def stretch_error(progress: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Measure what linear stretch gets wrong between two performances, as a fraction of the duration."""
    position = np.linspace(0.0, 1.0, len(progress))
    true = np.interp(progress, other, np.linspace(0.0, 1.0, len(other)))
    return float(np.abs(true - position).mean())


def wander(rng: np.random.Generator, *, frames: int, columns: int, smooth: float = 3.0) -> NDArray[np.float64]:
    """Draw a smooth random walk about zero, [T, columns], of unit variance and without any trend.

    What follows it (a hand-held camera, an idle sway) says nothing of how far the recording has gone: its ends are
    drawn like its middle and the straight line through it is taken out.
    """
    reach = int(np.ceil(3 * smooth))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / smooth) ** 2)
    noise = rng.standard_normal((frames + 2 * reach, columns))
    curve = np.stack(
        [np.convolve(column, kernel / np.linalg.norm(kernel), mode="valid") for column in noise.T], axis=-1
    )
    clock = np.arange(frames) - (frames - 1) / 2
    slope = clock @ curve / max(float(clock @ clock), 1.0)
    return np.asarray(curve - clock[:, None] * slope)


def _pause_between(rng: np.random.Generator, rush: tuple[float, float]) -> float:
    """Draw the canonical time of a pause, evenly over what lies outside `rush` and a little off the ends."""
    before, after = min(rush[0], 1.0) - 0.04, max(0.96 - rush[1], 0.0)
    place = rng.uniform(0.0, before + after)
    return float(0.02 + place if place < before else rush[1] + 0.02 + place - before)


def _smooth(rng: np.random.Generator, s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw a smooth function on [0, 1] from a few cosines, the slow ones strongest."""
    order = np.arange(1, 6)
    weight = rng.normal(0.0, 1.0, 5) / order**0.6
    phase = rng.uniform(0.0, 2 * np.pi, 5)
    return np.asarray((weight[:, None] * np.cos(np.pi * order[:, None] * s + phase[:, None])).sum(0))
