"""Two takes of one motion on the stage: the student's has a known tempo and a known bend of one elbow."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from inphase.media.frames import Clip
from inphase.media.render import write_mp4
from inphase.pose.pose import Pose
from inphase.stage import JOINTS, Slate, sample_take
from inphase.stage.physique import JOINT, Posture
from inphase.stage.scene import render
from inphase.stage.take import FPS, Take, fit_camera

Progress = NDArray[np.float64]  # [T] canonical time


@dataclass(frozen=True, eq=False)
class StagePair:
    """A professional and a student; `bend` [T] are the degrees by which the student's elbow is turned."""

    pro: Take
    student: Take
    bend: NDArray[np.float64]

    def frame_of(self, take: Take, progress: float) -> float:
        """Find the frame, with a fraction, at which a take reaches a canonical time."""
        return float(np.interp(progress, take.progress, np.arange(len(take.progress))))


def make_stage_pair(
    action: str,
    *,
    side: str,
    degrees: float,
    at: float,
    width: float = 0.08,
    pro_seconds: tuple[float, float] = (1.2, 0.8),
    student_seconds: tuple[float, float] = (1.8, 0.8),
    split: float = 0.5,
    turn: float = 0.0,
) -> StagePair:
    """Perform an action twice; the halves before and after canonical time `split` last the given seconds.

    Around canonical time `at`, the student's forearm is turned about the camera's axis, so that the angle of the elbow
    changes by `degrees` in the picture plane. `turn` moves the camera around the performers.
    """
    base = sample_take(Slate(action, "test", 0, level="plain"))
    points = base.posture.joints.reshape(-1, 3)
    camera = fit_camera(points, azimuth=base.action.view + turn, elevation=8.0, distance=6.0, fill=0.85)
    base = replace(base, camera=camera)
    pro, student = (_in_tempo(base, seconds, split) for seconds in (pro_seconds, student_seconds))
    bend = degrees * np.exp(-0.5 * ((student.progress - at) / width) ** 2)
    student.__dict__["posture"] = _bent(student, side, np.radians(bend))
    return StagePair(pro, student, bend)


def pose_of(take: Take, *, size: int = 320) -> Pose:
    """Project the joints of a take as an estimated pose."""
    points = (take.keypoints * size).astype(np.float32)
    seen = np.ones(points.shape[:2], np.float32)
    found = np.ones(len(points), np.bool_)
    return Pose(JOINTS, points, seen, found, np.arange(len(points)) / FPS, (size, size))


def _in_tempo(take: Take, seconds: tuple[float, float], split: float) -> Take:
    frames = [round(part * FPS) for part in seconds]
    progress = np.concatenate([np.linspace(0, split, frames[0], endpoint=False), np.linspace(split, 1, frames[1] + 1)])
    still = np.zeros((len(progress), take.sway.shape[1]))
    return replace(
        take, progress=progress, sway=still, shake=np.zeros((len(progress), 2)), flicker=np.ones(len(progress))
    )


def _bent(take: Take, side: str, angle: NDArray[np.float64]) -> Posture:
    """Turn a forearm about the elbow, around the axis of the camera, by angles [T]."""
    posture = take.posture
    elbow, wrist = (JOINT[f"{side}_{name}"] for name in ("elbow", "wrist"))
    hand = ("left", "right").index(side)
    axis = take.camera.axes[2]
    joints, hands = posture.joints.copy(), posture.hands.copy()
    center = joints[:, elbow]
    joints[:, wrist] = center + _turn(joints[:, wrist] - center, axis, angle)
    hands[:, hand] = center + _turn(hands[:, hand] - center, axis, angle)
    return replace(posture, joints=joints, hands=hands)


def _turn(vectors: NDArray[np.float64], axis: NDArray[np.float64], angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotate vectors [T, 3] about one axis by angles [T] (Rodrigues)."""
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    return np.asarray(vectors * cos + np.cross(axis, vectors) * sin + axis * (vectors @ axis)[:, None] * (1 - cos))


class StageEstimator:
    """A pose estimator with the joints of the stage: `poses` holds them by the number of frames of the video."""

    joints: ClassVar[tuple[str, ...]] = JOINTS
    poses: ClassVar[dict[int, Pose]] = {}

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        return self.poses[sum(len(clip) for clip in clips)]


STAGE_ESTIMATOR = "tests.apps.stage_pairs:StageEstimator"


def write_stage_pair(folder: Path, pair: StagePair, *, size: int = 96) -> tuple[Path, Path]:
    """Render both takes as pro.mp4 and student.mp4, whose joints `StageEstimator` gives."""
    files = folder / "pro.mp4", folder / "student.mp4"
    for file, take in zip(files, (pair.pro, pair.student), strict=True):
        write_mp4(file, render(take, size=size).frames, fps=FPS, quality=18)
        StageEstimator.poses[len(take.progress)] = pose_of(take, size=size)
    return files
