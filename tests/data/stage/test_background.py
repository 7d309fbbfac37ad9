"""What is behind the performer is in perspective with the performer."""

from dataclasses import replace

import numpy as np

from inphase.data.stage import ACTIONS
from inphase.data.stage.background import paint_background
from inphase.data.stage.look import LEVELS, draw_look
from inphase.data.stage.take import Slate, Take, draw_take

RED, BLUE = np.array([0.8, 0.1, 0.1]), np.array([0.1, 0.1, 0.8])


def painted(take: Take, *, size: int = 96) -> np.ndarray:
    look = replace(take.look, floor=RED, wall=BLUE)
    ground = take.course.joints.reshape(-1, 3)
    rng = np.random.default_rng(0)
    return paint_background(rng, take.camera, look, LEVELS["plain"], ground=ground, size=size, margin=4)


def test_feet_stand_on_the_floor_and_the_wall_is_behind() -> None:
    for action in ACTIONS:
        for index in range(3):
            take = draw_take(Slate(action, "train", index, level="plain"))
            image = painted(take)
            ankles = take.posture.joints[:, -2:] * np.array([1.0, 1.0, 0.0])
            x, y = np.moveaxis(np.clip(take.camera.project(ankles)[..., :2] * 96, 0, 95).astype(int) + 4, -1, 0)
            red, blue = image[y, x, 0], image[y, x, 2]
            assert (red > blue).all(), take.slate.id


def test_the_background_goes_on_beyond_the_picture() -> None:
    take = draw_take(Slate("kick", "train", 0, level="plain"))
    assert painted(take).shape == (104, 104, 3)
    assert painted(take).dtype == np.float32


def test_clutter_comes_in_the_colours_of_the_look_alone() -> None:
    take = draw_take(Slate("kick", "train", 0, level="hard"))
    look = draw_look(np.random.default_rng(3), LEVELS["hard"])
    level = replace(LEVELS["hard"], texture=0.0)
    ground = take.course.joints.reshape(-1, 3)
    image = paint_background(np.random.default_rng(0), take.camera, look, level, ground=ground, size=64, margin=0)
    palette = np.stack([look.wall, look.floor, *look.clutter])
    low, high = 0.6 * palette.min(0), 1.3 * palette.max(0)
    assert ((image >= low) & (image <= high)).all()
