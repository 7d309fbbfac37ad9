"""Annotated recordings, and the text tables that describe them."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.media.audio import Sound
from inphase.media.frames import Clip
from inphase.storage.files import read_cell

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
        (here if video.path is None or video.path.exists() else absent).append(video)
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
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
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
    """Read the rows of a CSV file by the line in which each starts, counting line breaks inside quoted cells."""
    reader, rows, line = csv.reader(io.StringIO(read_text(file), newline="")), {}, 1
    try:
        for row in reader:
            rows[line] = [read_cell(cell) for cell in row]
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{file} is not a table of comma-separated values ({error}): save it so") from None
    return rows
