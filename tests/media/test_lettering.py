import numpy as np
import pytest
from PIL import Image, ImageDraw

from inphase.media import render as module
from inphase.media.render import Captions, choose_font, plan_layout


def drawn(text: str, font: module.Font) -> bytes:
    picture = Image.new("L", (300, 40))
    ImageDraw.Draw(picture).text((2, 2), text, fill=255, font=font)
    return picture.tobytes()


def test_english_is_written_in_the_font_that_is_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(size: int) -> tuple[module.Font, ...]:
        raise AssertionError("no font has to be looked for")

    monkeypatch.setattr(module, "_installed", search)
    text, font = choose_font("my swing (2) … it's 100%", 14)
    assert text == "my swing (2) … it's 100%"
    assert drawn("a", font) != drawn("b", font)


def test_letters_that_no_font_has_lose_their_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_installed", lambda size: ())
    text, font = choose_font("Übung à 日", 14)
    assert text == "Ubung a ?"
    assert drawn(text, font) == drawn("Ubung a ?", font)


def test_a_font_of_the_system_writes_what_it_knows() -> None:
    if not module._installed(14):
        pytest.skip("no font of many letters is installed")
    text, font = choose_font("Übung – žena", 14)
    assert text == "Übung – žena"
    assert len({drawn(letter, font) for letter in "Ü–žu"}) == 4, "not a box for each"


def test_captions_of_videos_are_not_boxes() -> None:
    layout = plan_layout([(64, 96)], layout="row", height=64)
    first, second = (Captions([text], layout).on(np.zeros((64, 96, 3), np.uint8)) for text in ("Ü", "Ý"))
    assert (first != second).any()
