"""Performers contrast with the background, and the background is in the perspective of the camera."""

from dataclasses import replace

import numpy as np
import pytest

from inphase.stage import ACTIONS
from inphase.stage.physique import LEVELS, paint_background, sample_appearance
from inphase.stage.take import Slate, Take, sample_take


@pytest.mark.parametrize("level", LEVELS)
def test_performer_and_prop_contrast_with_the_background(level: str) -> None:
    for seed in range(300):
        appearance = sample_appearance(np.random.default_rng(seed), LEVELS[level])
        for worn in (appearance.skin, appearance.shirt, appearance.trousers, appearance.shoes, appearance.prop):
            for behind in (appearance.wall, appearance.floor, *appearance.clutter):
                assert np.linalg.norm(worn - behind) >= 0.3, seed


@pytest.mark.parametrize("level", LEVELS)
def test_colors_and_light_are_in_range(level: str) -> None:
    for seed in range(50):
        appearance = sample_appearance(np.random.default_rng(seed), LEVELS[level])
        for name in ("skin", "hair", "shirt", "trousers", "shoes", "prop", "wall", "floor"):
            color = getattr(appearance, name)
            assert ((color >= 0) & (color <= 1)).all()
        assert np.linalg.norm(appearance.light) == pytest.approx(1)
        assert appearance.light[1] < 0, "light comes from above"
        assert appearance.light[2] < 0, "and from the camera's side"


def test_levels_get_harder() -> None:
    plain, medium, hard = LEVELS.values()
    for name in ("views", "clutter", "texture", "shake", "noise", "style"):
        assert getattr(plain, name) < getattr(medium, name) < getattr(hard, name), name


RED, BLUE = np.array([0.8, 0.1, 0.1]), np.array([0.1, 0.1, 0.8])


def painted(take: Take, *, size: int = 96) -> np.ndarray:
    appearance = replace(take.appearance, floor=RED, wall=BLUE)
    ground = take.grid_posture.joints.reshape(-1, 3)
    rng = np.random.default_rng(0)
    return paint_background(rng, take.camera, appearance, LEVELS["plain"], ground=ground, size=size, margin=4)


def test_feet_stand_on_the_floor_and_the_wall_is_behind() -> None:
    for action in ACTIONS:
        for index in range(3):
            take = sample_take(Slate(action, "train", index, level="plain"))
            image = painted(take)
            ankles = take.posture.joints[:, -2:] * np.array([1.0, 1.0, 0.0])
            x, y = np.moveaxis(np.clip(take.camera.project(ankles)[..., :2] * 96, 0, 95).astype(int) + 4, -1, 0)
            red, blue = image[y, x, 0], image[y, x, 2]
            assert (red > blue).all(), take.slate.id


def test_the_background_extends_beyond_the_image() -> None:
    take = sample_take(Slate("kick", "train", 0, level="plain"))
    assert painted(take).shape == (104, 104, 3)
    assert painted(take).dtype == np.float32


def test_clutter_uses_the_colors_of_the_appearance_only() -> None:
    take = sample_take(Slate("kick", "train", 0, level="hard"))
    appearance = sample_appearance(np.random.default_rng(3), LEVELS["hard"])
    level = replace(LEVELS["hard"], texture=0.0)
    ground = take.grid_posture.joints.reshape(-1, 3)
    image = paint_background(np.random.default_rng(0), take.camera, appearance, level, ground=ground, size=64, margin=0)
    palette = np.stack([appearance.wall, appearance.floor, *appearance.clutter])
    low, high = 0.6 * palette.min(0), 1.3 * palette.max(0)
    assert ((image >= low) & (image <= high)).all()
