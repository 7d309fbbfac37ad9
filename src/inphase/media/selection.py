"""Which frames a request means: indices, seconds, a span, a rate."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Containers round timestamps, Matroska to a millisecond: a frame counts as shown from half of one before its time.
ROUNDING = 0.0005


def choose(
    times: NDArray[np.float64],
    *,
    indices: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
    span: tuple[float, float] | None = None,
    rate: float | None = None,
) -> NDArray[np.int64] | None:
    """Turn a request into positions among `times`; None stands for all of them."""
    if sum(request is not None for request in (indices, seconds)) + (span is not None or rate is not None) > 1:
        raise ValueError("give indices, or seconds, or span and rate: not two of these")
    if indices is not None:
        return _checked_indices(np.atleast_1d(np.asarray(indices)), len(times))
    if seconds is not None:
        asked = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        if asked.ndim != 1 or not len(asked):
            raise ValueError(f"seconds must be a list of at least one number, got {seconds!r}")
        end = times[-1] + (times[-1] - times[0]) / max(len(times) - 1, 1)
        outside = asked[~((asked >= 0) & (asked <= end + ROUNDING))]
        if len(outside):
            raise ValueError(f"second {outside[0]} lies outside the recording, which runs from 0 to {end:.3f}")
        return np.unique(shown_at(times, asked))
    inside = None if span is None else _inside(times, span)
    if rate is None:
        return inside
    return _at_rate(times if inside is None else times[inside], rate) + (0 if inside is None else inside[0])


def _checked_indices(indices: NDArray[np.generic], count: int) -> NDArray[np.int64]:
    if indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer) or not len(indices):
        raise ValueError(f"indices must be a list of at least one whole number, got {indices!r}")
    positions = indices.astype(np.int64)
    outside = positions[(positions < 0) | (positions >= count)]
    if len(outside):
        raise ValueError(f"frame {outside[0]} does not exist: the recording has frames 0 to {count - 1}")
    if np.any(np.diff(positions) <= 0):
        raise ValueError("indices must increase: pass np.unique(indices) and pick repeats from the clip")
    return positions


def _inside(times: NDArray[np.float64], span: tuple[float, float]) -> NDArray[np.int64]:
    start, end = span
    if not start < end:
        raise ValueError(f"span must run from an earlier to a later second, got {span}")
    inside = np.flatnonzero((times >= start - ROUNDING) & (times < end - ROUNDING))
    if not len(inside):
        raise ValueError(
            f"no frame lies in span {span}: the recording has frames from {times[0]:.3f} to {times[-1]:.3f} s"
        )
    return inside


def _at_rate(times: NDArray[np.float64], rate: float) -> NDArray[np.int64]:
    if not 0 < rate < np.inf:
        raise ValueError(f"rate must be a positive number of frames a second, got {rate}")
    ticks = times[0] + np.arange(int((times[-1] - times[0]) * rate + 1e-6) + 1) / rate
    after = np.clip(np.searchsorted(times, ticks), 1, max(len(times) - 1, 1))
    before = after - 1
    nearest = np.where(ticks - times[before] <= times[np.minimum(after, len(times) - 1)] - ticks, before, after)
    return np.unique(np.minimum(nearest, len(times) - 1)).astype(np.int64)


def shown_at(times: ArrayLike, seconds: ArrayLike) -> NDArray[np.int64]:
    """Find the frame a player shows at each second: the last that has begun, the first before any has."""
    begun = np.searchsorted(np.asarray(times), np.asarray(seconds, dtype=np.float64) + ROUNDING, side="right")
    return np.maximum(begun - 1, 0).astype(np.int64)
