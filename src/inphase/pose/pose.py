"""Pose from video: the joints of the one person a clip is about, on the clock of its pictures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.media.frames import Clip, Recording, choose, in_clips, open_recording, spliced, warn_of_damage
from inphase.pose.blazepose import LANDMARKS, Landmarker, Landmarks
from inphase.pose.tracking import PeopleTracker, PersonDetector, choose_person
from inphase.storage.errors import NoPersonError

# PennAction's joints in its order.
JOINTS13 = (
    "head",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hip",
    "right_hip",
    "left_knee",
    "right_knee",
    "left_ankle",
    "right_ankle",
)

# A clip in which a person is seen in a smaller fraction of the frames has none.
LEAST = 0.1
# Pictures in memory at a time.
LENGTH = 16

_EARS = [LANDMARKS.index("left_ear"), LANDMARKS.index("right_ear")]
_BODY = [LANDMARKS.index(name) for name in JOINTS13[1:]]


@dataclass(frozen=True, eq=False)
class Pose:
    """One person through a clip, in the 33 joints that `LANDMARKS` names; left and right are the person's own.

    `keypoints` [T, 33, 2] float32 pixels of the original picture, (0, 0) the centre of the first one; they can lie
    outside of it. `world` [T, 33, 3] float32 metres from the middle of the hips, x to the right, y down and z away from
    the camera. `visibility` [T, 33] float32 from 0 to 1. `found` [T] is False where the person was not seen: positions
    are interpolated there, or those of the nearest frame at the ends, and visibility is 0. `times` [T] float64 seconds;
    `size` (height, width) of the picture.
    """

    keypoints: NDArray[np.float32]
    world: NDArray[np.float32]
    visibility: NDArray[np.float32]
    found: NDArray[np.bool_]
    times: NDArray[np.float64]
    size: tuple[int, int]

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together."""
        length, joints = len(self.times), len(LANDMARKS)
        shapes = {"keypoints": (length, joints, 2), "world": (length, joints, 3), "visibility": (length, joints)}
        for name, shape in {**shapes, "found": (length,)}.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must be {list(shape)}, got {list(getattr(self, name).shape)}")

    def __len__(self) -> int:
        """Count the frames."""
        return len(self.times)

    def joints13(self, *, threshold: float = 0.5) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Give the joints of PennAction, `JOINTS13`: pixels [T, 13, 2], and [T, 13] which are visible.

        The head is the middle of the ears.
        """
        head = self.keypoints[:, _EARS].mean(1, keepdims=True)
        seen = np.concatenate([self.visibility[:, _EARS].max(1, keepdims=True), self.visibility[:, _BODY]], axis=1)
        return np.concatenate([head, self.keypoints[:, _BODY]], axis=1), seen >= threshold


def read_pose(
    source: Clip | Path | str,
    *,
    spans: Sequence[tuple[float, float]] = (),
    fps: float | None = None,
    native_fps: float | None = None,
    complexity: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Pose:
    """Follow the largest and most moving person through a clip, a video file or a folder of pictures.

    `spans`, `fps` and `native_fps` are those of `read_clip` and `read_spans`. `complexity` is MediaPipe's: 1 is
    installed, 0 and 2 are downloaded. `progress` is told the frames done and to do. Files are read as they are decoded,
    in memory for a few pictures. Where nobody is to be seen there is a `NoPersonError` error.
    """
    if isinstance(source, Clip):
        if spans or fps is not None or native_fps is not None:
            raise ValueError("spans, fps and native_fps are for files: pass the path instead of the clip")
        parts = (
            Clip(source.frames[i : i + LENGTH], source.times[i : i + LENGTH]) for i in range(0, len(source), LENGTH)
        )
        return follow(parts, name="the clip", complexity=complexity, progress=progress, total=len(source))
    recording = open_recording(source, native_fps=native_fps)
    pose = pose_of(recording, spans=spans, fps=fps, complexity=complexity, progress=progress)
    warn_of_damage(recording)
    return pose


def pose_of(
    recording: Recording,
    *,
    spans: Sequence[tuple[float, float]] = (),
    fps: float | None = None,
    complexity: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Pose:
    """Follow the person in an opened recording, which then knows what of it was damaged."""
    if spans:
        wanted = [choose(recording.times, span=span, fps=fps) for span in spans]
        clips = spliced(recording, spans, fps=fps, size=None, length=LENGTH)
    else:
        wanted = [choose(recording.times, fps=fps)]
        clips = in_clips(recording, wanted[0], size=None, length=LENGTH)
    total = sum(len(recording.times) if some is None else len(some) for some in wanted)
    return follow(clips, name=str(recording.path), complexity=complexity, progress=progress, total=total)


def follow(
    clips: Iterable[Clip],
    *,
    name: str,
    complexity: int,
    progress: Callable[[int, int], None] | None,
    total: int,
    eye: PersonDetector | None = None,
) -> Pose:
    """Follow the person through consecutive clips; `name` is what an error calls them."""
    if eye is None:
        with Landmarker(complexity=complexity) as landmarker:
            return follow(clips, name=name, complexity=complexity, progress=progress, total=total, eye=landmarker)
    crowd, times, size = PeopleTracker(eye), [np.empty(0)], (0, 0)
    for clip in clips:
        size = (clip.frames.shape[1], clip.frames.shape[2])
        times.append(clip.times)
        for picture, second in zip(clip.frames, clip.times.tolist(), strict=True):
            crowd.look(picture, second)
        if progress is not None:
            progress(sum(map(len, times)), total)
    stamps = np.concatenate(times)
    person = choose_person(crowd.tracks, length=len(stamps))
    if len(person) < max(LEAST * len(stamps), 1):
        seen = f"in {len(person)} of {len(stamps)} frames only" if person else "in none of the frames"
        raise NoPersonError(
            f"{name} shows no person ({seen} could one be found): leave it out, or cut it to where one is"
        )
    return assemble(person, times=stamps, size=size)


def assemble(person: Mapping[int, Landmarks], *, times: NDArray[np.float64], size: tuple[int, int]) -> Pose:
    """Lay out the bodies seen at some frames as a pose of all frames, with straight lines through the gaps."""
    frames = np.array(sorted(person))
    bodies = [person[frame] for frame in frames.tolist()]
    found = np.zeros(len(times), np.bool_)
    found[frames] = True
    visibility = np.zeros((len(times), len(LANDMARKS)), np.float32)
    visibility[frames] = [body.visibility for body in bodies]
    keypoints = _bridge(np.stack([body.points for body in bodies]), times[frames], times)
    world = _bridge(np.stack([body.world for body in bodies]), times[frames], times)
    return Pose(keypoints, world, visibility, found, times, size)


def _bridge(values: NDArray[np.float32], known: NDArray[np.float64], times: NDArray[np.float64]) -> NDArray[np.float32]:
    """Interpolate values [N, …] at `known` seconds to all `times`; outside, the nearest holds."""
    columns = values.reshape(len(values), -1).T
    bridged = np.stack([np.interp(times, known, column) for column in columns], axis=1)
    return bridged.reshape(len(times), *values.shape[1:]).astype(np.float32)
