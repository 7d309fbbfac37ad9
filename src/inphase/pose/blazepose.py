"""People and their joints in one picture, by MediaPipe: the only place that touches it.

Two graphs are made of the parts that the wheel of mediapipe 0.10.14 carries. One finds everybody in a picture, the
other reads the joints of whoever stands in a given region; MediaPipe's own solution joins them in a way that sees one
person only and cannot be told which.

Bazarevsky et al., "BlazePose: On-device Real-time Body Pose tracking", CVPR workshops 2020.
"""

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.storage.errors import MissingExtraError

# The joints in MediaPipe's order; left and right are the person's own.
LANDMARKS = (
    "nose",
    *(f"{side}_eye{part}" for side in ("left", "right") for part in ("_inner", "", "_outer")),
    *(f"{side}_ear" for side in ("left", "right")),
    *(f"{side}_mouth" for side in ("left", "right")),
    *(
        f"{side}_{joint}"
        for joint in ("shoulder", "elbow", "wrist", "pinky", "index", "thumb", "hip", "knee", "ankle", "heel", "foot")
        for side in ("left", "right")
    ),
)

# The black margin to add on each side before people are looked for, as a fraction of the longer side: the network wants
# the whole circle around a person inside the picture.
MARGIN = 0.25

_TERMINAL = threading.RLock()

FIND = """
input_stream: "IMAGE:image"
output_stream: "DETECTIONS:people"
node {
  calculator: "PoseDetectionCpu"
  input_stream: "IMAGE:image" output_stream: "DETECTIONS:people"
}
"""
READ = """
input_stream: "IMAGE:image"
input_stream: "ROI:region"
input_side_packet: "MODEL_COMPLEXITY:complexity"
output_stream: "LANDMARKS:joints"
output_stream: "AUXILIARY_LANDMARKS:circle"
output_stream: "WORLD_LANDMARKS:world"
node {
  calculator: "PoseLandmarkByRoiCpu"
  input_stream: "IMAGE:image" input_stream: "ROI:region" input_side_packet: "MODEL_COMPLEXITY:complexity"
  output_stream: "LANDMARKS:joints" output_stream: "AUXILIARY_LANDMARKS:circle" output_stream: "WORLD_LANDMARKS:world"
}
"""


@dataclass(frozen=True)
class Region:
    """The circle around a person, in pixels: its centre between the hips; turned by `angle`, he stands upright."""

    x: float
    y: float
    radius: float
    angle: float = 0.0


@dataclass(frozen=True, eq=False)
class Landmarks:
    """A person in one picture: `points` [33, 2] pixels, `world` [33, 3] metres from the hips, `visibility` [33]."""

    points: NDArray[np.float32]
    world: NDArray[np.float32]
    visibility: NDArray[np.float32]
    region: Region


class Landmarker:
    """MediaPipe's two networks, ready for pictures of any size: close it, or use it as a context."""

    def __init__(self, *, complexity: int = 1) -> None:
        """Load the networks; `complexity` 0, 1 or 2 is the size of the second, of which the wheel carries 1."""
        if complexity not in (0, 1, 2):
            raise ValueError(f"complexity must be 0, 1 or 2, got {complexity}")
        require_mediapipe()
        with _silent():
            from mediapipe.framework.formats.rect_pb2 import NormalizedRect
            from mediapipe.python.solution_base import SolutionBase
            from mediapipe.python.solutions import pose  # registers the messages of the graphs

            _fetch(pose, complexity)
            self._rectangle = NormalizedRect
            self._find = SolutionBase(graph_config=FIND)
            self._read = SolutionBase(graph_config=READ, side_inputs={"complexity": complexity})
            # The libraries below have their say when they are first used.
            blank = np.zeros((64, 64, 3), np.uint8)
            self.find(blank)
            self.read(blank, Region(32, 32, 32))

    def __enter__(self) -> "Landmarker":
        """Enter a context that closes the networks."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the networks."""
        self.close()

    def close(self) -> None:
        """Free the networks."""
        with _silent():
            self._find.close()
            self._read.close()

    def find(self, picture: NDArray[np.uint8], *, margin: float = MARGIN) -> list[Region]:
        """Find the people in a picture [H, W, 3], the surest first."""
        edge = round(margin * max(picture.shape[:2]))
        framed = np.pad(picture, ((edge, edge), (edge, edge), (0, 0)))
        height, width = framed.shape[:2]
        with deprecations_ignored():
            people = self._find.process({"image": framed}).people
        found = [[(point.x, point.y) for point in person.location_data.relative_keypoints] for person in people or ()]
        regions = [_region(points[0], points[1], height=height, width=width) for points in found]
        return [replace(region, x=region.x - edge, y=region.y - edge) for region in regions]

    def read(self, picture: NDArray[np.uint8], region: Region) -> Landmarks | None:
        """Read the joints of the person in a region; nothing where nobody is there."""
        height, width = picture.shape[:2]
        rectangle = self._rectangle(
            x_center=(region.x + 0.5) / width,
            y_center=(region.y + 0.5) / height,
            width=2.5 * region.radius / width,  # a quarter more than the circle, as the network was trained
            height=2.5 * region.radius / height,
            rotation=region.angle,
        )
        with deprecations_ignored():
            answer = self._read.process({"image": np.ascontiguousarray(picture), "region": rectangle})
        if answer.joints is None or answer.circle is None or answer.world is None:
            return None
        joints = np.array([(joint.x, joint.y, joint.visibility) for joint in answer.joints.landmark], np.float32)
        world = np.array([(joint.x, joint.y, joint.z) for joint in answer.world.landmark], np.float32)
        centre, rim = ((point.x, point.y) for point in answer.circle.landmark[:2])
        # MediaPipe counts from the edge of the picture, we from the centre of its first pixel.
        points = joints[:, :2] * np.array([width, height], np.float32) - np.float32(0.5)
        return Landmarks(points, world, joints[:, 2], _region(centre, rim, height=height, width=width))


def _region(centre: tuple[float, float], rim: tuple[float, float], *, height: int, width: int) -> Region:
    """Make a region of two points in fractions of the picture: the middle of the hips, and the rim above the head."""
    along, down = (rim[0] - centre[0]) * width, (rim[1] - centre[1]) * height
    angle = float(np.arctan2(along, -down))
    return Region(centre[0] * width - 0.5, centre[1] * height - 0.5, float(np.hypot(along, down)), angle)


def require_mediapipe() -> None:
    """Refuse to go on without MediaPipe, and say how to get it."""
    try:
        with _silent():
            import mediapipe  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"pose from video needs MediaPipe ({error}): pip install 'inphase[pose]'") from error


def _fetch(pose: Any, complexity: int) -> None:
    """Download a network that the wheel does not carry, as MediaPipe does."""
    try:
        pose._download_oss_pose_landmark_model(complexity)
    except OSError as error:
        raise ValueError(
            f"the network of complexity {complexity} cannot be downloaded ({error}): use 1, which is installed"
        ) from error


@contextlib.contextmanager
def deprecations_ignored() -> Iterator[None]:
    """Ignore what protobuf says of the way MediaPipe calls it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"SymbolDatabase\.GetPrototype\(\) is deprecated")
        yield


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep C++ from writing to the terminal, past Python's own streams: there is no other switch for it."""
    # Two threads at a time would keep each other's silence for the terminal.
    with _TERMINAL:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)
