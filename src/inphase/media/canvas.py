"""The canvas of a rendered frame: the layout of several images, and the texts and joints drawn on them.

Texts use Pillow's font, or one of the system's for letters that it lacks.
"""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Layout = Literal["row", "grid", "overlay"]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Cell = tuple[int, int, int, int]  # top, left, height and width on a canvas
Color = tuple[int, int, int]

# Pillow's own font has Latin letters only. These have many more, by their names on Linux, Windows and macOS.
FONT_FILES = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "arial.ttf", "Arial Unicode.ttf")
# Not a character: a font draws it like every character that it lacks.
MISSING_GLYPH = "\uffff"
# Lines of joints are drawn this many times as large and scaled down, for smooth edges.
OVERSAMPLING = 2


@dataclass(frozen=True)
class LayoutPlan:
    """The place of each of K images: `cells` holds top, left, height and width on a canvas of `size`."""

    size: tuple[int, int]
    cells: tuple[tuple[int, int, int, int], ...]
    blended: bool = False


def plan_layout(sizes: Sequence[tuple[int, int]], *, layout: Layout, height: int) -> LayoutPlan:
    """Lay out images of the given (height, width) in rows of `height`, keeping aspect ratios."""
    if not sizes:
        raise ValueError("nothing to lay out: give at least one clip")
    widths = [max(2, round(height * w / h)) for h, w in sizes]
    if layout == "overlay":
        return LayoutPlan((height, widths[0]), tuple((0, 0, height, widths[0]) for _ in sizes), blended=True)
    if layout == "row":
        lefts = np.cumsum([0, *widths]).tolist()
        return LayoutPlan(
            (height, lefts[-1]), tuple((0, x, height, w) for x, w in zip(lefts[:-1], widths, strict=True))
        )
    if layout == "grid":
        columns = math.ceil(math.sqrt(len(sizes)))
        rows, cell = math.ceil(len(sizes) / columns), max(widths)
        places = [
            (i // columns * height, i % columns * cell + (cell - w) // 2, height, w) for i, w in enumerate(widths)
        ]
        return LayoutPlan((rows * height, columns * cell), tuple(places))
    raise ValueError(f"layout must be 'row', 'grid' or 'overlay', got {layout!r}")


def compose(images: Sequence[NDArray[np.uint8]], plan: LayoutPlan) -> NDArray[np.uint8]:
    """Put images, already of the size of their cells, on one canvas; average overlaid ones."""
    if plan.blended:
        return np.asarray(np.mean(images, axis=0).round(), dtype=np.uint8)
    canvas = np.zeros((*plan.size, 3), np.uint8)
    for image, (top, left, height, width) in zip(images, plan.cells, strict=True):
        canvas[top : top + height, left : left + width] = image
    return canvas


def choose_font(text: str, size: int) -> tuple[str, Font]:
    """Choose the font with most letters of a text; return the text, é written as e or ? where missing, and the font."""
    best = max(_fonts(text, size), key=lambda font: sum(_has_glyph(font, letter) for letter in text))
    return "".join(letter if _has_glyph(best, letter) else _base_letter(best, letter) for letter in text), best


def _fonts(text: str, size: int) -> Iterator[Font]:
    """Yield Pillow's font, and the system's fonts if it lacks a letter."""
    own = _own_font(size)
    yield own
    if not all(_has_glyph(own, letter) for letter in text):
        yield from _installed(size)


_own_font = cache(ImageFont.load_default)


@cache
def _installed(size: int) -> tuple[Font, ...]:
    found: list[Font] = []
    for name in FONT_FILES:
        try:
            found.append(ImageFont.truetype(name, size))
        except OSError:
            continue
    return tuple(found)


@lru_cache(maxsize=4096)  # times change with every frame, and their digits with few
def _has_glyph(font: Font, letter: str) -> bool:
    return letter.isspace() or bytes(font.getmask(letter)) != bytes(font.getmask(MISSING_GLYPH))


def _base_letter(font: Font, letter: str) -> str:
    base = unicodedata.normalize("NFKD", letter)[0]
    return base if _has_glyph(font, base) else "?"


class Captions:
    """Texts at the lower left of cells, and others at the upper left and right that change from frame to frame."""

    def __init__(self, texts: Sequence[str], plan: LayoutPlan) -> None:
        """Place the texts, white on a dark box; those of overlaid images are stacked."""
        if texts and len(texts) != len(plan.cells):
            raise ValueError(f"{len(plan.cells)} clips need as many labels, got {len(texts)}: {list(texts)}")
        self._texts, self._plan = texts, plan

    def on(
        self, canvas: NDArray[np.uint8], *, left: Sequence[str] = (), right: Sequence[str] = ()
    ) -> NDArray[np.uint8]:
        """Blend the texts into a canvas, in place; `left` and `right` are those above, one for each cell or none."""
        count, blended = len(self._plan.cells), self._plan.blended
        for number, text in enumerate(self._texts):
            self._blend(canvas, text, number, row=number - count if blended else -1)
        for number, text in enumerate(right):
            self._blend(canvas, text, number, row=number if blended else 0, at_right=True)
        for number, text in enumerate(left[:1] if blended else left):
            beside = right[number] if number < len(right) else ""
            self._blend(canvas, text, number, row=0 if blended or self._fit(number, text, beside) else 1)
        return canvas

    def _fit(self, number: int, one: str, other: str) -> bool:
        """Report whether two texts have room beside each other in a cell."""
        _, _, height, width = self._plan.cells[number]
        widths = [draw_text(text, height=height, width=width)[0].shape[1] for text in (one, other) if text]
        return bool(sum(widths) <= width)

    def _blend(self, canvas: NDArray[np.uint8], text: str, number: int, *, row: int, at_right: bool = False) -> None:
        """Blend one text into its cell, `row` boxes from the upper edge, or if negative from the lower one."""
        if not text:
            return
        top, left, height, width = self._plan.cells[number]
        color, alpha = draw_text(text, height=height, width=width)
        top = max(0, top + row * len(color) + (height if row < 0 else 0))
        left += width - color.shape[1] if at_right else 0
        place = canvas[top : top + len(color), left : left + color.shape[1]]
        clipped = (slice(place.shape[0]), slice(place.shape[1]))
        place[:] = (place * (1 - alpha[clipped]) + color[clipped] * alpha[clipped]).round()


@lru_cache(maxsize=256)
def draw_text(text: str, *, height: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw a text into a box that fits a cell: colors [h, w, 3] and opacity [h, w, 1]."""
    points = max(8, min(height // 16, width // 12))
    shown, font = choose_font(text, points)
    while len(shown) > 1 and font.getlength(shown) + points > width:
        shown = shown[:-2] + "…"
    box = Image.new("RGBA", (min(width, round(font.getlength(shown)) + points), points * 3 // 2), (0, 0, 0, 150))
    ImageDraw.Draw(box).text((points // 2, points * 3 // 4), shown, fill=(255, 255, 255, 255), font=font, anchor="lm")
    drawn = np.asarray(box, dtype=np.float32)
    return drawn[..., :3], drawn[..., 3:] / np.float32(255)


@dataclass(frozen=True, eq=False)
class JointOverlay:
    """Joints to draw on a video: `points` [T, J, 2] pixels of frames of `size`, NaN where not known, at `times` [T].

    A bone connects two joints and has a color.
    """

    times: NDArray[np.float64]
    points: NDArray[np.float32]
    size: tuple[int, int]
    bones: tuple[tuple[int, int], ...]
    colors: tuple[Color, ...]

    def frame_at(self, second: float) -> int:
        """Find the frame that is shown at a second."""
        return max(int(np.searchsorted(self.times, second + 1e-3, side="right")) - 1, 0)

    def on(self, image: NDArray[np.uint8], frame: int) -> NDArray[np.uint8]:
        """Draw the joints of a frame; the image may have another size than the video."""
        height, width = image.shape[:2]
        scale = np.array([width / self.size[1], height / self.size[0]])
        # (0, 0) is the center of the first pixel.
        points = (self.points[frame].astype(np.float64) + 0.5) * scale
        return draw_bones(image, points, bones=self.bones, colors=self.colors)


def draw_bones(
    image: NDArray[np.uint8],
    points: NDArray[np.float64],
    *,
    bones: Sequence[tuple[int, int]],
    colors: Sequence[Color],
) -> NDArray[np.uint8]:
    """Draw bones between points [J, 2] of an image; those with a NaN are left out."""
    known = [(pair, color) for pair, color in zip(bones, colors, strict=True) if np.isfinite(points[list(pair)]).all()]
    if not known:
        return image
    thick = max(2.0, math.hypot(*image.shape[:2]) / 170)
    ends = points[[joint for pair, _ in known for joint in pair]]
    limits = np.array(image.shape[1::-1])
    left, top = np.clip(np.floor(ends.min(0) - 2 * thick), 0, limits - 1).astype(int).tolist()
    right, bottom = np.clip(np.ceil(ends.max(0) + 2 * thick), [left + 1, top + 1], limits).astype(int).tolist()
    by = OVERSAMPLING
    layer = Image.new("RGBA", ((right - left) * by, (bottom - top) * by), (0, 0, 0, 0))
    pen, places, thick = ImageDraw.Draw(layer), (points - np.array([left, top])) * by, by * thick
    for (a, b), _ in known:  # a dark rim, to be seen on any background
        pen.line([tuple(places[a]), tuple(places[b])], fill=(0, 0, 0, 130), width=round(1.8 * thick))
    for (a, b), color in known:
        pen.line([tuple(places[a]), tuple(places[b])], fill=(*color, 235), width=round(thick))
    for (a, b), color in known:
        for x, y in (places[a], places[b]):
            pen.ellipse((x - thick, y - thick, x + thick, y + thick), fill=(*color, 255))
    drawn = image.copy()
    part = Image.fromarray(drawn[top:bottom, left:right]).convert("RGBA")
    part.alpha_composite(layer.resize(part.size, Image.Resampling.BOX))
    drawn[top:bottom, left:right] = np.asarray(part)[..., :3]
    return drawn
