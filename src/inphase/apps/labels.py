"""What people say of a recording: stretches of it that have a name, and moments that have one.

A table of labels has one of these headings:

    start,end,label      stretches, in seconds
    second,label         moments, in seconds
    frame,label          moments, by number of the frame from 0; or, where some label stands at frame after frame,
                         what every frame shows
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from inphase.playback import Phase, PlaybackEvent, VideoTrack

# Seconds are written with six digits.
ROUNDING = 1e-5
HEADINGS = (("start", "end", "label"), ("second", "label"), ("frame", "label"))


@dataclass(frozen=True)
class Stretch:
    """A part of a recording from `start` up to `end` seconds; `confidence` from 0 to 1 where it was carried over."""

    start: float
    end: float
    label: str
    confidence: float | None = None


@dataclass(frozen=True)
class Instant:
    """A moment of a recording; `confidence` from 0 to 1 where it was carried over."""

    second: float
    label: str
    confidence: float | None = None


@dataclass(frozen=True)
class Labels:
    """The labels of a recording, in the order of time."""

    stretches: tuple[Stretch, ...] = ()
    instants: tuple[Instant, ...] = ()


def parse_labels(
    rows: Mapping[int, Mapping[str, str]], *, times: NDArray[np.float64], end: float, source: str
) -> Labels:
    """Read the rows of a table, by their lines, about a recording whose frames are shown at `times` and end at `end`.

    `source` is what an error calls the table.
    """
    if not rows:
        raise ValueError(f"{source} has no labels: write a line for each below the heading")
    columns = next(iter(rows.values())).keys()
    heading = next((names for names in HEADINGS if all(name in columns for name in names)), None)
    if heading is None:
        known = ", or ".join(",".join(names) for names in HEADINGS)
        raise ValueError(f"{source} begins with {','.join(columns)}: its first line must be {known}")
    if heading[0] == "frame":
        return _by_frame(rows, times=times, end=end, source=source)
    numbers = [
        [_number(row[name], end=end, source=source, line=line) for name in heading[:-1]] for line, row in rows.items()
    ]
    names = [_name(row, source=source, line=line) for line, row in rows.items()]
    if heading[0] == "second":
        instants = [Instant(second, name) for (second,), name in zip(numbers, names, strict=True)]
        return Labels(instants=tuple(sorted(instants, key=lambda each: each.second)))
    for line, (start, stop) in zip(rows, numbers, strict=True):
        if not start < stop:
            raise ValueError(f"{source}, line {line}: from {start:g} to {stop:g} s is no stretch; start before the end")
    stretches = [Stretch(start, stop, name) for (start, stop), name in zip(numbers, names, strict=True)]
    return Labels(stretches=tuple(sorted(stretches, key=lambda each: each.start)))


def tabulate(labels: Labels, *, times: NDArray[np.float64]) -> Iterator[list[str]]:
    """Lay out labels as rows that `parse_labels` reads again, with confidences and the frames, shown at `times`.

    The frame of a moment is the nearest one; those of a stretch are its first and its last.
    """
    if labels.instants:
        yield ["second", "label", "confidence", "nearest_frame"]
        for moment in labels.instants:
            frame = int(np.abs(times - moment.second).argmin())
            yield [f"{moment.second:.6f}", moment.label, _percent(moment.confidence), f"{frame}"]
        return
    yield ["start", "end", "label", "confidence", "first_frame", "last_frame"]
    for each in labels.stretches:
        first, after = np.searchsorted(times, [each.start - ROUNDING, each.end - ROUNDING]).tolist()
        frames = [f"{first}", f"{max(first, after - 1)}"]
        yield [f"{each.start:.6f}", f"{each.end:.6f}", each.label, _percent(each.confidence), *frames]


def label_track(track: VideoTrack, labels: Labels) -> VideoTrack:
    """Write labels on a track of a playback."""
    phases = tuple(Phase(each.start, each.end, each.label, each.confidence) for each in labels.stretches)
    events = tuple(PlaybackEvent(each.second, each.label, each.confidence) for each in labels.instants)
    return track.replace(phases=phases, events=events)


def _percent(confidence: float | None) -> str:
    return "" if confidence is None else f"{confidence:.4f}"


def _by_frame(rows: Mapping[int, Mapping[str, str]], *, times: NDArray[np.float64], end: float, source: str) -> Labels:
    """Read labels of frames: moments, or where a label goes on from one frame to the next, stretches."""
    frames: dict[int, str] = {}
    for line, row in rows.items():
        text = row["frame"].strip()
        if not text.isdecimal() or int(text) >= len(times):
            raise ValueError(f"{source}, line {line}: frame {text!r} does not exist; there are 0 to {len(times) - 1}")
        frames[int(text)] = _name(row, source=source, line=line)
    ordered = sorted(frames.items())
    if not any(b == a + 1 and name == after for (a, name), (b, after) in pairwise(ordered)):
        return Labels(instants=tuple(Instant(float(times[frame]), name) for frame, name in ordered))
    after = np.append(times[1:], end)
    stretches = []
    # A run: the same label, and every frame is one further than the one before.
    for _, run in groupby(enumerate(ordered), key=lambda item: (item[1][1], item[1][0] - item[0])):
        members = [frame for _, (frame, _) in run]
        stretches.append(Stretch(float(times[members[0]]), float(after[members[-1]]), frames[members[0]]))
    return Labels(stretches=tuple(stretches))


def _number(text: str, *, end: float, source: str, line: int) -> float:
    try:
        second = float(text)
    except ValueError:
        raise ValueError(f"{source}, line {line}: {text!r} is no number of seconds") from None
    # Half a frame or so of rounding is no mistake.
    if not -0.05 <= second <= end + 0.05:
        raise ValueError(
            f"{source}, line {line}: {second:g} s lies outside the video, which runs from 0 to {end:.2f} s"
        )
    return min(max(second, 0.0), end)


def _name(row: Mapping[str, str], *, source: str, line: int) -> str:
    name = row["label"].strip()
    if not name:
        raise ValueError(f"{source}, line {line} has no label: write one")
    return name
