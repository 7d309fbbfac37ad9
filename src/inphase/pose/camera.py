"""Pinhole cameras: project points of the world into an image, and find the visible joints of a body."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inphase.pose.pose import bones

# Meters: points nearer to the camera, or behind it, are projected as if at this depth.
MIN_DEPTH = 0.05
# The thickness of a body around its bones, in meters, which occludes joints behind it.
_TRUNK_RADIUS, _LIMB_RADIUS = 0.12, 0.05
_TRUNK = {"head", "shoulder_center", "spine", "hip_center"}


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
        radius = _TRUNK_RADIUS if {joints[a], joints[b]} <= _TRUNK else _LIMB_RADIUS
        start, along = pixels[:, None, a], (pixels[:, b] - pixels[:, a])[:, None]
        squared = np.maximum((along**2).sum(-1), 1e-9)
        part = np.clip(((pixels - start) * along).sum(-1) / squared, 0, 1)
        off = np.linalg.norm(pixels - start - part[..., None] * along, axis=-1)
        bone = depth[:, None, a] + part * (depth[:, b] - depth[:, a])[:, None]
        covers = (off * bone < radius * focal) & (bone > 0) & (bone + radius < depth)
        covers[:, [a, b]] = False
        behind |= covers
    return behind
