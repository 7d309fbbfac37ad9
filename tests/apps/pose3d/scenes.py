"""Bodies in motion and cameras around them, whose truth is known."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from inphase.apps.pose3d.views import Views
from inphase.data.frame_source import select_joints
from inphase.data.stage_videos import load
from inphase.data.video import Video
from inphase.pose.pose import JOINTS13

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scene:
    """A body [T, J, 3], y down, about its hips in torso lengths, its cameras, and what they see."""

    body: Array
    rotations: Array
    scales: Array
    points: Array
    seen: NDArray[np.bool_]

    def views(self) -> Views:
        names = tuple(f"view {number}" for number in range(len(self.scales)))
        return Views(names, self.points, self.seen, np.arange(len(self.body)) / 30, JOINTS13)


def videos(action: str, *, count: int, split: str = "test") -> list[Video]:
    return [select_joints(video) for video in load(split=split, actions=[action], videos=count, size=32)]


def about_hips(video: Video) -> Array:
    assert video.joints3d is not None
    body = video.joints3d.astype(np.float64)
    body = body - body[:, [7, 8]].mean(1, keepdims=True)
    return np.asarray(body / np.median(np.linalg.norm(body[:, [1, 2]].mean(1), axis=-1)))


def film(
    *,
    views: int = 6,
    every: int = 6,
    missing: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    around: float = 2 * np.pi,
    lean: float = 0.4,
) -> Scene:
    """See a kick by scaled orthographic cameras `around` it, each moment at a place of its own in the image."""
    rng = np.random.default_rng(seed)
    body = about_hips(videos("kick", count=1)[0])[::every]
    # The stage's z points up; cameras have y down.
    body = np.stack([body[..., 0], -body[..., 2], body[..., 1]], axis=-1)
    upright = Rotation.from_euler("y", rng.uniform(0, around, (views, 1)))
    rotations = (Rotation.from_euler("x", rng.uniform(-lean, lean, (views, 1))) * upright).as_matrix()
    body, rotations = body @ rotations[0].T, rotations @ rotations[0].T
    scales = rng.uniform(0.6, 1.6, views)
    points = scales[:, None, None, None] * np.einsum("vca,tja->vtjc", rotations[:, :2], body)
    points = points + rng.normal(size=(views, len(body), 1, 2)) + noise * rng.normal(size=points.shape)
    seen = rng.random(points.shape[:3]) >= missing
    return Scene(body, rotations, scales, np.where(seen[..., None], points, 0.0), seen)


def distance(found: Array, true: Array, *, reflection: bool = False) -> float:
    """Measure how far bodies [T, J, 3] are apart after one similarity transform, worked out by scipy's rotation."""
    x, y = (body.reshape(-1, 3) - body.reshape(-1, 3).mean(0) for body in (found, true))
    options = [x, x * (1, 1, -1)] if reflection else [x]
    results = []
    for option in options:
        turned = option @ Rotation.align_vectors(y, option)[0].as_matrix().T
        scale = (turned * y).sum() / (turned**2).sum()
        results.append(float(np.linalg.norm(scale * turned - y, axis=-1).mean()))
    return min(results)
