"""Choose the person a clip is about: the largest and most moving of those who were followed through it."""
# MERGED: Follow everybody in view through a clip, one picture after the other.

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from inphase.pose.blazepose import LANDMARKS, Landmarks, Region

# How far apart two circles around the same person can be, in their radius, which is about half as long as a person is
# tall; how much further for every frame between; and the factor between their sizes.
MAX_DISTANCE, STEP, GROWTH = 0.3, 0.1, 1.35
# How many frames tell somebody's size.
RECENT = 30
# A person seen again after a cut is seen for this many frames; what lasts less is taken for a mistake.
LASTING = 8

_HIPS = [LANDMARKS.index(f"{side}_hip") for side in ("left", "right")]
_LIMBS = [
    LANDMARKS.index(f"{side}_{joint}")
    for joint in ("shoulder", "elbow", "wrist", "knee", "ankle")
    for side in ("left", "right")
]


@dataclass(eq=False)
class PersonTrack:
    """One person through a clip: `bodies` at `frames`, where they were seen."""

    frames: list[int] = field(default_factory=list)
    bodies: list[Landmarks] = field(default_factory=list)
    glances: int = 0  # how often somebody was found afresh in their place
    confirmed: int = 0  # how often it was them
    doubts: int = 0  # how often it was not, of late

    def add(self, frame: int, body: Landmarks) -> None:
        """Note where they are seen."""
        self.frames.append(frame)
        self.bodies.append(body)

    def judge(self, right: bool) -> None:
        """Note whether it was them who was found in their place."""
        self.glances, self.confirmed = self.glances + 1, self.confirmed + right
        self.doubts = 0 if right else self.doubts + 1

    @property
    def region(self) -> Region:
        """Give the place where they were seen last."""
        return self.bodies[-1].region

    @property
    def size(self) -> float:
        """Give the usual radius of the circle around them, in pixels."""
        return float(np.median([body.region.radius for body in self.bodies]))

    @property
    def place(self) -> Region:
        """Give the place where they were seen last, in the size they had of late: a drift does not escape it."""
        recent = float(np.median([body.region.radius for body in self.bodies[-RECENT:]]))
        return Region(self.region.x, self.region.y, recent)


def choose_person(tracks: Sequence[PersonTrack], *, length: int) -> dict[int, Landmarks]:
    """Choose whom a clip of `length` frames is about, and give their body by frame: the largest and most moving.

    Where they were lost, another track may have found them again: it is theirs where it lies on their way. A cut to
    another view begins another track, too: one that was never in view together with them, and as large, is theirs.
    """
    if not tracks:
        return {}
    ranked = sorted(tracks, key=lambda track: -prominence(track, length=length))
    person = dict(zip(ranked[0].frames, ranked[0].bodies, strict=True))
    for track in ranked[1:]:
        apart = len(track.frames) >= LASTING and not person.keys() & set(track.frames)
        alike = 1 / GROWTH <= track.size / ranked[0].size <= GROWTH
        for frame, body, place in zip(track.frames, track.bodies, _expected(person, track.frames), strict=True):
            if frame not in person and ((apart and alike) or is_near(body.region, place, reach=MAX_DISTANCE)):
                person[frame] = body
    return person


def _expected(person: Mapping[int, Landmarks], frames: Sequence[int]) -> list[Region]:
    """Say where somebody should be between the frames at which they were seen, or beyond them."""
    known = sorted(person)
    regions = np.array([(region.x, region.y, region.radius) for region in (person[frame].region for frame in known)])
    return [Region(*place) for place in np.stack([np.interp(frames, known, row) for row in regions.T], axis=1).tolist()]


def prominence(track: PersonTrack, *, length: int) -> float:
    """Weigh a track: how long, how surely and how large somebody is seen × how far their limbs move, in pixels.

    It is sure as far as their joints are visible, and as they were confirmed by what was found afresh.

    Limbs move about the hips, so that neither a walk through the background nor a turning camera counts.
    """
    points = np.stack([body.points for body in track.bodies])
    limbs = points[:, _LIMBS] - points[:, _HIPS].mean(1, keepdims=True)
    motion = float(np.sqrt(limbs.var(0).sum(-1)).mean())
    sureness = float(np.mean([body.visibility[_LIMBS].mean() for body in track.bodies]))
    sureness *= (track.confirmed + 1) / (track.glances + 2)
    return len(track.frames) / length * sureness * track.size * motion


def is_near(region: Region, other: Region, *, reach: float) -> bool:
    """Tell whether two circles can be around the same person: centres within `reach` radii, similar in size."""
    distance = float(np.hypot(region.x - other.x, region.y - other.y))
    return distance <= reach * other.radius and 1 / GROWTH <= region.radius / max(other.radius, 1e-6) <= GROWTH


# How often to look again who is there: after so many frames or, where pictures are far apart, seconds. To find people
# takes two thirds of the time that following one takes.
EVERY, SECONDS = 8, 0.26
# How many people to follow at a time, the largest first; those smaller than a fraction of the largest are left alone,
# since no motion would make them the most prominent.
MOST, SMALL = 4, 0.4
# For how many frames to look for somebody where they were last seen.
PATIENCE = 8
# How many times in a row to find somebody else in a person's circle before one does not follow them any more.
DOUBTS = 2
# Those who fill the picture are found with a wide margin, small ones in parts of a fraction of its longer side.
WIDE, PART = 0.5, 0.6

Part = tuple[int, int, NDArray[np.uint8]]  # of a picture: its top, its left, its pixels


class PersonDetector(Protocol):
    """What finds people in a picture and reads their joints."""

    def find(self, picture: NDArray[np.uint8], *, margin: float = ...) -> list[Region]:
        """Find the people in a picture, to which a black margin is added: a fraction of its longer side."""
        ...

    def read(self, picture: NDArray[np.uint8], region: Region) -> Landmarks | None:
        """Read the joints of the person in a region."""
        ...


class PeopleTracker:
    """Everybody seen so far in a clip whose pictures are shown one after the other."""

    def __init__(self, eye: PersonDetector) -> None:
        """Begin with nobody."""
        self.tracks: list[PersonTrack] = []
        self._eye = eye
        self._frame, self._glanced = -1, (-EVERY, -np.inf)  # this frame; the frame and second of the last glance
        self._before: NDArray[np.int16] | None = None  # what it saw

    def look(self, picture: NDArray[np.uint8], second: float) -> None:
        """Follow those who were in view into the next picture; now and then look again who is there."""
        self._frame += 1
        near = [track for track in self.tracks if self._frame - track.frames[-1] <= PATIENCE and track.doubts < DOUBTS]
        large = [track for track in near if track.region.radius >= SMALL * max(other.region.radius for other in near)]
        seen: list[PersonTrack] = []
        for track in sorted(large, key=lambda track: -track.region.radius)[:MOST]:
            body = self._eye.read(picture, track.region)
            if body is not None and self._continues(track, body.region) and not _is_among(body.region, seen):
                track.add(self._frame, body)
                seen.append(track)
        lost = [track for track in large if track not in seen]
        glance = self._frame - self._glanced[0] >= EVERY or second - self._glanced[1] >= SECONDS
        if glance:
            self._glanced = self._frame, second
            found = self._search(picture, seen=seen, lost=lost)
            seen = [track for track in seen if _is_confirmed(track, found)]
        elif lost or not large:
            found = [*self._eye.find(picture), *self._find_in(_around(track.region, picture) for track in lost)]
        else:
            return
        self._add(picture, found, seen=seen, lost=lost)

    def _add(
        self,
        picture: NDArray[np.uint8],
        found: Sequence[Region],
        *,
        seen: list[PersonTrack],
        lost: Sequence[PersonTrack],
    ) -> None:
        """Read the joints of those found who are not followed yet, and recognise the lost ones."""
        for region in found:
            smallest = SMALL * max((track.region.radius for track in seen), default=0.0)
            if len(seen) == MOST or region.radius < smallest or _is_among(region, seen):
                continue
            body = self._eye.read(picture, region)
            if body is not None and not _is_among(body.region, seen):
                track = self._recognise(body.region, among=[track for track in lost if track not in seen])
                track.add(self._frame, body)
                seen.append(track)

    def _continues(self, track: PersonTrack, region: Region) -> bool:
        """Tell whether somebody can have come from where a track was last seen."""
        return is_near(region, track.place, reach=MAX_DISTANCE + STEP * (self._frame - track.frames[-1]))

    def _recognise(self, region: Region, *, among: Sequence[PersonTrack]) -> PersonTrack:
        """Find the lost track of whoever is seen in a region, or begin one."""
        possible = [track for track in among if self._continues(track, region)]
        if possible:
            return min(possible, key=lambda track: np.hypot(region.x - track.region.x, region.y - track.region.y))
        self.tracks.append(PersonTrack())
        return self.tracks[-1]

    def _search(
        self, picture: NDArray[np.uint8], *, seen: Sequence[PersonTrack], lost: Sequence[PersonTrack]
    ) -> list[Region]:
        """Find people in the whole picture, where they were, and where else something moves; or else everywhere."""
        parts = crops(picture)
        some = [_around(track.region, picture) for track in (*seen, *lost)]
        some += self._stirring(picture, parts, known=seen)
        found = [*self._eye.find(picture), *self._find_in(some)]
        if found and self._frame:
            return found
        return [*found, *self._eye.find(picture, margin=WIDE), *self._find_in(parts)]

    def _find_in(self, parts: Iterable[Part]) -> Iterator[Region]:
        for top, left, part in parts:
            for region in self._eye.find(part):
                yield Region(region.x + left, region.y + top, region.radius, region.angle)

    def _stirring(
        self, picture: NDArray[np.uint8], parts: Sequence[Part], *, known: Sequence[PersonTrack]
    ) -> list[Part]:
        """Give the part of a picture that changed most since the last glance, apart from where known people are."""
        step = -(-max(picture.shape[:2]) // 128)
        now = picture[::step, ::step].sum(-1, dtype=np.int16)
        before, self._before = self._before, now
        if before is None or before.shape != now.shape:
            return []
        change = np.abs(now - before)
        rows, columns = np.ogrid[: change.shape[0], : change.shape[1]]
        for region in (track.region for track in known):
            change[np.hypot(columns * step - region.x, rows * step - region.y) < region.radius] = 0
        sums = [
            int(change[top // step : (top + len(part)) // step, left // step : (left + len(part)) // step].sum())
            for top, left, part in parts
        ]
        return [parts[int(np.argmax(sums))]] if max(sums) else []


def _is_confirmed(track: PersonTrack, found: Sequence[Region]) -> bool:
    """Tell whether a followed person is worth following on, seeing who is found afresh.

    The joints of a person can be misread at another size, or slide to a neighbour, and stay there: a track in whose
    circle somebody else is found, time and again, is such a mistake.
    """
    inside = [region for region in found if np.hypot(region.x - track.region.x, region.y - track.region.y) < track.size]
    doubtful = bool(inside) and not any(is_near(region, track.region, reach=MAX_DISTANCE) for region in inside)
    if inside:
        track.judge(not doubtful)
    return track.doubts < DOUBTS


def _around(region: Region, picture: NDArray[np.uint8]) -> Part:
    """Cut out where somebody was, and as much again around him."""
    limits = list(zip((region.y, region.x), picture.shape[:2], strict=True))
    top, left = (min(max(round(at - 2 * region.radius), 0), length - 1) for at, length in limits)
    bottom, right = (max(round(at + 2 * region.radius), 1) for at, _ in limits)
    return top, left, picture[top : max(bottom, top + 1), left : max(right, left + 1)]


def crops(picture: NDArray[np.uint8]) -> list[Part]:
    """Cut a picture into overlapping squares, each of which shares a third or more with the next."""
    height, width = picture.shape[:2]
    side = min(round(PART * max(height, width)), height, width)
    return [
        (top, left, picture[top : top + side, left : left + side])
        for top in _offsets(height, side)
        for left in _offsets(width, side)
    ]


def _offsets(length: int, side: int) -> list[int]:
    """Spread stretches of `side` evenly over a length, a step of at most 0.4 of a side apart."""
    count = int(np.ceil((length - side) / (0.4 * side))) + 1
    return [round(offset) for offset in np.linspace(0, length - side, count)]


def _is_among(region: Region, seen: Sequence[PersonTrack]) -> bool:
    """Tell whether somebody is already followed."""
    return any(is_near(region, track.region, reach=MAX_DISTANCE) for track in seen)
