"""Several pictures as one: in a row, in a grid, or laid over each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Layout = Literal["row", "grid", "overlay"]


@dataclass(frozen=True)
class Plan:
    """Where each of K pictures goes: `cells` holds its top, left, height and width on a canvas of `size`."""

    size: tuple[int, int]
    cells: tuple[tuple[int, int, int, int], ...]
    blended: bool = False


def plan(sizes: Sequence[tuple[int, int]], *, layout: Layout, height: int) -> Plan:
    """Lay out pictures of the given (height, width) with rows of `height`, keeping every aspect."""
    if not sizes:
        raise ValueError("there is nothing to lay out: give at least one clip")
    widths = [max(2, round(height * w / h)) for h, w in sizes]
    if layout == "overlay":
        return Plan((height, widths[0]), tuple((0, 0, height, widths[0]) for _ in sizes), blended=True)
    if layout == "row":
        lefts = np.cumsum([0, *widths]).tolist()
        return Plan((height, lefts[-1]), tuple((0, x, height, w) for x, w in zip(lefts[:-1], widths, strict=True)))
    if layout == "grid":
        columns = math.ceil(math.sqrt(len(sizes)))
        rows, cell = math.ceil(len(sizes) / columns), max(widths)
        places = [
            (i // columns * height, i % columns * cell + (cell - w) // 2, height, w) for i, w in enumerate(widths)
        ]
        return Plan((rows * height, columns * cell), tuple(places))
    raise ValueError(f"layout must be 'row', 'grid' or 'overlay', got {layout!r}")


def compose(pictures: Sequence[NDArray[np.uint8]], plan: Plan) -> NDArray[np.uint8]:
    """Put pictures, already of the size of their cells, on one canvas; those laid over each other are averaged."""
    if plan.blended:
        return np.asarray(np.mean(pictures, axis=0).round(), dtype=np.uint8)
    canvas = np.zeros((*plan.size, 3), np.uint8)
    for picture, (top, left, height, width) in zip(pictures, plan.cells, strict=True):
        canvas[top : top + height, left : left + width] = picture
    return canvas


class Captions:
    """Texts at the lower left of cells, drawn once and laid on every picture."""

    def __init__(self, texts: Sequence[str], plan: Plan) -> None:
        """Draw the texts, white on a dark box; those of pictures laid over each other stand above one another."""
        if texts and len(texts) != len(plan.cells):
            raise ValueError(f"{len(plan.cells)} clips need as many labels, got {len(texts)}: {list(texts)}")
        self._boxes: list[tuple[int, int, NDArray[np.float32], NDArray[np.float32]]] = []
        for number, (text, (top, left, height, width)) in enumerate(zip(texts, plan.cells, strict=False)):
            if not text:
                continue
            colour, alpha = _draw(text, height=height, width=width)
            lift = (len(texts) - number if plan.blended else 1) * len(colour)
            self._boxes.append((max(0, top + height - lift), left, colour, alpha))

    def on(self, canvas: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Lay the texts on a canvas, in place."""
        for top, left, colour, alpha in self._boxes:
            place = canvas[top : top + len(colour), left : left + colour.shape[1]]
            clipped = (slice(place.shape[0]), slice(place.shape[1]))
            place[:] = (place * (1 - alpha[clipped]) + colour[clipped] * alpha[clipped]).round()
        return canvas


def _draw(text: str, *, height: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw a text into a box that fits a cell: colours [h, w, 3] and opacity [h, w, 1]."""
    from PIL import Image, ImageDraw

    from inphase.media.lettering import lettering

    points = max(8, height // 16)
    shown, font = lettering(text, points)
    while len(shown) > 1 and font.getlength(shown) + points > width:
        shown = shown[:-2] + "…"
    box = Image.new("RGBA", (min(width, round(font.getlength(shown)) + points), points * 3 // 2), (0, 0, 0, 150))
    ImageDraw.Draw(box).text((points // 2, points * 3 // 4), shown, fill=(255, 255, 255, 255), font=font, anchor="lm")
    drawn = np.asarray(box, dtype=np.float32)
    return drawn[..., :3], drawn[..., 3:] / np.float32(255)
