"""From posture to shapes: limbs, head and clothes as tapered capsules, props as rods, discs and boxes."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from inphase.data.stage.body import Body, J, Posture
from inphase.data.stage.look import Look
from inphase.pose.camera import NEAR, Camera

CAPSULE, DISC, QUAD = 0, 1, 2
Points = NDArray[np.float64]  # [T, 3]


@dataclass(eq=False)
class Solids:
    """Shapes in the world, gathered one after another.

    Four points [T, 4, 3] each: a capsule's two ends and (radius, radius, 0); a disc's centre and two half axes; a
    quadrilateral's corners.
    """

    kinds: list[int] = field(default_factory=list)
    points: list[NDArray[np.float64]] = field(default_factory=list)
    colours: list[NDArray[np.float64]] = field(default_factory=list)

    def capsule(self, start: Points, end: Points, r0: float, r1: float, colour: NDArray[np.float64]) -> None:
        """Add a rod with round ends that tapers from one radius to the other."""
        radii = np.broadcast_to(np.array([r0, r1, 0.0]), start.shape)
        self._add(CAPSULE, [start, end, radii, radii], colour)

    def disc(self, centre: Points, axis: Points, other: Points, colour: NDArray[np.float64]) -> None:
        """Add a flat disc spanned by two half axes."""
        self._add(DISC, [centre, axis, other, other], colour)

    def box(self, centre: Points, half: tuple[float, float, float], colour: NDArray[np.float64]) -> None:
        """Add the six sides of an upright box, the top brightest."""
        for axis, shade in ((2, 1.0), (0, 0.85), (1, 0.7)):
            first, second = (i for i in range(3) if i != axis)
            for sign in (-1.0, 1.0):
                corners = []
                for u, v in ((-1, -1), (-1, 1), (1, 1), (1, -1)):
                    offset = np.zeros(3)
                    offset[axis], offset[first], offset[second] = sign * half[axis], u * half[first], v * half[second]
                    corners.append(centre + offset)
                self._add(QUAD, corners, colour * shade)

    def join(self, other: "Solids") -> "Solids":
        """Gather these and others."""
        return Solids(self.kinds + other.kinds, self.points + other.points, self.colours + other.colours)

    @property
    def world(self) -> NDArray[np.float64]:
        """Stack the points, [T, S, 4, 3]."""
        return np.stack(self.points, axis=1)

    def _add(self, kind: int, rows: list[Points], colour: NDArray[np.float64]) -> None:
        """Append one shape."""
        self.kinds.append(kind)
        self.points.append(np.stack(rows, axis=1))
        self.colours.append(colour)


@dataclass(frozen=True, eq=False)
class Shapes:
    """Solids as a camera sees them, in picture widths and metres of depth: what the rasteriser draws."""

    kinds: NDArray[np.int64]  # [S]
    points: NDArray[np.float64]  # [T, S, 4, 3]: x, y, depth; a capsule's third row is its two radii in widths
    thick: NDArray[np.float64]  # [S] a capsule's mean radius in metres, its bulge towards the camera
    colours: NDArray[np.float64]  # [S, 3]


def dress(body: Body, posture: Posture, look: Look, solids: Solids) -> None:
    """Clothe the joints of a body: about thirty capsules."""
    joints = {name: posture.joints[:, index] for name, index in J.items()}
    g = body.girth
    chest_up, front = posture.chest[:, :, 2], posture.chest[:, :, 0]
    pelvis, spine, neck = joints["pelvis"], joints["spine"], joints["neck"]
    solids.capsule(pelvis - 0.02 * chest_up, spine, 0.105 * g, 0.1 * g, look.shirt)
    solids.capsule(spine, neck - 0.1 * chest_up, 0.1 * g, 0.115 * g, look.shirt)
    for side in ("left", "right"):
        shoulder, hip = joints[f"{side}_shoulder"], joints[f"{side}_hip"]
        inner = 0.72 * shoulder + 0.28 * neck
        solids.capsule(0.8 * hip + 0.2 * spine, inner - 0.07 * chest_up, 0.085 * g, 0.088 * g, look.shirt)
        solids.capsule(neck - 0.03 * chest_up, shoulder - 0.01 * chest_up, 0.065 * g, 0.062 * g, look.shirt)
    solids.capsule(joints["left_hip"], joints["right_hip"], 0.1 * g, 0.1 * g, look.trousers)
    _limbs(body, posture, look, solids)

    face, up = posture.face[:, :, 0], posture.face[:, :, 2]
    head, r = joints["head"], body.head
    solids.capsule(neck, head - 0.3 * r * up, 0.052 * g, 0.05 * g, look.skin)
    solids.capsule(head - 0.15 * r * up, head + 0.25 * r * up, 0.84 * r, 0.9 * r, look.skin)
    solids.capsule(
        head + r * (0.12 * up - 0.22 * face), head + r * (0.34 * up - 0.14 * face), 0.88 * r, 0.86 * r, look.hair
    )
    solids.capsule(head + 0.86 * r * face, head + r * (0.98 * face - 0.12 * up), 0.1 * r, 0.14 * r, look.skin)
    for sign in (-1.0, 1.0):
        eye = head + r * (0.82 * face + sign * 0.34 * posture.face[:, :, 1] + 0.16 * up)
        solids.capsule(eye, eye, 0.1 * r, 0.1 * r, 0.25 * look.hair)
    buckle = pelvis + 0.1 * g * front
    solids.capsule(buckle, buckle, 0.02, 0.02, 0.6 * look.trousers)


def _limbs(body: Body, posture: Posture, look: Look, solids: Solids) -> None:
    """Add arms and legs; sleeves and trousers cover the first part of them."""
    g = body.girth
    joints = {name: posture.joints[:, index] for name, index in J.items()}
    for i, side in enumerate(("left", "right")):
        shoulder, elbow, wrist = (joints[f"{side}_{name}"] for name in ("shoulder", "elbow", "wrist"))
        hip, knee, ankle = (joints[f"{side}_{name}"] for name in ("hip", "knee", "ankle"))
        arm = look.shirt if look.sleeves >= 1 else look.skin
        solids.capsule(shoulder, elbow, 0.054 * g, 0.043 * g, arm)
        if look.sleeves < 1:
            solids.capsule(shoulder, shoulder + look.sleeves * (elbow - shoulder), 0.062 * g, 0.058 * g, look.shirt)
        solids.capsule(elbow, wrist, 0.043 * g, 0.033 * g, look.shirt if look.sleeves > 1 else look.skin)
        solids.capsule(wrist, posture.hands[:, i], 0.036 * g, 0.038 * g, look.skin)
        solids.capsule(hip, knee, 0.088 * g, 0.06 * g, look.trousers)
        solids.capsule(knee, ankle, 0.058 * g, 0.042 * g, look.trousers if look.legs > 1 else look.skin)
        sole = ankle - np.array([0.0, 0.0, 0.35 * body.ankle])
        heel = sole - 0.25 * (posture.toes[:, i] - ankle)
        solids.capsule(heel, posture.toes[:, i], 0.045, 0.034, look.shoes)


def view(solids: Solids, camera: Camera, *, frames: int) -> Shapes:
    """Project solids, if there are any, into a camera's picture."""
    world = solids.world if solids.points else np.zeros((frames, 0, 4, 3))
    kinds = np.array(solids.kinds, dtype=np.int64)
    rods, discs = world[:, kinds == CAPSULE], world[:, kinds == DISC]
    points = np.empty_like(world)
    points[:, kinds == QUAD] = camera.project(world[:, kinds == QUAD])
    points[:, kinds == DISC] = camera.project(
        np.concatenate([discs[:, :, :1], discs[:, :, :1] + discs[:, :, 1:]], axis=2)
    )
    ends = camera.project(rods[:, :, :2])
    ends[..., 2] = np.maximum(ends[..., 2], NEAR)
    radii = np.zeros_like(ends)
    radii[..., 0, :2] = camera.focal * rods[..., 2, :2] / ends[..., 2]
    points[:, kinds == CAPSULE] = np.concatenate([ends, radii], axis=2)
    points[:, kinds != CAPSULE, :, 2] = np.maximum(points[:, kinds != CAPSULE, :, 2], NEAR)
    thick = np.zeros(len(kinds))
    thick[kinds == CAPSULE] = rods[0, :, 2, :2].mean(-1)
    colours = np.array(solids.colours).reshape(-1, 3)
    return Shapes(kinds=kinds, points=points, thick=thick, colours=colours)
