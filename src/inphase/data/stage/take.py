"""One take: everything that is drawn at random for a recording, and the exact truth about it."""

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inphase.data.stage.actions import ACTIONS
from inphase.data.stage.body import Body, Posture, draw_body, pose
from inphase.data.stage.camera import frame
from inphase.data.stage.controls import ANGLES, COLUMN, CONTROLS, Action, interpolate
from inphase.data.stage.look import LEVELS, Level, Look, draw_look
from inphase.data.stage.props import Club
from inphase.data.stage.warp import draw_warp, wander
from inphase.data.video import SPLITS
from inphase.pose.camera import Camera

RATE = 30.0  # frames a second
GRID = np.linspace(0.0, 1.0, 401)


@dataclass(frozen=True)
class Slate:
    """What names a take: the same slate always gives the same recording."""

    action: str
    split: str
    index: int
    seed: int = 0
    level: str = "medium"

    def __post_init__(self) -> None:
        """Refuse names that are not on the stage."""
        for what, value, known in (
            ("action", self.action, tuple(ACTIONS)),
            ("split", self.split, SPLITS),
            ("level", self.level, tuple(LEVELS)),
        ):
            if value not in known:
                raise ValueError(f"no {what} {value!r} on the stage; choose one of {', '.join(known)}")

    @property
    def id(self) -> str:
        """Name the recording."""
        return f"stage-{self.level}-{self.seed}-{self.split}-{self.action}-{self.index:04d}"

    @classmethod
    def parse(cls, video_id: str) -> "Slate":
        """Read a slate back from a recording's name."""
        parts = video_id.split("-")
        if len(parts) != 6 or parts[0] != "stage" or not (parts[2].isdigit() and parts[5].isdigit()):
            raise ValueError(f"{video_id!r} is not a stage video; one is called like {cls('squat', 'train', 0).id!r}")
        return cls(action=parts[4], split=parts[3], index=int(parts[5]), seed=int(parts[2]), level=parts[1])

    def rng(self, aspect: str) -> np.random.Generator:
        """Start the random stream of one aspect, which no other recording and no other aspect shares.

        Levels share streams: a recording of another level has the same body and the same timing.
        """
        name = f"{self.split}/{self.action}/{aspect}"
        return np.random.Generator(np.random.PCG64([self.seed, self.index, zlib.crc32(name.encode())]))


@dataclass(frozen=True, eq=False)
class Take:
    """One performance before one camera."""

    slate: Slate
    body: Body
    look: Look
    progress: NDArray[np.float64]  # [T] canonical time
    times: NDArray[np.float64]  # [K] key poses as this performer times them
    poses: NDArray[np.float64]  # [K, C] and strikes them
    sway: NDArray[np.float64]  # [T, C] what no one holds still
    camera: Camera
    shake: NDArray[np.float64]  # [T, 2] of the hand that holds the camera, in picture widths
    flicker: NDArray[np.float64]  # [T] of the light

    @property
    def action(self) -> Action:
        """Look up what is performed."""
        return ACTIONS[self.slate.action]

    @property
    def level(self) -> Level:
        """Look up how hard it was meant to be."""
        return LEVELS[self.slate.level]

    @cached_property
    def posture(self) -> Posture:
        """Pose the body for every frame."""
        return pose(self.body, interpolate(self.times, self.poses, self.progress) + self.sway)

    @cached_property
    def course(self) -> Posture:
        """Pose the body on GRID, evenly in canonical time, without sway: where things will be let go."""
        return pose(self.body, interpolate(self.times, self.poses, GRID))

    @property
    def events(self) -> dict[str, int]:
        """Find the frame nearest to each event."""
        return {name: int(np.abs(self.progress - time).argmin()) for name, time in self.action.events.items()}

    @cached_property
    def pixels(self) -> NDArray[np.float64]:
        """Project the joints, [T, 17, 2], in picture widths."""
        return np.asarray(self.camera.project(self.posture.joints)[..., :2] + self.shake[:, None])


def draw_take(slate: Slate) -> Take:
    """Draw body, style, timing, camera and look for a slate."""
    action, level = ACTIONS[slate.action], LEVELS[slate.level]
    body = draw_body(slate.rng("body"))
    look = draw_look(slate.rng("look"), level)
    timing = slate.rng("timing")
    frames = int(timing.integers(45, 111))
    progress = draw_warp(timing, frames=frames, rush=action.rush)
    times, poses = _style(slate.rng("style"), action, level.style)
    sway = np.zeros((frames, len(CONTROLS)))
    moving = [COLUMN[name] for name in ("x", "y", "lx", "lz", "rx", "rz")]
    sway[:, moving] = wander(slate.rng("sway"), frames=frames, columns=len(moving), smooth=6.0) * 0.008

    standing = slate.rng("camera")
    camera = frame(
        _extent(action, body, times, poses),
        azimuth=action.view + standing.uniform(-level.views, level.views),
        elevation=standing.uniform(*level.elevations),
        distance=standing.uniform(4.5, 8.0),
        fill=standing.uniform(0.76, 0.88),
    )
    light = slate.rng("light")
    return Take(
        slate=slate,
        body=body,
        look=look,
        progress=progress,
        times=times,
        poses=poses,
        sway=sway,
        camera=camera,
        shake=np.clip(wander(slate.rng("shake"), frames=frames, columns=2) * level.shake, -0.03, 0.03),
        flicker=look.exposure * (1.0 + 0.01 * light.standard_normal(frames)),
    )


def _extent(action: Action, body: Body, times: NDArray[np.float64], poses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gather the points, [N, 3], that must be in the picture: the performer and what is held, not what flies away."""
    grid = GRID[::4]
    course = pose(body, interpolate(times, poses, grid))
    points = [course.joints, course.hands, course.toes]
    reach = 0.35 * max((prop.length for prop in action.props if isinstance(prop, Club)), default=0.0)
    if reach:
        points.append(course.hands[:, 1:] + reach * club_direction(times, poses, course, grid)[:, None])
    return np.concatenate(points, axis=1).reshape(-1, 3)


def club_direction(
    times: NDArray[np.float64], poses: NDArray[np.float64], posture: Posture, progress: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Find where a held club points, [T, 3], a unit vector."""
    direction = interpolate(times, poses, progress)[:, [COLUMN[name] for name in ("px", "py", "pz")]]
    direction = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    return np.asarray((posture.heading @ direction[..., None])[..., 0])


def _style(
    rng: np.random.Generator, action: Action, strength: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Perturb key poses and the times of those that bound no phase and mark no event."""
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
    """Keep hands together that hold one thing, and level that hold one bar."""
    left, right = ([COLUMN[f"{side}{axis}"] for axis in "xyz"] for side in "lr")
    mirror = np.array([1.0, -1.0, 1.0])
    together = (action.poses[:, left] == action.poses[:, right]).all(1)
    mirrored = (action.poses[:, left] == action.poses[:, right] * mirror).all(1) & ~together
    poses[np.ix_(together, right)] = poses[np.ix_(together, left)]
    poses[np.ix_(mirrored, right)] = poses[np.ix_(mirrored, left)] * mirror
