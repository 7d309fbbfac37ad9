"""Annotated recordings, the text tables that describe them, and how their frames are read.

One signature, `Read`, serves images, poses and anything else by frame number.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from inphase.media.audio import Sound
from inphase.media.frames import Clip, read_clip
from inphase.media.recording import open_recording, probe
from inphase.media.sampling import Frames, choose
from inphase.storage.files import choose_delimiter, read_cell
from inphase.storage.settings import parse_json

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Video:
    """One recording of an action and its labels, if any. Loading a data set returns a list of these.

    Images come from `path` (a video file, or a folder of numbered images) or from `render`; a recording that consists
    of keypoints has neither. Arrays have one row for each of `length` frames. If `spans` cut the file, all other times
    in this class are seconds of the spans laid end to end, starting at 0.
    """

    id: str
    action: str
    split: str  # "train", "val" or "test"
    path: Path | None = None
    render: Callable[[], Clip] | None = None
    spans: tuple[tuple[float, float], ...] = ()  # seconds of `path` to use, in this order; empty: all of it
    span_paths: tuple[Path, ...] = ()  # the file of each span, if they are not all of `path`
    length: int | None = None  # frames, if annotated
    rate: float | None = None  # frames per second, if annotated
    size: tuple[int, int] | None = None  # height and width in pixels, if annotated
    phases: NDArray[np.int64] | None = None  # [T], −1 if unlabeled
    intervals: tuple[tuple[float, float, int], ...] = ()  # start ≤ t < end in seconds → phase, if labels are timed
    phase_names: tuple[str, ...] = ()  # phase → name
    progress: NDArray[np.float64] | None = None  # [T] true canonical time in [0, 1], if known
    events: Mapping[str, int] = field(default_factory=dict)  # key event → frame
    keypoints: NDArray[np.float32] | None = None  # [T, J, 2] pixels
    joints3d: NDArray[np.float32] | None = None  # [T, J, 3] meters
    visibility: NDArray[np.bool_] | None = None  # [T, J]
    joints: tuple[str, ...] = ()  # the J joints by name: "left_…" and "right_…" are each other's mirror image
    boxes: NDArray[np.float32] | None = None  # [T, 4] x0, y0, x1, y1 pixels
    sound: Path | None = None  # a file with a sound stream; often `path` itself
    synthesize: Callable[[], Sound] | None = None  # the sound of a rendered recording
    # Further labels of a data set: view, player, club …; "instance" names the performance of which several videos show
    # parts, "repaired" an error of the labels that was corrected.
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def label_kinds(self) -> list[str]:
        """List the kinds of label of the video."""
        kinds = {
            "phases": self.phases is not None or bool(self.intervals),
            "events": bool(self.events),
            "keypoints": self.keypoints is not None,
            "3-D joints": self.joints3d is not None,
            "boxes": self.boxes is not None,
            "canonical time": self.progress is not None,
            "sound": self.sound is not None or self.synthesize is not None,
        }
        return [kind for kind, there in kinds.items() if there]

    def phases_at(self, times: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the phase at each of `times` seconds, −1 without a label.

        If labels are per frame, pass the times of all frames; timed labels accept any times.
        """
        if self.phases is not None:
            if len(times) != len(self.phases):
                raise ValueError(f"{self.id}: {len(self.phases)} labeled frames, {len(times)} times: pass all of them")
            return self.phases
        # A frame at a boundary belongs to the phase that starts there, whatever the rounding of its time.
        clock = times + 1e-6
        found = np.full(len(times), -1, dtype=np.int64)
        for start, end, phase in self.intervals:
            found[(clock >= start) & (clock < end)] = phase
        return found


class Problem(UserWarning):
    """A fault of a data set that does not stop loading: where, what, and how to fix it.

    Loaders warn with it and skip the entry; `inphase data check` lists all. A `harmless` one leaves the data set
    complete.
    """

    def __init__(self, where: str, what: str, fix: str, *, harmless: bool = False) -> None:
        """Build the message from place, fault and fix."""
        super().__init__(f"{where}: {what}; {fix}")
        self.where, self.what, self.fix, self.harmless = where, what, fix, harmless


def check_split(split: str, *, of: tuple[str, ...] = SPLITS) -> None:
    """Raise if a data set does not have a split; "all" means all splits."""
    if split != "all" and split not in of:
        raise ValueError(f"split {split!r} does not exist here: choose one of {', '.join([*of, 'all'])}")


def find_present(videos: Iterable[Video]) -> tuple[list[Video], list[Video]]:
    """Separate videos whose file exists, or that need none, from videos whose file is missing."""
    here: list[Video] = []
    absent: list[Video] = []
    for video in videos:
        files = video.span_paths or ([] if video.path is None else [video.path])
        (here if all(file.exists() for file in files) else absent).append(video)
    return here, absent


def read_text(file: Path) -> str:
    """Read a text file in UTF-8, with or without a byte order mark."""
    try:
        # Without newline="" a line break inside a quoted cell would be changed.
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return stream.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text in UTF-8 ({error.reason} at byte {error.start}): save it so") from None


def read_json(file: Path) -> Any:
    """Read a JSON document."""
    text = read_text(file)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{file} is damaged or not JSON ({error}): copy it again") from None


def read_rows(file: Path) -> list[list[str]]:
    """Read the lines of a CSV file."""
    return list(_number_rows(file).values())


def read_table(file: Path, *, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Read a CSV file whose first line names its columns, at least `columns`; missing cells are empty."""
    return list(read_numbered_table(file, columns=columns).values())


def read_numbered_table(file: Path, *, columns: tuple[str, ...] = ()) -> dict[int, dict[str, str]]:
    """Read a CSV file as `read_table` does, by line number: the heading is line 1.

    Empty lines, as spreadsheets leave them below a table, are omitted.
    """
    rows = _number_rows(file)
    names = [name.strip() for name in rows.pop(1, [])]
    absent = [column for column in columns if column not in names]
    if absent:
        begins = f"begins with {','.join(names)} and " if names else ""
        raise ValueError(
            f"{file} {begins}has no column {', '.join(absent)}: its first line must be {','.join(columns)}"
        )
    return {
        number: dict.fromkeys(names, "") | dict(zip(names, row, strict=False))
        for number, row in rows.items()
        if any(cell.strip() for cell in row)
    }


def _number_rows(file: Path) -> dict[int, list[str]]:
    """Read the rows of a CSV file by the line in which each starts, counting line breaks inside quoted cells.

    Semicolons and tabs may separate the cells; numbers may then have a decimal comma.
    """
    text = read_text(file)
    delimiter = choose_delimiter(text.partition("\n")[0])
    reader, rows, line = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), {}, 1
    try:
        for row in reader:
            cells = map(read_cell, row)
            rows[line] = list(cells) if delimiter == "," else [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in cells]
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{file} is not a table of comma-separated values ({error}): save it so") from None
    return rows


_DECIMAL_COMMA = re.compile(r"^\s*([+-]?\d+),(\d+)\s*$")


# (video, frame numbers, distinct and increasing) → the values of these frames [T, …] and their seconds [T].
Read = Callable[[Video, Frames], tuple[NDArray[Any], NDArray[np.float64]]]


def read_images(
    video: Video, frames: Frames, *, size: tuple[int, int] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Decode some frames of a video: images [T, H, W, 3] and their seconds; use `read_stored` for training."""
    if video.render is not None:
        clip = video.render()
        return clip.frames[frames], clip.times[frames]
    if video.path is None:
        raise ValueError(f"{video.id} has no images: read its pose")
    if video.spans:
        return _read_span_frames(video, frames, size=size)
    clip = read_clip(video.path, indices=frames, size=size, native_fps=native_fps(video))
    return clip.frames, clip.times


def _read_span_frames(
    video: Video, frames: Frames, *, size: tuple[int, int] | None
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Decode frames of spans laid end to end; of each file only what they need."""
    listed = [(path, span, choose(open_recording(path).times, span=span)) for path, span in span_files(video)]
    counts = [0 if found is None else len(found) for _, _, found in listed]
    begins = span_begins(video)

    def read(part: int, numbers: Frames) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        path, (start, _), found = listed[part]
        assert found is not None
        clip = read_clip(path, indices=found[numbers], size=size)
        return clip.frames, clip.times - start + begins[part]

    return join_parts(frames, counts, read)


def span_begins(video: Video) -> list[float]:
    """Return the second at which each span begins, laid end to end; [0] for a whole file."""
    return [0.0, *accumulate(end - start for start, end in video.spans)][: max(1, len(video.spans))]


def join_parts(
    frames: Frames,
    counts: Sequence[int],
    read: Callable[[int, Frames], tuple[NDArray[np.uint8], NDArray[np.float64]]],
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Read frames, numbered through parts of `counts` frames, part by part."""
    ends = np.cumsum(counts)
    if len(frames) and not 0 <= frames.min() <= frames.max() < ends[-1]:
        raise ValueError(f"frames {frames.min()} to {frames.max()} of a video of {ends[-1]}: choose existing ones")
    parts = np.searchsorted(ends, frames, side="right")
    first = int(parts[0]) if len(parts) else 0
    if (parts == first).all():
        return read(first, frames - (ends[first] - counts[first]))
    found = [read(int(part), frames[parts == part] - (ends[part] - counts[part])) for part in np.unique(parts)]
    return np.concatenate([values for values, _ in found]), np.concatenate([times for _, times in found])


class RenderedFrames:
    """A `Read` of rendered videos with an LRU cache of clips, so that training does not render at every step.

    The cache is bounded by `max_bytes`, shared by threads and separate for each process. Its key is `Video.render`.
    """

    def __init__(self, *, max_bytes: int = 2**30) -> None:
        """Start with an empty cache."""
        self._max_bytes = max_bytes
        clips: LRUCache[Any, Clip] = LRUCache(maxsize=max_bytes, getsizeof=lambda clip: clip.frames.nbytes)
        self._render = cached(clips, lock=Lock())(_render)

    def __call__(self, video: Video, frames: Frames) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Return some frames of a video, rendered or from the cache."""
        if video.render is None:
            raise ValueError(f"{video.id} is not rendered: use read_images or read_stored")
        clip = self._render(video.render)
        return clip.frames[frames], clip.times[frames]

    def __reduce__(self) -> tuple[Callable[[], "RenderedFrames"], tuple[()]]:
        """Pickle without the clips."""
        return partial(RenderedFrames, max_bytes=self._max_bytes), ()


def _render(render: Callable[[], Clip]) -> Clip:
    return render()


def read_pose(video: Video, frames: Frames) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read some frames of a video's pose: x, y in pixels and visibility 0 or 1 as [T, J, 3], and their seconds.

    If the frame rate is unknown, a second is one frame long.
    """
    if video.keypoints is None:
        raise ValueError(f"{video.id} has no keypoints: run pose estimation on it, or read its images")
    points = video.keypoints[frames]
    visible = np.ones(points.shape[:2], np.bool_) if video.visibility is None else video.visibility[frames]
    return with_visibility(points, visible), frames / float(video.rate or 1.0)


def read_pose3d(video: Video, frames: Frames) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read some frames of a video's 3-D joints: x, y, z and visibility 0 or 1 as [T, J, 4], and their seconds."""
    if video.joints3d is None:
        raise ValueError(f"{video.id} has no 3-D joints: read its pose, or its images")
    points = video.joints3d[frames]
    visible = np.ones(points.shape[:2], np.bool_) if video.visibility is None else video.visibility[frames]
    return with_visibility(points, visible), frames / float(video.rate or 1.0)


def with_visibility(points: NDArray[np.float32], visible: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Append the visibility 0 or 1 to points: [T, J, 2] and [T, J] → [T, J, 3]."""
    return np.concatenate([points, visible[..., None].astype(np.float32)], axis=-1).astype(np.float32)


def annotated_length(video: Video) -> int:
    """Return the number of frames by the annotation or the labels of a video."""
    for known in (video.length, video.phases, video.keypoints):
        if known is not None:
            return known if isinstance(known, int) else len(known)
    raise ValueError(f"the length of {video.id} is not annotated: pass frame_count, or fill a frame store first")


def annotated_measure(video: Video) -> tuple[int, float]:
    """Return the numbers of frames and of seconds by the annotation of a video."""
    if video.length is None or video.rate is None:
        raise ValueError(f"length and rate of {video.id} are not annotated: pass measure, or fill a frame store first")
    return video.length, video.length / video.rate


def measured_length(video: Video) -> int:
    """Count the frames of a video: as annotated, or by opening its file."""
    return annotated_length(video) if video.path is None or video.length is not None else file_length(video)


def file_length(video: Video) -> int:
    """Count the frames of a video by opening its file or rendering it, whatever its annotation."""
    if video.render is not None:
        return len(video.render())
    if video.path is None:
        raise ValueError(f"{video.id} has no file to open")
    if not video.spans:
        return probe(video.path, native_fps=native_fps(video)).frames
    listed = [(open_recording(path).times, span) for path, span in span_files(video)]
    return sum(int(((times >= start) & (times < end)).sum()) for times, (start, end) in listed)


def measure(video: Video) -> tuple[int, float]:
    """Count frames and seconds of a video by opening its file; those of a rendered one are annotated."""
    if video.render is not None:
        return annotated_measure(video)
    if video.path is None or video.spans:
        raise ValueError(f"{video.id} is not one whole file: images and sound are read together from whole files")
    properties = probe(video.path, native_fps=native_fps(video))
    return properties.frames, properties.duration


def span_files(video: Video) -> list[tuple[Path, tuple[float, float]]]:
    """List the file and the seconds of every span."""
    if video.path is None:
        raise ValueError(f"{video.id} has no file")
    return list(zip(video.span_paths or [video.path] * len(video.spans), video.spans, strict=True))


def native_fps(video: Video) -> float | None:
    """Return the fps of a folder of images; if it is unknown, 1, as for poses."""
    return (video.rate or 1.0) if video.path is not None and video.path.is_dir() else None
