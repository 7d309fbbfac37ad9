"""Contact sheets: an overview image of a data set, one row per video, with the phase under each frame."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageOps

from inphase.data.frame_source import find_loader
from inphase.data.video import Read, Video, annotated_length, measured_length, read_images
from inphase.media.canvas import choose_font
from inphase.media.sampling import Frames
from inphase.pose.pose import bones
from inphase.progress import Progress, Summary, stage_progress
from inphase.storage.errors import MediaError
from inphase.storage.files import atomic_write

# Okabe and Ito's colors and lighter ones of the same hues, which color-blind people can distinguish.
PALETTE = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (240, 228, 66),
    (120, 94, 160),
    (150, 200, 150),
    (160, 110, 70),
)
UNLABELED = (200, 200, 200)
_INK, _PAPER, _LEFT, _RIGHT, _HIDDEN = (30, 30, 30), (255, 255, 255), (0, 114, 178), (213, 94, 0), (190, 190, 190)
_NAMES, _BAND, _GAP, _LEGEND = 150, 16, 4, 22  # pixels
_LETTERS = 22  # of a name


@dataclass(frozen=True)
class ContactSheet:
    """A written contact sheet: its file, and how many of the videos it shows."""

    file: Path
    shown: int
    videos: int

    def summary(self) -> Summary:
        """Return the counts and the file."""
        return Summary([f"{self.shown} of {self.videos} videos → {self.file}"])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"file": str(self.file), "shown": self.shown, "videos": self.videos}


def show_dataset(
    name: str,
    root: Path | None,
    *,
    file: Path,
    split: str = "all",
    action: str = "",
    rows: int = 8,
    columns: int = 10,
    progress: Progress | None = None,
) -> ContactSheet:
    """Write a contact sheet of a data set, or of one action of it, as an image file."""
    videos = find_loader(name, root)(root, split=split)
    found = [video for video in videos if action in ("", video.action)]
    if not found:
        known = ", ".join(sorted({video.action for video in videos})) or "none"
        raise ValueError(f"no video of action {action!r} in split {split!r}; actions there: {known}")
    write_contact_sheet(file, found, rows=rows, columns=columns)
    shown = min(rows, len(found))
    stage_progress(progress, "drawing")(shown, shown)
    return ContactSheet(file, shown, len(found))


def write_contact_sheet(file: Path, videos: Sequence[Video], *, rows: int = 8, columns: int = 10) -> None:
    """Write a contact sheet of up to `rows` videos as an image file; a video that cannot be read shows its error."""
    if rows < 1 or columns < 1:
        raise ValueError(f"a sheet needs rows and columns of at least 1, got {rows} and {columns}")
    if Image.registered_extensions().get(file.suffix.lower()) not in Image.SAVE:
        raise ValueError(f"{file} is not the name of an image: let it end in .png or .jpg")
    sheet = draw_contact_sheet(choose(videos, rows=rows), columns=columns, frame_count=measured_length)
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as part:
        sheet.save(part)


def draw_contact_sheet(
    videos: Sequence[Video],
    *,
    columns: int = 10,
    cell: int = 96,
    read: Read = read_images,
    frame_count: Callable[[Video], int] = annotated_length,
) -> Image.Image:
    """Draw each video as a row of `columns` frames, evenly spread, and the phase each belongs to.

    Images come from `read`; videos without images show stick figures of their keypoints.
    """
    if not videos or columns < 1:
        raise ValueError(f"a sheet needs videos and columns, got {len(videos)} and {columns}")
    row_height = cell + _BAND + _GAP
    legend: dict[tuple[int, str], None] = {}
    rows = [
        _draw_row(video, columns=columns, cell=cell, read=read, frame_count=frame_count, legend=legend)
        for video in videos
    ]
    footer = _draw_legend(legend, width=_NAMES + columns * (cell + _GAP))
    sheet = Image.new("RGB", (footer.width, len(rows) * row_height + footer.height), _PAPER)
    for place, row in enumerate(rows):
        sheet.paste(row, (0, place * row_height))
    sheet.paste(footer, (0, len(rows) * row_height))
    return sheet


def choose(videos: Sequence[Video], *, rows: int = 8) -> list[Video]:
    """Choose videos for a sheet: the first of every action, then the second of each, and so on, sorted by action."""
    by_action: dict[str, list[Video]] = defaultdict(list)
    for video in videos:
        by_action[video.action].append(video)
    turns = zip_longest(*(by_action[action] for action in sorted(by_action)))
    picked = [video for turn in turns for video in turn if video is not None][:rows]
    return sorted(picked, key=lambda video: video.action)


def _draw_row(
    video: Video,
    *,
    columns: int,
    cell: int,
    read: Read,
    frame_count: Callable[[Video], int],
    legend: dict[tuple[int, str], None],
) -> Image.Image:
    """Draw the name, frames and phases of one video; add phases with long names to the legend."""
    row = Image.new("RGB", (_NAMES + columns * (cell + _GAP), cell + _BAND), _PAPER)
    draw = ImageDraw.Draw(row)
    # Ids of one data set differ at their end.
    name = video.id if len(video.id) <= _LETTERS else "…" + video.id[1 - _LETTERS :]
    for line, text in enumerate((name, shorten(video.action, width=_LETTERS), video.split)):
        _write(draw, (6, 6 + 16 * line), text, size=12)
    try:
        images, frames, phases = _read_frames(video, columns=columns, cell=cell, read=read, frame_count=frame_count)
    except (OSError, ValueError, MediaError) as error:
        _write(draw, (_NAMES, 6), fill(str(error), 110), size=12, ink=(170, 0, 0))
        return row
    for column, (image, frame, phase) in enumerate(zip(images, frames.tolist(), phases.tolist(), strict=True)):
        left = _NAMES + column * (cell + _GAP)
        row.paste(image, (left + (cell - image.width) // 2, (cell - image.height) // 2))
        draw.rectangle((left, cell, left + cell - 1, cell + _BAND - 1), fill=_color(phase))
        ink = _PAPER if sum(_color(phase)) < 350 else _INK
        _write(draw, (left + 3, cell + 1), str(frame), ink=ink)
        if phase >= 0:
            name = video.phase_names[phase] if phase < len(video.phase_names) else "phase"
            fits = _length(f"{frame}  {name}") < cell - 6 and name != "phase"
            text = name if fits else str(phase)
            _write(draw, (left + cell - 3, cell + 1), text, ink=ink, anchor="ra")
            if not fits:
                legend[phase, name] = None
    return row


def _read_frames(
    video: Video, *, columns: int, cell: int, read: Read, frame_count: Callable[[Video], int]
) -> tuple[list[Image.Image], Frames, NDArray[np.int64]]:
    """Read a few frames of a video: images, frame numbers and phases."""
    frames = np.unique(np.linspace(0, frame_count(video) - 1, columns).round().astype(np.int64))
    filmed = video.path is not None and (video.keypoints is None or video.path.exists())
    if video.render is not None or filmed:
        values, times = read(video, frames)
        if len(values) != len(frames):
            raise ValueError(f"{len(frames) - len(values)} of {len(frames)} frames cannot be read")
    elif video.keypoints is not None:
        figures = _draw_figures(video, frames, cell=cell)
        return figures, frames, _phases(video, frames, times=frames / (video.rate or 1.0))
    else:
        raise ValueError(f"{video.id} has neither keypoints nor readable images ({video.path})")
    images = [ImageOps.contain(Image.fromarray(value), (cell, cell)) for value in values]
    return images, frames, _phases(video, frames, times=times)


def _phases(video: Video, frames: Frames, *, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the phases of some frames, −1 without a label."""
    return video.phases[frames] if video.phases is not None else video.phases_at(times)


def _draw_figures(video: Video, frames: Frames, *, cell: int, finer: int = 3) -> list[Image.Image]:
    """Draw stick figures, scaled to the whole video: left blue, right orange, hidden limbs pale."""
    assert video.keypoints is not None
    everywhere = np.ones(video.keypoints.shape[:2], np.bool_)
    visible = everywhere if video.visibility is None else video.visibility
    kept = video.keypoints[visible if visible.any() else everywhere]
    low, high = kept.min(0), kept.max(0)
    scale = 0.9 * cell * finer / max(float((high - low).max()), 1e-6)
    points = (video.keypoints[frames] - (low + high) / 2) * scale + cell * finer / 2
    images = []
    for pose, shown in zip(points, visible[frames], strict=True):
        image = Image.new("RGB", (cell * finer, cell * finer), (246, 246, 246))
        draw = ImageDraw.Draw(image)
        inside = ((pose >= 0) & (pose < cell * finer)).all(-1)
        # Hidden limbs first, so that visible ones are on top; a hidden joint may be anywhere.
        for a, b in sorted(bones(video.joints), key=lambda bone: bool(shown[bone[0]] and shown[bone[1]])):
            if (shown[a] and shown[b]) or (inside[a] and inside[b]):
                ends = (tuple(pose[a].tolist()), tuple(pose[b].tolist()))
                draw.line(
                    ends, fill=_side(video.joints[a], video.joints[b], visible=shown[a] and shown[b]), width=2 * finer
                )
        if "head" in video.joints:
            x, y = pose[video.joints.index("head")].tolist()
            radius = 3 * finer
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_INK)
        images.append(image.resize((cell, cell), Image.Resampling.LANCZOS))
    return images


def _side(a: str, b: str, *, visible: bool) -> tuple[int, int, int]:
    """Choose the color of a limb by its side of the body."""
    sides = {name.split("_")[0] for name in (a, b)}
    return _HIDDEN if not visible else _LEFT if sides == {"left"} else _RIGHT if sides == {"right"} else _INK


def _draw_legend(phases: Iterable[tuple[int, str]], *, width: int) -> Image.Image:
    """Draw the names of phases that did not fit under their frames, as far as they fit here."""
    legend = Image.new("RGB", (width, _LEGEND), _PAPER)
    draw = ImageDraw.Draw(legend)
    left = _NAMES
    for phase, name in sorted(phases):
        text = f"{phase}  {shorten(name, width=24)}"
        needed = 18 + int(_length(text)) + 10
        if left + needed > width:
            _write(draw, (left, 5), "…")
            break
        draw.rectangle((left, 6, left + 11, 17), fill=_color(phase))
        _write(draw, (left + 16, 5), text)
        left += needed
    return legend


def _color(phase: int) -> tuple[int, int, int]:
    """Return the color of a phase."""
    return UNLABELED if phase < 0 else PALETTE[phase % len(PALETTE)]


def _write(
    draw: ImageDraw.ImageDraw,
    place: tuple[int, int],
    text: str,
    *,
    size: int = 11,
    ink: tuple[int, int, int] = _INK,
    anchor: str | None = None,
) -> None:
    text, font = choose_font(text, size)
    draw.text(place, text, fill=ink, font=font, anchor=anchor)


def _length(text: str, *, size: int = 11) -> float:
    """Measure a text in pixels."""
    text, font = choose_font(text, size)
    return font.getlength(text)


def shorten(text: str, *, width: int) -> str:
    """Shorten a text to a number of letters."""
    return text if len(text) <= width else text[: width - 1] + "…"
