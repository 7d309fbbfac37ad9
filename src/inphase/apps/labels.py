"""Labels of a recording, segments and events, and the CSV tables they are read from and written to.

A table of labels has one of these headings:

    start,end,label      segments, in seconds
    second,label         events, in seconds
    frame,label          events, by frame number from 0; or segments, where consecutive frames have the same label
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from inphase.data.video import read_numbered_table
from inphase.media.recording import NamedVideo, open_recording
from inphase.playback import Phase, PlaybackEvent, VideoTrack

# Seconds are written with six decimals; times closer than this are equal.
SECONDS_ROUNDING = 1e-5
# Seconds by which a label may lie outside the video: half a frame or so of rounding.
SECONDS_TOLERANCE = 0.05
# The stem of the table with a row for every video that labels were transferred to.
COMBINED = "transferred"
HEADINGS = (("start", "end", "label"), ("second", "label"), ("frame", "label"))


@dataclass(frozen=True)
class Segment:
    """A labeled part of a recording, in seconds; `confidence` from 0 to 1 where the label was transferred."""

    start: float
    end: float
    label: str
    confidence: float | None = None


@dataclass(frozen=True)
class Event:
    """A labeled moment of a recording; `confidence` from 0 to 1 where the label was transferred."""

    second: float
    label: str
    confidence: float | None = None


Label = TypeVar("Label", Event, Segment)


@dataclass(frozen=True)
class Labels:
    """The labels of a recording, in order of time."""

    segments: tuple[Segment, ...] = ()
    events: tuple[Event, ...] = ()

    def __len__(self) -> int:
        """Count segments and events."""
        return len(self.segments) + len(self.events)

    @property
    def confidences(self) -> list[tuple[str, float]]:
        """Return the labels that have a confidence, with it."""
        every: list[Segment | Event] = [*self.segments, *self.events]
        return [(each.label, each.confidence) for each in every if each.confidence is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, times in seconds."""
        return {
            "segments": [
                {"start": each.start, "end": each.end, "label": each.label, "confidence": each.confidence}
                for each in self.segments
            ],
            "events": [
                {"second": each.second, "label": each.label, "confidence": each.confidence} for each in self.events
            ],
        }


def labels_of(video: NamedVideo, table: Path | str | Labels) -> Labels:
    """Read the labels of a video, unless they are read already."""
    if isinstance(table, Labels):
        return table
    return read_labels(Path(table), times=open_recording(video.path).times, end=video.properties.duration)


def read_labels(file: Path, *, times: NDArray[np.float64], end: float) -> Labels:
    """Read a CSV table of labels of a recording whose frames are shown at `times` and which ends at second `end`."""
    return parse_labels(read_numbered_table(file), times=times, end=end, source=str(file))


def parse_labels(
    rows: Mapping[int, Mapping[str, str]], *, times: NDArray[np.float64], end: float, source: str
) -> Labels:
    """Read the rows of a table of labels, by line number; errors name the table `source` and the line."""
    known = ", or ".join(",".join(names) for names in HEADINGS)
    if not rows:
        raise ValueError(f"{source} has no labels: its first line must be {known}, with a line for each label below")
    columns = next(iter(rows.values())).keys()
    heading = next((names for names in HEADINGS if all(name in columns for name in names)), None)
    if heading is None:
        raise ValueError(f"{source} begins with {','.join(columns)}: its first line must be {known}")
    if heading[0] == "frame":
        return _by_frame(rows, times=times, end=end, source=source)
    numbers = [
        [_number(row[name], end=end, source=source, line=line) for name in heading[:-1]] for line, row in rows.items()
    ]
    names = [_name(row, source=source, line=line) for line, row in rows.items()]
    if heading[0] == "second":
        events = [Event(second, name) for (second,), name in zip(numbers, names, strict=True)]
        return Labels(events=tuple(sorted(events, key=lambda each: each.second)))
    for line, (start, stop) in zip(rows, numbers, strict=True):
        if not start < stop:
            raise ValueError(
                f"{source}, line {line}: a segment from {start:g} to {stop:g} s; its start must be before its end"
            )
    segments = [Segment(start, stop, name) for (start, stop), name in zip(numbers, names, strict=True)]
    return Labels(segments=tuple(sorted(segments, key=lambda each: each.start)))


def tabulate(labels: Labels, *, times: NDArray[np.float64]) -> Iterator[list[str]]:
    """Yield labels as table rows that `parse_labels` reads, with confidences and frame numbers (frames at `times`).

    The frame of an event is the nearest one; a segment has its first and its last.
    """
    if labels.events:
        yield ["second", "label", "confidence", "nearest_frame"]
        for event in labels.events:
            frame = int(np.abs(times - event.second).argmin())
            yield [f"{event.second:.6f}", event.label, _confidence(event.confidence), f"{frame}"]
        return
    yield ["start", "end", "label", "confidence", "first_frame", "last_frame"]
    for each in labels.segments:
        first, after = np.searchsorted(times, [each.start - SECONDS_ROUNDING, each.end - SECONDS_ROUNDING]).tolist()
        frames = [f"{first}", f"{max(first, after - 1)}"]
        yield [f"{each.start:.6f}", f"{each.end:.6f}", each.label, _confidence(each.confidence), *frames]


def name_tables(out: Path, names: Sequence[str]) -> list[Path]:
    """Name a table for each video; slashes become underscores, and equal names get a number."""
    stems = [COMBINED]
    for name in names:
        stem = name.replace("/", "_").lstrip(".") or "video"
        free = (f"{stem}{number}" for number in ("", *(f"_{n}" for n in range(2, len(names) + 2))))
        stems.append(next(each for each in free if each not in stems))
    return [out / f"{stem}.csv" for stem in stems[1:]]


def number_labels(labels: Sequence[Label]) -> Iterator[tuple[tuple[str, int], Label]]:
    """Name each label by its text and its number among those of the same text."""
    seen = Counter[str]()
    for each in labels:
        yield (each.label, seen[each.label]), each
        seen[each.label] += 1


def describe_unshared(given: Sequence[Labels], names: Sequence[str]) -> list[str]:
    """Name the labels that only some of the labeled videos have; a different spelling is a different label."""
    found = [{each.label for each in labels.events} | {each.label for each in labels.segments} for labels in given]
    rare = sorted(label for label in set[str]().union(*found) if not all(label in labels for labels in found))
    where = [[name for name, labels in zip(names, found, strict=False) if label in labels] for label in rare]
    parts = [f"{label!r} is a label of {', '.join(some)}" for label, some in zip(rare, where, strict=True)]
    return [f"Not all labeled videos have the same labels: {'; '.join(parts)}."] if parts else []


def label_track(track: VideoTrack, labels: Labels) -> VideoTrack:
    """Add labels to a track of a playback."""
    phases = tuple(Phase(each.start, each.end, each.label, each.confidence) for each in labels.segments)
    events = tuple(PlaybackEvent(each.second, each.label, each.confidence) for each in labels.events)
    return track.replace(phases=phases, events=events)


def _confidence(confidence: float | None) -> str:
    return "" if confidence is None else f"{confidence:.4f}"


def _by_frame(rows: Mapping[int, Mapping[str, str]], *, times: NDArray[np.float64], end: float, source: str) -> Labels:
    """Read labels of frames: events, or segments where consecutive frames have the same label."""
    frames: dict[int, str] = {}
    for line, row in rows.items():
        text = row["frame"].strip()
        if not text.isdecimal() or int(text) >= len(times):
            raise ValueError(f"{source}, line {line}: frame {text!r} does not exist; there are 0 to {len(times) - 1}")
        frames[int(text)] = _name(row, source=source, line=line)
    ordered = sorted(frames.items())
    if not any(b == a + 1 and name == after for (a, name), (b, after) in pairwise(ordered)):
        return Labels(events=tuple(Event(float(times[frame]), name) for frame, name in ordered))
    after = np.append(times[1:], end)
    segments = []
    # A run: the same label at consecutive frames.
    for _, run in groupby(enumerate(ordered), key=lambda item: (item[1][1], item[1][0] - item[0])):
        members = [frame for _, (frame, _) in run]
        segments.append(Segment(float(times[members[0]]), float(after[members[-1]]), frames[members[0]]))
    return Labels(segments=tuple(segments))


def _number(text: str, *, end: float, source: str, line: int) -> float:
    try:
        second = float(text)
    except ValueError:
        raise ValueError(f"{source}, line {line}: {text!r} is not a number of seconds") from None
    if not -SECONDS_TOLERANCE <= second <= end + SECONDS_TOLERANCE:
        raise ValueError(
            f"{source}, line {line}: {second:g} s lies outside the video, which runs from 0 to {end:.2f} s"
        )
    return min(max(second, 0.0), end)


def _name(row: Mapping[str, str], *, source: str, line: int) -> str:
    name = row["label"].strip()
    if not name:
        raise ValueError(f"{source}, line {line} has no label: write one")
    return name
