"""A steady warp: the smooth map of time nearest to an alignment, which neither stands still nor jumps.

An alignment g(tₖ) is a staircase: frames are matched with frames. The steady map f minimises

    (1/T) Σₖ (f(tₖ) − g(tₖ))² Δₖ  +  (τ/2π)⁴ (1/T) ∫ f″(t)² dt
    subject to    v/b ≤ f′(t) ≤ v·b,    f(0) = g(0),    f(T) = g(T)

where T is the duration, v = (g(T) − g(0))/T the average speed and b bounds how far speeds depart from it. Without the
constraints f is a smoothing spline, which halves wiggles of period τ and follows slower ones; as τ grows, f becomes the
straight line of constant speed. f is piecewise linear and its unknowns are the speeds of the pieces, so that the bounds
are those of the variables; the end is held by its weight. That is a bounded linear least squares, which is convex.
"""

import numpy as np
from numpy.typing import NDArray

# The speed may be so many times the average, and so many times less.
BOUND = 8.0
# Pieces for each τ, and at most.
FINENESS, PIECES = 8, 300
# How much more the end weighs than all else.
HOLD = 1e3

Seconds = NDArray[np.float64]


def steady(clock: Seconds, seconds: Seconds, *, period: float, bound: float = BOUND) -> Seconds:
    """Smooth a map from `clock` [M] to `seconds` [M], neither ever decreasing; wiggles shorter than `period` vanish.

    Time: that of a bounded least squares of at most 300 unknowns, about a second.
    """
    from scipy.optimize import lsq_linear

    if not period > 0 or not bound > 1:
        raise ValueError(f"smoothing needs a period above 0 seconds and a bound above 1, got {period=} and {bound=}")
    total = clock[-1] - clock[0]
    if len(clock) < 3 or seconds[-1] <= seconds[0]:
        return seconds
    pieces = int(np.clip(np.ceil(FINENESS * total / period), 2, min(PIECES, len(clock) - 1)))
    width, travel = total / pieces, seconds[-1] - seconds[0]
    # f(t) = f(0) + Σ speed · (how much of the piece lies before t)
    before = np.clip(clock[:, None] - clock[0] - width * np.arange(pieces), 0, width)
    weight = np.sqrt(np.gradient(clock) / total)[:, None]
    bend = np.diff(np.eye(pieces), axis=0) * np.sqrt((period / (2 * np.pi)) ** 4 / (width * total))
    rows = np.concatenate([weight * before, bend, np.full((1, pieces), HOLD * width)])
    aims = np.concatenate([weight[:, 0] * (seconds - seconds[0]), np.zeros(len(bend)), [HOLD * travel]])
    # As many rows as unknowns say the same.
    rotation, triangle = np.linalg.qr(rows)
    speed = travel / total
    speeds = lsq_linear(triangle, rotation.T @ aims, bounds=(speed / bound, speed * bound)).x
    way = before @ speeds
    return np.asarray(seconds[0] + way * (travel / way[-1]))
