"""Takes: everything that is sampled at random for one recording, and its exact ground truth.

A take is one performance in front of one camera, as in film making; the slate is the identifier of a take. Canonical
time, the true progress through the action, maps to recording time by a random time warp.
"""

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inphase.pose.pose import Camera, place_camera
from inphase.stage.actions import ACTIONS, Action, interpolate
from inphase.stage.figure import Club
from inphase.stage.physique import (
    ANGLES,
    COLUMN,
    CONTROLS,
    LEVELS,
    Appearance,
    Level,
    Physique,
    Posture,
    pose_body,
    sample_appearance,
    sample_physique,
)

FPS = 30.0
SPLITS = ("train", "val", "test")  # no two share a body or an appearance
GRID = np.linspace(0.0, 1.0, 401)  # canonical times at which the places of waypoints are computed
UP = (0.0, 0.0, 1.0)
_WARP_POINTS = 2001


@dataclass(frozen=True)
class Slate:
    """The identifier of a take: equal slates give equal recordings."""

    action: str
    split: str
    index: int
    seed: int = 0
    level: str = "medium"

    def __post_init__(self) -> None:
        """Raise if the action, the split or the level is unknown."""
        for what, value, known in (
            ("action", self.action, tuple(ACTIONS)),
            ("split", self.split, SPLITS),
            ("level", self.level, tuple(LEVELS)),
        ):
            if value not in known:
                raise ValueError(f"unknown {what} {value!r}: choose one of {', '.join(known)}")

    @property
    def id(self) -> str:
        """Format the slate as the id of the recording."""
        return f"stage-{self.level}-{self.seed}-{self.split}-{self.action}-{self.index:04d}"

    @classmethod
    def parse(cls, video_id: str) -> "Slate":
        """Parse a slate from the id of a recording."""
        parts = video_id.split("-")
        if len(parts) != 6 or parts[0] != "stage" or not (parts[2].isdigit() and parts[5].isdigit()):
            example = cls("squat", "train", 0).id
            raise ValueError(f"{video_id!r} is not the id of a stage video; an example is {example!r}")
        return cls(action=parts[4], split=parts[3], index=int(parts[5]), seed=int(parts[2]), level=parts[1])

    def rng(self, aspect: str) -> np.random.Generator:
        """Create the random generator of one aspect, independent of other aspects and other recordings.

        Levels share generators: the same slate at another level has the same body and the same timing.
        """
        name = f"{self.split}/{self.action}/{aspect}"
        return np.random.Generator(np.random.PCG64([self.seed, self.index, zlib.crc32(name.encode())]))


@dataclass(frozen=True, eq=False)
class Take:
    """One performance in front of one camera."""

    slate: Slate
    body: Physique
    appearance: Appearance
    progress: NDArray[np.float64]  # [T] canonical time
    times: NDArray[np.float64]  # [K] canonical times of the key poses in the style of this performer
    poses: NDArray[np.float64]  # [K, C] key poses in the style of this performer
    sway: NDArray[np.float64]  # [T, C] small involuntary movements, added to the controls
    camera: Camera
    shake: NDArray[np.float64]  # [T, 2] of the hand-held camera, in image widths
    flicker: NDArray[np.float64]  # [T] brightness of each frame

    @property
    def action(self) -> Action:
        """Return the action that is performed."""
        return ACTIONS[self.slate.action]

    @property
    def level(self) -> Level:
        """Return the difficulty level."""
        return LEVELS[self.slate.level]

    @cached_property
    def posture(self) -> Posture:
        """Pose the body at every frame."""
        return pose_body(self.body, interpolate(self.times, self.poses, self.progress) + self.sway)

    @cached_property
    def grid_posture(self) -> Posture:
        """Pose the body at the canonical times of GRID, without sway, to locate waypoints."""
        return pose_body(self.body, interpolate(self.times, self.poses, GRID))

    @property
    def events(self) -> dict[str, int]:
        """Find the frame nearest to each event."""
        return {name: int(np.abs(self.progress - time).argmin()) for name, time in self.action.events.items()}

    @cached_property
    def keypoints(self) -> NDArray[np.float64]:
        """Project the joints, [T, 17, 2], in image widths."""
        return np.asarray(self.camera.project(self.posture.joints)[..., :2] + self.shake[:, None])


def sample_take(slate: Slate) -> Take:
    """Sample body, appearance, timing, style and camera for a slate."""
    action, level = ACTIONS[slate.action], LEVELS[slate.level]
    body = sample_physique(slate.rng("body"))
    # The names of the generators seed them: renaming one changes every recording.
    appearance = sample_appearance(slate.rng("look"), level)
    timing = slate.rng("timing")
    frames = int(timing.integers(45, 111))
    progress = sample_warp(timing, frames=frames, rush=action.rush)
    times, poses = _sample_style(slate.rng("style"), action, level.style)
    sway = np.zeros((frames, len(CONTROLS)))
    moving = [COLUMN[name] for name in ("x", "y", "lx", "lz", "rx", "rz")]
    sway[:, moving] = smooth_noise(slate.rng("sway"), frames=frames, columns=len(moving), smooth=6.0) * 0.008

    position = slate.rng("camera")
    camera = fit_camera(
        _extent(action, body, times, poses),
        azimuth=action.view + position.uniform(-level.views, level.views),
        elevation=position.uniform(*level.elevations),
        distance=position.uniform(4.5, 8.0),
        fill=position.uniform(0.76, 0.88),
    )
    light = slate.rng("light")
    return Take(
        slate=slate,
        body=body,
        appearance=appearance,
        progress=progress,
        times=times,
        poses=poses,
        sway=sway,
        camera=camera,
        shake=np.clip(smooth_noise(slate.rng("shake"), frames=frames, columns=2) * level.shake, -0.03, 0.03),
        flicker=appearance.exposure * (1.0 + 0.01 * light.standard_normal(frames)),
    )


def fit_camera(
    points: NDArray[np.float64], *, azimuth: float, elevation: float, distance: float, fill: float
) -> Camera:
    """Place a camera that shows all `points` [N, 3] within the fraction `fill` of its image, of width and height 1.

    `azimuth` and `elevation` are degrees around the center of the points, azimuth 0 in front of the performer and 90 to
    the left; `distance` is in meters.
    """
    low, high = points.min(0), points.max(0)
    target = (low + high) / 2
    a, e = np.radians(azimuth), np.radians(elevation)
    away = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
    position = target + distance * away
    position[2] = max(position[2], 0.25)
    for _ in range(3):
        camera = place_camera(position, target, up=UP, focal=1.0)
        spread = camera.project(points)[:, :2] - 0.5
        # Move the target to the center of the projected points: perspective enlarges the near side.
        target = target + distance * ((spread.max(0) + spread.min(0)) / 2 @ camera.axes[:2])
    spread = place_camera(position, target, up=UP, focal=1.0).project(points)[:, :2] - 0.5
    return place_camera(position, target, up=UP, focal=float(fill / 2 / np.abs(spread).max()))


def _extent(
    action: Action, body: Physique, times: NDArray[np.float64], poses: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Collect the points, [N, 3], that the image must show: the performer and part of a club, no flying props."""
    grid = GRID[::4]
    posture = pose_body(body, interpolate(times, poses, grid))
    points = [posture.joints, posture.hands, posture.toes]
    reach = 0.35 * max((prop.length for prop in action.props if isinstance(prop, Club)), default=0.0)
    if reach:
        points.append(posture.hands[:, 1:] + reach * club_direction(times, poses, posture, grid)[:, None])
    return np.concatenate(points, axis=1).reshape(-1, 3)


def club_direction(
    times: NDArray[np.float64], poses: NDArray[np.float64], posture: Posture, progress: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute the direction of a held club, [T, 3], as unit vectors."""
    direction = interpolate(times, poses, progress)[:, [COLUMN[name] for name in ("px", "py", "pz")]]
    direction = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    return np.asarray((posture.heading @ direction[..., None])[..., 0])


def _sample_style(
    rng: np.random.Generator, action: Action, strength: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Perturb key poses, and their times except at phase boundaries and events."""
    spread = np.full(len(CONTROLS), 0.035)
    spread[[COLUMN[name] for name in ANGLES]] = 5.0
    spread[[COLUMN[name] for name in ("x", "y", "z", "lfx", "rfx", "lfy", "rfy")]] = 0.012
    spread[[COLUMN[name] for name in ("lfz", "rfz")]] = 0.0
    common = rng.standard_normal(len(CONTROLS))
    own = rng.standard_normal(action.poses.shape)
    if action.symmetric:
        own = (own + own[::-1]) / np.sqrt(2)
    poses = action.poses + strength * spread * (0.8 * common + 0.5 * own)
    _keep_grip(action, poses)
    fixed = {*action.phases.values(), *action.events.values(), 0.0, 1.0}
    shift = rng.uniform(-0.02, 0.02, len(action.times)) * strength
    moves = np.array([0.0 if time in fixed or action.symmetric else 1.0 for time in action.times])
    return action.times + shift * moves, poses


def _keep_grip(action: Action, poses: NDArray[np.float64]) -> None:
    """Restore hands that hold one club to one point, and hands that hold one bar to mirrored points."""
    left, right = ([COLUMN[f"{side}{axis}"] for axis in "xyz"] for side in "lr")
    mirror = np.array([1.0, -1.0, 1.0])
    together = (action.poses[:, left] == action.poses[:, right]).all(1)
    mirrored = (action.poses[:, left] == action.poses[:, right] * mirror).all(1) & ~together
    poses[np.ix_(together, right)] = poses[np.ix_(together, left)]
    poses[np.ix_(mirrored, right)] = poses[np.ix_(mirrored, left)] * mirror


def sample_warp(
    rng: np.random.Generator, *, frames: int, strength: float = 0.9, rush: tuple[float, float] = (2.0, 2.0)
) -> NDArray[np.float64]:
    """Sample a time warp: the canonical time of each frame, [T], strictly rising from 0 to 1.

    The time spent at canonical time s is exp(g(s)), g a smooth random function, plus one to three pauses: narrow peaks
    outside the interval `rush`. Progress never stops entirely, so the true alignment of two performances is one-to-one.
    """
    if frames < 2:
        raise ValueError(f"a performance needs at least 2 frames, got {frames}")
    s = np.linspace(0.0, 1.0, _WARP_POINTS)
    density = np.exp(strength * _smooth_function(rng, s))
    density /= density.mean()
    for _ in range(rng.integers(1, 4)):
        center = _sample_pause(rng, rush)
        weight = strength * rng.uniform(0.1, 0.45)
        width = rng.uniform(0.006, 0.02)
        peak = np.exp(-0.5 * ((s - center) / width) ** 2)
        density += weight * peak / peak.mean()
    spent = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    progress = np.interp(np.linspace(0.0, 1.0, frames), spent / spent[-1], s)
    progress[0], progress[-1] = 0.0, 1.0
    return progress


def stretch_error(progress: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Measure the mean error of aligning two performances by linear stretch, as a fraction of the duration."""
    position = np.linspace(0.0, 1.0, len(progress))
    true = np.interp(progress, other, np.linspace(0.0, 1.0, len(other)))
    return float(np.abs(true - position).mean())


def smooth_noise(rng: np.random.Generator, *, frames: int, columns: int, smooth: float = 3.0) -> NDArray[np.float64]:
    """Sample smooth noise, [T, columns], of unit variance and without linear trend.

    Camera shake and sway must not reveal how far the recording has progressed: the ends are sampled like the middle,
    and the best-fitting line is subtracted.
    """
    reach = int(np.ceil(3 * smooth))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / smooth) ** 2)
    noise = rng.standard_normal((frames + 2 * reach, columns))
    curve = np.stack(
        [np.convolve(column, kernel / np.linalg.norm(kernel), mode="valid") for column in noise.T], axis=-1
    )
    clock = np.arange(frames) - (frames - 1) / 2
    slope = clock @ curve / max(float(clock @ clock), 1.0)
    return np.asarray(curve - clock[:, None] * slope)


def _sample_pause(rng: np.random.Generator, rush: tuple[float, float]) -> float:
    """Sample the canonical time of a pause, uniformly outside `rush` and not right at the ends."""
    before, after = min(rush[0], 1.0) - 0.04, max(0.96 - rush[1], 0.0)
    place = rng.uniform(0.0, before + after)
    return float(0.02 + place if place < before else rush[1] + 0.02 + place - before)


def _smooth_function(rng: np.random.Generator, s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample a smooth function on [0, 1] from five cosines, the slow ones strongest."""
    order = np.arange(1, 6)
    weight = rng.normal(0.0, 1.0, 5) / order**0.6
    phase = rng.uniform(0.0, 2 * np.pi, 5)
    return np.asarray((weight[:, None] * np.cos(np.pi * order[:, None] * s + phase[:, None])).sum(0))
