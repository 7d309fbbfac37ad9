"""The pose estimator BlazePose by MediaPipe: the only module that depends on MediaPipe and its 33 joints.

Two graphs are built from parts of the wheel of mediapipe 0.10.14: one finds all people in an image, the other reads the
joints of the person in a given region. MediaPipe's own solution joins them for one person, which cannot be chosen.

Bazarevsky et al., "BlazePose: On-device Real-time Body Pose tracking", CVPR workshops 2020.
"""

import contextlib
import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from inphase.media.frames import Clip
from inphase.pose.pose import Pose
from inphase.pose.tracking import Body, Region, track_person
from inphase.storage.errors import MissingExtraError
from inphase.storage.files import check_published

# The black margin on each side of an image in which people are searched, as a fraction of the longer side: the network
# needs the whole circle around a person inside the image.
MARGIN = 0.25

FINDER = "pose_detection/pose_detection.tflite"
READERS = tuple(f"pose_landmark/pose_landmark_{size}.tflite" for size in ("lite", "full", "heavy"))
# As in third_party/external_files.bzl of MediaPipe.
SHA256 = {
    FINDER: "9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c",
    READERS[0]: "1150dc68a713b80660b90ef46ce4e85c1c781bb88b6e3512cc64e6a685ba5588",
    READERS[1]: "e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f",
    READERS[2]: "59e42d71bcd44cbdbabc419f0ff76686595fd265419566bd4009ef703ea8e1fe",
}

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


class BlazePose:
    """MediaPipe's two networks, for images of any size: a `PoseEstimator` and a `PersonDetector`."""

    joints: ClassVar[tuple[str, ...]] = (
        "nose",
        *(f"{side}_eye{part}" for side in ("left", "right") for part in ("_inner", "", "_outer")),
        *(f"{side}_ear" for side in ("left", "right")),
        *(f"{side}_mouth" for side in ("left", "right")),
        *(
            f"{side}_{joint}"
            for joint in (
                "shoulder",
                "elbow",
                "wrist",
                "pinky",
                "index",
                "thumb",
                "hip",
                "knee",
                "ankle",
                "heel",
                "foot",
            )
            for side in ("left", "right")
        ),
    )

    def __init__(self, *, complexity: int = 1) -> None:
        """Load the networks; `complexity` 0, 1 or 2 is the size of the second: 1 is in the wheel, others download."""
        if complexity not in (0, 1, 2):
            raise ValueError(f"complexity must be 0, 1 or 2, got {complexity}")
        self.require_installed()
        with _silent():
            import mediapipe
            from mediapipe.framework.formats.rect_pb2 import NormalizedRect
            from mediapipe.python.solution_base import SolutionBase
            from mediapipe.python.solutions import pose  # registers the messages of the graphs

            _download(pose, complexity)
            _verify(Path(mediapipe.__file__).parent, complexity)
            self._rectangle = NormalizedRect
            self._find = SolutionBase(graph_config=_FIND_PEOPLE)
            self._read = SolutionBase(graph_config=_READ_JOINTS, side_inputs={"complexity": complexity})
            # The C++ libraries log to the terminal at their first use.
            blank = np.zeros((64, 64, 3), np.uint8)
            self.find(blank)
            self.read(blank, Region(32, 32, 32))

    @staticmethod
    def require_installed() -> None:
        """Raise `MissingExtraError` without MediaPipe."""
        try:
            with _silent():
                import mediapipe  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(
                f"pose from video needs MediaPipe ({error}): pip install 'inphase[pose]'"
            ) from error

    def close(self) -> None:
        """Free the networks."""
        with _silent():
            self._find.close()
            self._read.close()

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        """Estimate the pose of the largest and most moving person in consecutive clips."""
        return track_person(self, clips)

    def shows_person(self, image: NDArray[np.uint8]) -> bool:
        """Report whether an image [H, W, 3] shows a person."""
        return bool(self.find(image))

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


def _download(pose: Any, complexity: int) -> None:
    """Download a network that is not in the wheel, by MediaPipe's own function."""
    try:
        pose._download_oss_pose_landmark_model(complexity)
    except OSError as error:
        raise ValueError(
            f"the network of complexity {complexity} cannot be downloaded ({error}): use 1, which is installed"
        ) from error


def _verify(package: Path, complexity: int) -> None:
    """Raise if the networks, installed or downloaded, are not those that MediaPipe published."""
    for name in (FINDER, READERS[complexity]):
        file = package / "modules" / name
        check_published(
            file, sha256=SHA256[name], fix="remove it, then pip install --force-reinstall mediapipe==0.10.14"
        )


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
