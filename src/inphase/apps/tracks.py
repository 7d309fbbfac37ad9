"""Tracks of a playback: media files, time maps, curves and cost matrices of videos that were embedded and aligned."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.matching import MAX_CELLS, PairCost, average_blocks, pair_cost
from inphase.align.path import Alignment
from inphase.media.canvas import Color, JointOverlay
from inphase.media.recording import NamedVideo
from inphase.media.render import make_playable
from inphase.models.encoder import Embedding
from inphase.playback import Curves, Keypoints, Pair, TimeMap, VideoTrack, add_media, principal_curves
from inphase.pose.angles import MIN_VISIBILITY
from inphase.pose.pose import Pose, bones
from inphase.progress import Progress
from inphase.storage.files import scratch_folder

# Knots of a time map: the viewer interpolates them at every tick of its clock.
MAX_KNOTS = 10_000
# Names of result files, which no copied video may take.
RESULT_STEMS = ("aligned", "activations")
# Rows and columns of the cost matrix of a pair that is too long for a full one.
MAX_COST_SIDE = 2048
# Colors of bones, those of the viewer: the person's left and right, and the trunk.
SIDE_COLORS: dict[str, Color] = {"left": (47, 107, 255), "right": (242, 113, 28)}
MIDDLE_COLOR: Color = (236, 239, 245)
# Bound on the speed of a smoothed time map, relative to its average speed.
MAX_SPEED_RATIO = 8.0
# Linear pieces of a smoothed time map: number per period, and maximum in all.
PIECES_PER_PERIOD, MAX_PIECES = 8, 300
# Weight of the end point against all others in the fit of a smoothed time map.
END_WEIGHT = 1e3

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


def smooth_time_map(clock: Seconds, seconds: Seconds, *, period: float, bound: float = MAX_SPEED_RATIO) -> Seconds:
    """Smooth a monotone map from `clock` [M] to `seconds` [M]; changes of speed shorter than `period` vanish.

    An alignment g(tₖ) is a staircase: frames are matched with frames. The smooth map f minimizes

        (1/T) Σₖ (f(tₖ) − g(tₖ))² Δₖ  +  (τ/2π)⁴ (1/T) ∫ f″(t)² dt
        subject to    v/b ≤ f′(t) ≤ v·b,    f(0) = g(0),    f(T) = g(T)

    where T is the duration, τ the period, v = (g(T) − g(0))/T the average speed and b bounds how far speeds depart from
    it. Without the constraints f is a smoothing spline, which halves changes of period τ and follows slower ones; as τ
    grows, f becomes the straight line of constant speed. f is piecewise linear and its unknowns are the speeds of the
    pieces, so that the bounds are those of the variables; a large weight holds the end. This is a bounded linear least
    squares of at most 300 unknowns, which is convex: about a second.
    """
    from scipy.optimize import lsq_linear

    if not period > 0 or not bound > 1:
        raise ValueError(f"smoothing needs a period above 0 seconds and a bound above 1, got {period=} and {bound=}")
    total = clock[-1] - clock[0]
    if len(clock) < 3 or seconds[-1] <= seconds[0]:
        return seconds
    pieces = int(np.clip(np.ceil(PIECES_PER_PERIOD * total / period), 2, min(MAX_PIECES, len(clock) - 1)))
    width, travel = total / pieces, seconds[-1] - seconds[0]
    # f(t) = f(0) + Σ speed · (how much of the piece lies before t)
    before = np.clip(clock[:, None] - clock[0] - width * np.arange(pieces), 0, width)
    weight = np.sqrt(np.gradient(clock) / total)[:, None]
    bend = np.diff(np.eye(pieces), axis=0) * np.sqrt((period / (2 * np.pi)) ** 4 / (width * total))
    rows = np.concatenate([weight * before, bend, np.full((1, pieces), END_WEIGHT * width)])
    aims = np.concatenate([weight[:, 0] * (seconds - seconds[0]), np.zeros(len(bend)), [END_WEIGHT * travel]])
    # QR leaves as many rows as unknowns, with the same least-squares solution.
    rotation, triangle = np.linalg.qr(rows)
    speed = travel / total
    speeds = lsq_linear(triangle, rotation.T @ aims, bounds=(speed / bound, speed * bound)).x
    way = before @ speeds
    return np.asarray(seconds[0] + way * (travel / way[-1]))
