"""Nobody wears what the wall wears."""

import numpy as np
import pytest

from inphase.data.stage.look import LEVELS, draw_look


@pytest.mark.parametrize("level", LEVELS)
def test_everything_worn_is_unlike_everything_behind(level: str) -> None:
    for seed in range(300):
        look = draw_look(np.random.default_rng(seed), LEVELS[level])
        for worn in (look.skin, look.shirt, look.trousers, look.shoes, look.prop):
            for behind in (look.wall, look.floor, *look.clutter):
                assert np.linalg.norm(worn - behind) >= 0.3, seed


@pytest.mark.parametrize("level", LEVELS)
def test_colours_and_light_are_possible(level: str) -> None:
    for seed in range(50):
        look = draw_look(np.random.default_rng(seed), LEVELS[level])
        for colour in (look.skin, look.hair, look.shirt, look.trousers, look.shoes, look.prop, look.wall, look.floor):
            assert ((colour >= 0) & (colour <= 1)).all()
        assert np.linalg.norm(look.light) == pytest.approx(1)
        assert look.light[1] < 0, "light comes from above"
        assert look.light[2] < 0, "and from the camera's side"


def test_levels_are_harder_one_after_the_other() -> None:
    plain, medium, hard = LEVELS.values()
    for name in ("views", "clutter", "texture", "shake", "noise", "style"):
        assert getattr(plain, name) < getattr(medium, name) < getattr(hard, name), name
