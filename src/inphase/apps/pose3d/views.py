"""Views: the joints of several people's videos at the frames of one of them, and the reconstruction they give."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inphase.align.consensus import agree, align_from
from inphase.models.embedding import Embedding, embed
from inphase.models.encoder import Encoder

Array = NDArray[np.float64]

# Fewer views leave the cameras undetermined: three views of five points are the minimum (Ullman 1979).
MIN_VIEWS = 3
# Videos that vote on alignments, those nearest to the query.
MAX_VOTERS = 20
SHOULDERS, HIPS = ("left_shoulder", "right_shoulder"), ("left_hip", "right_hip")


@dataclass(frozen=True, eq=False)
class Performance:
    """The joints of one person through a video.

    `points` [T, J, 2] in any unit, y down, `seen` [T, J], `times` [T] seconds.
    """

    name: str
    points: NDArray[np.float64]
    seen: NDArray[np.bool_]
    times: NDArray[np.float64]
    joints: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise if shapes disagree or required joints are missing; mark joints that are not finite as unseen."""
        length, joints = len(self.times), len(self.joints)
        shapes = {"points": (length, joints, 2), "seen": (length, joints)}
        for what, shape in shapes.items():
            if getattr(self, what).shape != shape:
                raise ValueError(f"{self.name}: {what} must be {list(shape)}, got {list(getattr(self, what).shape)}")
        absent = [name for name in (*SHOULDERS, *HIPS) if name not in self.joints]
        if absent:
            raise ValueError(f"{self.name}: bodies are measured by hips and shoulders; no joint {', '.join(absent)}")
        if not length or (np.diff(self.times) <= 0).any():
            raise ValueError(f"{self.name}: a performance needs frames whose times increase")
        object.__setattr__(self, "seen", self.seen & np.isfinite(self.points).all(-1))
        object.__setattr__(self, "points", np.where(self.seen[..., None], self.points, 0.0).astype(np.float64))

    def torso(self) -> float:
        """Measure the apparent length of the torso, in the unit of the points: its 80th percentile over the frames.

        It appears shorter where it leans towards the camera, never longer. Without a visible torso, half of the span of
        the joints is used.
        """
        shoulders, hips = ([self.joints.index(name) for name in pair] for pair in (SHOULDERS, HIPS))
        whole = self.seen[:, shoulders + hips].all(1)
        lengths = np.linalg.norm(self.points[:, shoulders].mean(1) - self.points[:, hips].mean(1), axis=-1)[whole]
        if not len(lengths):
            visible = self.points[self.seen]
            lengths = np.ptp(visible, axis=0).max(keepdims=True) / 2 if len(visible) > 1 else np.zeros(1)
        length = float(np.percentile(lengths, 80))
        if not length > 0:
            raise ValueError(f"{self.name} shows no body: fewer than two joints are ever seen; leave it out")
        return length


@dataclass(frozen=True, eq=False)
class Views:
    """The same moments of an action in several views, the query first.

    `points` [V, T, J, 2] in torso lengths, y down, 0 where unseen; `seen` [V, T, J]; `times` [T] of the query.
    """

    names: tuple[str, ...]
    points: NDArray[np.float64]
    seen: NDArray[np.bool_]
    times: NDArray[np.float64]
    joints: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise if there are too few views."""
        if len(self.names) < MIN_VIEWS:
            raise ValueError(
                f"depth needs at least {MIN_VIEWS} views of each moment, the query's among them; there are "
                f"{len(self.names)} ({', '.join(self.names) or 'none'}): add videos of the same action"
            )


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A 3-D body at each of T frames of the query, with its errors.

    `joints3d` [T, J, 3] in torso lengths about the middle of the hips, in the query's camera frame: x to the right, y
    down, z away from it. `travel` [T, 2] the middle of the hips in the query's image, in the same unit.
    `error` [T, J] the root-mean-square reprojection error in torso lengths; NaN where no view shows the joint.
    `confidence` [T, J] from 0 to 1: the share of views that show it and agree. `views` [T] the number of views used at
    each frame; `trust` [V, T] the weight of each view; `flipped` [V] the views that fit better with left and right
    exchanged. `rotations` [V, 3, 3] turn the body into each camera's frame.
    """

    names: tuple[str, ...]
    joints: tuple[str, ...]
    times: NDArray[np.float64]
    joints3d: Array
    travel: Array
    error: Array
    confidence: Array
    views: NDArray[np.int64]
    trust: Array
    flipped: NDArray[np.bool_]
    rotations: Array

    @property
    def spread(self) -> float:
        """Return the spread of camera axes in degrees; 0 if all lie along one line, front or back."""
        directions = self.rotations[:, 2]
        weights = self.trust.mean(1)
        together = np.linalg.eigvalsh(np.einsum("v,va,vb->ab", weights, directions, directions) / weights.sum())[-1]
        return float(np.degrees(np.arccos(np.sqrt(min(together, 1.0)))))


@dataclass(frozen=True, eq=False)
class Partner:
    """A video chosen as a view: its index, and its second at each frame of the query, [T]."""

    index: int
    seconds: NDArray[np.float64]


def choose_partners(
    embeddings: Sequence[Embedding],
    times: NDArray[np.float64],
    *,
    count: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Partner]:
    """Align all videos with the first, the query, and return the `count` of the others that align best, best first.

    The videos vote on each alignment (`inphase.align.consensus`): an alignment that slips by a repetition is outvoted.
    `times` [T] are the seconds of the query at which those of its partners are returned.
    """
    maps = align_from(embeddings, [0], max_voters=MAX_VOTERS, progress=progress)
    clock, frames = embeddings[0].times, np.arange(len(embeddings[0]), dtype=np.float64)
    partners = []
    for index in np.argsort(maps.distances[0, 1:], kind="stable")[:count].tolist():
        agreed, other = agree(maps.votes(0, index + 1, frames)).frames, embeddings[index + 1].times
        seconds = np.interp(agreed, np.arange(len(other)), other)
        partners.append(Partner(index, np.interp(times, clock, seconds)))
    return partners


def embed_performance(encoder: Encoder, shown: Performance) -> Embedding:
    """Embed the joints of every frame."""
    poses = np.concatenate([shown.points, shown.seen[..., None]], axis=-1).astype(np.float32)
    return embed(encoder, (poses, shown.times), batch=512)


def gather(query: Performance, others: Sequence[Performance], maps: Sequence[NDArray[np.float64]]) -> Views:
    """Collect the joints of the others at every frame of the query: `maps` [T] are their seconds at its frames.

    Joints are interpolated linearly between two frames, and count as seen where both frames show them.
    """
    if len(others) != len(maps):
        raise ValueError(f"{len(others)} other videos need as many time maps, got {len(maps)}")
    wrong = [other.name for other in others if other.joints != query.joints]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} has other joints than {query.name}: reduce all of them to the same ones")
    points, seen = [query.points / query.torso()], [query.seen]
    for other, seconds in zip(others, maps, strict=True):
        if seconds.shape != query.times.shape:
            raise ValueError(
                f"{other.name}: its time map must have a second for each of {len(query.times)} frames of {query.name}"
            )
        places, shown = _at(other, seconds)
        points.append(places / other.torso())
        seen.append(shown)
    names = (query.name, *(other.name for other in others))
    return Views(names, np.stack(points), np.stack(seen), query.times, query.joints)


def _at(shown: Performance, seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Interpolate a performance at any seconds; beyond its ends the first or last frame is repeated."""
    place = np.interp(seconds, shown.times, np.arange(len(shown.times)))
    before = np.floor(place).astype(int)
    after = np.minimum(before + 1, len(shown.times) - 1)
    part = (place - before)[:, None, None]
    seen = shown.seen[before] & (shown.seen[after] | (part[..., 0] == 0))
    return np.where(seen[..., None], (1 - part) * shown.points[before] + part * shown.points[after], 0.0), seen
