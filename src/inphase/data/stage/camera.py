"""Where the camera of a take stands, so that the whole performance is in the picture."""

import numpy as np
from numpy.typing import NDArray

from inphase.pose.camera import Camera, place_camera

UP = (0.0, 0.0, 1.0)


def frame(points: NDArray[np.float64], *, azimuth: float, elevation: float, distance: float, fill: float) -> Camera:
    """Choose the camera that holds all `points` [N, 3] within `fill` of its picture, one unit wide and high.

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
        camera = place_camera(position, target, up=UP, focal=1.0)
        spread = camera.project(points)[:, :2] - 0.5
        # Move the target to the middle of what is seen, so that perspective does not push the near end out.
        target = target + distance * ((spread.max(0) + spread.min(0)) / 2 @ camera.axes[:2])
    spread = place_camera(position, target, up=UP, focal=1.0).project(points)[:, :2] - 0.5
    return place_camera(position, target, up=UP, focal=float(fill / 2 / np.abs(spread).max()))
