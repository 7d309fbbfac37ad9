"""The appearance of a recording: difficulty levels, colors of performer and room, light, and the painted background."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inphase.pose.pose import Camera

Color = NDArray[np.float64]  # [3] red, green, blue in [0, 1]
Image = NDArray[np.float64]  # [H, W, 3]

# Smallest RGB distance between any color of the performer and any color of the background.
MIN_CONTRAST = 0.3


@dataclass(frozen=True)
class Level:
    """A difficulty level: how much the recordings of a set vary."""

    views: float  # degrees to either side of the best view
    elevations: tuple[float, float]  # degrees
    clutter: int  # 0: none; otherwise objects in up to four colors, up to four objects per color
    texture: float  # strength of the pattern of wall and floor
    shake: float  # of the hand-held camera, in image widths
    noise: float  # of the sensor, as a fraction of white
    style: float  # variation of the key poses
    light: float  # how far the light may come from the side


LEVELS: dict[str, Level] = {
    "plain": Level(views=20, elevations=(4, 12), clutter=0, texture=0.0, shake=0.0, noise=0.008, style=0.6, light=0.5),
    "medium": Level(
        views=60, elevations=(2, 20), clutter=6, texture=0.05, shake=0.004, noise=0.015, style=1.0, light=0.8
    ),
    "hard": Level(
        views=180, elevations=(0, 30), clutter=18, texture=0.1, shake=0.008, noise=0.03, style=1.3, light=1.0
    ),
}


@dataclass(frozen=True, eq=False)
class Appearance:
    """The colors and the light of one recording."""

    skin: Color
    hair: Color
    shirt: Color
    trousers: Color
    shoes: Color
    prop: Color
    wall: Color
    floor: Color
    clutter: NDArray[np.float64]  # [N, 3] colors of the objects in the background
    sleeves: float  # below 1: the part of the upper arm they cover; 1: the upper arm; 2: the whole arm
    legs: float  # 1: the trousers cover the thigh; 2: the whole leg
    light: NDArray[np.float64]  # [3] unit vector toward the light, in camera axes
    ambient: float
    exposure: float


def sample_appearance(rng: np.random.Generator, level: Level) -> Appearance:
    """Sample a skin color, then surroundings that contrast with it, then clothes that contrast with both."""
    tone = rng.uniform(0.0, 1.0)
    skin = (1 - tone) * np.array([0.96, 0.78, 0.66]) + tone * np.array([0.36, 0.22, 0.15])
    skin = np.clip(skin + rng.normal(0, 0.02, 3), 0, 1)
    wall = _sample_contrasting(rng, [skin], dull=True)
    floor = _sample_contrasting(rng, [skin], dull=True)
    clutter = [_sample_contrasting(rng, [skin], dull=True) for _ in range(min(level.clutter, 4))]
    background = [wall, floor, *clutter]
    shirt = _sample_contrasting(rng, [*background, skin])
    trousers = _sample_contrasting(rng, [*background, skin, shirt])
    sideways = rng.uniform(-level.light, level.light)
    light = np.array([sideways, -rng.uniform(0.5, 1.0), -rng.uniform(0.5, 1.0)])
    return Appearance(
        skin=skin,
        hair=np.clip(rng.uniform(0.05, 0.45) * np.array([1.0, rng.uniform(0.6, 0.9), rng.uniform(0.3, 0.8)]), 0, 1),
        shirt=shirt,
        trousers=trousers,
        shoes=_sample_contrasting(rng, background),
        prop=_sample_contrasting(rng, [*background, skin]),
        wall=wall,
        floor=floor,
        clutter=np.array(clutter).reshape(-1, 3),
        sleeves=float(rng.choice([0.5, 1.0, 2.0])),
        legs=float(rng.choice([1.0, 2.0, 2.0])),
        light=light / np.linalg.norm(light),
        ambient=float(rng.uniform(0.5, 0.65)),
        exposure=float(rng.uniform(0.85, 1.1)),
    )


def _sample_contrasting(rng: np.random.Generator, others: list[Color], *, dull: bool = False) -> Color:
    """Sample a color at least MIN_CONTRAST away from others, or the most distant of 64; dull colors are grayish."""
    best, distance = np.zeros(3), -1.0
    for _ in range(64):
        color = rng.uniform(0.08, 0.95, 3)
        if dull:
            color = np.clip(0.3 * color + 0.7 * rng.uniform(0.15, 0.9), 0, 1)
        nearest = min(float(np.linalg.norm(color - other)) for other in others)
        if nearest >= MIN_CONTRAST:
            return color
        if nearest > distance:
            best, distance = color, nearest
    return best


def paint_background(
    rng: np.random.Generator,
    camera: Camera,
    appearance: Appearance,
    level: Level,
    *,
    ground: NDArray[np.float64],
    size: int,
    margin: int,
) -> NDArray[np.float32]:
    """Paint floor, wall and clutter in the perspective of a camera: [size + 2 margin, size + 2 margin, 3] in [0, 1].

    The wall stands behind all points of `ground` [N, 3], which the performer reaches.
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

    wall = appearance.wall * (1.0 + rng.uniform(-0.12, 0.12) * np.clip(hit[..., 2:] - 1.5, -2, 2) / 2)
    floor = appearance.floor * np.broadcast_to(1.0 + rng.uniform(-0.1, 0.1) * (y[..., None] - 0.5), (*x.shape, 1))
    if level.texture > 0:
        across = hit @ np.cross(level_forward, np.array([0.0, 0.0, 1.0]))
        wall = wall * (1 + level.texture * _sample_pattern(rng, across, hit[..., 2]))[..., None]
        floor = floor * (1 + level.texture * _sample_pattern(rng, hit[..., 0], hit[..., 1]))[..., None]
    image = np.where(is_floor[..., None], floor, wall)
    image = _add_clutter(rng, image, x, y, appearance)
    # The corner of wall and floor is a soft dark line.
    edge = np.abs(np.log(np.minimum(to_floor, 1e3) / to_wall))
    image *= (1.0 - 0.25 * np.exp(-((edge / 0.04) ** 2)))[..., None]
    return np.clip(image, 0.0, 1.0).astype(np.float32)


def _sample_pattern(rng: np.random.Generator, u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample tiles, boards or spots on the plane (u, v) in meters, values in about [−1, 1]."""
    kind, pitch = rng.integers(3), rng.uniform(0.3, 0.9)
    waves = rng.normal(0.0, 2.5, (6, 2))
    phases = rng.uniform(0, 2 * np.pi, 6)
    spots = sum(np.cos(a * u + b * v + phase) for (a, b), phase in zip(waves, phases, strict=True)) / 3.0
    if kind == 0:
        return np.asarray(0.7 * np.sign(np.sin(np.pi * u / pitch) * np.sin(np.pi * v / pitch)) + 0.3 * spots)
    if kind == 1:
        return np.asarray(0.7 * np.sin(2 * np.pi * np.floor(u / pitch * 2) * 0.37) + 0.3 * spots)
    return np.asarray(spots)


def _add_clutter(rng: np.random.Generator, image: Image, x: Image, y: Image, appearance: Appearance) -> Image:
    """Add rectangles and ellipses with soft edges, in the colors of the clutter."""
    if not len(appearance.clutter):
        return image
    for _ in range(rng.integers(2, 4 * len(appearance.clutter) + 1)):
        cx, cy = rng.uniform(-0.05, 1.05, 2)
        width, height = rng.uniform(0.02, 0.16, 2)
        color = appearance.clutter[rng.integers(len(appearance.clutter))] * rng.uniform(0.92, 1.08)
        a, b = np.abs(x - cx) / width, np.abs(y - cy) / height
        inside = np.maximum(a, b) if rng.random() < 0.7 else np.hypot(a, b)
        cover = np.clip((1.0 - inside) * min(width, height) * 60, 0.0, 1.0) * rng.uniform(0.5, 1.0)
        image = image * (1 - cover[..., None]) + color * cover[..., None]
    return image
