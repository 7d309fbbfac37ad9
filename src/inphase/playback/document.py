"""The playback document and its parts.

`own` seconds are those of a track's media file; all other seconds are those of the reference track.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inphase.playback.part import (
    AUDIO_TYPES,
    IMAGE_TYPES,
    VIDEO_TYPES,
    Doubles,
    Floats,
    Halves,
    Indices,
    Knots,
    Part,
    PlaybackError,
)

MAX_TRACKS = 9
MAX_CURVES = 8
# Longer costs are written as means of blocks: a screen shows no more cells.
MAX_COST_LENGTH = 2048
Judgment = Literal["good", "check", "do_not_trust"]
Up = Literal["x", "-x", "y", "-y", "z", "-z"]


class TimeMap(Part, frozen=True):
    """The own second of a track at each second of the reference, interpolated linearly and constant outside."""

    reference: Knots  # [K] seconds, increasing
    own: Knots  # [K] seconds, never decreasing

    def check(self) -> None:
        """Raise unless the map is a function of the reference that never decreases."""
        _check_times("reference", self.reference)
        _check_shape("own", self.own, (len(self.reference),), "one second for each second of the reference")
        if (back := np.flatnonzero(np.diff(self.own) < 0)).size:
            k = int(back[0])
            raise PlaybackError(
                f"own runs backwards at knot {k + 1} ({self.own[k]:g} s, then {self.own[k + 1]:g} s): "
                "a time map never decreases"
            )

    def __call__(self, seconds: Any) -> NDArray[np.float64]:
        """Evaluate the map at seconds of the reference."""
        return np.asarray(np.interp(seconds, self.reference, self.own))


class Phase(Part, frozen=True):
    """A labeled interval of a track, in own seconds; transferred labels have a confidence in [0, 1]."""

    start: float
    end: float
    label: str
    confidence: float | None = None

    def check(self) -> None:
        """Raise if the interval is empty or the confidence is outside [0, 1]."""
        if self.end <= self.start:
            raise PlaybackError(f"{self.label!r} ends at {self.end:g} s, before it starts at {self.start:g} s")
        _check_confidence(self.confidence)


class PlaybackEvent(Part, frozen=True):
    """A labeled instant of a track, in own seconds; transferred labels have a confidence in [0, 1]."""

    second: float
    label: str
    confidence: float | None = None

    def check(self) -> None:
        """Raise if the confidence is outside [0, 1]."""
        _check_confidence(self.confidence)


class Certainty(Part, frozen=True):
    """How far the time map of a track can be trusted: at each moment, and as a whole."""

    times: Doubles  # [T] seconds of the reference
    probability: Floats  # [T] that the moment is within a tenth of a second, in [0, 1]
    judgment: str  # "good", "check" or "do_not_trust"
    whole: float  # the probability that the whole alignment is right, in [0, 1]
    reasons: tuple[str, ...] = ()  # sentences against it

    def check(self) -> None:
        """Raise if a probability is outside [0, 1], lengths differ, or the judgment is unknown."""
        _check_times("times", self.times)
        _check_shape("probability", self.probability, (len(self.times),), "one for each time")
        for name, values in (("probability", self.probability), ("whole", np.array(self.whole))):
            if not (values.min() >= 0 and values.max() <= 1):
                raise PlaybackError(f"{name} is from {values.min():g} to {values.max():g}: it must be in [0, 1]")
        if self.judgment not in get_args(Judgment):
            raise PlaybackError(f"judgment is {self.judgment!r}: choose one of {', '.join(get_args(Judgment))}")


class Curves(Part, frozen=True):
    """An embedding projected to a few dimensions by `principal_curves`."""

    times: Doubles  # [T] own seconds
    values: Floats  # [T, C], C ≤ 8
    names: tuple[str, ...] = ()  # of the C curves; the viewer shows "PC 1" … if empty

    def check(self) -> None:
        """Raise if lengths differ."""
        _check_times("times", self.times)
        _check_shape("values", self.values, (len(self.times), None), "one row for each time")
        if not 1 <= self.values.shape[1] <= MAX_CURVES:
            raise PlaybackError(f"values has {self.values.shape[1]} columns: the viewer shows 1 to {MAX_CURVES} curves")
        if self.names and len(self.names) != self.values.shape[1]:
            raise PlaybackError(f"names has {len(self.names)} entries for {self.values.shape[1]} curves")


class Keypoints(Part, frozen=True):
    """The joints of the person in a track, in pixels of the track's `size`; NaN marks unknown joints."""

    NAN_FIELDS: ClassVar = frozenset({"points"})

    times: Doubles  # [T] own seconds
    points: Floats  # [T, J, 2], or [T, J, 3] with a visibility in [0, 1]
    joints: tuple[str, ...]  # J names; "left_…" and "right_…" are mirror images of each other
    bones: tuple[tuple[int, int], ...] = ()  # pairs of connected joints

    def check(self) -> None:
        """Raise if times, points, joints and bones have different lengths."""
        _check_times("times", self.times)
        _check_shape("points", self.points, (len(self.times), len(self.joints), None), "[times, joints, 2 or 3]")
        if self.points.shape[2] not in (2, 3):
            raise PlaybackError(f"points has {self.points.shape[2]} columns: give x, y and optionally a visibility")
        _check_bones(self.bones, self.joints)


class VideoTrack(Part, frozen=True):
    """One video, or only its keypoints, with its time map, labels and curves."""

    FILE_TYPES: ClassVar = {"media": VIDEO_TYPES | AUDIO_TYPES, "overlay": VIDEO_TYPES}

    name: str
    duration: float  # seconds from 0 to the end of the last frame
    rate: float  # frames per second
    size: tuple[int, int]  # height and width in pixels, after rotation to upright
    media: str | None = None  # path relative to the playback's folder
    time_map: TimeMap | None = None  # None: own seconds equal those of the reference
    phases: tuple[Phase, ...] = ()
    events: tuple[PlaybackEvent, ...] = ()
    curves: Curves | None = None
    keypoints: Keypoints | None = None
    overlay: str | None = None  # a heat map video with the same timestamps as `media`
    certainty: Certainty | None = None  # of the time map

    def check(self) -> None:
        """Raise if the track has no extent or nothing to show."""
        if not (self.duration > 0 and self.rate > 0 and min(self.size) > 0):
            raise PlaybackError(
                f"duration, rate and size must be positive, got {self.duration:g}, {self.rate:g} and {self.size}"
            )
        if self.media is None and self.keypoints is None:
            raise PlaybackError("the track has neither media nor keypoints: add one of them")


class Pair(Part, frozen=True):
    """The alignment of two tracks: the cost matrix and the path through it."""

    rows: int  # index of one track …
    columns: int  # … and of the other
    cost: Halves  # [M, N]
    row_times: Doubles  # [M] own seconds of the track `rows`
    column_times: Doubles  # [N] own seconds of the track `columns`
    path: Indices  # [L, 2] rows and columns, from the first matched pair to the last

    def check(self) -> None:
        """Raise if shapes differ or the path leaves the cost matrix."""
        _check_times("row_times", self.row_times)
        _check_times("column_times", self.column_times)
        shape = (len(self.row_times), len(self.column_times))
        _check_shape("cost", self.cost, shape, "one row and one column for each time")
        _check_shape("path", self.path, (None, 2), "pairs of row and column")
        if not len(self.path) or (self.path < 0).any() or (self.path >= shape).any():
            raise PlaybackError(f"path must contain indices of a cost of {shape[0]} × {shape[1]}, at least one pair")
        if (back := np.flatnonzero((np.diff(self.path, axis=0) < 0).any(axis=1))).size:
            raise PlaybackError(f"path runs backwards after step {int(back[0])}: neither index may decrease")

    def downsample(self, *, max_length: int = MAX_COST_LENGTH) -> "Pair":
        """Average blocks of the cost until neither side is longer than `max_length`."""
        by = [-(-length // max_length) for length in self.cost.shape]
        if by == [1, 1]:
            return self
        cost = self.cost.astype(np.float32)
        for axis, factor in enumerate(by):
            starts = np.arange(0, cost.shape[axis], factor)
            counts = np.diff([*starts, cost.shape[axis]])
            cost = np.add.reduceat(cost, starts, axis=axis) / np.expand_dims(counts, 1 - axis)
        return self.replace(
            cost=cost,
            row_times=_block_means(self.row_times, by[0]),
            column_times=_block_means(self.column_times, by[1]),
            path=np.unique(self.path // np.array(by), axis=0),
        )


class Skeleton(Part, frozen=True):
    """A person in 3-D; NaN marks unknown joints."""

    NAN_FIELDS: ClassVar = frozenset({"points"})

    name: str
    times: Doubles  # [T] seconds of the reference
    points: Floats  # [T, J, 3], in any unit
    joints: tuple[str, ...]  # J names; "left_…" and "right_…" are mirror images of each other
    bones: tuple[tuple[int, int], ...]  # pairs of connected joints
    up: str = "z"  # the axis of the points that points up: x, -x, y, -y, z or -z

    def check(self) -> None:
        """Raise if times, points, joints and bones have different lengths, or `up` is not an axis."""
        _check_times("times", self.times)
        _check_shape("points", self.points, (len(self.times), len(self.joints), 3), "[times, joints, 3]")
        _check_bones(self.bones, self.joints)
        if self.up not in get_args(Up):
            raise PlaybackError(f"up is {self.up!r}: choose one of {', '.join(get_args(Up))}")


class PlaybackMoment(Part, frozen=True):
    """A moment of a recording: the query of a search or one of its hits."""

    FILE_TYPES: ClassVar = {"media": VIDEO_TYPES | AUDIO_TYPES, "thumbnail": IMAGE_TYPES}

    name: str  # of the recording
    second: float
    score: float | None = None  # similarity to the query, larger is better
    media: str | None = None
    thumbnail: str | None = None
    duration: float = 1.0  # seconds to play
    note: str = ""  # text shown below the name

    def check(self) -> None:
        """Raise if the moment is before the start or has no duration."""
        if self.second < 0 or self.duration <= 0:
            raise PlaybackError(
                f"second must not be negative and duration must be positive, got {self.second:g}, {self.duration:g}"
            )


class Result(Part, frozen=True):
    """A search: the query and its hits, best first."""

    query: PlaybackMoment
    hits: tuple[PlaybackMoment, ...]


class Playback(Part, frozen=True):
    """Everything shown on one clock: that of the reference track, or of the skeletons if there are no tracks."""

    title: str
    tracks: tuple[VideoTrack, ...] = ()
    pairs: tuple[Pair, ...] = ()
    skeletons: tuple[Skeleton, ...] = ()
    results: tuple[Result, ...] = ()
    reference: int = 0  # index of the track whose seconds are the clock

    def check(self) -> None:
        """Raise if the playback is empty, too large, or an index does not exist."""
        if not (self.tracks or self.skeletons or self.results):
            raise PlaybackError("the playback has nothing to show: add tracks, skeletons or results")
        if len(self.tracks) > MAX_TRACKS:
            raise PlaybackError(f"{len(self.tracks)} tracks are too many: give at most {MAX_TRACKS}")
        if self.tracks and not 0 <= self.reference < len(self.tracks):
            raise PlaybackError(f"reference is {self.reference}, but there are {len(self.tracks)} tracks, from 0")
        warp = self.tracks[self.reference].time_map if self.tracks else None
        if warp is not None and not np.allclose(warp.own, warp.reference, rtol=0, atol=1e-6):
            raise PlaybackError(f"tracks[{self.reference}] is the reference: its time_map must be None")
        for i, pair in enumerate(self.pairs):
            for side, track in (("rows", pair.rows), ("columns", pair.columns)):
                if not 0 <= track < len(self.tracks):
                    raise PlaybackError(f"pairs[{i}].{side} is track {track}, but there are {len(self.tracks)}, from 0")


def principal_curves(embeddings: Sequence[ArrayLike], *, dimensions: int = 3) -> list[NDArray[np.float32]]:
    """Project embeddings [T, D] of several videos on their common principal components: [T, dimensions].

    The components are shared, so equal curves mean equal embeddings. Their signs make the first video rise from its
    start to its end. Every video has the same weight, whatever its length.
    """
    values = [np.asarray(embedding, np.float64) for embedding in embeddings]
    if not values or any(value.ndim != 2 or len(value) < 1 for value in values):
        raise ValueError("embeddings must be arrays [T, D] of at least one frame each")
    if len({value.shape[1] for value in values}) > 1:
        raise ValueError(f"embeddings must have one dimension D, got {sorted({value.shape[1] for value in values})}")
    center = np.mean([value.mean(axis=0) for value in values], axis=0)
    weighted = np.concatenate([(value - center) / np.sqrt(len(value)) for value in values])
    if dimensions <= len(weighted) < weighted.shape[1]:  # fewer frames than dimensions: cheaper without a matrix [D, D]
        directions = np.linalg.svd(weighted, full_matrices=False)[2].T
    else:
        directions = np.linalg.eigh(weighted.T @ weighted)[1][:, ::-1]
    directions = directions[:, :dimensions]
    travel = (values[0][-1] - values[0][0]) @ directions
    directions = directions * np.where(travel < 0, -1.0, 1.0)
    return [((value - center) @ directions).astype(np.float32) for value in values]


def _block_means(times: NDArray[np.float64], by: int) -> NDArray[np.float64]:
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
        raise PlaybackError(f"confidence is {confidence:g}: it must be in [0, 1]")


def _check_bones(bones: tuple[tuple[int, int], ...], joints: tuple[str, ...]) -> None:
    for a, b in bones:
        if not (0 <= a < len(joints) and 0 <= b < len(joints)):
            raise PlaybackError(f"the bone ({a}, {b}) connects joints that do not exist: there are {len(joints)}")
