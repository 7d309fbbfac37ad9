"""Cameras: where they stand, what they look at, and where a point of the world falls on the picture."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # [..., 3]


@dataclass(frozen=True, eq=False)
class Camera:
    """A pinhole camera that stands still; the picture is square and one unit wide, its middle at (0.5, 0.5)."""

    position: NDArray[np.float64]  # [3] metres
    axes: NDArray[np.float64]  # [3, 3] rows: right, down, forward
    focal: float  # in picture widths

    def see(self, points: Points) -> Points:
        """Turn world points into the camera's own axes: right, down and depth in metres."""
        return np.asarray((points - self.position) @ self.axes.T)

    def project(self, points: Points) -> Points:
        """Find where world points fall: x and y in picture widths and the depth in metres, [..., 3]."""
        seen = self.see(points)
        depth = np.maximum(seen[..., 2:], 0.05)
        return np.concatenate([0.5 + self.focal * seen[..., :2] / depth, depth], axis=-1)

    def rays(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> Points:
        """Find the world direction, of depth one, in which picture points lie."""
        across = np.stack([(x - 0.5) / self.focal, (y - 0.5) / self.focal, np.ones_like(x)], axis=-1)
        return np.asarray(across @ self.axes)


def look(position: NDArray[np.float64], target: NDArray[np.float64], *, focal: float) -> Camera:
    """Stand a camera at `position`, upright, with `target` in the middle of its picture."""
    forward = target - position
    forward = forward / np.linalg.norm(forward)
    side = np.cross(forward, np.array([0.0, 0.0, 1.0]))
    side = side / np.linalg.norm(side)
    return Camera(position=position, axes=np.stack([side, np.cross(forward, side), forward]), focal=focal)


def frame(points: Points, *, azimuth: float, elevation: float, distance: float, fill: float) -> Camera:
    """Choose the camera that holds all `points` [N, 3] within `fill` of the picture.

    `azimuth` and `elevation` are degrees seen from the middle of the points, 0 in front of the performer and 90 to the
    left; `distance` is metres.
    """
    low, high = points.min(0), points.max(0)
    target = (low + high) / 2
    a, e = np.radians(azimuth), np.radians(elevation)
    away = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
    position = target + distance * away
    position[2] = max(position[2], 0.25)
    for _ in range(3):
        spread = look(position, target, focal=1.0).project(points)[:, :2] - 0.5
        # Move the target to the middle of what is seen, so that perspective does not push the near end out.
        shift = (spread.max(0) + spread.min(0)) / 2
        camera = look(position, target, focal=1.0)
        target = target + distance * (shift @ camera.axes[:2])
    spread = look(position, target, focal=1.0).project(points)[:, :2] - 0.5
    return look(position, target, focal=float(fill / 2 / np.abs(spread).max()))
