"""Write a reconstruction as a file (npz), a drawing (png) and a playback."""

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from inphase.apps.pose3d.views import Performance, Reconstruction
from inphase.playback import Keypoints, Playback, Skeleton, TimeMap, VideoTrack
from inphase.pose.pose import bones
from inphase.storage.files import atomic_write

Array = NDArray[np.float64]

# Rotation of the body in degrees about the upright axis, and its tilt towards the viewer.
SIDES = {"as filmed": (0.0, 0.0), "from the side": (-90.0, 0.0), "from behind": (180.0, 0.0), "from above": (0.0, 80.0)}
_PAPER, _CELL_PAPER, _INK = (255, 255, 255), (246, 246, 246), (60, 60, 60)
_LEFT, _RIGHT = (38, 110, 190), (220, 110, 30)
_NAMES, _HEAD, _GAP, _FINER = 92, 20, 4, 3


def draw_reconstruction(
    found: Reconstruction,
    query: Performance,
    *,
    columns: int = 7,
    cell: int = 110,
    sides: tuple[str, ...] = tuple(SIDES),
) -> Image.Image:
    """Draw the query's joints and the 3-D body from several `sides` at `columns` frames; left is blue, right orange."""
    moments = np.unique(np.linspace(0, len(found.times) - 1, columns).round().astype(int))
    flat = np.where(query.seen[..., None], query.points, np.nan) / query.torso()
    middle = np.nanmean(flat[moments], axis=(1), keepdims=True)
    rows = {"2-D joints": (flat[moments] - middle, query.seen[moments])}
    everywhere = np.ones((len(moments), len(found.joints)), np.bool_)
    for side in sides:
        turned = rotate_and_project(found.joints3d[moments], *SIDES[side])
        rows[side] = (turned - turned.mean(1, keepdims=True), everywhere)
    reach = max(float(np.nanmax(np.abs(points))) for points, _ in rows.values())
    step = cell + _GAP
    sheet = Image.new("RGB", (_NAMES + len(moments) * step, _HEAD + len(rows) * step), _PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(12)
    for column, moment in enumerate(moments.tolist()):
        draw.text((_NAMES + column * step + 2, 3), f"{found.times[moment]:.2f} s", fill=_INK, font=font)
    for row, (name, (points, seen)) in enumerate(rows.items()):
        top = _HEAD + row * step
        draw.text((2, top + cell // 2 - 8), name, fill=_INK, font=font)
        for column in range(len(moments)):
            figure = _figure(points[column], seen[column], found.joints, cell=cell, reach=reach)
            sheet.paste(figure, (_NAMES + column * step, top))
    return sheet


def rotate_and_project(joints: Array, degrees: float, tip: float) -> Array:
    """Rotate joints [T, J, 3] (x right, y down, z away) about the upright axis, tilt, and project them: [T, J, 2]."""
    angle, lean = np.radians(degrees), np.radians(tip)
    x = joints[..., 0] * np.cos(angle) + joints[..., 2] * np.sin(angle)
    z = joints[..., 2] * np.cos(angle) - joints[..., 0] * np.sin(angle)
    return np.stack([x, joints[..., 1] * np.cos(lean) - z * np.sin(lean)], axis=-1)


def _figure(points: Array, seen: NDArray[np.bool_], joints: tuple[str, ...], *, cell: int, reach: float) -> Image.Image:
    """Draw one stick figure at a multiple of its size, and scale it down."""
    size = cell * _FINER
    places = points * 0.46 * size / max(reach, 1e-6) + size / 2
    image = Image.new("RGB", (size, size), _CELL_PAPER)
    draw = ImageDraw.Draw(image)
    for a, b in bones(joints):
        if seen[a] and seen[b]:
            ends = (tuple(places[a].tolist()), tuple(places[b].tolist()))
            draw.line(ends, fill=_color(joints[a], joints[b]), width=2 * _FINER)
    if "head" in joints and seen[joints.index("head")]:
        x, y = places[joints.index("head")].tolist()
        radius = 4 * _FINER
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_INK)
    return image.resize((cell, cell), Image.Resampling.LANCZOS)


def _color(a: str, b: str) -> tuple[int, int, int]:
    """Color a limb by its side of the body."""
    sides = {name.split("_")[0] for name in (a, b)}
    return _LEFT if sides == {"left"} else _RIGHT if sides == {"right"} else _INK


# Arrays of the file → fields of a reconstruction.
_FIELDS = {
    "joints": "joints3d",
    "joint_names": "joints",
    "times": "times",
    "travel": "travel",
    "error": "error",
    "confidence": "confidence",
    "views": "views",
    "view_names": "names",
    "trust": "trust",
    "flipped": "flipped",
    "rotations": "rotations",
}


def write_reconstruction(file: Path, found: Reconstruction) -> None:
    """Write a reconstruction as npz: `joints` [T, J, 3], `joint_names` [J], `times` [T], with errors and confidence."""
    arrays = {name: np.asarray(getattr(found, field)) for name, field in _FIELDS.items()}
    with atomic_write(file) as part:
        np.savez_compressed(part, **arrays)  # type: ignore[arg-type]


def read_reconstruction(file: Path | str) -> Reconstruction:
    """Read a file of `write_reconstruction`."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {field: archive[name] for name, field in _FIELDS.items()}
    except (KeyError, ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{file} holds no reconstruction ({error}): write it again with `inphase pose3d`") from error
    for names in ("joints", "names"):
        arrays[names] = tuple(map(str, arrays[names]))
    return Reconstruction(**arrays)


def make_pose_track(
    shown: Performance,
    *,
    size: tuple[int, int],
    media: str | None = None,
    query: Performance | None = None,
    seconds: NDArray[np.float64] | None = None,
) -> VideoTrack:
    """Describe a video by its joints, and by its file where it has one.

    `size` is the (height, width) of its images. For other videos than the query, `seconds` are their seconds at the
    frames of the `query`.
    """
    step = float(np.median(np.diff(shown.times))) if len(shown.times) > 1 else 1 / 30
    warp = TimeMap(query.times, np.maximum.accumulate(seconds)) if query is not None and seconds is not None else None
    points = np.where(shown.seen[..., None], shown.points, np.nan)
    joints = Keypoints(shown.times, points, shown.joints, tuple(bones(shown.joints)))
    return VideoTrack(
        name=shown.name,
        duration=float(shown.times[-1]) + step,
        rate=1 / step,
        size=size,
        media=media,
        time_map=warp,
        keypoints=joints,
    )


def make_skeleton_playback(title: str, found: Reconstruction, tracks: Sequence[VideoTrack]) -> Playback:
    """Show the 3-D body beside its videos, the query first."""
    body = Skeleton(
        f"{found.names[0]} in space", found.times, found.joints3d, found.joints, tuple(bones(found.joints)), up="-y"
    )
    return Playback(title, tracks=tuple(tracks), skeletons=(body,))
