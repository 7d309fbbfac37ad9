"""Track every person through a recording, and choose the one it is about.

A detector finds people in an image and reads the joints of each. Tracking reads each person in the circle around their
last joints, and searches where a track begins, is lost, or must be confirmed; a search takes as long as reading one
person. The most prominent person is read in every image, others in every fourth, with interpolation between.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from inphase.media.frames import Clip
from inphase.pose.body import plausibility
from inphase.pose.pose import Body, Pose, Region, assemble, blend

# Two circles around the same person: the distance of their centers in radii (a radius is about half a person's height),
# how much it grows per frame between them, and the ratio of their radii.
MAX_DISTANCE, DISTANCE_PER_FRAME, MAX_GROWTH = 0.3, 0.1, 1.35
# Frames whose median radius is a person's current size.
SIZE_FRAMES = 30
# A track after a cut counts as the same person if it lasts this many frames; shorter ones are false detections.
MIN_CUT_FRAMES = 8
# Search the whole image for people after this many frames or, at low frame rates, seconds; where all tracked people are
# confirmed, after twice as many.
SEARCH_FRAMES, SEARCH_SECONDS = 8, 0.26
# People to track at a time, the largest first, and the smallest radius as a fraction of the largest: no motion would
# make smaller people the most prominent.
MAX_PEOPLE, MIN_SIZE = 4, 0.4
# People other than the most prominent are read in one of `SIDE_STRIDE` frames, once their track has `YOUNG_FRAMES`.
SIDE_STRIDE, YOUNG_FRAMES = 4, 8
# Recent frames by which the most prominent person is chosen while tracking.
RECENT_FRAMES = 120
# Frames in which a lost person is searched for at their last position.
MAX_LOST_FRAMES = 8
# Searches in a row that find somebody else in a person's circle before the track ends.
MAX_DOUBTS = 2
# People who fill the image are found with a wide margin, small ones in crops; fractions of the longer side.
WIDE_MARGIN, CROP_SIZE = 0.5, 0.6
# Search where the image changes by at least this fraction of the change around the most prominent person.
MIN_CHANGE = 0.5
# A person larger than this fraction of the shorter side of the image, as a radius, is not more prominent.
MAX_RADIUS = 0.5
# Motion is measured between moving averages over this many frames, which suppress jitter.
MOTION_FRAMES = 5

Crop = tuple[int, int, NDArray[np.uint8]]  # top, left, pixels

_LIMB_JOINTS = ("shoulder", "elbow", "wrist", "knee", "ankle")


class PersonDetector(Protocol):
    """Finds people in an image and reads their joints."""

    joints: ClassVar[tuple[str, ...]]

    def find(self, image: NDArray[np.uint8], *, margin: float = ...) -> list[Region]:
        """Find the people in an image with a black margin of that fraction of its longer side, the surest first."""
        ...

    def read(self, image: NDArray[np.uint8], region: Region) -> Body | None:
        """Read the joints of the person in a region; None if no person is there."""
        ...


def track_person(detector: PersonDetector, clips: Iterable[Clip]) -> Pose:
    """Track everybody through consecutive clips and return the pose of the most prominent person."""
    tracker, times, size = PeopleTracker(detector), [np.empty(0)], (0, 0)
    for clip in clips:
        size = (clip.frames.shape[1], clip.frames.shape[2])
        times.append(clip.times)
        for image, second in zip(clip.frames, clip.times.tolist(), strict=True):
            tracker.update(image, second)
    seconds = np.concatenate(times)
    person = choose_person(tracker.tracks, joints=detector.joints, times=seconds, size=size)
    return assemble(person, joints=detector.joints, times=seconds, size=size)


@dataclass(eq=False)
class PersonTrack:
    """One person through a clip: `bodies` at `frames`, those at which the person was found."""

    frames: list[int] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)  # frames since the last body that were not read
    checks: int = 0  # searches that found somebody in this person's circle
    confirmed: int = 0  # searches that found the same person
    doubts: int = 0  # searches since then that found somebody else
    prominence: float = 0.0  # at the last search

    def add(self, frame: int, body: Body) -> None:
        """Append the body at a frame, after bodies interpolated at the frames skipped before it."""
        for number in self.skipped:
            part = (number - self.frames[-1]) / (frame - self.frames[-1])
            self.bodies.append(blend(self.bodies[-1], body, part))
            self.frames.append(number)
        self.skipped.clear()
        self.frames.append(frame)
        self.bodies.append(body)

    def check(self, is_same: bool) -> None:
        """Count a search that found this person, or somebody else, in the circle."""
        self.checks, self.confirmed = self.checks + 1, self.confirmed + is_same
        self.doubts = 0 if is_same else self.doubts + 1

    @property
    def region(self) -> Region:
        """Return the last region."""
        return self.bodies[-1].region

    @property
    def size(self) -> float:
        """Return the median radius, in pixels."""
        return float(np.median([body.region.radius for body in self.bodies]))

    @property
    def place(self) -> Region:
        """Return the last region with the recent median radius, which a slow drift in size does not follow."""
        recent = float(np.median([body.region.radius for body in self.bodies[-SIZE_FRAMES:]]))
        return Region(self.region.x, self.region.y, recent)


def choose_person(
    tracks: Sequence[PersonTrack], *, joints: tuple[str, ...], times: NDArray[np.float64], size: tuple[int, int]
) -> dict[int, Body]:
    """Choose the most prominent person of a clip with frames at `times` and of `size`; return the body by frame.

    Where the person was lost, other tracks fill the gap if they lie on the way. A cut to another view starts another
    track, too: one that never overlaps in time and has the same size is the same person.
    """
    if not tracks:
        return {}
    ranked = sorted(tracks, key=lambda track: -prominence(track, joints=joints, times=times, size=size))
    person = dict(zip(ranked[0].frames, ranked[0].bodies, strict=True))
    for track in ranked[1:]:
        after_cut = len(track.frames) >= MIN_CUT_FRAMES and not person.keys() & set(track.frames)
        same_size = 1 / MAX_GROWTH <= track.size / ranked[0].size <= MAX_GROWTH
        for frame, body, place in zip(track.frames, track.bodies, _expected(person, track.frames), strict=True):
            if frame not in person and ((after_cut and same_size) or is_near(body.region, place, reach=MAX_DISTANCE)):
                person[frame] = body
    return person


def _expected(person: Mapping[int, Body], frames: Sequence[int]) -> list[Region]:
    """Interpolate the regions of a person at other frames."""
    known = sorted(person)
    regions = np.array([(region.x, region.y, region.radius) for region in (person[frame].region for frame in known)])
    return [Region(*place) for place in np.stack([np.interp(frames, known, row) for row in regions.T], axis=1).tolist()]


def prominence(
    track: PersonTrack, *, joints: tuple[str, ...], times: NDArray[np.float64], size: tuple[int, int]
) -> float:
    """Score a track at `times`: duration × plausibility × confirmed searches × size × motion of the limbs in pixels.

    Motion is relative to the hips: neither a walk through the background nor a moving camera counts. Neither size nor
    motion counts beyond that of a person as large as the image.
    """
    first = int(np.searchsorted(track.frames, max(0, track.frames[-1] + 1 - len(times))))
    frames = np.array(track.frames[first:]) - max(0, track.frames[-1] + 1 - len(times))
    person = dict(zip(frames.tolist(), track.bodies[first:], strict=True))
    pose = assemble(person, joints=joints, times=times, size=size)
    hips = [joints.index(f"{side}_hip") for side in ("left", "right")]
    limbs = [joints.index(f"{side}_{joint}") for joint in _LIMB_JOINTS for side in ("left", "right")]
    points = pose.keypoints[pose.found]
    relative = points[:, limbs] - points[:, hips].mean(1, keepdims=True)
    sums = np.cumsum(np.concatenate([np.zeros_like(relative[:1]), relative]), axis=0, dtype=np.float64)
    window = min(MOTION_FRAMES, len(relative))
    motion = float(np.sqrt(((sums[window:] - sums[:-window]) / window).var(0).sum(-1)).mean())
    radius = max(track.size, 1e-6)
    confirmed = (track.confirmed + 1) / (track.checks + 2)
    capped = min(radius, MAX_RADIUS * min(size))
    return float(pose.found.mean()) * plausibility(pose) * confirmed * capped * motion * capped / radius


def is_near(region: Region, other: Region, *, reach: float) -> bool:
    """Report whether two circles can be around the same person: centers within `reach` radii, similar in size."""
    distance = float(np.hypot(region.x - other.x, region.y - other.y))
    return distance <= reach * other.radius and 1 / MAX_GROWTH <= region.radius / max(other.radius, 1e-6) <= MAX_GROWTH


class PeopleTracker:
    """Tracks of everybody in a clip, updated image by image."""

    def __init__(self, detector: PersonDetector) -> None:
        """Start without tracks."""
        self.tracks: list[PersonTrack] = []
        self._detector = detector
        self._times: list[float] = []
        self._searched = (-SEARCH_FRAMES, -np.inf)  # frame and second of the last search
        self._before: NDArray[np.int16] | None = None  # the image at the last search, reduced

    @property
    def _frame(self) -> int:
        return len(self._times) - 1

    def update(self, image: NDArray[np.uint8], second: float) -> None:
        """Continue the tracks into the next image; from time to time search for new people."""
        self._times.append(second)
        near = [
            track
            for track in self.tracks
            if self._frame - track.frames[-1] <= MAX_LOST_FRAMES and track.doubts < MAX_DOUBTS
        ]
        large = [track for track in near if track.region.radius >= MIN_SIZE * max(each.region.radius for each in near)]
        ranked = sorted(large, key=lambda track: (-track.prominence, -track.region.radius))[:MAX_PEOPLE]
        search = self._is_search_due(ranked)
        tracked, lost = self._read(image, ranked, everybody=search)
        if search:
            self._searched = self._frame, second
            found = self._search(image, tracked=tracked, lost=lost)
            tracked = [track for track in tracked if _is_confirmed(track, found)]
            self._rank(image)
        elif not ranked or ranked[0] in lost:
            found = [*self._detector.find(image), *self._find_in(_around(track.region, image) for track in lost[:1])]
        else:
            return
        self._add(image, found, tracked=tracked, lost=lost)

    def _is_search_due(self, ranked: Sequence[PersonTrack]) -> bool:
        settled = bool(ranked) and all(track.confirmed and not track.doubts for track in ranked)
        frames, seconds = (limit * (2 if settled else 1) for limit in (SEARCH_FRAMES, SEARCH_SECONDS))
        return self._frame - self._searched[0] >= frames or self._times[-1] - self._searched[1] >= seconds

    def _read(
        self, image: NDArray[np.uint8], ranked: Sequence[PersonTrack], *, everybody: bool
    ) -> tuple[list[PersonTrack], list[PersonTrack]]:
        """Read the joints of people whose turn it is; return who is still tracked and who is lost."""
        tracked: list[PersonTrack] = []
        lost: list[PersonTrack] = []
        for track in ranked:
            waits = self._frame - track.frames[-1] < SIDE_STRIDE and len(track.frames) >= YOUNG_FRAMES
            if tracked and waits and not everybody:
                track.skipped.append(self._frame)
                tracked.append(track)
                continue
            body = self._detector.read(image, track.region)
            if body is not None and self._continues(track, body.region) and not _is_among(body.region, tracked):
                track.add(self._frame, body)
                tracked.append(track)
            else:
                track.skipped.clear()
                lost.append(track)
        return tracked, lost

    def _rank(self, image: NDArray[np.uint8]) -> None:
        """Rate the prominence of the tracks that may continue, by their recent frames."""
        for track in self.tracks:
            if self._frame - track.frames[-1] <= MAX_LOST_FRAMES:
                times = np.array(self._times[-RECENT_FRAMES:])
                size = (image.shape[0], image.shape[1])
                track.prominence = prominence(track, joints=self._detector.joints, times=times, size=size)

    def _add(
        self,
        image: NDArray[np.uint8],
        found: Sequence[Region],
        *,
        tracked: list[PersonTrack],
        lost: Sequence[PersonTrack],
    ) -> None:
        """Read the joints of found people who are not tracked yet, and resume the tracks of lost ones."""
        for region in found:
            smallest = MIN_SIZE * max((track.region.radius for track in tracked), default=0.0)
            if len(tracked) == MAX_PEOPLE or region.radius < smallest or _is_among(region, tracked):
                continue
            body = self._detector.read(image, region)
            if body is not None and not _is_among(body.region, tracked):
                track = self._resume(body.region, among=[track for track in lost if track not in tracked])
                track.add(self._frame, body)
                tracked.append(track)

    def _continues(self, track: PersonTrack, region: Region) -> bool:
        """Report whether a region can be of the tracked person, given the frames since the last one."""
        reach = MAX_DISTANCE + DISTANCE_PER_FRAME * (self._frame - track.frames[-1])
        return is_near(region, track.place, reach=reach)

    def _resume(self, region: Region, *, among: Sequence[PersonTrack]) -> PersonTrack:
        """Return the nearest lost track that the region can continue, or a new one."""
        possible = [track for track in among if self._continues(track, region)]
        if possible:
            return min(possible, key=lambda track: np.hypot(region.x - track.region.x, region.y - track.region.y))
        self.tracks.append(PersonTrack())
        return self.tracks[-1]

    def _search(
        self, image: NDArray[np.uint8], *, tracked: Sequence[PersonTrack], lost: Sequence[PersonTrack]
    ) -> list[Region]:
        """Find people in the whole image, around lost or unconfirmed ones, and where something moves; else in crops."""
        parts = crops(image)
        found = self._detector.find(image)
        unsure = [*tracked[:1], *(track for track in tracked[1:] if not track.confirmed), *lost]
        missing = [track for track in unsure if not _is_found(track, found)]
        some = [_around(track.region, image) for track in missing]
        some += self._changed(image, parts, known=tracked)
        found = [*found, *self._find_in(some)]
        if found:
            return found
        return [*found, *self._detector.find(image, margin=WIDE_MARGIN), *self._find_in(parts)]

    def _find_in(self, parts: Iterable[Crop]) -> Iterator[Region]:
        for top, left, part in parts:
            for region in self._detector.find(part):
                yield Region(region.x + left, region.y + top, region.radius, region.angle)

    def _changed(self, image: NDArray[np.uint8], parts: Sequence[Crop], *, known: Sequence[PersonTrack]) -> list[Crop]:
        """Return the crop that changed most since the last search, if as much changed as around a known person."""
        step = -(-max(image.shape[:2]) // 128)
        now = image[::step, ::step].sum(-1, dtype=np.int16)
        before, self._before = self._before, now
        if before is None or before.shape != now.shape:
            return []
        change = np.abs(now - before)
        rows, columns = np.ogrid[: change.shape[0], : change.shape[1]]
        least = 0.0
        for region in (track.region for track in known):
            inside = np.hypot(columns * step - region.x, rows * step - region.y) < region.radius
            least = max(least, MIN_CHANGE * float(change[inside].sum()))
            change[inside] = 0
        sums = [
            int(change[top // step : (top + len(part)) // step, left // step : (left + len(part)) // step].sum())
            for top, left, part in parts
        ]
        return [parts[int(np.argmax(sums))]] if max(sums) > least else []


def _is_found(track: PersonTrack, found: Sequence[Region]) -> bool:
    """Report whether a search found a tracked person."""
    return any(is_near(region, track.region, reach=MAX_DISTANCE) for region in found)


def _is_confirmed(track: PersonTrack, found: Sequence[Region]) -> bool:
    """Check a track against the people found by a search; report whether to continue it.

    Joints can be misread at another size, or slide to a neighbor, and stay there: a track in whose circle somebody else
    is found repeatedly is such an error.
    """
    inside = [region for region in found if np.hypot(region.x - track.region.x, region.y - track.region.y) < track.size]
    doubtful = bool(inside) and not _is_found(track, inside)
    if inside:
        track.check(not doubtful)
    return track.doubts < MAX_DOUBTS


def _around(region: Region, image: NDArray[np.uint8]) -> Crop:
    """Crop twice the circle of a region."""
    limits = list(zip((region.y, region.x), image.shape[:2], strict=True))
    top, left = (min(max(round(at - 2 * region.radius), 0), length - 1) for at, length in limits)
    bottom, right = (max(round(at + 2 * region.radius), 1) for at, _ in limits)
    return top, left, image[top : max(bottom, top + 1), left : max(right, left + 1)]


def crops(image: NDArray[np.uint8]) -> list[Crop]:
    """Cut an image into overlapping squares, each of which shares a third or more with the next."""
    height, width = image.shape[:2]
    side = min(round(CROP_SIZE * max(height, width)), height, width)
    return [
        (top, left, image[top : top + side, left : left + side])
        for top in _offsets(height, side)
        for left in _offsets(width, side)
    ]


def _offsets(length: int, side: int) -> list[int]:
    """Spread stretches of `side` evenly over a length, at most 0.4 of a side apart."""
    count = int(np.ceil((length - side) / (0.4 * side))) + 1
    return [round(offset) for offset in np.linspace(0, length - side, count)]


def _is_among(region: Region, tracked: Sequence[PersonTrack]) -> bool:
    """Report whether a region belongs to a tracked person."""
    return any(is_near(region, track.region, reach=MAX_DISTANCE) for track in tracked)
