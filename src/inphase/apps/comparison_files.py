"""Output files of `compare_videos`: a report, tables, a sheet of key positions, a video and a playback."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
from PIL import Image

from inphase.apps.align_videos import VideoStyle, make_pairs, make_playback
from inphase.apps.alignment_files import add_certainty, add_video_file, make_overlay, render_aligned
from inphase.apps.comparison_report import (
    describe_comparison,
    describe_student,
    draw_sheet,
    fill_template,
    require_templates,
)
from inphase.apps.labels import Event, Labels, Segment, label_track, name_tables
from inphase.apps.verdict import Verdict
from inphase.media.canvas import draw_bones
from inphase.media.frames import read_clip
from inphase.media.recording import NamedVideo
from inphase.media.sampling import shown_at
from inphase.models.embedding import Embedding
from inphase.playback import write_playback
from inphase.pose.body import ANGLES, mirror_pose
from inphase.pose.pose import Pose
from inphase.progress import Progress
from inphase.storage.files import atomic_write, refuse_overwrite, require_folder, write_table

if TYPE_CHECKING:
    from inphase.apps.comparison import ComparedStudents, Comparison

# Stills: height in pixels, limits of width divided by height, and the space around the person in its height.
STILL_HEIGHT, MIN_ASPECT, MAX_ASPECT, STILL_MARGIN = 400, 0.6, 1.5, 0.15


def write_comparison(comparison: "Comparison", out: Path, progress: Progress) -> list[Path]:
    """Write all files of one comparison and return their paths."""
    require_templates()
    require_folder(out)
    files = [
        out / name for name in ("report.html", "comparison.json", "comparison.csv", "positions.png", "aligned.mp4")
    ]
    report, document, table, sheet = files[:4]
    refuse_overwrite([comparison.pro.path, comparison.student.path], files)
    out.mkdir(parents=True, exist_ok=True)
    stills = read_stills(comparison)
    progress("writing the report", 1, 3)
    write_table(table, tabulate_comparison(comparison))
    _write_text(document, json.dumps(comparison.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    with atomic_write(sheet) as part:
        draw_sheet(comparison, stills).save(part, format="png")
    progress("writing the report", 2, 3)
    render_aligned(
        files[4],
        [comparison.pro, comparison.student],
        comparison.synchronization,
        poses=[each.pose for each in embeddings_as_filmed(comparison)],
        marks=[Event(each.pro, each.label) for each in comparison.positions],
        style=VideoStyle(joints=True, freeze=True),
        progress=progress,
    )
    playback = write_comparison_playback(comparison, out, progress)
    _write_text(report, fill_template(students=None, **describe_comparison(comparison, stills)))
    progress("writing the report", 3, 3)
    return [*files, playback]


def write_students(compared: "ComparedStudents", out: Path, progress: Progress) -> list[Path]:
    """Write a folder for every student, and a table and a page with links to them."""
    require_templates()
    require_folder(out)
    tables = name_tables(out, [each.student.name for each in compared.comparisons])
    folders = [path.parent / path.name.removesuffix(".csv") for path in tables]
    files = [out / "students.csv", out / "report.html"]
    out.mkdir(parents=True, exist_ok=True)
    for folder, comparison in zip(folders, compared.comparisons, strict=True):
        files += write_comparison(comparison, folder, progress)
    rows = [describe_student(each) for each in compared.comparisons]
    write_table(files[0], [list(rows[0]), *(list(row.values()) for row in rows)])
    links = [f"{quote(folder.name)}/report.html" for folder in folders]
    page = fill_template(
        title=f"Students beside {compared.pro.name}",
        students=[{"row": row, "link": link} for row, link in zip(rows, links, strict=True)],
        ratios=[each.label for each in compared.comparisons[0].phases],
        left_out=compared.left_out,
    )
    _write_text(files[1], page)
    return files


def tabulate_comparison(comparison: "Comparison") -> Iterator[list[str]]:
    """Yield a row for every frame of the pro: seconds, phase, speed, and every angle of both with the difference."""
    sides = ("pro", "student", "difference")
    yield ["pro_second", "student_second", "percent", "phase", "speed"] + [f"{a}_{s}" for a in ANGLES for s in sides]
    start, end = comparison.span
    values = np.stack([comparison.pro_angles, comparison.student_angles, comparison.differences], axis=2)
    for at, other, speed, row in zip(comparison.clock, comparison.seconds, comparison.speed, values, strict=True):
        percent = f"{100 * (at - start) / (end - start):.2f}" if end > start else ""
        numbers = ["" if np.isnan(value) else f"{value:.2f}" for value in row.ravel()]
        yield [f"{at:.6f}", f"{other:.6f}", percent, comparison.phase_at(float(at)), f"{speed:.4f}", *numbers]


def read_stills(comparison: "Comparison") -> list[tuple[Image.Image, Image.Image]]:
    """Read the frames of every key position, cropped around the person, with joints: pro and student."""
    pro = [each.pro for each in comparison.positions]
    student = [each.student for each in comparison.positions]
    boxes = [_box(pose, seconds) for pose, seconds in zip(comparison.poses, (pro, student), strict=True)]
    ratios = [box[2] / box[3] for box in boxes if box is not None]
    aspect = float(np.clip(max(ratios, default=0.75), MIN_ASPECT, MAX_ASPECT))
    columns = []
    for video, pose, seconds, box, flip in zip(
        (comparison.pro, comparison.student),
        comparison.poses,
        (pro, student),
        boxes,
        (False, comparison.mirrored),
        strict=True,
    ):
        columns.append(list(_stills(video, pose, seconds, box, aspect=aspect, flip=flip)))
    return list(zip(*columns, strict=True))


def _box(pose: Pose | None, seconds: Sequence[float]) -> tuple[float, float, float, float] | None:
    """Find the center, the width and the height of the person at all key positions, in pixels."""
    if pose is None:
        return None
    points = make_overlay(pose).points[shown_at(pose.times, np.array(seconds))].reshape(-1, 2)
    points = points[np.isfinite(points).all(1)]
    if not len(points):
        return None
    low, high = points.min(0), points.max(0)
    margin = 2 * STILL_MARGIN * max(high - low)
    (x, y), (width, height) = (low + high) / 2, high - low + margin
    return float(x), float(y), float(width), float(height)


def _stills(
    video: NamedVideo,
    pose: Pose | None,
    seconds: Sequence[float],
    box: tuple[float, float, float, float] | None,
    *,
    aspect: float,
    flip: bool,
) -> Iterator[Image.Image]:
    """Yield the frames at some seconds, cropped and scaled to one size; parts beyond the frame are dark."""
    clip = read_clip(video.path, seconds=np.unique(seconds))
    height, width = video.properties.size
    x, y, wide, high = box or (width / 2, height / 2, width, height)
    high = max(high, wide / aspect)
    left, top = _inside(x - high * aspect / 2, high * aspect, width), _inside(y - high / 2, high, height)
    size = (round(STILL_HEIGHT * aspect), STILL_HEIGHT)
    overlay = None if pose is None else make_overlay(pose)
    for second in seconds:
        frame = clip.frames[shown_at(clip.times, np.array([second]))[0]]
        image = Image.fromarray(np.ascontiguousarray(frame[:, ::-1] if flip else frame))
        area = (left, top, left + high * aspect, top + high)
        still = image.transform(size, Image.Transform.EXTENT, area, Image.Resampling.BICUBIC, fillcolor=(24, 24, 27))
        if overlay is not None:
            joints = overlay.points[shown_at(overlay.times, np.array([second]))[0]].astype(np.float64)
            points = (joints + 0.5 - np.array([left, top])) * STILL_HEIGHT / high
            drawn = draw_bones(np.asarray(still), points, bones=overlay.bones, colors=overlay.colors)
            still = Image.fromarray(drawn)
        yield still


def _inside(start: float, length: float, whole: int) -> float:
    """Shift an interval into 0 … whole; center it where it is longer."""
    return (whole - length) / 2 if length >= whole else min(max(start, 0.0), whole - length)


def embeddings_as_filmed(comparison: "Comparison") -> tuple[Embedding, Embedding]:
    """Return both embeddings, the student's pose not mirrored: the file shows the student as filmed."""
    x, y = comparison.embeddings
    return (x, replace(y, pose=mirror_pose(y.pose))) if comparison.mirrored and y.pose is not None else (x, y)


def write_comparison_playback(comparison: "Comparison", out: Path, progress: Progress) -> Path:
    """Write a playback of both videos with phases, key positions and joints."""
    x, y = embeddings_as_filmed(comparison)
    recordings = [comparison.pro, comparison.student]
    media = [add_video_file(out, each, progress=progress) for each in recordings]
    pairs = make_pairs([x, y], comparison.synchronization)
    playback = make_playback(recordings, media, [x, y], comparison.synchronization, pairs=pairs)
    judged = add_certainty(playback.tracks, (Verdict(), comparison.verdict), comparison.synchronization.clock)
    tracks = []
    for side, track in zip(("pro", "student"), judged, strict=True):
        spans = [(*getattr(each, side), each.label) for each in comparison.phases]
        segments = tuple(Segment(start, end, label) for start, end, label in spans if start < end)
        events = tuple(
            Event(getattr(each, side), each.label, each.confidence if side == "student" else None)
            for each in comparison.positions
        )
        tracks.append(label_track(track, Labels(segments, events)))
    title = f"{comparison.student.name} beside {comparison.pro.name}"
    return write_playback(out, playback.replace(tracks=tuple(tracks), title=title))


def _write_text(file: Path, text: str) -> None:
    with atomic_write(file) as part:
        part.write_text(text, encoding="utf-8")
