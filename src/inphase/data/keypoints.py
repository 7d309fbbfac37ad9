"""Your own keypoints: pose sequences with named joints, without videos.

    root/<action>/<sequence>.npz    one sub-folder per action; or
    root/<sequence>.csv             one flat folder of one action
    root/phases.csv                 optional: video, start, end (seconds), phase (a number or a name)
    root/events.csv                 optional: video, event, time (seconds)
    root/splits.csv                 optional: video, split (train, val or test)

An .npz file holds `points` [T, J, 2 or 3], `joints` (J names) and, optionally, `visibility` [T, J], `fps` and `size`
(height and width of the image). A .csv file has a row per frame with `frame` (a number; missing frames have no visible
joint) or `time` (seconds), `<joint>_x`, `<joint>_y`, optionally `<joint>_z` and `<joint>_visibility`; empty cells are
joints that were not detected. The tables name a sequence by its path below `root`: `serve/first.csv`. Without fps a
second is one frame long.

`load_events` reads videos with key events in one table, for anybody's folder:

    root/events.csv     file, and optionally action, person, split, fps, frames; every other column is an event
    root/<file>         videos, named by their path below `root`

A row is a video, a cell the second of the event; in a column whose name ends in `_frame` it is the number of the frame,
from 0. Empty cells are events that do not occur. Without `split`, whole people are held out, chosen by a hash of the
name; without `person`, single videos. `LAYOUTS` names the tables of data sets that have this shape, in frames. Ski
jumps are poses (`<archive>.npz:<array>`) of 15 joints of the body and 8 of the skis; their index does not name them, so
that names follow from the lengths of the limbs, and left may be right.
"""

import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from warnings import warn
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from inphase.data.folder import read_phases, read_splits, read_video_table, split_by_name, split_people
from inphase.data.video import SPLITS, Problem, Video, check_split, read_numbered_table, read_table
from inphase.media.recording import open_recording
from inphase.pose.pose import JOINTS13
from inphase.progress import summarize
from inphase.storage.errors import MediaError

# A joint is visible if its visibility or confidence is above this value.
MIN_VISIBILITY = 0.5
_TABLES = ("phases.csv", "events.csv", "splits.csv")


@dataclass(frozen=True, eq=False)
class KeypointSequence:
    """The contents of one file: points [T, J, 2 or 3] float32, 0 where invisible, and visibility [T, J]."""

    points: NDArray[np.float32]
    visibility: NDArray[np.bool_]
    joints: tuple[str, ...]
    fps: float | None
    size: tuple[int, int] | None


def load(root: Path | str, *, split: str, fps: float | None = None, val: float = 0.1, test: float = 0.2) -> list[Video]:
    """List the pose sequences below `root` with their labels; `fps` is that of files that do not state their own.

    Without `splits.csv` the split of a sequence depends on a hash of its name, in the fractions `val` and `test`. A
    file that cannot be read is skipped with a warning.
    """
    root = Path(root)
    check_split(split)
    if fps is not None and not fps > 0:
        raise ValueError(f"fps must be above 0, got {fps}")
    files = dict(_find(root))
    splits = read_splits(root, names=files)
    intervals, phase_names = read_phases(root, names=files)
    moments = _read_events(root, names=files)
    videos = []
    for name, (file, action) in files.items():
        chosen = splits.get(name) or split_by_name(name, val=val, test=test)
        if split not in ("all", chosen):
            continue
        try:
            sequence = read_keypoints(file)
        except ValueError as error:
            warn(Problem(name, str(error), "it is skipped until it is corrected"), stacklevel=2)
            continue
        videos.append(
            Video(
                name,
                action,
                chosen,
                intervals=tuple(intervals.get(name, ())),
                phase_names=phase_names,
                **_describe(sequence, fps=sequence.fps or fps, moments=moments.get(name, {}), name=name),
            )
        )
    return videos


def read_joints(root: Path | str) -> tuple[tuple[str, ...], int]:
    """Return the joints that all files below `root` share, in the order of the first file, and 2 or 3 dimensions."""
    sequences = []
    for _, (file, _) in _find(Path(root)):
        try:
            sequences.append(read_keypoints(file))
        except ValueError:
            continue  # `load` warns of it
    if not sequences:
        raise ValueError(f"no pose sequence below {root} can be read: check it with `inphase data check keypoints`")
    shared = set.intersection(*(set(sequence.joints) for sequence in sequences))
    dimensions = {sequence.points.shape[-1] for sequence in sequences}
    if not shared or len(dimensions) > 1:
        what = "joints in common" if not shared else "one number of dimensions"
        raise ValueError(f"the pose sequences below {root} do not have {what}: put them into separate folders")
    return tuple(name for name in sequences[0].joints if name in shared), dimensions.pop()


def read_keypoints(file: Path) -> KeypointSequence:
    """Read the pose sequence of an .npz or a .csv file; raise ValueError with the fault and the fix."""
    points, visibility, joints, fps, size = READERS[file.suffix.lower()](file)
    points = np.asarray(points, np.float32)
    if points.ndim != 3 or points.shape[-1] not in (2, 3) or not len(points):
        raise ValueError(f"{file}: points must be [T, J, 2] or [T, J, 3] with T ≥ 1, got {list(points.shape)}")
    if len(joints) != points.shape[1] or len(set(joints)) != len(joints):
        raise ValueError(f"{file}: {points.shape[1]} joints need as many different names, got {', '.join(joints)}")
    visible: NDArray[np.bool_] = np.asarray(np.isfinite(points).all(-1))
    if visibility is not None:
        if np.shape(visibility) != points.shape[:2]:
            raise ValueError(f"{file}: visibility must be {list(points.shape[:2])}, got {list(np.shape(visibility))}")
        visible &= np.asarray(visibility, np.float64) > MIN_VISIBILITY
    if not visible.any():
        raise ValueError(f"{file}: no joint is visible in any frame; visible is above {MIN_VISIBILITY}")
    if fps is not None and not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"{file}: fps must be above 0, got {fps}")
    return KeypointSequence(np.where(visible[..., None], points, 0), visible, tuple(joints), fps, size)


Contents = tuple[NDArray[Any], NDArray[Any] | None, list[str], float | None, tuple[int, int] | None]


def _read_npz(file: Path) -> Contents:
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{file} is damaged or not an .npz file ({error}): write it with numpy.savez") from error
    absent = [name for name in ("points", "joints") if name not in arrays]
    if absent:
        raise ValueError(f"{file} has no array {', '.join(absent)}: it holds {', '.join(arrays) or 'none'}")
    fps = float(arrays["fps"]) if "fps" in arrays else None
    size = tuple(int(side) for side in arrays["size"].reshape(-1)) if "size" in arrays else None
    if size is not None and len(size) != 2:
        raise ValueError(f"{file}: size must be height and width, got {size}")
    return arrays["points"], arrays.get("visibility"), [str(name) for name in arrays["joints"]], fps, size


def _read_csv(file: Path) -> Contents:
    rows = read_numbered_table(file)
    columns = list(next(iter(rows.values()), {}))
    joints = [name.removesuffix("_x") for name in columns if name.endswith("_x")]
    if not joints:
        raise ValueError(f"{file} has no columns <joint>_x and <joint>_y: name them in its first line")
    axes = "xyz" if any(f"{joint}_z" in columns for joint in joints) else "xy"
    wanted = [f"{joint}_{axis}" for joint in joints for axis in axes]
    absent = [name for name in wanted if name not in columns]
    if absent:
        raise ValueError(f"{file} has no column {summarize(absent)}: give every joint {', '.join(axes)}")
    clock = next((name for name in ("frame", "time") if name in columns), None)
    if clock is None:
        raise ValueError(f"{file} has neither a column frame nor a column time: add one")
    times = np.array([_number(row[clock], file, line, clock) for line, row in rows.items()])
    values = np.array([[_number(row[name], file, line, name) for name in wanted] for line, row in rows.items()])
    points = values.reshape(len(rows), len(joints), len(axes))
    confidence = np.ones(points.shape[:2])
    for column, joint in enumerate(joints):
        name = f"{joint}_visibility"
        if name in columns:
            confidence[:, column] = [_number(row[name], file, line, name) for line, row in rows.items()]
    if not (np.diff(times) > 0).all():
        raise ValueError(f"{file}: {clock} must increase from row to row")
    if clock == "time":
        fps = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None
        return points, confidence, joints, None if fps is None else float(fps), None
    places = (times - times[0]).round().astype(np.int64)
    whole = np.full((places[-1] + 1, *points.shape[1:]), np.nan)
    shown = np.zeros(whole.shape[:2])
    whole[places], shown[places] = points, confidence
    return whole, shown, joints, None, None


READERS: dict[str, Callable[[Path], Contents]] = {".csv": _read_csv, ".npz": _read_npz}


def _number(text: str, file: Path, line: int, column: str) -> float:
    """Parse a cell; an empty one is NaN."""
    try:
        return float(text) if text.strip() else math.nan
    except ValueError:
        raise ValueError(f"{file}, line {line}: {column} is {text!r}, not a number") from None


def _describe(sequence: KeypointSequence, *, fps: float | None, moments: dict[str, float], name: str) -> dict[str, Any]:
    """Return the fields of a `Video` that describe a pose sequence."""
    length, rate = len(sequence.points), fps or 1.0
    late = [event for event, second in moments.items() if not 0 <= second * rate < length + 0.5]
    if late:
        raise ValueError(f"events.csv, {name}: {summarize(late)} is after its end at {length / rate:.2f} seconds")
    flat = sequence.points.shape[-1] == 2
    # Without a size, the smallest image that contains every joint.
    corner = np.ceil(sequence.points[sequence.visibility].max(0)).astype(int) + 1
    return {
        "length": length,
        "rate": fps,
        "size": sequence.size or ((max(1, int(corner[1])), max(1, int(corner[0]))) if flat else None),
        "events": {event: min(length - 1, round(second * rate)) for event, second in moments.items()},
        "keypoints": sequence.points if flat else None,
        "joints3d": None if flat else sequence.points,
        "visibility": sequence.visibility,
        "joints": sequence.joints,
    }


def _read_events(root: Path, *, names: dict[str, tuple[Path, str]]) -> dict[str, dict[str, float]]:
    """Read events.csv, if it exists: the time of every event of a sequence."""
    moments: dict[str, dict[str, float]] = {}
    for name, row in read_video_table(root / "events.csv", columns=("video", "event", "time"), names=names):
        try:
            moments.setdefault(name, {})[row["event"]] = float(row["time"])
        except ValueError as error:
            raise ValueError(f"{root / 'events.csv'}, {name}: {error}; time is in seconds") from None
    return moments


def _find(root: Path) -> Iterator[tuple[str, tuple[Path, str]]]:
    """Yield name, path and action of every pose sequence one or two levels below a folder."""
    if not root.is_dir():
        raise FileNotFoundError(f"no folder {root}: check the spelling")
    files = [*root.glob("[!.]*"), *root.glob("[!.]*/[!.]*")]
    found = sorted(
        file
        for file in files
        if file.is_file() and file.suffix.lower() in READERS and not (file.parent == root and file.name in _TABLES)
    )
    if not found:
        raise FileNotFoundError(
            f"no pose sequences in {root}: put .npz or .csv files there, or a sub-folder per action"
        )
    for file in found:
        below = file.relative_to(root)
        action = below.parts[0] if len(below.parts) > 1 else root.resolve().name
        yield unicodedata.normalize("NFC", below.as_posix()), (file, unicodedata.normalize("NFC", action))


EVENTS_TABLE, FRAME_SUFFIX = "events.csv", "_frame"
KNOWN_COLUMNS = ("file", "action", "person", "split", "fps", "frames")
# Where the joints of PennAction are among those of a ski jump.
SKI_JUMP_JOINTS = (0, 1, 2, 5, 3, 6, 4, 8, 11, 9, 12, 10, 13)


@dataclass(frozen=True)
class Layout:
    """The table of a data set, its events, the column of the frame that they count from, and its frames per second."""

    table: str = EVENTS_TABLE
    events: tuple[str, ...] = ()
    first_frame: str | None = None
    fps: float | None = None


LAYOUTS = {
    "events": Layout(),
    "lsa64_signs": Layout("index.csv", ("hand_onset", "hand_half", "hand_farthest")),
    "knot_tying": Layout("index.csv", ("loop1", "reach1", "pull1", "loop2", "reach2", "pull2", "drop")),
    "ski_jump_poses": Layout("index.csv", ("take_off_frame", "landing", "telemark_start"), "first_frame", 50.0),
}


def load_events(
    root: Path | str, *, split: str, val: float = 0.1, test: float = 0.2, seed: int = 0, layout: str = "events"
) -> list[Video]:
    """List the videos of the table with their events, and phases between them where every video has all in order.

    People with about the fractions `val` and `test` of the videos are held out; another `seed` chooses others. A row
    that contradicts itself is skipped with a warning.
    """
    root, chosen = Path(root), LAYOUTS[layout]
    check_split(split)
    table = root / chosen.table
    if not table.is_file():
        raise FileNotFoundError(
            f"no {chosen.table} in {root}: write one row per video, file and the second of each event"
        )
    rows = read_table(table, columns=("file",))
    names = chosen.events or tuple(name for name in (rows[0] if rows else {}) if name and name not in KNOWN_COLUMNS)
    if not rows or not names:
        raise ValueError(
            f"{table} has no {'event column' if rows else 'rows'}: add one for each {'event' if rows else 'video'}"
        )
    people = [row.get("person") or row["file"] for row in rows]
    held_out = split_people(people, val=val, test=test, seed=seed)
    videos = []
    for row, person in zip(rows, people, strict=True):
        belongs = row.get("split") if not chosen.events and row.get("split") else held_out[person]
        if belongs not in SPLITS:
            raise ValueError(f"{table}, {row['file']}: split {belongs!r}; write one of {', '.join(SPLITS)}")
        if split not in ("all", belongs):
            continue
        try:
            events = {name.removesuffix(FRAME_SUFFIX): row[name].strip() for name in names if row.get(name, "").strip()}
            in_frames = {
                name.removesuffix(FRAME_SUFFIX) for name in names if chosen.events or name.endswith(FRAME_SUFFIX)
            }
            poses = ".npz:" in row["file"]
            about = _read_ski_jump(root, row, chosen) if poses else _describe_file(root / row["file"], row)
            frames = _place_events(
                events, in_frames, about.pop("times"), int(row[chosen.first_frame]) if chosen.first_frame else 0
            )
        except (ValueError, MediaError, OSError, KeyError) as error:
            warn(Problem(f"{table}, {row['file']}", str(error), "correct the row"), stacklevel=2)
            continue
        action = row.get("action") or root.resolve().name
        videos.append(Video(row["file"], action, belongs, events=frames, notes={"person": person}, **about))
    return _add_phases(videos, tuple(name.removesuffix(FRAME_SUFFIX) for name in names))


load_signs, load_knots, load_ski_jumps = (
    partial(load_events, layout=name) for name in ("lsa64_signs", "knot_tying", "ski_jump_poses")
)


def _describe_file(path: Path, row: Mapping[str, str]) -> dict[str, Any]:
    """Describe a video file; the table may name its frames and fps, which need not be measured then."""
    if not path.exists():
        raise ValueError("the file does not exist")
    if row.get("fps") and row.get("frames"):
        length, fps = int(row["frames"]), float(row["fps"])
        return {"path": path, "length": length, "rate": fps, "times": np.arange(length) / fps}
    times = open_recording(path).times
    fps = 1 / float(np.median(np.diff(times))) if len(times) > 1 else 1.0
    return {"path": path, "length": len(times), "rate": fps, "times": times}


def _read_ski_jump(root: Path, row: Mapping[str, str], layout: Layout) -> dict[str, Any]:
    """Read the poses of a ski jump, [T, 23, 3]; frames without one have no visible joint."""
    archive, name = row["file"].split(":", 1)
    with np.load(root / archive, allow_pickle=False) as arrays:
        points, frames = arrays[name][:, SKI_JUMP_JOINTS], arrays[f"{name}_frame"]
    places = frames - int(row["first_frame"])
    length = int(places.max()) + 1
    keypoints, visibility = np.zeros((length, len(JOINTS13), 2), np.float32), np.zeros((length, len(JOINTS13)), bool)
    keypoints[places], visibility[places] = points[..., :2], points[..., 2] > 0
    corner = np.ceil(keypoints[visibility].max(0)).astype(int) + 1
    return {
        "length": length,
        "rate": layout.fps,
        "size": (int(corner[1]), int(corner[0])),
        "keypoints": keypoints,
        "visibility": visibility,
        "joints": JOINTS13,
        "times": np.arange(length) / (layout.fps or 1.0),
    }


def _place_events(events: Mapping[str, str], in_frames: set[str], times: Any, first: int) -> dict[str, int]:
    """Convert cells to frame numbers; raise if one is not a number or lies outside of the video."""
    placed = {}
    for name, cell in events.items():
        value = float(cell)
        frame = round(value) - first if name in in_frames else int(np.abs(times - value).argmin())
        last = len(times) - 1 if name in in_frames else float(times[-1]) + 0.5
        if not 0 <= (frame if name in in_frames else value) <= last:
            raise ValueError(f"{name} at {cell} lies outside of the video, which has {len(times)} frames")
        placed[name] = frame
    return placed


def _add_phases(videos: list[Video], names: tuple[str, ...]) -> list[Video]:
    """Number the phases between events, the one before the first event 0, if all videos have all events in order."""
    ordered = [
        list(video.events) == list(names) and bool((np.diff(list(video.events.values())) > 0).all()) for video in videos
    ]
    if not videos or not all(ordered):
        return videos
    return [
        replace(
            video,
            phases=np.searchsorted(list(video.events.values()), np.arange(video.length or 0), side="right").astype(
                np.int64
            ),
            phase_names=("start", *names),
        )
        for video in videos
    ]
