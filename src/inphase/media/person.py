"""Choose the person a clip is about: the largest and most moving of those who were followed through it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from inphase.media.landmarks import LANDMARKS, Body, Region

# How far apart two circles around the same person can be, in their radius, which is about half as long as a person is
# tall; how much further for every frame between; and the factor between their sizes.
APART, STEP, GROWTH = 0.3, 0.1, 1.35
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
class Track:
    """One person through a clip: `bodies` at `frames`, where they were seen."""

    frames: list[int] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    glances: int = 0  # how often somebody was found afresh in their place
    confirmed: int = 0  # how often it was them
    doubts: int = 0  # how often it was not, of late

    def add(self, frame: int, body: Body) -> None:
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


def choose_person(tracks: Sequence[Track], *, length: int) -> dict[int, Body]:
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
            if frame not in person and ((apart and alike) or is_near(body.region, place, reach=APART)):
                person[frame] = body
    return person


def _expected(person: Mapping[int, Body], frames: Sequence[int]) -> list[Region]:
    """Say where somebody should be between the frames at which they were seen, or beyond them."""
    known = sorted(person)
    regions = np.array([(region.x, region.y, region.radius) for region in (person[frame].region for frame in known)])
    return [Region(*place) for place in np.stack([np.interp(frames, known, row) for row in regions.T], axis=1).tolist()]


def prominence(track: Track, *, length: int) -> float:
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
