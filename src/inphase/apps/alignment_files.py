"""Output files of `align_videos`: a format is a function `write(aligned, file, progress)` and a line in `OUTPUTS`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from inphase.apps.labels import Event
from inphase.apps.tracks import add_video_file, make_overlay
from inphase.media.canvas import choose_font
from inphase.media.recording import NamedVideo
from inphase.media.render import render
from inphase.playback import Pair, write_playback
from inphase.pose.pose import Pose
from inphase.progress import Progress
from inphase.storage.files import atomic_write, scratch_folder, write_table

if TYPE_CHECKING:
    from inphase.apps.align_videos import Aligned, Synchronization

Output = Callable[["Aligned", Path, Progress], object]

# Colors from low to high cost: dark blue, blue, grey-green, pale yellow.
COST_COLORS = np.array([(13, 17, 56), (39, 73, 128), (96, 148, 140), (190, 205, 150), (250, 245, 205)], np.float64)
PATH_COLOR = (214, 39, 40)
INK = (40, 40, 40)
# Pixels of a plot: side of the cost matrix, margin around it, length of a tick.
PLOT_SIDE, MARGIN, TICK = 480, 64, 6
MAX_FPS = 60.0
# Default heights of a video in aligned.mp4, of upright ones and others, and seconds of a freeze.
UPRIGHT_HEIGHT, HEIGHT, FREEZE_SECONDS = 720, 360, 1.0
# Quality (x264's crf, lower is better) at first and at worst, the least height, and how often a video is rendered.
QUALITY, MIN_QUALITY, MIN_HEIGHT, MAX_RENDERINGS = 20, 36, 120, 5


@dataclass(frozen=True)
class VideoStyle:
    """The look of aligned.mp4.

    - `slow`    slow-motion factor
    - `height`  of each video in pixels; None: 720 for upright videos, 360 for others
    - `joints`  whether joints are drawn on the videos that have them
    - `freeze`  whether the video stands still for a second at each key position
    - `max_mb`  the largest size of the file in megabytes; None: as large as a good quality needs
    """

    slow: float = 1.0
    height: int | None = None
    joints: bool = False
    freeze: bool = False
    max_mb: float | None = None

    def __post_init__(self) -> None:
        """Raise if a value is out of range."""
        if not 0 < self.slow < math.inf:
            raise ValueError(f"slow must be above 0, got {self.slow:g}")
        if self.height is not None and self.height < 2:
            raise ValueError(f"height must be at least 2 pixels, got {self.height}")
        if self.max_mb is not None and not 0 < self.max_mb < math.inf:
            raise ValueError(f"max_mb must be above 0, got {self.max_mb:g}")


def write_video(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Render the videos side by side on the reference's clock."""
    render_aligned(
        file,
        aligned.recordings,
        aligned.synchronization,
        poses=[each.pose for each in aligned.embeddings],
        marks=aligned.marks,
        style=aligned.style,
        progress=progress,
    )


def render_aligned(
    file: Path,
    recordings: Sequence[NamedVideo],
    synchronization: "Synchronization",
    *,
    poses: Sequence[Pose | None],
    marks: Sequence[Event],
    style: VideoStyle,
    progress: Progress,
) -> None:
    """Render videos side by side with names, times, key positions and the reference's sound; above three in a grid.

    A file above the limit of the style is rendered again at a lower quality, then smaller.
    """
    reference = recordings[synchronization.reference]
    upright = all(each.properties.size[0] > each.properties.size[1] for each in recordings)
    height, quality = style.height or (UPRIGHT_HEIGHT if upright else HEIGHT), QUALITY
    for _ in range(MAX_RENDERINGS):
        with scratch_folder(file.parent) as draft:
            render(
                draft / file.name,
                [each.path for each in recordings],
                clock=synchronization.clock,
                seconds=synchronization.seconds,
                layout="row" if len(recordings) <= 3 else "grid",
                height=height,
                labels=[each.name for each in recordings],
                joints=[None if pose is None or not style.joints else make_overlay(pose) for pose in poses],
                marks=[(each.second, each.label) for each in marks],
                freeze=FREEZE_SECONDS if style.freeze else 0.0,
                show_time=True,
                fps=min(reference.properties.fps, MAX_FPS),
                slow=style.slow,
                sound=reference.path if reference.properties.has_sound else None,
                sound_of=synchronization.reference,
                quality=quality,
                progress=progress,
            )
            excess = 0.0 if style.max_mb is None else (draft / file.name).stat().st_size / (1e6 * style.max_mb)
            if excess <= 1:
                (draft / file.name).replace(file)
                return
        # x264 halves its rate for every 6 steps of quality; beyond 36, images of half the area look better.
        quality += math.ceil(6 * math.log2(excess)) + 1
        while quality > MIN_QUALITY and height > MIN_HEIGHT:
            height, quality = round(height / math.sqrt(2)), quality - 6
        quality = min(quality, 51)
    raise ValueError(f"{file.name} cannot have less than {style.max_mb:g} MB: use shorter videos, or allow more")


def write_path(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Write the second of every video at each frame of the reference, which is the first column."""
    order = [aligned.reference, *(k for k in range(len(aligned.recordings)) if k != aligned.reference)]
    names = [aligned.recordings[k].name for k in order]
    write_table(file, [names, *([f"{second:.6f}" for second in row] for row in aligned.seconds[:, order])])


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
