"""A synthetic camera: which pixels a moving body's joints fall on, and which of them it sees."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inphase.data.pose import bones

# How thick a body is around its bones, in metres: what stands in the way of a joint.
_TRUNK_RADIUS, _LIMB_RADIUS = 0.12, 0.05
_TRUNK = {"head", "shoulder_center", "spine", "hip_center"}


@dataclass(frozen=True, eq=False)
class Camera:
    """A pinhole camera without distortion, in a right-handed world whose y points up."""

    rotation: NDArray[np.float64]  # [3, 3] world → camera: x to the right, y down, z away from it
    position: NDArray[np.float64]  # [3] metres
    focal: float  # pixels
    size: tuple[int, int]  # height and width, pixels

    def project(self, points: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give the pixels [..., 2] and the depth in metres [...] of points [..., 3]; what lies behind has depth ≤ 0."""
        local = (points.astype(np.float64) - self.position) @ self.rotation.T
        depth = local[..., 2]
        centre = np.array(self.size[::-1]) / 2
        pixels = centre + self.focal * local[..., :2] / np.where(np.abs(depth) < 1e-9, 1e-9, depth)[..., None]
        return pixels, depth


def look_at(
    target: NDArray[np.floating],
    *,
    azimuth: float,
    elevation: float,
    distance: float,
    focal: float = 280.0,
    size: tuple[int, int] = (240, 320),
) -> Camera:
    """Place a camera that looks at `target` with its head up; in radians, azimuth 0 from −z, where Kinects stand."""
    forward = np.array(
        [-np.sin(azimuth) * np.cos(elevation), -np.sin(elevation), np.cos(azimuth) * np.cos(elevation)],
        dtype=np.float64,
    )
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    return Camera(rotation, np.asarray(target, np.float64) - distance * forward, focal, size)


def draw_camera(
    joints3d: NDArray[np.floating], *, rng: np.random.Generator, turn: float = np.pi, size: tuple[int, int] = (240, 320)
) -> Camera:
    """Draw a camera around a performance [T, J, 3]: anywhere within ±`turn` of the front, about at eye height.

    It stands as far off as it takes to have the whole performance in view, with a little left over at random.
    """
    low, high = joints3d.min((0, 1)), joints3d.max((0, 1))
    half_angle = np.radians(23)
    reach = float(np.linalg.norm(high - low)) / 2
    return look_at(
        (low + high) / 2,
        azimuth=rng.uniform(-turn, turn),
        elevation=rng.uniform(np.radians(-5), np.radians(25)),
        distance=reach / np.sin(half_angle) * rng.uniform(1.0, 1.3),
        focal=min(size) / 2 / np.tan(half_angle),
        size=size,
    )


def see(
    camera: Camera, joints3d: NDArray[np.floating], *, joints: tuple[str, ...]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Give the pixels [T, J, 2] of a body's joints and whether each is in view and not behind another limb."""
    pixels, depth = camera.project(joints3d)
    inside = (pixels >= 0).all(-1) & (pixels < np.array(camera.size[::-1])).all(-1) & (depth > 0)
    return pixels.astype(np.float32), inside & ~_hidden(pixels, depth, joints=joints, focal=camera.focal)


def _hidden(
    pixels: NDArray[np.float64], depth: NDArray[np.float64], *, joints: tuple[str, ...], focal: float
) -> NDArray[np.bool_]:
    """Mark the joints [T, J] behind a bone's thickness, bones being straight in the picture. O(T·J·bones)."""
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
