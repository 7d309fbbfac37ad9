"""BlazePose run by MediaPipe's own runtime: the reference that ours is compared with, in tests and benchmarks.

Two graphs are built from parts of the wheel of mediapipe 0.10.14: one finds all people in an image, the other reads the
joints of the person in a given region. MediaPipe's own solution joins them for one person, which cannot be chosen.
"""

import contextlib
import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from inphase.media.frames import Clip
from inphase.pose.blazepose import MARGIN, BlazePose
from inphase.pose.pose import Body, Pose, Region
from inphase.pose.tracking import track_person

_STDERR = threading.RLock()

_FIND_PEOPLE = """
input_stream: "IMAGE:image"
output_stream: "DETECTIONS:people"
node {
  calculator: "PoseDetectionCpu"
  input_stream: "IMAGE:image" output_stream: "DETECTIONS:people"
}
"""
_READ_JOINTS = """
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


class MediaPipeBlazePose:
    """The same two networks run by MediaPipe: a `PoseEstimator` and a `PersonDetector`."""

    joints: ClassVar[tuple[str, ...]] = BlazePose.joints

    def __init__(self) -> None:
        """Load the networks."""
        with _silent():
            from mediapipe.framework.formats.rect_pb2 import NormalizedRect
            from mediapipe.python.solution_base import SolutionBase
            from mediapipe.python.solutions import pose  # noqa: F401 - registers the messages of the graphs

            self._rectangle = NormalizedRect
            self._find = SolutionBase(graph_config=_FIND_PEOPLE)
            self._read = SolutionBase(graph_config=_READ_JOINTS, side_inputs={"complexity": 1})
            # The C++ libraries log to the terminal at their first use.
            blank = np.zeros((64, 64, 3), np.uint8)
            self.find(blank)
            self.read(blank, Region(32, 32, 32))

    def close(self) -> None:
        """Free the networks."""
        with _silent():
            self._find.close()
            self._read.close()

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        """Estimate the pose of the largest and most moving person in consecutive clips."""
        return track_person(self, clips)

    def find(self, image: NDArray[np.uint8], *, margin: float = MARGIN) -> list[Region]:
        """Find the people in an image [H, W, 3], the surest first."""
        edge = round(margin * max(image.shape[:2]))
        framed = np.pad(image, ((edge, edge), (edge, edge), (0, 0)))
        height, width = framed.shape[:2]
        _ignore_deprecations()
        people = self._find.process({"image": framed}).people
        found = [[(point.x, point.y) for point in person.location_data.relative_keypoints] for person in people or ()]
        regions = [_region(points[0], points[1], height=height, width=width) for points in found]
        return [replace(region, x=region.x - edge, y=region.y - edge) for region in regions]

    def read(self, image: NDArray[np.uint8], region: Region) -> Body | None:
        """Read the joints of the person in a region; None if no person is there."""
        height, width = image.shape[:2]
        rectangle = self._rectangle(
            x_center=(region.x + 0.5) / width,
            y_center=(region.y + 0.5) / height,
            width=2.5 * region.radius / width,  # a quarter more than the circle, as the network was trained
            height=2.5 * region.radius / height,
            rotation=region.angle,
        )
        _ignore_deprecations()
        answer = self._read.process({"image": np.ascontiguousarray(image), "region": rectangle})
        if answer.joints is None or answer.circle is None or answer.world is None:
            return None
        joints = np.array([(joint.x, joint.y, joint.visibility) for joint in answer.joints.landmark], np.float32)
        world = np.array([(joint.x, joint.y, joint.z) for joint in answer.world.landmark], np.float32)
        center, rim = ((point.x, point.y) for point in answer.circle.landmark[:2])
        # MediaPipe's origin is the corner of the image, ours the center of its first pixel.
        points = joints[:, :2] * np.array([width, height], np.float32) - np.float32(0.5)
        return Body(points, world, joints[:, 2], _region(center, rim, height=height, width=width))


def _region(center: tuple[float, float], rim: tuple[float, float], *, height: int, width: int) -> Region:
    """Make a region of two points in fractions of the image: the middle of the hips, and the rim above the head."""
    along, down = (rim[0] - center[0]) * width, (rim[1] - center[1]) * height
    angle = float(np.arctan2(along, -down))
    return Region(center[0] * width - 0.5, center[1] * height - 0.5, float(np.hypot(along, down)), angle)


def _ignore_deprecations() -> None:
    """Ignore protobuf's warning about the way MediaPipe calls it, in all threads: filters belong to the process."""
    message = "SymbolDatabase.GetPrototype"
    if not any(getattr(pattern, "pattern", pattern) == message for _, pattern, *_ in warnings.filters):
        warnings.filterwarnings("ignore", message=message)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep C++ libraries from writing to the terminal, past Python's own streams: they have no other switch."""
    # Two threads at a time would each restore the other's redirection.
    with _STDERR:
        saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            os.close(nowhere)
