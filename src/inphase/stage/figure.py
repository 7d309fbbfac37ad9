"""Shapes of performers and props: bodies as tapered capsules, clubs, bars, balls, crates, slabs; their projection."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from inphase.pose.pose import MIN_DEPTH, Camera
from inphase.stage.physique import JOINT, Appearance, Color, Physique, Posture

CAPSULE, DISC, QUAD = 0, 1, 2
Points = NDArray[np.float64]  # [T, 3]
Offset = tuple[float, float, float]
# Where the performer can hold a prop: a hand, between the hands, at the fingertips of the right hand, before the right
# foot, at the tip of a club.
PLACES = ("left", "right", "hands", "fingers", "foot", "tip")
Places = Mapping[str, Points]  # place → position at each time


@dataclass(frozen=True)
class Club:
    """A rod in the right hand, in the direction that the controls set; the place "tip" is its end."""

    length: float  # meters
    radius: tuple[float, float]  # at the hand, at the tip
    head: float = 0.0  # radius of a ball at the tip
    blade: float = 0.0  # length of an axe's blade, at the tip
    face: float = 0.0  # radius of a racket's disc, before the tip


@dataclass(frozen=True)
class Bar:
    """A bar through both hands with plates at both ends."""

    overhang: float  # meters beyond each hand
    plate: float  # radius


@dataclass(frozen=True)
class Waypoint:
    """The position of a moving prop at one canonical time.

    `place` is one of PLACES, taken at canonical time `when` if that differs from `time`, or an offset [x, y, z] in
    meters from the waypoint before. Between two waypoints at the same place the prop follows the place; between others
    it flies, and passes `rise` meters above the middle of the straight line.
    """

    time: float
    place: str | Offset
    when: float | None = None
    rise: float = 0.0

    def __post_init__(self) -> None:
        """Raise if the place is unknown."""
        if isinstance(self.place, str) and self.place not in PLACES:
            raise ValueError(f"unknown place {self.place!r}: choose from {', '.join(PLACES)}, or give an offset")


@dataclass(frozen=True)
class Ball:
    """A ball that is held, lies or flies along a track."""

    radius: float
    track: tuple[Waypoint, ...]


@dataclass(frozen=True)
class Crate:
    """A box that is carried along a track."""

    half_size: Offset  # meters
    track: tuple[Waypoint, ...]


@dataclass(frozen=True)
class Slab:
    """Furniture: a block on the floor, or a board on two legs if it has a `thickness`.

    Its top is at `center` (leg lengths) and `height` (meters), or `gap` meters below the end of the track `under`.
    """

    half_size: tuple[float, float]  # meters
    center: tuple[float, float] = (0.0, 0.0)
    height: float = 0.0
    under: tuple[Waypoint, ...] = ()
    gap: float = 0.0
    thickness: float | None = None


Prop = Club | Bar | Ball | Crate | Slab


def follow_track(
    track: tuple[Waypoint, ...], at: NDArray[np.float64], *, now: Places, grid: NDArray[np.float64], places: Places
) -> Points:
    """Compute the position of a prop, [T, 3], at canonical times `at`.

    `now` holds the places at those times; `places` holds them on a `grid` of canonical time, for the waypoints.
    """
    stops = _waypoint_positions(track, grid, places)
    times = np.array([waypoint.time for waypoint in track])
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


def _waypoint_positions(track: tuple[Waypoint, ...], grid: NDArray[np.float64], places: Places) -> NDArray[np.float64]:
    """Compute the position of each waypoint, [W, 3]."""
    stops: list[NDArray[np.float64]] = []
    for waypoint in track:
        if isinstance(waypoint.place, str):
            when = waypoint.time if waypoint.when is None else waypoint.when
            stops.append(np.array([np.interp(when, grid, column) for column in places[waypoint.place].T]))
        else:
            stops.append(stops[-1] + np.array(waypoint.place))
    return np.array(stops)


@dataclass(eq=False)
class Solids:
    """A growing list of shapes in world coordinates.

    Each shape has four points [T, 4, 3]: the two ends of a capsule and twice (radius, radius, 0); the center of a disc
    and two half axes, the second one twice; the corners of a quadrilateral.
    """

    kinds: list[int] = field(default_factory=list)
    points: list[NDArray[np.float64]] = field(default_factory=list)
    colors: list[Color] = field(default_factory=list)

    def add_capsule(self, start: Points, end: Points, r0: float, r1: float, color: Color) -> None:
        """Add a rod with round ends that tapers from one radius to the other."""
        radii = np.broadcast_to(np.array([r0, r1, 0.0]), start.shape)
        self._add(CAPSULE, [start, end, radii, radii], color)

    def add_disc(self, center: Points, axis: Points, other: Points, color: Color) -> None:
        """Add a flat disc with two half axes."""
        self._add(DISC, [center, axis, other, other], color)

    def add_box(self, center: Points, half_size: Offset, color: Color) -> None:
        """Add the six sides of an upright box, the top brightest."""
        for axis, shade in ((2, 1.0), (0, 0.85), (1, 0.7)):
            first, second = (i for i in range(3) if i != axis)
            for sign in (-1.0, 1.0):
                corners = []
                for u, v in ((-1, -1), (-1, 1), (1, 1), (1, -1)):
                    offset = np.zeros(3)
                    offset[axis] = sign * half_size[axis]
                    offset[first], offset[second] = u * half_size[first], v * half_size[second]
                    corners.append(center + offset)
                self._add(QUAD, corners, color * shade)

    def join(self, other: "Solids") -> "Solids":
        """Concatenate these shapes and others."""
        return Solids(self.kinds + other.kinds, self.points + other.points, self.colors + other.colors)

    @property
    def world(self) -> NDArray[np.float64]:
        """Stack the points, [T, S, 4, 3]."""
        return np.stack(self.points, axis=1)

    def _add(self, kind: int, rows: list[Points], color: Color) -> None:
        """Append one shape."""
        self.kinds.append(kind)
        self.points.append(np.stack(rows, axis=1))
        self.colors.append(color)


@dataclass(frozen=True, eq=False)
class Shapes:
    """Solids projected by a camera, in image widths and meters of depth: the input of the rasterizer."""

    kinds: NDArray[np.int64]  # [S]
    points: NDArray[np.float64]  # [T, S, 4, 3]: x, y, depth; the third row of a capsule is its two radii in widths
    thickness: NDArray[np.float64]  # [S] mean radius of a capsule in meters, its bulge toward the camera
    colors: NDArray[np.float64]  # [S, 3]


def project_solids(solids: Solids, camera: Camera, *, frames: int) -> Shapes:
    """Project solids into the image of a camera; the list may be empty."""
    world = solids.world if solids.points else np.zeros((frames, 0, 4, 3))
    kinds = np.array(solids.kinds, dtype=np.int64)
    rods, discs = world[:, kinds == CAPSULE], world[:, kinds == DISC]
    points = np.empty_like(world)
    points[:, kinds == QUAD] = camera.project(world[:, kinds == QUAD])
    points[:, kinds == DISC] = camera.project(
        np.concatenate([discs[:, :, :1], discs[:, :, :1] + discs[:, :, 1:]], axis=2)
    )
    ends = camera.project(rods[:, :, :2])
    ends[..., 2] = np.maximum(ends[..., 2], MIN_DEPTH)
    radii = np.zeros_like(ends)
    radii[..., 0, :2] = camera.focal * rods[..., 2, :2] / ends[..., 2]
    points[:, kinds == CAPSULE] = np.concatenate([ends, radii], axis=2)
    points[:, kinds != CAPSULE, :, 2] = np.maximum(points[:, kinds != CAPSULE, :, 2], MIN_DEPTH)
    thickness = np.zeros(len(kinds))
    thickness[kinds == CAPSULE] = rods[0, :, 2, :2].mean(-1)
    return Shapes(kinds=kinds, points=points, thickness=thickness, colors=np.array(solids.colors).reshape(-1, 3))


def add_performer(solids: Solids, body: Physique, posture: Posture, appearance: Appearance) -> None:
    """Add a dressed body: about thirty capsules."""
    joints = {name: posture.joints[:, index] for name, index in JOINT.items()}
    g = body.girth
    chest_up, front = posture.chest[:, :, 2], posture.chest[:, :, 0]
    pelvis, spine, neck = joints["pelvis"], joints["spine"], joints["neck"]
    solids.add_capsule(pelvis - 0.02 * chest_up, spine, 0.105 * g, 0.1 * g, appearance.shirt)
    solids.add_capsule(spine, neck - 0.1 * chest_up, 0.1 * g, 0.115 * g, appearance.shirt)
    for side in ("left", "right"):
        shoulder, hip = joints[f"{side}_shoulder"], joints[f"{side}_hip"]
        inner = 0.72 * shoulder + 0.28 * neck
        solids.add_capsule(0.8 * hip + 0.2 * spine, inner - 0.07 * chest_up, 0.085 * g, 0.088 * g, appearance.shirt)
        solids.add_capsule(neck - 0.03 * chest_up, shoulder - 0.01 * chest_up, 0.065 * g, 0.062 * g, appearance.shirt)
    solids.add_capsule(joints["left_hip"], joints["right_hip"], 0.1 * g, 0.1 * g, appearance.trousers)
    _add_limbs(solids, body, posture, appearance)

    face, up = posture.face[:, :, 0], posture.face[:, :, 2]
    head, r = joints["head"], body.head
    solids.add_capsule(neck, head - 0.3 * r * up, 0.052 * g, 0.05 * g, appearance.skin)
    solids.add_capsule(head - 0.15 * r * up, head + 0.25 * r * up, 0.84 * r, 0.9 * r, appearance.skin)
    solids.add_capsule(
        head + r * (0.12 * up - 0.22 * face), head + r * (0.34 * up - 0.14 * face), 0.88 * r, 0.86 * r, appearance.hair
    )
    solids.add_capsule(head + 0.86 * r * face, head + r * (0.98 * face - 0.12 * up), 0.1 * r, 0.14 * r, appearance.skin)
    for sign in (-1.0, 1.0):
        eye = head + r * (0.82 * face + sign * 0.34 * posture.face[:, :, 1] + 0.16 * up)
        solids.add_capsule(eye, eye, 0.1 * r, 0.1 * r, 0.25 * appearance.hair)
    buckle = pelvis + 0.1 * g * front
    solids.add_capsule(buckle, buckle, 0.02, 0.02, 0.6 * appearance.trousers)


def _add_limbs(solids: Solids, body: Physique, posture: Posture, appearance: Appearance) -> None:
    """Add arms and legs; sleeves and trousers cover their upper parts."""
    g, skin, shirt, trousers = body.girth, appearance.skin, appearance.shirt, appearance.trousers
    joints = {name: posture.joints[:, index] for name, index in JOINT.items()}
    for i, side in enumerate(("left", "right")):
        shoulder, elbow, wrist = (joints[f"{side}_{name}"] for name in ("shoulder", "elbow", "wrist"))
        hip, knee, ankle = (joints[f"{side}_{name}"] for name in ("hip", "knee", "ankle"))
        solids.add_capsule(shoulder, elbow, 0.054 * g, 0.043 * g, shirt if appearance.sleeves >= 1 else skin)
        if appearance.sleeves < 1:
            end = shoulder + appearance.sleeves * (elbow - shoulder)
            solids.add_capsule(shoulder, end, 0.062 * g, 0.058 * g, shirt)
        solids.add_capsule(elbow, wrist, 0.043 * g, 0.033 * g, shirt if appearance.sleeves > 1 else skin)
        solids.add_capsule(wrist, posture.hands[:, i], 0.036 * g, 0.038 * g, skin)
        solids.add_capsule(hip, knee, 0.088 * g, 0.06 * g, trousers)
        solids.add_capsule(knee, ankle, 0.058 * g, 0.042 * g, trousers if appearance.legs > 1 else skin)
        sole = ankle - np.array([0.0, 0.0, 0.35 * body.ankle])
        heel = sole - 0.25 * (posture.toes[:, i] - ankle)
        solids.add_capsule(heel, posture.toes[:, i], 0.045, 0.034, appearance.shoes)
