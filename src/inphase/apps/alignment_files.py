"""Output files of `align_videos`, functions `write(aligned, file, progress)` in `OUTPUTS`; tracks of playbacks."""

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from inphase.apps.labels import Event
from inphase.apps.verdict import Verdict
from inphase.media.canvas import choose_font
from inphase.media.recording import NamedVideo
from inphase.media.render import read_comment, render
from inphase.playback import Pair, write_playback
from inphase.pose.pose import Pose
from inphase.progress import Progress
from inphase.storage.cache import content_hash
from inphase.storage.files import atomic_write, scratch_folder, write_table

if TYPE_CHECKING:
    from inphase.apps.align_videos import Aligned, Synchronization, VideoStyle
import re

import torch

from inphase.align.matching import MAX_CELLS, PairCost, average_blocks, pair_cost
from inphase.align.path import Alignment
from inphase.media.canvas import Color, JointOverlay
from inphase.media.render import make_playable
from inphase.models.embedding import Embedding
from inphase.playback import Certainty, Curves, Keypoints, TimeMap, VideoTrack, add_media, principal_curves
from inphase.pose.body import MIN_VISIBILITY
from inphase.pose.pose import bones

# Knots of a time map: the viewer interpolates them at every tick of its clock.
MAX_KNOTS = 10_000
# Names of result files, which no copied video may take.
RESULT_STEMS = ("aligned", "activations")
# Rows and columns of the cost matrix of a pair that is too long for a full one.
MAX_COST_SIDE = 2048
# Colors of bones, those of the viewer: the person's left and right, and the trunk.
SIDE_COLORS: dict[str, Color] = {"left": (47, 107, 255), "right": (242, 113, 28)}
MIDDLE_COLOR: Color = (236, 239, 245)

Seconds = NDArray[np.float64]


def add_video_file(folder: Path, recording: NamedVideo, *, progress: Progress | None = None) -> str:
    """Link or copy a video into a playback's folder, re-encoded if browsers cannot play it; return its path there."""
    folder.mkdir(parents=True, exist_ok=True)
    # Keep letters of any script; drop characters that are special in a URL or a page.
    stem = re.sub(r"[^\w .-]", "_", recording.path.stem).strip(". ") or "video"
    stem += " (video)" if stem in RESULT_STEMS else ""
    if recording.playable:
        return add_media(folder, recording.path, name=stem + recording.path.suffix.lower())
    with scratch_folder(folder) as draft:
        encoded = draft / "video.mp4"
        make_playable(recording.path, encoded, progress=progress)
        return add_media(folder, encoded, name=f"{stem}.mp4")


def make_track(
    recording: NamedVideo,
    media: str,
    *,
    time_map: TimeMap | None = None,
    curves: Curves | None = None,
    pose: Pose | None = None,
) -> VideoTrack:
    """Describe a video whose file is in the playback's folder, with the joints of its pose if there is one."""
    properties = recording.properties
    return VideoTrack(
        recording.name,
        duration=properties.duration,
        rate=properties.fps,
        size=properties.size,
        media=media,
        time_map=time_map,
        curves=curves,
        keypoints=None if pose is None else make_keypoints(pose),
    )


def add_certainty(tracks: Sequence[VideoTrack], verdicts: Sequence[Verdict], clock: Seconds) -> list[VideoTrack]:
    """Add the certainty of its verdict to every track; `clock` are the seconds of the reference's frames."""
    made = []
    for track, found in zip(tracks, verdicts, strict=True):
        if found.judgment is not None and found.probability is not None:
            certainty = Certainty(clock, found.moments, found.judgment, found.probability, found.reasons)
            made.append(track.replace(certainty=certainty))
        else:
            made.append(track)
    return made


def make_keypoints(pose: Pose) -> Keypoints:
    """Describe the joints of a pose for the viewer; NaN where the person was not found."""
    shown = _body_of(pose)
    points = np.concatenate([shown.keypoints, shown.visibility[..., None]], axis=2)
    points[~shown.found] = np.nan
    return Keypoints(shown.times, points, shown.joints, tuple(bones(shown.joints)))


def make_overlay(pose: Pose) -> JointOverlay:
    """Describe the joints of a pose for rendered frames; NaN where they are not visible."""
    shown = _body_of(pose)
    visible = (shown.visibility >= MIN_VISIBILITY) & shown.found[:, None]
    pairs = tuple(bones(shown.joints))
    colors = tuple(_bone_color(shown.joints[a], shown.joints[b]) for a, b in pairs)
    points = np.where(visible[..., None], shown.keypoints, np.float32(np.nan))
    return JointOverlay(shown.times, points, shown.size, pairs, colors)


def _body_of(pose: Pose) -> Pose:
    """Reduce a pose to the joints of a stick figure; one that lacks some of them stays as it is."""
    try:
        return pose.body()
    except ValueError:
        return pose


def _bone_color(one: str, other: str) -> Color:
    sides = {name.partition("_")[0] for name in (one, other)} & set(SIDE_COLORS)
    return SIDE_COLORS[sides.pop()] if len(sides) == 1 else MIDDLE_COLOR


def make_curves(embeddings: Sequence[Embedding]) -> list[Curves]:
    """Project embeddings onto their shared principal components, as curves over time."""
    values = principal_curves([embedding.values for embedding in embeddings])
    return [Curves(embedding.times, value) for embedding, value in zip(embeddings, values, strict=True)]


def make_time_map(clock: NDArray[np.float64], seconds: NDArray[np.float64]) -> TimeMap:
    """Describe the second of a video at each second of the reference, by at most `MAX_KNOTS` knots."""
    step = -(-len(clock) // MAX_KNOTS)
    kept = np.unique(np.append(np.arange(0, len(clock), step), len(clock) - 1))
    return TimeMap(clock[kept], seconds[kept])


def make_pair(x: Embedding, y: Embedding, found: Alignment, *, rows: int, columns: int, cost: PairCost) -> Pair:
    """Describe an alignment by its cost matrix and path; average blocks of frames of long recordings."""
    if found.cost_matrix is not None:
        return Pair(rows, columns, found.cost_matrix, x.times, y.times, found.path)
    large = len(x) * len(y) > MAX_CELLS
    by = [-(-len(side) // MAX_COST_SIDE) if large else 1 for side in (x, y)]
    a, b = (average_blocks(torch.from_numpy(side.values), size) for side, size in zip((x, y), by, strict=True))
    row_times, column_times = (side.times[size // 2 :: size] for side, size in zip((x, y), by, strict=True))
    path = np.unique(found.path // np.array(by), axis=0)
    # A last block that is shorter may have no frame in its middle.
    path = np.minimum(path, [len(row_times) - 1, len(column_times) - 1])
    costs = pair_cost(a, b, cost=cost, routes=x.routes)[: len(row_times), : len(column_times)].numpy()
    return Pair(rows, columns, costs, row_times, column_times, path)


Output = Callable[["Aligned", Path, Progress], object]

# Colors from low to high cost: dark blue, blue, gray-green, pale yellow.
COST_COLORS = np.array([(13, 17, 56), (39, 73, 128), (96, 148, 140), (190, 205, 150), (250, 245, 205)], np.float64)
PATH_COLOR = (214, 39, 40)
INK = (40, 40, 40)
# Pixels of a plot: side of the cost matrix, margin around it, length of a tick.
PLOT_SIDE, MARGIN, TICK = 480, 64, 6
# Raise this number when the same input gives another aligned.mp4.
RENDERING = 1
# Frames per second of aligned.mp4; slow motion shows more frames of each second.
MAX_FPS = 30.0
# Default heights of a video in aligned.mp4, of upright ones and others, and seconds of a freeze.
UPRIGHT_HEIGHT, HEIGHT, FREEZE_SECONDS = 720, 360, 1.0
# Quality (x264's crf, lower is better) at first and at worst, the least height, and how often a video is rendered.
QUALITY, MIN_QUALITY, MIN_HEIGHT, MAX_RENDERINGS = 20, 36, 120, 5


def write_video(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Render the videos side by side on the reference's clock."""
    aligned = aligned.shown
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
    style: "VideoStyle",
    progress: Progress,
) -> None:
    """Render videos side by side with names, times, key positions and the reference's sound; above three in a grid.

    A file above the limit of the style is rendered again at a lower quality, then smaller. A file that was rendered
    from the same input is left as it is: its comment is a hash of the input.
    """
    overlays = [None if pose is None or not style.joints else make_overlay(pose) for pose in poses]
    comment = _hash_input(recordings, synchronization, overlays, marks, style)
    if read_comment(file) == comment:
        return
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
                joints=overlays,
                marks=[(each.second, each.label) for each in marks],
                freeze=FREEZE_SECONDS if style.freeze else 0.0,
                show_time=True,
                fps=min(reference.properties.fps, MAX_FPS),
                slow=style.slow,
                sound=reference.path if reference.properties.has_sound else None,
                sound_of=synchronization.reference,
                quality=quality,
                comment=comment,
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
    raise ValueError(f"{file.name} does not fit into {style.max_mb:g} MB: use shorter videos, or raise max_mb")


def _hash_input(
    recordings: Sequence[NamedVideo],
    synchronization: "Synchronization",
    overlays: Sequence[JointOverlay | None],
    marks: Sequence[Event],
    style: "VideoStyle",
) -> str:
    """Hash the inputs of a rendered video."""
    names = [(content_hash(each.path), each.name) for each in recordings]
    shown = [None if each is None else each.points.tobytes() for each in overlays]
    times = (synchronization.reference, synchronization.clock.tobytes(), synchronization.seconds.tobytes())
    about = (RENDERING, names, times, shown, list(marks), style, QUALITY, MAX_FPS)
    return f"inphase {hashlib.blake2b(repr(about).encode(), digest_size=20).hexdigest()}"


def write_path(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Write the second of every video at each frame of the reference, which is the first column.

    The last columns hold the probability that each of these seconds is within 0.1 s, for videos that have a verdict.
    """
    order = [aligned.reference, *(k for k in range(len(aligned.recordings)) if k != aligned.reference)]
    judged = [k for k in order if len(aligned.verdicts[k].moments)]
    names = [aligned.recordings[k].name for k in order]
    names += [f"probability of {aligned.recordings[k].name}" for k in judged]
    chances = np.array([aligned.verdicts[k].moments for k in judged]).T.reshape(len(aligned.clock), len(judged))
    rows = zip(aligned.seconds[:, order], chances, strict=True)
    write_table(file, [names, *([*(f"{s:.6f}" for s in row), *(f"{p:.3f}" for p in sure)] for row, sure in rows)])


def write_verdicts(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Write a row for every video: the verdict, its offset and the part that matches the reference, or the reason."""
    parts = list(zip(aligned.recordings, aligned.verdicts, aligned.alignments, aligned.seconds.T, strict=True))
    rows = [_describe_row(*part, clock=aligned.clock) for part in parts]
    rows += [(Path(path).stem, path, *[""] * 6, reason) for path, reason in aligned.left_out.items()]
    write_table(file, [VERDICT_COLUMNS, *rows])


def write_plot(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Draw the cost matrix and the path of each pair."""
    shown = aligned.shown
    with atomic_write(file) as part:
        draw_alignments(shown.pairs, [each.name for each in shown.recordings]).save(part)


def write_document(aligned: "Aligned", file: Path, progress: Progress) -> None:
    """Copy the videos beside the playback document and write it, for the viewer."""
    shown = aligned.shown
    media = [add_video_file(file.parent, each, progress=progress) for each in shown.recordings]
    write_playback(file.parent, shown.playback(media))


OUTPUTS: dict[str, Output] = {
    "aligned.mp4": write_video,
    "path.csv": write_path,
    "alignment.csv": write_verdicts,
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


VERDICT_COLUMNS = ("video", "file", "verdict", "probability", "offset", "start", "end", "distance", "reason")


def _describe_row(
    video: NamedVideo, verdict: Verdict, found: Alignment, seconds: Seconds, *, clock: Seconds
) -> tuple[str, ...]:
    """Describe an aligned video by a row of a table, with the `VERDICT_COLUMNS`.

    The offset is the median of the video's `seconds` [R] minus those of the reference, `clock` [R].
    """
    numbers = (f"{value:z.3f}" for value in (np.median(seconds - clock), seconds[0], seconds[-1]))
    sure = "" if verdict.probability is None else f"{verdict.probability:.3f}"
    reasons = " ".join(verdict.reasons)
    return video.name, str(video.path), verdict.judgment or "", sure, *numbers, f"{found.distance:.4f}", reasons
