"""What is behind the performer: a floor and a wall in perspective, their patterns, and clutter."""

import numpy as np
from numpy.typing import NDArray

from inphase.data.stage.look import Level, Look
from inphase.pose.camera import Camera

Image = NDArray[np.float64]  # [H, W, 3]


def paint_background(
    rng: np.random.Generator,
    camera: Camera,
    look: Look,
    level: Level,
    *,
    ground: NDArray[np.float64],
    size: int,
    margin: int,
) -> NDArray[np.float32]:
    """Paint what a camera sees when nobody is there, [size + 2 margin, ditto, 3], values in [0, 1].

    The wall stands behind `ground` [N, 3], the points that the performer reaches.
    """
    ticks = (np.arange(-margin, size + margin) + 0.5) / size
    x, y = np.meshgrid(ticks, ticks)
    rays = camera.rays(x, y)
    level_forward = camera.axes[2] * np.array([1.0, 1.0, 0.0])
    level_forward /= np.linalg.norm(level_forward)
    reach = float(((ground - camera.position) @ level_forward).max())
    to_wall = (reach + rng.uniform(0.8, 4.0)) / np.maximum(rays @ level_forward, 1e-6)
    to_floor = np.where(rays[..., 2] < -1e-6, camera.position[2] / np.maximum(-rays[..., 2], 1e-6), np.inf)
    is_floor = to_floor < to_wall
    hit = camera.position + rays * np.minimum(to_floor, to_wall)[..., None]

    wall = look.wall * (1.0 + rng.uniform(-0.12, 0.12) * np.clip(hit[..., 2:] - 1.5, -2, 2) / 2)
    floor = look.floor * np.broadcast_to(1.0 + rng.uniform(-0.1, 0.1) * (y[..., None] - 0.5), (*x.shape, 1))
    if level.texture > 0:
        across = hit @ np.cross(level_forward, np.array([0.0, 0.0, 1.0]))
        wall = wall * (1 + level.texture * _pattern(rng, across, hit[..., 2]))[..., None]
        floor = floor * (1 + level.texture * _pattern(rng, hit[..., 0], hit[..., 1]))[..., None]
    image = np.where(is_floor[..., None], floor, wall)
    image = _litter(rng, image, x, y, look)
    # The corner of wall and floor, a soft dark line, and the light falling off to the sides.
    edge = np.abs(np.log(np.minimum(to_floor, 1e3) / to_wall))
    image *= (1.0 - 0.25 * np.exp(-((edge / 0.04) ** 2)))[..., None]
    return np.clip(image, 0.0, 1.0).astype(np.float32)


def _pattern(rng: np.random.Generator, u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw tiles, boards or mottle on the plane (u, v) in metres, values in about [−1, 1]."""
    kind, pitch = rng.integers(3), rng.uniform(0.3, 0.9)
    waves = rng.normal(0.0, 2.5, (6, 2))
    phases = rng.uniform(0, 2 * np.pi, 6)
    mottle = sum(np.cos(a * u + b * v + phase) for (a, b), phase in zip(waves, phases, strict=True)) / 3.0
    if kind == 0:
        return np.asarray(0.7 * np.sign(np.sin(np.pi * u / pitch) * np.sin(np.pi * v / pitch)) + 0.3 * mottle)
    if kind == 1:
        return np.asarray(0.7 * np.sin(2 * np.pi * np.floor(u / pitch * 2) * 0.37) + 0.3 * mottle)
    return np.asarray(mottle)


def _litter(rng: np.random.Generator, image: Image, x: Image, y: Image, look: Look) -> Image:
    """Hang pictures and stand things about: rectangles and ellipses in the palette of the look, with light edges."""
    if not len(look.clutter):
        return image
    for _ in range(rng.integers(2, 4 * len(look.clutter) + 1)):
        cx, cy = rng.uniform(-0.05, 1.05, 2)
        wide, high = rng.uniform(0.02, 0.16, 2)
        colour = look.clutter[rng.integers(len(look.clutter))] * rng.uniform(0.92, 1.08)
        a, b = np.abs(x - cx) / wide, np.abs(y - cy) / high
        inside = np.maximum(a, b) if rng.random() < 0.7 else np.hypot(a, b)
        cover = np.clip((1.0 - inside) * min(wide, high) * 60, 0.0, 1.0) * rng.uniform(0.5, 1.0)
        image = image * (1 - cover[..., None]) + colour * cover[..., None]
    return image
