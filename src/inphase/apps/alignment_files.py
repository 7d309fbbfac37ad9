"""Output files of `align_videos`: a format is a function `write(aligned, file, progress)` and a line in `OUTPUTS`."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from inphase.apps.tracks import add_video_file
from inphase.media.canvas import choose_font
from inphase.media.render import render
from inphase.playback import Pair, write_playback
from inphase.progress import Progress
from inphase.storage.files import atomic_write

if TYPE_CHECKING:
    from inphase.apps.align_videos import Aligned

Output = Callable[["Aligned", Path, Progress], object]

# Colors from low to high cost: dark blue, blue, grey-green, pale yellow.
COST_COLORS = np.array([(13, 17, 56), (39, 73, 128), (96, 148, 140), (190, 205, 150), (250, 245, 205)], np.float64)
PATH_COLOR = (214, 39, 40)
INK = (40, 40, 40)
# Pixels of a plot: side of the cost matrix, margin around it, length of a tick.
PLOT_SIDE, MARGIN, TICK = 480, 64, 6
MAX_FPS = 60.0


def write_video(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Render the videos side by side on the reference's clock, with its sound; more than three in a grid."""
    reference = aligned.recordings[aligned.reference]
    render(
        file,
        [each.path for each in aligned.recordings],
        clock=aligned.clock,
        seconds=aligned.seconds,
        layout="row" if len(aligned.recordings) <= 3 else "grid",
        height=aligned.height,
        labels=[each.name for each in aligned.recordings],
        fps=min(reference.properties.fps, MAX_FPS),
        slow=aligned.slow,
        sound=reference.path if reference.properties.has_sound else None,
        sound_of=aligned.reference,
        progress=progress,
    )


def write_path(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Write the second of every video at each frame of the reference, which is the first column."""
    order = [aligned.reference, *(k for k in range(len(aligned.recordings)) if k != aligned.reference)]
    with atomic_write(file) as part, part.open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow([aligned.recordings[k].name for k in order])
        table.writerows([f"{second:.6f}" for second in row] for row in aligned.seconds[:, order])


def write_plot(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Draw the cost matrix and the path of each pair."""
    with atomic_write(file) as part:
        draw_alignments(aligned.pairs, [each.name for each in aligned.recordings]).save(part)


def write_document(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Copy the videos beside the playback document and write it, for the viewer."""
    media = [add_video_file(file.parent, each, progress=progress) for each in aligned.recordings]
    write_playback(file.parent, aligned.playback(media))


OUTPUTS: dict[str, Output] = {
    "aligned.mp4": write_video,
    "path.csv": write_path,
    "alignment.png": write_plot,
    "playback.json": write_document,
}


def draw_alignments(pairs: Sequence[Pair], names: Sequence[str]) -> Image.Image:
    """Draw pairs side by side, at most three in a row; `names` are the names of the tracks."""
    columns = min(3, len(pairs))
    rows = -(-len(pairs) // columns)
    cell = PLOT_SIDE + 2 * MARGIN
    sheet = Image.new("RGB", (columns * cell, rows * cell), "white")
    for number, pair in enumerate(pairs):
        drawn = _draw(pair.downsample(max_length=2 * PLOT_SIDE), names[pair.rows], names[pair.columns])
        sheet.paste(drawn, (number % columns * cell, number // columns * cell))
    return sheet


def color_costs(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Map values from 0 to 1 to colors, [...] → [..., 3]."""
    places = np.clip(values, 0, 1) * (len(COST_COLORS) - 1)
    channels = [np.interp(places, np.arange(len(COST_COLORS)), channel) for channel in COST_COLORS.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def _draw(pair: Pair, rows: str, columns: str) -> Image.Image:
    """Draw one pair: the reference's time runs down, the other's to the right."""
    image = Image.new("RGB", (PLOT_SIDE + 2 * MARGIN, PLOT_SIDE + 2 * MARGIN), "white")
    costs = pair.cost.astype(np.float32)
    # Percentiles, so that a few extreme costs do not use up the color range.
    low, high = np.percentile(costs, [1, 99])
    shades = color_costs((costs - low) / max(high - low, 1e-6))
    image.paste(Image.fromarray(shades).resize((PLOT_SIDE, PLOT_SIDE), Image.Resampling.BOX), (MARGIN, MARGIN))
    pen = ImageDraw.Draw(image)
    cells = (pair.path[:, ::-1] + 0.5) / np.array(costs.shape[::-1]) * PLOT_SIDE + MARGIN
    points = [(float(x), float(y)) for x, y in cells]
    pen.line(points if len(points) > 1 else points * 2, fill="white", width=5, joint="curve")
    pen.line(points if len(points) > 1 else points * 2, fill=PATH_COLOR, width=3, joint="curve")
    _draw_axes(pen, pair, columns)
    upwards = Image.new("RGB", (PLOT_SIDE, 24), "white")
    words = ImageDraw.Draw(upwards)
    name, font = choose_font(f"{_short(rows)} (s)", 16)
    words.text((PLOT_SIDE / 2, 12), name, fill=INK, font=font, anchor="mm")
    image.paste(upwards.rotate(90, expand=True), (4, MARGIN))
    return image


def _draw_axes(pen: ImageDraw.ImageDraw, pair: Pair, columns: str) -> None:
    """Draw ticks in seconds on both sides, and the name of the track below."""
    small = ImageFont.load_default(13)
    end = MARGIN + PLOT_SIDE
    pen.rectangle((MARGIN, MARGIN, end, end), outline=INK)
    for place, second in _ticks(pair.column_times):
        pen.line((MARGIN + place, end, MARGIN + place, end + TICK), fill=INK)
        pen.text((MARGIN + place, end + TICK + 2), second, fill=INK, font=small, anchor="ma")
    for place, second in _ticks(pair.row_times):
        pen.line((MARGIN - TICK, MARGIN + place, MARGIN, MARGIN + place), fill=INK)
        pen.text((MARGIN - TICK - 2, MARGIN + place), second, fill=INK, font=small, anchor="rm")
    name, font = choose_font(f"{_short(columns)} (s)", 16)
    pen.text((MARGIN + PLOT_SIDE / 2, end + MARGIN - 8), name, fill=INK, font=font, anchor="md")


def _ticks(times: NDArray[np.float64]) -> list[tuple[float, str]]:
    """Choose about six round seconds and their positions on a side, in pixels."""
    length = float(times[-1] - times[0])
    if length <= 0:
        return [(PLOT_SIDE / 2, f"{times[0]:.2f}")]
    raw = length / 6
    power = 10 ** np.floor(np.log10(raw))
    step = power * min((factor for factor in (1, 2, 5, 10) if factor * power >= raw), default=10)
    digits = max(0, -int(np.floor(np.log10(step))))
    marks = np.arange(np.ceil(times[0] / step), np.floor(times[-1] / step) + 1) * step
    places = np.interp(marks, times, (np.arange(len(times)) + 0.5) / len(times) * PLOT_SIDE)
    return [(float(place), f"{mark:.{digits}f}") for place, mark in zip(places, marks, strict=True)]


def _short(name: str, *, length: int = 44) -> str:
    return name if len(name) <= length else f"…{name[1 - length :]}"
