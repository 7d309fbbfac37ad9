"""The pose of one person in named joints, mirror images and bones, and the pinhole cameras that project them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LIMBS = ("shoulder elbow", "elbow wrist", "wrist hand", "hip knee", "knee ankle", "ankle foot")
# The centers of shoulders and hips have other names on the stage than in UTD-MHAD.
_TRUNK = tuple(
    pair
    for shoulders, hips in (("shoulder_center", "hip_center"), ("neck", "pelvis"))
    for pair in (
        f"head {shoulders}",
        f"{shoulders} spine",
        f"spine {hips}",
        f"left_shoulder {shoulders}",
        f"right_shoulder {shoulders}",
        f"left_hip {hips}",
        f"right_hip {hips}",
    )
)
# Without joints at the centers of shoulders and hips, the trunk is a quadrilateral with a head.
_TRUNK_WITHOUT_CENTER = (
    "head left_shoulder",
    "head right_shoulder",
    "left_shoulder right_shoulder",
    "left_hip right_hip",
    "left_shoulder left_hip",
    "right_shoulder right_hip",
)


def mirrored(joints: tuple[str, ...]) -> NDArray[np.int64]:
    """List for each joint its mirror image: [J] indices, left and right exchanged."""
    if not joints:
        raise ValueError("a pose without joint names cannot be mirrored: name its joints")
    order = []
    for name in joints:
        side, _, rest = name.partition("_")
        other = {"left": f"right_{rest}", "right": f"left_{rest}"}.get(side, name)
        if other not in joints:
            raise ValueError(f"joint {name!r} has no counterpart {other!r} among {', '.join(joints)}")
        order.append(joints.index(other))
    return np.array(order, dtype=np.int64)


def bones(joints: tuple[str, ...]) -> list[tuple[int, int]]:
    """List the pairs of joints that a stick figure connects."""
    trunk = (*_TRUNK, "crown head") if {"shoulder_center", "neck"} & set(joints) else _TRUNK_WITHOUT_CENTER
    limbs = [f"{side}_{a} {side}_{b}" for a, b in map(str.split, _LIMBS) for side in ("left", "right")]
    pairs = [pair.split() for pair in (*trunk, *limbs)]
    return [(joints.index(a), joints.index(b)) for a, b in pairs if a in joints and b in joints]


# PennAction's joints in its order.
JOINTS13 = (
    "head",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hip",
    "right_hip",
    "left_knee",
    "right_knee",
    "left_ankle",
    "right_ankle",
)
# The joints whose middle is the head, in order of preference.
HEADS = (("left_ear", "right_ear"), ("head",), ("left_eye", "right_eye"), ("nose",))


@dataclass(frozen=True, eq=False)
class Pose:
    """One person through a clip, in J named joints; left and right are the person's own.

    `keypoints` [T, J, 2] float32 pixels of the original frame, (0, 0) the center of its first pixel; they can lie
    outside of it. `visibility` [T, J] float32 from 0 to 1. `found` [T] is False where the person was not found: there
    positions are interpolated, or those of the nearest frame at the ends, and visibility is 0. `times` [T] float64
    seconds; `size` (height, width) of the frame. `world` [T, J, 3] float32 meters from the middle of the hips, x to the
    right, y down and z away from the camera, where the estimator knows them.
    """

    joints: tuple[str, ...]
    keypoints: NDArray[np.float32]
    visibility: NDArray[np.float32]
    found: NDArray[np.bool_]
    times: NDArray[np.float64]
    size: tuple[int, int]
    world: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        """Raise if the shapes of the arrays do not match."""
        length, joints = len(self.times), len(self.joints)
        shapes = {"keypoints": (length, joints, 2), "visibility": (length, joints), "found": (length,)}
        if self.world is not None:
            shapes["world"] = (length, joints, 3)
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must be {list(shape)}, got {list(getattr(self, name).shape)}")

    def __len__(self) -> int:
        """Count the frames."""
        return len(self.times)

    def part(self, start: float, end: float) -> "Pose":
        """Return the frames from second `start` to before `end`, at least one, on the same clock."""
        first, last = np.searchsorted(self.times, [start - 1e-9, end]).tolist()
        frames = slice(min(first, len(self) - 1), max(last, first + 1))
        rows = {name: getattr(self, name)[frames] for name in ("keypoints", "visibility", "found", "times")}
        return replace(self, **rows, world=None if self.world is None else self.world[frames])

    def body(self) -> "Pose":
        """Return the pose in the joints of PennAction, `JOINTS13`, without `world`.

        The head is the middle of the ears; without ears the head, the middle of the eyes, or the nose.
        """
        heads = next((names for names in HEADS if set(names) <= set(self.joints)), None)
        missing = [name for name in JOINTS13[1:] if name not in self.joints]
        if heads is None or missing:
            lacks = ", ".join([*(["head, ears, eyes or nose"] if heads is None else []), *missing])
            raise ValueError(f"a pose with the joints {', '.join(self.joints)} lacks {lacks}: use another estimator")
        head, body = ([self.joints.index(name) for name in names] for names in (heads, JOINTS13[1:]))
        points = np.concatenate([self.keypoints[:, head].mean(1, keepdims=True), self.keypoints[:, body]], axis=1)
        visibility = np.concatenate([self.visibility[:, head].max(1, keepdims=True), self.visibility[:, body]], axis=1)
        return Pose(JOINTS13, points, visibility, self.found, self.times, self.size)

    def joints13(self, *, threshold: float = 0.5) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the joints of `body`: pixels [T, 13, 2], and [T, 13] which are visible."""
        reduced = self.body()
        return reduced.keypoints, reduced.visibility >= threshold


@dataclass(frozen=True)
class Region:
    """The circle around a person in pixels, centered between the hips; turned by `angle`, the person is upright."""

    x: float
    y: float
    radius: float
    angle: float = 0.0


@dataclass(frozen=True, eq=False)
class Body:
    """A person in one image: `points` [J, 2] pixels, `world` [J, 3] meters from the hips, `visibility` [J]."""

    points: NDArray[np.float32]
    world: NDArray[np.float32]
    visibility: NDArray[np.float32]
    region: Region


def blend(body: Body, other: Body, part: float) -> Body:
    """Interpolate between two bodies."""
    points, world, visibility = (
        (1 - part) * a + part * b
        for a, b in (
            (body.points, other.points),
            (body.world, other.world),
            (body.visibility, other.visibility),
        )
    )
    here, there = body.region, other.region
    turn = (there.angle - here.angle + np.pi) % (2 * np.pi) - np.pi
    x, y, radius = (
        (1 - part) * a + part * b for a, b in ((here.x, there.x), (here.y, there.y), (here.radius, there.radius))
    )
    return Body(points, world, visibility, Region(x, y, radius, float(here.angle + part * turn)))


def assemble(
    person: Mapping[int, Body], *, joints: tuple[str, ...], times: NDArray[np.float64], size: tuple[int, int]
) -> Pose:
    """Lay out the bodies at some frames as a pose of all frames, interpolating the gaps linearly in time."""
    found, shape = np.zeros(len(times), np.bool_), (len(times), len(joints))
    visibility = np.zeros(shape, np.float32)
    if not person:
        return Pose(joints, np.zeros((*shape, 2), np.float32), visibility, found, times, size)
    frames = np.array(sorted(person))
    bodies = [person[frame] for frame in frames.tolist()]
    found[frames] = True
    visibility[frames] = [body.visibility for body in bodies]
    keypoints = _interpolate(np.stack([body.points for body in bodies]), times[frames], times)
    world = _interpolate(np.stack([body.world for body in bodies]), times[frames], times)
    return Pose(joints, keypoints, visibility, found, times, size, world)


def _interpolate(values: NDArray[Any], known: NDArray[Any], times: NDArray[Any]) -> NDArray[Any]:
    """Interpolate values [N, …] at `known` seconds to all `times`; outside, the nearest holds."""
    columns = values.reshape(len(values), -1).T
    filled = np.stack([np.interp(times, known, column) for column in columns], axis=1)
    return filled.reshape(len(times), *values.shape[1:]).astype(values.dtype)


def fill_hidden(points: NDArray[Any], seen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Interpolate the joints [T, J, 2 or 3] that are not seen [T, J] by their frame; those never seen are 0."""
    filled, frames = np.zeros(points.shape), np.arange(len(points))
    for joint in np.flatnonzero(seen.any(0)):
        known = seen[:, joint]
        filled[:, joint] = _interpolate(points[known, joint], frames[known], frames)
    return filled


# Meters: points nearer to the camera, or behind it, are projected as if at this depth.
MIN_DEPTH = 0.05
# The thickness of a body around its bones, in meters, which occludes joints behind it.
_TRUNK_RADIUS, _LIMB_RADIUS = 0.12, 0.05
_TRUNK_JOINTS = {"head", "shoulder_center", "spine", "hip_center"}


@dataclass(frozen=True, eq=False)
class Camera:
    """A static pinhole camera without distortion. Image coordinates are in the unit of `size`."""

    position: NDArray[np.float64]  # [3] meters
    axes: NDArray[np.float64]  # [3, 3] rows: to the right, down and forward, in a right-handed world
    focal: float
    size: tuple[float, float] = (1.0, 1.0)  # height and width: pixels, or image widths for 1 × 1

    def project(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Project world points: x, y and the depth in meters, [..., 3].

        Points behind the camera have a depth ≤ 0; their x and y, like those of points nearer than MIN_DEPTH, are those
        at MIN_DEPTH.
        """
        projected = (points.astype(np.float64) - self.position) @ self.axes.T
        center = np.array(self.size[::-1]) / 2
        places = center + self.focal * projected[..., :2] / np.maximum(projected[..., 2:], MIN_DEPTH)
        return np.concatenate([places, projected[..., 2:]], axis=-1)

    def rays(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Find the world direction, of depth one, of image coordinates: [..., 3]."""
        height, width = self.size
        across = np.stack([(x - width / 2) / self.focal, (y - height / 2) / self.focal, np.ones_like(x)], axis=-1)
        return np.asarray(across @ self.axes)


def place_camera(
    position: NDArray[np.float64],
    target: NDArray[np.float64],
    *,
    up: tuple[float, float, float],
    focal: float,
    size: tuple[float, float] = (1.0, 1.0),
) -> Camera:
    """Place a camera at `position`, its upper side `up`, with `target` in the middle of its image."""
    forward = (target - position) / np.linalg.norm(target - position)
    right = np.cross(forward, np.array(up))
    right = right / np.linalg.norm(right)
    return Camera(position, np.stack([right, np.cross(forward, right), forward]), focal, size)


def orbit_camera(
    target: NDArray[np.floating],
    *,
    azimuth: float,
    elevation: float,
    distance: float,
    focal: float = 280.0,
    size: tuple[float, float] = (240, 320),
) -> Camera:
    """Place a camera around `target` where y points up; in radians, azimuth 0 from −z, where Kinects stand."""
    across = distance * np.cos(elevation)
    away = np.array([across * np.sin(azimuth), distance * np.sin(elevation), -across * np.cos(azimuth)])
    middle = np.asarray(target, np.float64)
    return place_camera(middle + away, middle, up=(0.0, 1.0, 0.0), focal=focal, size=size)


def sample_camera(
    joints3d: NDArray[np.floating],
    *,
    rng: np.random.Generator,
    turn: float = np.pi,
    size: tuple[float, float] = (240, 320),
) -> Camera:
    """Sample a camera around a performance [T, J, 3]: within ±`turn` of the front, about at eye height.

    Its distance keeps the whole performance in view, with a random margin.
    """
    low, high = joints3d.min((0, 1)), joints3d.max((0, 1))
    half_angle = np.radians(23)
    reach = max(float(np.linalg.norm(high - low)) / 2, 0.1)
    return orbit_camera(
        (low + high) / 2,
        azimuth=rng.uniform(-turn, turn),
        elevation=rng.uniform(np.radians(-5), np.radians(25)),
        distance=reach / np.sin(half_angle) * rng.uniform(1.0, 1.3),
        focal=min(size) / 2 / np.tan(half_angle),
        size=size,
    )


def project_joints(
    camera: Camera, joints3d: NDArray[np.floating], *, joints: tuple[str, ...]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Project a body's joints to pixels [T, J, 2]; mark those in view and not occluded by a limb."""
    projected = camera.project(joints3d)
    pixels, depth = projected[..., :2], projected[..., 2]
    inside = (pixels >= 0).all(-1) & (pixels < np.array(camera.size[::-1])).all(-1) & (depth > 0)
    return pixels.astype(np.float32), inside & ~_hidden(pixels, depth, joints=joints, focal=camera.focal)


def _hidden(
    pixels: NDArray[np.float64], depth: NDArray[np.float64], *, joints: tuple[str, ...], focal: float
) -> NDArray[np.bool_]:
    """Mark the joints [T, J] behind a bone's thickness, bones being straight in the image. O(T·J·bones)."""
    behind = np.zeros(depth.shape, dtype=np.bool_)
    for a, b in bones(joints):
        radius = _TRUNK_RADIUS if {joints[a], joints[b]} <= _TRUNK_JOINTS else _LIMB_RADIUS
        start, along = pixels[:, None, a], (pixels[:, b] - pixels[:, a])[:, None]
        squared = np.maximum((along**2).sum(-1), 1e-9)
        part = np.clip(((pixels - start) * along).sum(-1) / squared, 0, 1)
        off = np.linalg.norm(pixels - start - part[..., None] * along, axis=-1)
        bone = depth[:, None, a] + part * (depth[:, b] - depth[:, a])[:, None]
        covers = (off * bone < radius * focal) & (bone > 0) & (bone + radius < depth)
        covers[:, [a, b]] = False
        behind |= covers
    return behind
