"""A picture of alignments: the costs of each pair, dark where frames are alike, and the path through them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from inphase.media.render import lettering
from inphase.playback import Pair

# From alike to unlike: dark blue, blue, grey-green, pale yellow.
COLOURS = np.array([(13, 17, 56), (39, 73, 128), (96, 148, 140), (190, 205, 150), (250, 245, 205)], np.float64)
PATH = (214, 39, 40)
INK = (40, 40, 40)
SIDE, MARGIN, TICK = 480, 64, 6


def draw_alignments(pairs: Sequence[Pair], names: Sequence[str]) -> Image.Image:
    """Draw pairs side by side, at most three in a row; `names` are those of the tracks."""
    columns = min(3, len(pairs))
    rows = -(-len(pairs) // columns)
    cell = SIDE + 2 * MARGIN
    sheet = Image.new("RGB", (columns * cell, rows * cell), "white")
    for number, pair in enumerate(pairs):
        drawn = _draw(pair.downsample(max_length=2 * SIDE), names[pair.rows], names[pair.columns])
        sheet.paste(drawn, (number % columns * cell, number // columns * cell))
    return sheet


def coloured(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Turn values from 0 to 1 into colours, [...] → [..., 3]."""
    places = np.clip(values, 0, 1) * (len(COLOURS) - 1)
    channels = [np.interp(places, np.arange(len(COLOURS)), channel) for channel in COLOURS.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def _draw(pair: Pair, rows: str, columns: str) -> Image.Image:
    """Draw one pair: time of the reference downwards, of the other to the right."""
    picture = Image.new("RGB", (SIDE + 2 * MARGIN, SIDE + 2 * MARGIN), "white")
    costs = pair.cost.astype(np.float32)
    # A few extreme costs must not take all the colours.
    low, high = np.percentile(costs, [1, 99])
    shades = coloured((costs - low) / max(high - low, 1e-6))
    picture.paste(Image.fromarray(shades).resize((SIDE, SIDE), Image.Resampling.BOX), (MARGIN, MARGIN))
    pen = ImageDraw.Draw(picture)
    cells = (pair.path[:, ::-1] + 0.5) / np.array(costs.shape[::-1]) * SIDE + MARGIN
    points = [(float(x), float(y)) for x, y in cells]
    pen.line(points if len(points) > 1 else points * 2, fill="white", width=5, joint="curve")
    pen.line(points if len(points) > 1 else points * 2, fill=PATH, width=3, joint="curve")
    _draw_axes(pen, pair, columns)
    upwards = Image.new("RGB", (SIDE, 24), "white")
    words = ImageDraw.Draw(upwards)
    name, font = lettering(f"{_short(rows)} (s)", 16)
    words.text((SIDE / 2, 12), name, fill=INK, font=font, anchor="mm")
    picture.paste(upwards.rotate(90, expand=True), (4, MARGIN))
    return picture


def _draw_axes(pen: ImageDraw.ImageDraw, pair: Pair, columns: str) -> None:
    """Write seconds along both sides, and the name of the track below."""
    small = ImageFont.load_default(13)
    end = MARGIN + SIDE
    pen.rectangle((MARGIN, MARGIN, end, end), outline=INK)
    for place, second in _ticks(pair.column_times):
        pen.line((MARGIN + place, end, MARGIN + place, end + TICK), fill=INK)
        pen.text((MARGIN + place, end + TICK + 2), second, fill=INK, font=small, anchor="ma")
    for place, second in _ticks(pair.row_times):
        pen.line((MARGIN - TICK, MARGIN + place, MARGIN, MARGIN + place), fill=INK)
        pen.text((MARGIN - TICK - 2, MARGIN + place), second, fill=INK, font=small, anchor="rm")
    name, font = lettering(f"{_short(columns)} (s)", 16)
    pen.text((MARGIN + SIDE / 2, end + MARGIN - 8), name, fill=INK, font=font, anchor="md")


def _ticks(times: NDArray[np.float64]) -> list[tuple[float, str]]:
    """Choose about six round seconds and where they lie on a side, in pixels."""
    length = float(times[-1] - times[0])
    if length <= 0:
        return [(SIDE / 2, f"{times[0]:.2f}")]
    raw = length / 6
    power = 10 ** np.floor(np.log10(raw))
    step = power * min((factor for factor in (1, 2, 5, 10) if factor * power >= raw), default=10)
    digits = max(0, -int(np.floor(np.log10(step))))
    marks = np.arange(np.ceil(times[0] / step), np.floor(times[-1] / step) + 1) * step
    places = np.interp(marks, times, (np.arange(len(times)) + 0.5) / len(times) * SIDE)
    return [(float(place), f"{mark:.{digits}f}") for place, mark in zip(places, marks, strict=True)]


def _short(name: str, *, most: int = 44) -> str:
    return name if len(name) <= most else f"…{name[1 - most :]}"
