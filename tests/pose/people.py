"""People made of numbers: what finds them in images is scripted, so that following them needs no network."""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.media.frames import Clip
from inphase.pose.blazepose import BlazePose
from inphase.pose.networks import DETECTOR, LANDMARKS, find_model
from inphase.pose.pose import Body, Pose, Region
from inphase.storage.errors import MediaError, MissingExtraError

JOINTS = BlazePose.joints
WRISTS = [JOINTS.index("left_wrist"), JOINTS.index("right_wrist")]
HIPS = [JOINTS.index("left_hip"), JOINTS.index("right_hip")]


def _has_networks() -> bool:
    """Report whether BlazePose can run here: OpenVINO, and the files without downloading them."""
    try:
        files = [find_model(model, publisher="file:///nowhere/") for model in (DETECTOR, LANDMARKS[1])]
    except (MissingExtraError, MediaError):
        return False
    return importlib.util.find_spec("openvino") is not None and bool(files)


needs_networks = pytest.mark.skipif(
    not _has_networks(), reason="no OpenVINO or no networks of BlazePose: pip install 'inphase[dev]'"
)


@contextmanager
def skip_without_networks() -> Iterator[None]:
    """Skip a test that finds no networks of BlazePose on a machine that has none, as on Python 3.13 offline."""
    try:
        yield
    except MissingExtraError as error:
        if _has_networks():
            raise
        pytest.skip(str(error))


def make_body(region: Region, *, swing: float = 0.0) -> Body:
    """Make a body in a circle; its wrists are `swing` radii to the right of its hips."""
    angles = np.arange(len(JOINTS)) * 2.4
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1) * 0.8
    points[HIPS] = [[-0.1, 0.0], [0.1, 0.0]]
    points[[JOINTS.index("left_shoulder"), JOINTS.index("right_shoulder")]] = [[0.2, -0.5], [-0.2, -0.5]]
    points[WRISTS] = [[swing, -0.3], [swing, -0.2]]
    pixels = (points * region.radius + [region.x, region.y]).astype(np.float32)
    world = np.concatenate([points, np.zeros((len(points), 1))], axis=1).astype(np.float32)
    return Body(pixels, world, np.full(len(points), 0.9, np.float32), region)


@dataclass(frozen=True)
class Actor:
    """Somebody who is at `region(frame)`, or out of view where that is nothing; `swing` radii is what the arms do."""

    region: Callable[[int], Region | None]
    swing: float = 0.0
    hidden: Sequence[int] = ()  # frames at which nobody is found, although there is somebody

    def body(self, frame: int) -> Body | None:
        region = self.region(frame)
        return None if region is None else make_body(region, swing=self.swing * float(np.sin(frame / 4)))


class Stage:
    """A detector of actors; an image's first value is the number of the frame."""

    joints: ClassVar[tuple[str, ...]] = JOINTS

    def __init__(self, *actors: Actor) -> None:
        self.actors = actors
        self.glances = 0

    def find(self, image: NDArray[np.uint8], *, margin: float = 0.25) -> list[Region]:
        self.glances += 1
        frame = int(image[0, 0, 0])
        places = [actor.region(frame) for actor in self.actors if frame not in actor.hidden]
        return [place for place in places if place is not None]

    def read(self, image: NDArray[np.uint8], region: Region) -> Body | None:
        frame = int(image[0, 0, 0])
        bodies = [actor.body(frame) for actor in self.actors if frame not in actor.hidden]
        here = [body for body in bodies if body is not None and _gap(body, region) < region.radius]
        return min(here, key=lambda body: _gap(body, region), default=None)


def _gap(body: Body, region: Region) -> float:
    return float(np.hypot(body.region.x - region.x, body.region.y - region.y))


def make_film(length: int, *, height: int = 90, width: int = 120) -> Clip:
    """Make a clip whose images carry the number of their frame."""
    frames = np.repeat(np.arange(length, dtype=np.uint8), height * width * 3).reshape(length, height, width, 3)
    return Clip(frames, np.arange(length) / 30)


def make_pose(length: int, *, seed: int = 0) -> Pose:
    rng = np.random.default_rng(seed)
    joints = (length, len(JOINTS))
    return Pose(
        JOINTS,
        keypoints=rng.uniform(0, 90, (*joints, 2)).astype(np.float32),
        world=rng.normal(size=(*joints, 3)).astype(np.float32),
        visibility=rng.random(joints, np.float32),
        found=rng.random(length) < 0.8,
        times=np.cumsum(rng.uniform(0.02, 0.05, length)),
        size=(90, 120),
    )
