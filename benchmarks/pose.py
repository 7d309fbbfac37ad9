"""Measure pose estimation beside MediaPipe's own solution: frames with a person, speed, and choice of person.

python benchmarks/pose.py FOLDER_OF_VIDEOS [COUNT]
"""

import contextlib
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inphase.media.frames import Clip, read_clip
from inphase.pose.blazepose import BlazePose
from inphase.pose.estimator import estimate_pose
from inphase.storage.errors import NoPersonError

if TYPE_CHECKING:
    from inphase.pose.pose import Pose

HIPS = [BlazePose.joints.index("left_hip"), BlazePose.joints.index("right_hip")]
Follow = Callable[[Clip], NDArray[np.float32]]  # the hips' middle [T, 2] in pixels, NaN where no person is found


def ours(clip: Clip) -> NDArray[np.float32]:
    try:
        pose: Pose = estimate_pose(clip)
    except NoPersonError:
        return np.full((len(clip), 2), np.nan, np.float32)
    return np.where(pose.found[:, None], pose.keypoints[:, HIPS].mean(1), np.float32(np.nan))


def solution(clip: Clip) -> NDArray[np.float32]:
    """Follow a person as MediaPipe's documentation does."""
    from mediapipe.python.solutions.pose import Pose as Solution

    hips = np.full((len(clip), 2), np.nan, np.float32)
    height, width = clip.frames.shape[1:3]
    with Solution() as network:
        for row, image in zip(hips, clip.frames, strict=True):
            found = network.process(image).pose_landmarks
            if found:
                points = [(found.landmark[i].x * width - 0.5, found.landmark[i].y * height - 0.5) for i in HIPS]
                row[:] = np.mean(points, axis=0)
    return hips


def gate(clips: list[Clip]) -> None:
    """Check that both estimate the same joints in the same image, before timing."""
    from mediapipe.python.solutions.pose import Pose as Solution

    compared = 0
    with Solution(static_image_mode=True) as network, contextlib.closing(BlazePose()) as detector:
        for clip in clips:
            image = clip.frames[0]
            theirs, regions = network.process(image).pose_landmarks, detector.find(image, margin=0)
            body = detector.read(image, regions[0]) if regions else None
            assert (theirs is None) == (body is None)
            if theirs is not None and body is not None:
                points = np.array([(joint.x, joint.y) for joint in theirs.landmark]) * image.shape[1::-1] - 0.5
                np.testing.assert_allclose(body.points, points, atol=0.05)
                compared += 1
    print(f"the joints of {compared} images equal those of MediaPipe's solution")


def with_bystander(clip: Clip, other: Clip, *, right: bool, scale: float) -> Clip:
    """Add a bystander beside a clip: the first image of another clip, scaled down."""
    height = clip.frames.shape[1]
    rows, columns = (np.arange(round(length * scale)) / scale for length in other.frames.shape[1:3])
    still = other.frames[0][rows.astype(int)][:, columns.astype(int)][:height]
    beside = np.full((len(clip), height, still.shape[1], 3), 118, np.uint8)
    beside[:, height - len(still) :] = still
    return Clip(np.concatenate([beside, clip.frames] if right else [clip.frames, beside], axis=2), clip.times)


def survey(name: str, follow: Follow, clips: list[Clip]) -> None:
    begin = time.process_time()
    found = np.array([np.isfinite(follow(clip)[:, 0]).mean() for clip in clips])
    speed = sum(map(len, clips)) / (time.process_time() - begin)
    print(
        f"{name:<22}{found.mean():>7.1%} of the frames found; {(found >= 0.95).sum()} of {len(found)} clips to 95 %, "
        f"{(found < 0.1).sum()} not at all; {speed:.0f} frames/s a core",
        flush=True,
    )


def choice(name: str, follow: Follow, clips: list[Clip], *, scale: float) -> None:
    """Count the clips in which the bystander is tracked instead of the person of the clip."""
    wrong = 0
    for number, clip in enumerate(clips):
        right, width = bool(number % 2), clip.frames.shape[2]
        mixed = with_bystander(clip, clips[(number + 1) % len(clips)], right=right, scale=scale)
        x = follow(mixed)[:, 0]
        edge = mixed.frames.shape[2] - width
        astray = x < edge if right else x > width
        wrong += bool(astray[np.isfinite(x)].mean() > 0.1) if np.isfinite(x).any() else 0
    print(f"{name:<22}bystander of {scale} times the size tracked in {wrong} of {len(clips)} clips", flush=True)


def main(folder: Path, count: int) -> None:
    warnings.filterwarnings("ignore", message=r"SymbolDatabase\.GetPrototype")
    files = sorted(folder.glob("*.mp4"))
    chosen = [files[i] for i in np.linspace(0, len(files) - 1, min(count, len(files))).astype(int)]
    clips = [read_clip(path) for path in chosen]
    gate(clips[:10])
    for name, follow in (("MediaPipe's solution", solution), ("estimate_pose", ours)):
        survey(name, follow, clips)
        for scale in (1.0, 0.7):
            choice(name, follow, clips[:: max(len(clips) // 20, 1)], scale=scale)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60)
