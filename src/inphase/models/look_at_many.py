"""See several recordings with one encoder, the one asked for or the one that suits them.

Without a wish, people are seen by their poses and all else by its pictures: on real videos of people poses align
several times as accurately, whatever the action (docs/apps.md). `look_at_all` decides, and says why.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from inphase.media.errors import MediaError, MissingExtraError, NoPersonError
from inphase.media.frames import read_clip
from inphase.media.kept_pose import is_kept, kept_pose
from inphase.media.landmarks import Landmarker, deprecations_ignored
from inphase.media.pose import Pose
from inphase.media.recording import open_recording
from inphase.media.shelf import Shelf
from inphase.models.embed import Embedding
from inphase.models.encoder import Encoder
from inphase.models.look import embed_pose, look
from inphase.models.pooled_features import PooledFeatures
from inphase.models.weights import load_shipped

# Poses are used where somebody is found in this fraction of the frames of every video.
MOST = 0.5
# Before all frames are searched for people, so many are; where this fraction of them shows nobody, that is enough.
GLANCES, NOBODY = 12, 0.75

Result = TypeVar("Result")
Tell = Callable[[int, int, int], None]  # which recording, frames done, frames there are


@dataclass(frozen=True, eq=False)
class Looked:
    """Recordings as one encoder saw them, and in a sentence why it was that one."""

    embeddings: list[Embedding]
    encoder: Encoder
    why: str


def look_at_all(
    paths: Sequence[Path],
    *,
    encoder: Encoder | None = None,
    shelf: Shelf | None = None,
    rate: float | None = None,
    progress: Tell | None = None,
) -> Looked:
    """Embed recordings with one encoder; without one, with the shipped one that suits all of them."""
    shelf = shelf or Shelf(None)
    if encoder is not None:
        return Looked(_embed_all(paths, encoder, shelf, rate, progress), encoder, f"the model that sees {encoder.sees}")
    try:
        of_poses = load_shipped("poses")
        unknown = [path for path in paths if not is_kept(path, shelf=shelf, rate=rate)]
        if (empty := _without_people(unknown)) is not None:
            raise NoPersonError(f"{empty} shows nobody in most of {GLANCES} frames looked at")
        poses = _poses(paths, shelf, rate, progress)
    except (NoPersonError, MissingExtraError, FileNotFoundError) as error:
        encoder, name = _encoder_of_pictures()
        why = f"{name}, since {error}"
        return Looked(_embed_all(paths, encoder, shelf, rate, progress), encoder, why)
    seen = min(float(pose.found.mean()) for pose in poses)
    share = "all" if seen == 1 else f"at least {seen:.0%}"
    why = f"poses, since a person is found in every video, in {share} of its frames"
    return Looked([embed_pose(of_poses, pose) for pose in poses], of_poses, why)


def look_at_each(
    paths: Sequence[Path],
    *,
    encoder: Encoder,
    shelf: Shelf | None = None,
    rate: float | None = None,
    progress: Tell | None = None,
) -> tuple[dict[Path, Embedding], dict[Path, str]]:
    """Embed those of many recordings that can be, and say of each other one why not."""
    shelf = shelf or Shelf(None)

    def look_at(path: Path, tell: Callable[[int, int], None]) -> Embedding | str:
        try:
            return look(encoder, path, shelf=shelf, rate=rate, progress=tell)
        except MediaError as error:
            tell(1, 1)  # there is no more to do
            return str(error)

    found = _side_by_side(look_at, paths, threads=_threads(encoder), progress=progress)
    seen = {path: each for path, each in zip(paths, found, strict=True) if isinstance(each, Embedding)}
    return seen, {path: each for path, each in zip(paths, found, strict=True) if isinstance(each, str)}


def follow_each(
    paths: Sequence[Path], *, shelf: Shelf | None = None, progress: Tell | None = None
) -> tuple[dict[Path, Pose], dict[Path, str]]:
    """Follow the person of those recordings that show one, and say of each other one why not."""
    shelf = shelf or Shelf(None)

    def follow(path: Path, tell: Callable[[int, int], None]) -> Pose | str:
        try:
            return kept_pose(path, shelf=shelf, progress=tell)
        except MissingExtraError:
            raise
        except MediaError as error:
            tell(1, 1)  # there is no more to do
            return str(error)

    found = _side_by_side(follow, paths, threads=os.cpu_count() or 1, progress=progress)
    seen = {path: each for path, each in zip(paths, found, strict=True) if isinstance(each, Pose)}
    return seen, {path: each for path, each in zip(paths, found, strict=True) if isinstance(each, str)}


def _encoder_of_pictures() -> tuple[Encoder, str]:
    """Give the shipped encoder of pictures; failing that, one that was never trained to align."""
    try:
        return load_shipped("pictures"), "pictures"
    except FileNotFoundError:
        return PooledFeatures(), "pictures by a network that knows ImageNet and was never trained to align"


def _without_people(paths: Sequence[Path]) -> Path | None:
    """Glance at a few frames of each recording; name the first that shows nobody."""
    if not paths:
        return None
    with Landmarker() as eye:
        for path in paths:
            length = len(open_recording(path).times)
            frames = read_clip(path, indices=np.unique(np.linspace(0, length - 1, GLANCES).astype(int))).frames
            if sum(not eye.find(picture) for picture in frames) >= NOBODY * len(frames):
                return path
    return None


def _poses(paths: Sequence[Path], shelf: Shelf, rate: float | None, progress: Tell | None) -> list[Pose]:
    """Follow the person of every recording; refuse where in one there is none most of the time."""

    def follow(path: Path, tell: Callable[[int, int], None]) -> Pose:
        return kept_pose(path, shelf=shelf, rate=rate, progress=tell)

    # MediaPipe works outside the interpreter's lock: a thread for each core follows a person.
    poses = _side_by_side(follow, paths, threads=os.cpu_count() or 1, progress=progress)
    for path, pose in zip(paths, poses, strict=True):
        if pose.found.mean() < MOST:
            raise NoPersonError(f"{path} shows a person in {pose.found.mean():.0%} of its frames only")
    return poses


def _embed_all(
    paths: Sequence[Path], encoder: Encoder, shelf: Shelf, rate: float | None, progress: Tell | None
) -> list[Embedding]:
    """Look at every recording."""

    def look_at(path: Path, tell: Callable[[int, int], None]) -> Embedding:
        return look(encoder, path, shelf=shelf, rate=rate, progress=tell)

    return _side_by_side(look_at, paths, threads=_threads(encoder), progress=progress)


def _threads(encoder: Encoder) -> int:
    """Choose how many recordings to look at side by side: torch uses all cores by itself, MediaPipe one each."""
    return os.cpu_count() or 1 if encoder.sees == "poses" else 1


def _side_by_side(
    work: Callable[[Path, Callable[[int, int], None]], Result],
    paths: Sequence[Path],
    *,
    threads: int,
    progress: Tell | None,
) -> list[Result]:
    """Work on recordings in threads; the first error, or an interruption, stops all of them."""
    stopped = threading.Event()

    def work_on(number: int, path: Path) -> Result:
        def tell(done: int, total: int) -> None:
            if stopped.is_set():
                raise InterruptedError("another recording failed")
            if progress is not None:
                progress(number, done, total)

        try:
            return work(path, tell)
        except BaseException:
            stopped.set()
            raise

    # Filters of warnings are the process's, not a thread's: one that holds for all of them.
    with deprecations_ignored(), ThreadPoolExecutor(max(1, min(len(paths), threads))) as pool:
        waiting = [pool.submit(work_on, number, path) for number, path in enumerate(paths)]
        try:
            wait(waiting, return_when=FIRST_EXCEPTION)
            failed = [error for each in waiting if each.done() and (error := each.exception()) is not None]
            if failed:
                raise failed[0]
            return [each.result() for each in waiting]
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
