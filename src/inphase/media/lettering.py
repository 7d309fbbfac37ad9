"""Letters in pictures: the font that comes with Pillow, and for what it lacks one of the system's."""

import unicodedata
from collections.abc import Iterator
from functools import cache

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# Pillow's own letters are those of English. These are fonts of many, as Linux, Windows and macOS call them.
SYSTEM = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "arial.ttf", "Arial Unicode.ttf")
# A code that stands for no character: its picture is the one a font gives to whatever it lacks.
NOTHING = "\uffff"


def lettering(text: str, size: int) -> tuple[str, Font]:
    """Give the font that knows most of a text, and the text as it can write it: without marks, or "?" for a letter."""
    best = max(_fonts(text, size), key=lambda font: sum(_knows(font, letter) for letter in text))
    return "".join(letter if _knows(best, letter) else _plain(best, letter) for letter in text), best


def _fonts(text: str, size: int) -> Iterator[Font]:
    """Yield Pillow's font, and those of the system where a letter is missing in it."""
    own = ImageFont.load_default(size)
    yield own
    if not all(_knows(own, letter) for letter in text):
        yield from _installed(size)


@cache
def _installed(size: int) -> tuple[Font, ...]:
    found: list[Font] = []
    for name in SYSTEM:
        try:
            found.append(ImageFont.truetype(name, size))
        except OSError:
            continue
    return tuple(found)


def _knows(font: Font, letter: str) -> bool:
    return letter.isspace() or bytes(font.getmask(letter)) != bytes(font.getmask(NOTHING))


def _plain(font: Font, letter: str) -> str:
    base = unicodedata.normalize("NFKD", letter)[0]
    return base if _knows(font, base) else "?"
