"""The parts of a playback: `own` seconds are those of a track's media file, all others those of the reference."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from inphase.playback.part import PICTURE, SOUND, VIDEO, Doubles, Floats, Halves, Indices, Part, PlaybackError

MOST_TRACKS = 9
# Larger costs are written as means of blocks: no screen shows more.
MOST_CELLS = 2048
Up = Literal["x", "-x", "y", "-y", "z", "-z"]


@dataclass(frozen=True, eq=False)
class TimeMap(Part):
    """Where a track is at each second of the reference: straight lines between knots, held before and after them."""

    reference: Doubles = field(metadata={"inline": True})  # [K] seconds, increasing
    own: Doubles = field(metadata={"inline": True})  # [K] seconds, never decreasing

    def check(self) -> None:
        """Refuse a map that is no function of the reference or runs backwards."""
        _check_times("reference", self.reference)
        _check_shape("own", self.own, (len(self.reference),), "a second for each of the reference")
        if (back := np.flatnonzero(np.diff(self.own) < 0)).size:
            k = int(back[0])
            raise PlaybackError(
                f"own runs backwards at knot {k + 1} ({self.own[k]:g} s, then {self.own[k + 1]:g} s): "
                "a time map never decreases"
            )

    def __call__(self, seconds: Any) -> NDArray[np.float64]:
        """Read the map at seconds of the reference."""
        return np.asarray(np.interp(seconds, self.reference, self.own))


@dataclass(frozen=True, eq=False)
class Phase(Part):
    """A stretch of a track, in own seconds; `confidence` from 0 to 1 where a label was carried over."""

    start: float
    end: float
    label: str
    confidence: float | None = None

    def check(self) -> None:
        """Refuse a stretch without length."""
        if self.end <= self.start:
            raise PlaybackError(f"{self.label!r} ends at {self.end:g} s, before it starts at {self.start:g} s")
        _check_confidence(self.confidence)


@dataclass(frozen=True, eq=False)
class Event(Part):
    """A moment of a track, in own seconds; `confidence` from 0 to 1 where a label was carried over."""

    second: float
    label: str
    confidence: float | None = None

    def check(self) -> None:
        """Refuse a confidence that is none."""
        _check_confidence(self.confidence)


@dataclass(frozen=True, eq=False)
class Curves(Part):
    """An embedding in a few dimensions, as `principal_curves` makes them."""

    times: Doubles  # [T] own seconds
    values: Floats  # [T, C], C ≤ 8
    names: tuple[str, ...] = ()  # the C curves; "PC 1" … where there are none

    def check(self) -> None:
        """Refuse curves whose lengths differ."""
        _check_times("times", self.times)
        _check_shape("values", self.values, (len(self.times), None), "a row for each time")
        if not 1 <= self.values.shape[1] <= 8:
            raise PlaybackError(f"values has {self.values.shape[1]} columns: 1 to 8 curves can be told apart")
        if self.names and len(self.names) != self.values.shape[1]:
            raise PlaybackError(f"names has {len(self.names)} entries for {self.values.shape[1]} curves")


@dataclass(frozen=True, eq=False)
class Keypoints(Part):
    """The joints of the person in view, in pixels of the track's `size`; NaN where one is not known."""

    times: Doubles  # [T] own seconds
    points: Floats = field(metadata={"holes": True})  # [T, J, 2], or 3 with a visibility from 0 to 1
    joints: tuple[str, ...]  # the J joints by name: "left_…" and "right_…" are each other's mirror image
    bones: tuple[tuple[int, int], ...] = ()  # which joints are connected

    def check(self) -> None:
        """Refuse joints that do not belong together."""
        _check_times("times", self.times)
        _check_shape("points", self.points, (len(self.times), len(self.joints), None), "[times, joints, 2 or 3]")
        if self.points.shape[2] not in (2, 3):
            raise PlaybackError(f"points has {self.points.shape[2]} columns: x and y, and perhaps a visibility")
        _check_bones(self.bones, self.joints)


@dataclass(frozen=True, eq=False)
class Track(Part):
    """One video (or its keypoints alone) and what is known of it."""

    name: str
    duration: float  # seconds from 0 to the end of the last frame
    rate: float  # frames a second
    size: tuple[int, int]  # height and width in pixels, upright
    media: str | None = field(default=None, metadata={"file": VIDEO | SOUND})  # relative to the playback's folder
    time_map: TimeMap | None = None  # None: its seconds are those of the reference
    phases: tuple[Phase, ...] = ()
    events: tuple[Event, ...] = ()
    curves: Curves | None = None
    keypoints: Keypoints | None = None
    overlay: str | None = field(default=None, metadata={"file": VIDEO})  # a heat map on the same clock

    def check(self) -> None:
        """Refuse a track that cannot be shown."""
        if not (self.duration > 0 and self.rate > 0 and min(self.size) > 0):
            raise PlaybackError(
                f"duration, rate and size must be positive, got {self.duration:g}, {self.rate:g} and {self.size}"
            )
        if self.media is None and self.keypoints is None:
            raise PlaybackError("there is neither media nor keypoints: the track has nothing to show")


@dataclass(frozen=True, eq=False)
class Pair(Part):
    """How two tracks were matched: costs and the path through them."""

    rows: int  # which track is aligned …
    columns: int  # … with which
    cost: Halves  # [M, N]
    row_times: Doubles  # [M] own seconds of the track `rows`
    column_times: Doubles  # [N] own seconds of the track `columns`
    path: Indices  # [L, 2] pairs of row and column, from the first matched one to the last

    def check(self) -> None:
        """Refuse arrays that do not belong together."""
        _check_times("row_times", self.row_times)
        _check_times("column_times", self.column_times)
        shape = (len(self.row_times), len(self.column_times))
        _check_shape("cost", self.cost, shape, "a row and a column for each time")
        _check_shape("path", self.path, (None, 2), "pairs of row and column")
        if not len(self.path) or (self.path < 0).any() or (self.path >= shape).any():
            raise PlaybackError(f"path must hold indices into a cost of {shape[0]} × {shape[1]}, and at least one pair")
        if (back := np.flatnonzero((np.diff(self.path, axis=0) < 0).any(axis=1))).size:
            raise PlaybackError(f"path runs backwards after step {int(back[0])}: neither index may decrease")

    def reduced(self, *, most: int = MOST_CELLS) -> "Pair":
        """Take means of blocks, so that no side is longer than `most`; what is small enough stays as it is."""
        by = [-(-length // most) for length in self.cost.shape]
        if by == [1, 1]:
            return self
        cost = self.cost.astype(np.float32)
        for axis, factor in enumerate(by):
            starts = np.arange(0, cost.shape[axis], factor)
            counts = np.diff([*starts, cost.shape[axis]])
            cost = np.add.reduceat(cost, starts, axis=axis) / np.expand_dims(counts, 1 - axis)
        return replace(
            self,
            cost=cost,
            row_times=_means(self.row_times, by[0]),
            column_times=_means(self.column_times, by[1]),
            path=np.unique(self.path // np.array(by), axis=0),
        )


@dataclass(frozen=True, eq=False)
class Skeleton(Part):
    """A person in space; NaN where a joint is not known."""

    name: str
    times: Doubles  # [T] seconds of the reference
    points: Floats = field(metadata={"holes": True})  # [T, J, 3], in any unit
    joints: tuple[str, ...]  # the J joints by name: "left_…" and "right_…" are each other's mirror image
    bones: tuple[tuple[int, int], ...]  # which joints are connected
    up: str = "z"  # which axis of the points looks up: x, -x, y, -y, z or -z

    def check(self) -> None:
        """Refuse joints that do not belong together."""
        _check_times("times", self.times)
        _check_shape("points", self.points, (len(self.times), len(self.joints), 3), "[times, joints, 3]")
        _check_bones(self.bones, self.joints)
        if self.up not in get_args(Up):
            raise PlaybackError(f"up is {self.up!r}: choose one of {', '.join(get_args(Up))}")


@dataclass(frozen=True, eq=False)
class Moment(Part):
    """A moment of a recording: what was asked for, or what was found."""

    name: str  # which recording
    second: float
    score: float | None = None  # how alike, larger is better
    media: str | None = field(default=None, metadata={"file": VIDEO | SOUND})  # what to play
    thumbnail: str | None = field(default=None, metadata={"file": PICTURE})
    duration: float = 1.0  # how long to play
    note: str = ""  # anything else to say of it

    def check(self) -> None:
        """Refuse a moment before the start or without length."""
        if self.second < 0 or self.duration <= 0:
            raise PlaybackError(
                f"second must not be negative and duration positive, got {self.second:g}, {self.duration:g}"
            )


@dataclass(frozen=True, eq=False)
class Result(Part):
    """A search: what was asked for and what was found, best first."""

    query: Moment
    hits: tuple[Moment, ...]


@dataclass(frozen=True, eq=False)
class Playback(Part):
    """Everything shown on one clock: that of the reference track, or of the skeletons where there is no track."""

    title: str
    tracks: tuple[Track, ...] = ()
    pairs: tuple[Pair, ...] = ()
    skeletons: tuple[Skeleton, ...] = ()
    results: tuple[Result, ...] = ()
    reference: int = 0  # the track whose seconds are the clock

    def check(self) -> None:
        """Refuse what cannot be shown together."""
        if not (self.tracks or self.skeletons or self.results):
            raise PlaybackError("there is nothing to show: no tracks, skeletons or results")
        if len(self.tracks) > MOST_TRACKS:
            raise PlaybackError(f"{len(self.tracks)} tracks are too many to watch: at most {MOST_TRACKS}")
        if self.tracks and not 0 <= self.reference < len(self.tracks):
            raise PlaybackError(f"reference is {self.reference}, but there are {len(self.tracks)} tracks, from 0")
        warp = self.tracks[self.reference].time_map if self.tracks else None
        if warp is not None and not np.allclose(warp.own, warp.reference, rtol=0, atol=1e-6):
            raise PlaybackError(f"tracks[{self.reference}] is the reference: its time_map must be None")
        for i, pair in enumerate(self.pairs):
            for side, track in (("rows", pair.rows), ("columns", pair.columns)):
                if not 0 <= track < len(self.tracks):
                    raise PlaybackError(f"pairs[{i}].{side} is track {track}, but there are {len(self.tracks)}, from 0")


def _means(times: NDArray[np.float64], by: int) -> NDArray[np.float64]:
    return np.array([times[start : start + by].mean() for start in range(0, len(times), by)])


def _check_times(name: str, times: NDArray[np.float64]) -> None:
    if times.ndim != 1 or not len(times):
        raise PlaybackError(f"{name} must be a list of seconds, got an array of shape {list(times.shape)}")
    if (back := np.flatnonzero(np.diff(times) <= 0)).size:
        i = int(back[0])
        raise PlaybackError(f"{name} must increase, but entry {i + 1} is {times[i + 1]:g} s after {times[i]:g} s")


def _check_shape(name: str, array: NDArray[Any], shape: Sequence[int | None], meaning: str) -> None:
    fits = array.ndim == len(shape) and all(want in (None, got) for want, got in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise PlaybackError(f"{name} must be [{wanted}], {meaning}; got {list(array.shape)}")


def _check_confidence(confidence: float | None) -> None:
    if confidence is not None and not 0 <= confidence <= 1:
        raise PlaybackError(f"confidence is {confidence:g}: it goes from 0 to 1")


def _check_bones(bones: tuple[tuple[int, int], ...], joints: tuple[str, ...]) -> None:
    for a, b in bones:
        if not (0 <= a < len(joints) and 0 <= b < len(joints)):
            raise PlaybackError(
                f"the bone ({a}, {b}) connects joints that are not there: there are {len(joints)}, from 0"
            )
