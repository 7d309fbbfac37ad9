"""The controls a pose is written in, and the actions written with them.

World: metres, x the way the performer faces at the start, y to the performer's left, z up, the floor at z = 0.
Lengths are fractions of a limb so that every body can play every action: the pelvis and the feet in leg lengths, the
hands in arm lengths from between the shoulders, on axes that turn with the chest but stay upright.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inphase.data.stage.props import Prop

# name → value when standing at ease. Angles are degrees: yaw, twist and turn to the left, pitch, bend and nod forward,
# roll and side to the right.
STANDING: dict[str, float] = {
    "x": 0.0,  # pelvis: forward, left, and height above the ankles
    "y": 0.0,
    "z": 0.995,
    "yaw": 0.0,
    "pitch": 0.0,
    "roll": 0.0,
    "bend": 0.0,  # chest against pelvis
    "side": 0.0,
    "twist": 0.0,
    "nod": 0.0,  # head against chest
    "turn": 0.0,
    "lx": 0.05,  # left hand
    "ly": 0.42,
    "lz": -0.95,
    "rx": 0.05,  # right hand
    "ry": -0.42,
    "rz": -0.95,
    "lfx": 0.0,  # left foot, on the ground at lfz = 0
    "lfy": 0.14,
    "lfz": 0.0,
    "rfx": 0.0,  # right foot
    "rfy": -0.14,
    "rfz": 0.0,
    "px": 0.0,  # where a held club points, on the axes of the hands
    "py": 0.0,
    "pz": 1.0,
}
CONTROLS = tuple(STANDING)
COLUMN = {name: index for index, name in enumerate(CONTROLS)}
ANGLES = ("yaw", "pitch", "roll", "bend", "side", "twist", "nod", "turn")


Key = tuple[float, str, dict[str, float]]  # canonical time, name, the controls that changed since the key before


@dataclass(frozen=True, eq=False)
class Action:
    """What everybody does who performs this action, on canonical time 0 … 1."""

    name: str
    keys: tuple[Key, ...]
    phases: Mapping[str, float]  # name → canonical time at which it begins, in order, the first at 0
    events: Mapping[str, float]  # name → canonical time; the first is the salient one, which is heard
    sound: str  # what the salient event sounds like: a key of sound.SOUNDS
    props: tuple[Prop, ...] = ()
    view: float = -90.0  # degrees: where a camera sees it best; 0 in front of the performer, 90 to the left
    rush: tuple[float, float] = (2.0, 2.0)  # canonical times between which nobody can pause: something flies
    symmetric: bool = False  # the second half is the first one backwards

    def __post_init__(self) -> None:
        """Refuse keys out of order and controls that do not exist."""
        times = [time for time, _, _ in self.keys]
        if times[0] != 0 or times[-1] != 1 or (np.diff(times) <= 0).any():
            raise ValueError(f"{self.name}: key poses must rise from 0 to 1, got {times}")
        for time, name, changes in self.keys:
            if unknown := sorted(set(changes) - set(STANDING)):
                raise ValueError(f"{self.name}: {name!r} at {time} sets {unknown}; controls are {', '.join(CONTROLS)}")

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """List the canonical times of the key poses, [K]."""
        return np.array([time for time, _, _ in self.keys])

    @cached_property
    def poses(self) -> NDArray[np.float64]:
        """Write the key poses out, [K, C]: each starts from the one before it."""
        current = dict(STANDING)
        rows = []
        for _, _, changes in self.keys:
            current |= changes
            rows.append(list(current.values()))
        return np.array(rows)

    @property
    def event(self) -> float:
        """Give the canonical time of the salient event."""
        return next(iter(self.events.values()))

    def phase_at(self, progress: NDArray[np.float64]) -> NDArray[np.int64]:
        """Number the phase each canonical time lies in."""
        starts = np.array(list(self.phases.values()))
        return np.searchsorted(starts, progress, side="right").astype(np.int64) - 1


def both(*, x: float, y: float, z: float) -> dict[str, float]:
    """Place the hands alike, `y` to either side."""
    return {"lx": x, "ly": y, "lz": z, "rx": x, "ry": -y, "rz": z}


def grip(*, x: float, y: float, z: float) -> dict[str, float]:
    """Close both hands around one thing."""
    return {"lx": x, "ly": y, "lz": z, "rx": x, "ry": y, "rz": z}


def left(*, x: float, y: float, z: float) -> dict[str, float]:
    """Place the left hand."""
    return {"lx": x, "ly": y, "lz": z}


def right(*, x: float, y: float, z: float) -> dict[str, float]:
    """Place the right hand."""
    return {"rx": x, "ry": y, "rz": z}


def point(*, x: float, y: float, z: float) -> dict[str, float]:
    """Point the held club."""
    return {"px": x, "py": y, "pz": z}


def step(foot: str, *, x: float, y: float | None = None, z: float = 0.0) -> dict[str, float]:
    """Put a foot, "left" or "right", somewhere: on the ground unless `z` lifts it."""
    side = foot[0]
    return {f"{side}fx": x, f"{side}fz": z} | ({} if y is None else {f"{side}fy": y})


def interpolate(times: NDArray[np.float64], poses: NDArray[np.float64], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Join key poses [K, C] by monotone cubics and read them at canonical times [T]: never past either neighbour."""
    # Slow to load, and listing the other collections does without.
    from scipy.interpolate import PchipInterpolator

    curve: NDArray[np.float64] = PchipInterpolator(times, poses, axis=0)(at)
    return curve
