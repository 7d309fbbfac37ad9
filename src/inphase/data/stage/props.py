"""What performers hold, throw and stand before: clubs, bars, balls, boxes and furniture."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Offset = tuple[float, float, float]
Places = Mapping[str, NDArray[np.float64]]  # place → [T, 3] on a fine grid of canonical time


@dataclass(frozen=True)
class Club:
    """A rod held by the right hand (both, when gripped) that points where the controls say; its end is place "tip"."""

    length: float  # metres
    radius: tuple[float, float]  # at the hand, at the tip
    head: float = 0.0  # radius of a ball at the tip
    blade: float = 0.0  # length of an axe's blade, below the tip
    face: float = 0.0  # radius of a racket's disc before the tip


@dataclass(frozen=True)
class Bar:
    """A bar through both hands with a plate at either end."""

    overhang: float  # metres beyond each hand
    plate: float  # radius


@dataclass(frozen=True)
class Way:
    """A stop on the way of something thrown: where it is at a canonical time.

    `place` is a place of the performer ("left", "right", "hands", "foot", "tip"), read at canonical time `when` if that
    differs from `time`, or an offset in metres from the stop before. Between two stops at one place it follows the
    place; between others it flies, `rise` metres above the straight line half-way.
    """

    time: float
    place: str | Offset
    when: float | None = None
    rise: float = 0.0


@dataclass(frozen=True)
class Ball:
    """A ball that is held, lies or flies."""

    radius: float
    track: tuple[Way, ...]


@dataclass(frozen=True)
class Crate:
    """A box that is carried and put down."""

    half: Offset  # half its extent, metres
    track: tuple[Way, ...]


@dataclass(frozen=True)
class Slab:
    """Furniture: a block on the floor, or a board on legs where it has a `thickness`.

    It stands at `centre` (leg lengths), `high` metres, or under the end of a track, `gap` metres below.
    """

    half: tuple[float, float]  # half its extent, metres
    centre: tuple[float, float] = (0.0, 0.0)
    high: float = 0.0
    under: tuple[Way, ...] = ()
    gap: float = 0.0
    thickness: float | None = None


Prop = Club | Bar | Ball | Crate | Slab


def follow(
    track: tuple[Way, ...], at: NDArray[np.float64], *, now: Places, grid: NDArray[np.float64], places: Places
) -> NDArray[np.float64]:
    """Find where a tracked thing is, [T, 3], at canonical times `at`.

    `now` has the places at those frames; `places` has them on a `grid` of canonical time, where the stops are read.
    """
    stops = _stops(track, grid, places)
    times = np.array([way.time for way in track])
    segment = np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(track) - 1)
    where = stops[segment]
    for index, (here, there) in enumerate(zip(track, (*track[1:], track[-1]), strict=True)):
        inside = segment == index
        if here.place == there.place and here.when is there.when is None and isinstance(here.place, str):
            where[inside] = now[here.place][inside]
        elif there is not here:
            u = ((at[inside] - here.time) / (there.time - here.time))[:, None]
            where[inside] = stops[index] * (1 - u) + stops[index + 1] * u
            where[inside, 2] += 4 * there.rise * (u * (1 - u))[:, 0]
    return where


def read(values: NDArray[np.float64], grid: NDArray[np.float64], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interpolate values [G, 3] on a grid linearly at other times, [T, 3]."""
    return np.stack([np.interp(at, grid, column) for column in values.T], axis=-1)


def _stops(track: tuple[Way, ...], grid: NDArray[np.float64], places: Places) -> NDArray[np.float64]:
    """Find where each stop of a track is, [W, 3]."""
    stops: list[NDArray[np.float64]] = []
    for way in track:
        if isinstance(way.place, str):
            when = way.time if way.when is None else way.when
            stops.append(read(places[way.place], grid, np.array([when]))[0])
        else:
            stops.append(stops[-1] + np.array(way.place))
    return np.array(stops)
