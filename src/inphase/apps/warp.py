"""A steady warp: the smooth map of time nearest to an alignment, which neither stands still nor jumps.

An alignment g(tₖ) is a staircase: frames are matched with frames. The steady map f minimises

    (1/T) Σₖ (f(tₖ) − g(tₖ))² Δₖ  +  (τ/2π)⁴ (1/T) ∫ f″(t)² dt     subject to    v/b ≤ f′(t) ≤ v·b

where T is the duration, v = (g(T) − g(0))/T the average speed and b bounds how far speeds depart from it. Without the
bounds f is a smoothing spline, which halves wiggles of period τ and follows slower ones; as τ grows, f becomes the
straight line of constant speed. f is piecewise linear; its unknowns are f(0) and the speed of each piece, so that the
bounds are those of the variables and the problem is a bounded linear least squares, which is convex.
"""

import numpy as np
from numpy.typing import NDArray

# The speed may be so many times the average, and so many times less.
BOUND = 8.0
# Pieces, at most; otherwise there are four for each τ.
PIECES = 200

Seconds = NDArray[np.float64]


def steady(clock: Seconds, seconds: Seconds, *, period: float, bound: float = BOUND) -> Seconds:
    """Smooth a map from `clock` [M] to `seconds` [M], neither ever decreasing; wiggles shorter than `period` vanish.

    Time: that of a bounded least squares of at most 200 unknowns, below a second.
    """
    from scipy.optimize import lsq_linear

    if not period > 0 or not bound > 1:
        raise ValueError(f"smoothing needs a period above 0 seconds and a bound above 1, got {period=} and {bound=}")
    total = clock[-1] - clock[0]
    if len(clock) < 3 or seconds[-1] <= seconds[0]:
        return seconds
    pieces = int(np.clip(np.ceil(4 * total / period), 2, min(PIECES, len(clock) - 1)))
    width = total / pieces
    # f(t) = f(0) + Σ speed · (how much of the piece lies before t)
    before = np.clip(clock[:, None] - clock[0] - width * np.arange(pieces), 0, width)
    weight = np.sqrt(np.gradient(clock) / total)[:, None]
    fit = weight * np.concatenate([np.ones((len(clock), 1)), before], axis=1)
    bend = np.diff(np.eye(pieces), axis=0) * np.sqrt((period / (2 * np.pi)) ** 4 / (width * total))
    rows = np.concatenate([fit, np.pad(bend, ((0, 0), (1, 0)))])
    aims = np.concatenate([weight[:, 0] * seconds, np.zeros(len(bend))])
    # As many rows as unknowns say the same.
    rotation, triangle = np.linalg.qr(rows)
    speed = (seconds[-1] - seconds[0]) / total
    low = np.concatenate([[-np.inf], np.full(pieces, speed / bound)])
    high = np.concatenate([[np.inf], np.full(pieces, speed * bound)])
    solution = lsq_linear(triangle, rotation.T @ aims, bounds=(low, high)).x
    smooth = solution[0] + before @ solution[1:]
    return np.asarray(np.clip(smooth, seconds[0], seconds[-1]))
