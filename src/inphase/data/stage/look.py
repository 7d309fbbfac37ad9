"""What a recording looks like: skin and clothes, light, walls and floor, with a floor on how much they differ."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Colour = NDArray[np.float64]  # [3] red, green, blue in [0, 1]

# The least distance in RGB between whatever the performer wears and whatever is behind.
CONTRAST = 0.3


@dataclass(frozen=True)
class Level:
    """How hard a set is: what varies between its recordings, and by how much."""

    views: float  # degrees to either side of the best view
    elevations: tuple[float, float]  # degrees
    clutter: int  # most things on the wall and the floor
    texture: float  # strength of the pattern of wall and floor
    shake: float  # of the hand-held camera, in picture widths
    noise: float  # of the sensor, in units of white
    style: float  # of the key poses
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
class Look:
    """The colours and the light of one recording."""

    skin: Colour
    hair: Colour
    shirt: Colour
    trousers: Colour
    shoes: Colour
    prop: Colour
    wall: Colour
    floor: Colour
    clutter: NDArray[np.float64]  # [N, 3] the palette of what lies about
    sleeves: float  # how much of the arm they cover
    legs: float  # how much of the leg the trousers cover
    light: NDArray[np.float64]  # [3] from where it comes, in the camera's axes
    ambient: float
    exposure: float


def draw_look(rng: np.random.Generator, level: Level) -> Look:
    """Draw skin first, then surroundings unlike it, then clothes unlike the surroundings."""
    tone = rng.uniform(0.0, 1.0)
    skin = (1 - tone) * np.array([0.96, 0.78, 0.66]) + tone * np.array([0.36, 0.22, 0.15])
    skin = np.clip(skin + rng.normal(0, 0.02, 3), 0, 1)
    wall = _unlike(rng, [skin], dull=True)
    floor = _unlike(rng, [skin], dull=True)
    clutter = [_unlike(rng, [skin], dull=True) for _ in range(min(level.clutter, 4))]
    behind = [wall, floor, *clutter]
    shirt = _unlike(rng, [*behind, skin])
    trousers = _unlike(rng, [*behind, skin, shirt])
    sideways = rng.uniform(-level.light, level.light)
    light = np.array([sideways, -rng.uniform(0.5, 1.0), -rng.uniform(0.5, 1.0)])
    return Look(
        skin=skin,
        hair=np.clip(rng.uniform(0.05, 0.45) * np.array([1.0, rng.uniform(0.6, 0.9), rng.uniform(0.3, 0.8)]), 0, 1),
        shirt=shirt,
        trousers=trousers,
        shoes=_unlike(rng, behind),
        prop=_unlike(rng, [*behind, skin]),
        wall=wall,
        floor=floor,
        clutter=np.array(clutter).reshape(-1, 3),
        sleeves=float(rng.choice([0.5, 1.0, 2.0])),
        legs=float(rng.choice([1.0, 2.0, 2.0])),
        light=light / np.linalg.norm(light),
        ambient=float(rng.uniform(0.5, 0.65)),
        exposure=float(rng.uniform(0.85, 1.1)),
    )


def _unlike(rng: np.random.Generator, others: list[Colour], *, dull: bool = False) -> Colour:
    """Draw a colour at least CONTRAST away from others; dull ones are greyish, as walls and floors are."""
    best, distance = np.zeros(3), -1.0
    for _ in range(64):
        colour = rng.uniform(0.08, 0.95, 3)
        if dull:
            colour = np.clip(0.3 * colour + 0.7 * rng.uniform(0.15, 0.9), 0, 1)
        nearest = min(float(np.linalg.norm(colour - other)) for other in others)
        if nearest >= CONTRAST:
            return colour
        if nearest > distance:
            best, distance = colour, nearest
    return best
