"""The actions of the drawn data set: key poses read from actions.toml and joined by smooth curves."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from inphase.stage.figure import Ball, Bar, Club, Crate, Prop, Slab, Waypoint
from inphase.stage.physique import CONTROLS, STANDING

Key = tuple[float, str, dict[str, float]]  # canonical time, name, the controls that changed since the key pose before
T = TypeVar("T")

PROPS: dict[str, type[Prop]] = {"club": Club, "bar": Bar, "ball": Ball, "crate": Crate, "slab": Slab}
# Keys of actions.toml that set several controls from one [x, y, z]; "-ry" sets ry to −y.
VECTORS: dict[str, tuple[str, ...]] = {
    "left_hand": ("lx", "ly", "lz"),
    "right_hand": ("rx", "ry", "rz"),
    "hands": ("lx", "ly", "lz", "rx", "-ry", "rz"),
    "grip": ("lx", "ly", "lz", "rx", "ry", "rz"),
    "club": ("px", "py", "pz"),
    "left_foot": ("lfx", "lfy", "lfz"),
    "right_foot": ("rfx", "rfy", "rfz"),
}


@dataclass(frozen=True, eq=False)
class Action:
    """An action as every performer performs it, on canonical time 0 … 1. The file actions.toml documents the fields."""

    name: str
    keys: tuple[Key, ...]
    phases: Mapping[str, float]  # name → canonical time at which the phase begins, in order, the first at 0
    events: Mapping[str, float]  # name → canonical time; the first event is the one with a sound
    sound: str  # sound of the first event, a key of scene.SOUNDS
    props: tuple[Prop, ...] = ()
    view: float = -90.0  # degrees: azimuth of the best camera position, 0 in front of the performer, 90 to the left
    rush: tuple[float, float] = (2.0, 2.0)  # canonical times between which no performer pauses; (2, 2) for nowhere
    symmetric: bool = False  # the second half is the first half reversed

    def __post_init__(self) -> None:
        """Raise if key poses are out of order or set unknown controls."""
        times = [time for time, _, _ in self.keys]
        if not times or times[0] != 0 or times[-1] != 1 or (np.diff(times) <= 0).any():
            raise ValueError(f"{self.name}: the times of key poses must rise from 0 to 1, got {times}")
        for time, name, changes in self.keys:
            if unknown := sorted(set(changes) - set(STANDING)):
                raise ValueError(
                    f"{self.name}: key pose {name!r} at {time} sets unknown controls {', '.join(unknown)}: "
                    f"choose from {', '.join(CONTROLS)}"
                )

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """List the canonical times of the key poses, [K]."""
        return np.array([time for time, _, _ in self.keys])

    @cached_property
    def poses(self) -> NDArray[np.float64]:
        """Expand the key poses to all controls, [K, C]: each starts from the one before it."""
        current = dict(STANDING)
        rows = []
        for _, _, changes in self.keys:
            current |= changes
            rows.append(list(current.values()))
        return np.array(rows)

    @property
    def event(self) -> float:
        """Return the canonical time of the first event."""
        return next(iter(self.events.values()))

    def phase_at(self, progress: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the index of the phase at each canonical time."""
        starts = np.array(list(self.phases.values()))
        return np.searchsorted(starts, progress, side="right").astype(np.int64) - 1


def interpolate(times: NDArray[np.float64], poses: NDArray[np.float64], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interpolate key poses [K, C] by monotone cubics at canonical times [T], without overshoot."""
    # Imported here because it loads slowly and listing the other data sets does not need it.
    from scipy.interpolate import PchipInterpolator

    curve: NDArray[np.float64] = PchipInterpolator(times, poses, axis=0)(at)
    return curve


def parse_actions(text: str) -> dict[str, Action]:
    """Parse actions from TOML, in the order of the file."""
    return {name: _parse_action(name, table) for name, table in tomllib.loads(text).items()}


def _parse_action(name: str, table: Mapping[str, Any]) -> Action:
    """Parse one table of the file."""
    values = {field: _freeze(value) for field, value in table.items()}
    if "keys" in table:
        values["keys"] = tuple(_parse_key(name, item) for item in table["keys"])
    if "props" in table:
        values["props"] = tuple(_parse_prop(name, item) for item in table["props"])
    return _build(Action, {"name": name} | values, where=name)


def _parse_key(action: str, item: Any) -> Key:
    """Parse one key pose: [time, name, tables of controls …]."""
    match item:
        case [int() | float() as time, str() as name, *tables] if all(isinstance(table, dict) for table in tables):
            where = f"{action}: key pose {name!r} at {time}"
        case _:
            raise ValueError(f'{action}: a key pose is [time, "name", {{ controls }}, ...], got {item}')
    changes: dict[str, float] = {}
    for key, value in ((key, value) for table in tables for key, value in table.items()):
        for control, number in _expand(key, value, where=where).items():
            if control in changes:
                raise ValueError(f"{where} sets {control} twice: remove one of the two")
            changes[control] = number
    return time, name, changes


def _expand(key: str, value: Any, *, where: str) -> dict[str, float]:
    """Write one control, or one vector key, as controls."""
    if key in STANDING:
        if isinstance(value, int | float):
            return {key: value}
        raise ValueError(f"{where}: {key} must be a number, got {value!r}")
    if key not in VECTORS:
        raise ValueError(f"{where} sets the unknown control {key}: choose from {', '.join((*CONTROLS, *VECTORS))}")
    match value:
        case [int() | float(), int() | float(), int() | float()]:
            signed = zip(VECTORS[key], value * 2, strict=False)
            return {name.removeprefix("-"): -number if name[0] == "-" else number for name, number in signed}
    raise ValueError(f"{where}: {key} must be three numbers [x, y, z], got {value!r}")


def _parse_prop(action: str, table: Mapping[str, Any]) -> Prop:
    """Parse one prop: its kind and the fields of the class of that kind."""
    kind = table.get("kind")
    if kind not in PROPS:
        raise ValueError(f"{action}: unknown kind of prop {kind!r}: choose from {', '.join(PROPS)}")
    values = {field: _freeze(value) for field, value in table.items() if field != "kind"}
    where = f"{action}: {kind}"
    for track in ("track", "under"):
        if track in values:
            values[track] = tuple(
                _build(Waypoint, {field: _freeze(value) for field, value in item.items()}, where=f"{where}.{track}")
                for item in table[track]
            )
    return _build(PROPS[kind], values, where=where)


def _build(kind: type[T], values: dict[str, Any], *, where: str) -> T:
    """Construct a dataclass; raise if a field is unknown or missing."""
    known = fields(kind)  # type: ignore[arg-type]
    if unknown := [name for name in values if name not in {field.name for field in known}]:
        choices = ", ".join(field.name for field in known)
        raise ValueError(f"{where} has unknown fields {', '.join(unknown)}: choose from {choices}")
    if missing := [field.name for field in known if field.default is MISSING and field.name not in values]:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return kind(**values)


def _freeze(value: Any) -> Any:
    """Turn lists into tuples."""
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


ACTIONS: dict[str, Action] = parse_actions(Path(__file__).with_name("actions.toml").read_text(encoding="utf-8"))
