"""Pose estimators: the protocol, the registry, and pose estimation of clips and recordings.

A new estimator is one class and one line in `POSE_ESTIMATORS`; outside of the package, its import path
"mypackage.module:MyEstimator" stands in place of the name.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from inphase.media.frames import Clip, in_clips, spliced, warn_of_damage
from inphase.media.recording import Recording, open_recording
from inphase.media.sampling import choose
from inphase.pose.body import plausibility
from inphase.pose.pose import Pose
from inphase.progress import Progress, ignore_progress
from inphase.storage.errors import MediaError, NoPersonError

# Import paths, so that an estimator is imported when it is used.
POSE_ESTIMATORS: dict[str, str] = {"blazepose": "inphase.pose.blazepose:BlazePose"}
DEFAULT_ESTIMATOR = "blazepose"

# A recording with a person in a smaller fraction of its frames has none.
MIN_FOUND_FRACTION = 0.1
# A less plausible pose is estimated again by an estimator that can, closer to the figure; that pose is taken if it is
# this many times as plausible.
MIN_PLAUSIBILITY, MIN_GAIN = 0.45, 1.25
# Frames of a clip, and the bytes of an image from which on it is a clip of its own.
CLIP_LENGTH, SINGLE_BYTES = 16, 1_500_000
# A few sampled frames are searched first; a recording with no person in this fraction of them is taken to show none.
PREVIEW_FRAMES, EMPTY_FRACTION = 12, 0.75


class PoseEstimator(Protocol):
    """Estimates the pose of the one person a recording is about. Its options are the arguments of its constructor.

    Four more methods are used where an estimator has them: `shows_person(image) -> bool` finds recordings without
    people quickly, `estimate_closer(clips, pose)` estimates again around an implausible figure, `require_installed()`,
    static, raises `MissingExtraError` before any work, `close()` frees memory.
    """

    joints: ClassVar[tuple[str, ...]]  # names in the order of the arrays; left_… and right_… are the person's own

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        """Estimate the pose in all frames of consecutive clips of one recording, RGB at its full size."""
        ...


def find_estimator(name: str) -> Callable[..., PoseEstimator]:
    """Import the class of a pose estimator by its name in `POSE_ESTIMATORS` or its import path; check its contract."""
    module, _, attribute = POSE_ESTIMATORS.get(name, name).partition(":")
    if not attribute:
        known = ", ".join(sorted(POSE_ESTIMATORS))
        raise ValueError(f"no pose estimator {name!r}: use {known}, or an import path 'package.module:Class'")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"pose estimator {name!r} cannot be imported ({error}): check the module and the class"
        ) from error
    joints = getattr(found, "joints", None)
    if not (isinstance(joints, tuple) and joints and all(isinstance(joint, str) for joint in joints)):
        raise ValueError(f"pose estimator {name!r} needs a class attribute `joints`, a tuple of names, got {joints!r}")
    if not callable(getattr(found, "estimate", None)):
        raise ValueError(f"pose estimator {name!r} needs a method estimate(self, clips) that returns a Pose")
    return found  # type: ignore[no-any-return]


def complete_options(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Add the defaults to the options of an estimator; raise if it has no such option."""
    signature = inspect.signature(find_estimator(name))
    try:
        bound = signature.bind(**(options or {}))
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise ValueError(f"pose estimator {name!r}: {error}; its options are {known}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def require_estimator(name: str) -> None:
    """Raise `MissingExtraError` if an estimator needs a package that is not installed."""
    check = getattr(find_estimator(name), "require_installed", None)
    if check is not None:
        check()


@contextmanager
def open_estimator(name: str = DEFAULT_ESTIMATOR, options: Mapping[str, Any] | None = None) -> Iterator[PoseEstimator]:
    """Build an estimator, and close it at the end."""
    estimator = find_estimator(name)(**complete_options(name, options))
    try:
        yield estimator
    finally:
        if hasattr(estimator, "close"):
            estimator.close()


def estimate_pose(
    source: Clip | Recording | Path | str,
    *,
    spans: Sequence[tuple[float, float]] = (),
    fps: float | None = None,
    native_fps: float | None = None,
    estimator: str = DEFAULT_ESTIMATOR,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Pose:
    """Estimate the pose of the person a clip, an opened recording, a video file or a folder of images is about.

    `spans`, `fps` and `native_fps` are those of `read_clip` and `read_spans`; `options` are the estimator's own. Files
    are decoded as they are used, a few frames at a time. Raise `NoPersonError` if no person is found.
    """
    if isinstance(source, Clip):
        if spans or fps is not None or native_fps is not None:
            raise ValueError("spans, fps and native_fps are for files: pass the path instead of the clip")
        starts = range(0, len(source), CLIP_LENGTH)
        parts = [Clip(source.frames[i : i + CLIP_LENGTH], source.times[i : i + CLIP_LENGTH]) for i in starts]
        with open_estimator(estimator, options) as opened:
            return _estimate(opened, lambda: parts, name="the clip", total=len(source), progress=progress)
    recording = open_recording(source, native_fps=native_fps) if isinstance(source, Path | str) else source
    pose = estimate_recording(recording, spans=spans, fps=fps, estimator=estimator, options=options, progress=progress)
    warn_of_damage(recording)
    return pose


def estimate_recording(
    recording: Recording,
    *,
    spans: Sequence[tuple[float, float]] = (),
    fps: float | None = None,
    estimator: str = DEFAULT_ESTIMATOR,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Pose:
    """Estimate the pose in an opened recording, which afterwards counts its damaged frames."""
    wanted = [choose(recording.times, span=span, fps=fps) for span in spans] or [choose(recording.times, fps=fps)]
    total = sum(len(recording.times) if some is None else len(some) for some in wanted)
    decoded = iter([recording])  # once: damage that is decoded again is not counted again

    def clips() -> Iterator[Clip]:
        source = next(decoded, None) or copy.copy(recording)
        if spans:
            return spliced(source, spans, fps=fps, size=None, length=CLIP_LENGTH)
        return in_clips(source, wanted[0], size=None, length=CLIP_LENGTH, single_bytes=SINGLE_BYTES)

    with open_estimator(estimator, options) as opened:
        return _estimate(opened, clips, name=str(recording.path), total=total, progress=progress)


def first_without_person(paths: Sequence[Path], *, estimator: str = DEFAULT_ESTIMATOR) -> Path | None:
    """Search a few frames of each recording; return the first recording without a person in most of them."""
    if not paths:
        return None
    with open_estimator(estimator) as opened:
        shows_person: Callable[[Any], bool] | None = getattr(opened, "shows_person", None)
        for path in paths if shows_person is not None else ():
            assert shows_person is not None
            if not _shows_person(shows_person, path):
                return path
    return None


def _shows_person(shows_person: Callable[[Any], bool], path: Path) -> bool:
    """Search sampled frames of a recording, in order, until there is a person in enough of them or in too few."""
    recording = open_recording(path)
    sampled = np.unique(np.linspace(0, len(recording.times) - 1, PREVIEW_FRAMES).astype(int))
    found, empty, limit = 0, 0, EMPTY_FRACTION * len(sampled)
    for _, image in recording.images(sampled):
        shown = shows_person(image)
        found, empty = found + shown, empty + (not shown)
        if empty >= limit or len(sampled) - found < limit:
            return empty < limit
    if not found + empty:
        raise MediaError(f"{path}: no requested frame could be decoded; get an undamaged copy of the file")
    return empty < EMPTY_FRACTION * (found + empty)  # some frames could not be decoded


def _estimate(
    estimator: PoseEstimator,
    clips: Callable[[], Iterable[Clip]],
    *,
    name: str,
    total: int,
    progress: Progress | None,
) -> Pose:
    """Estimate the pose in consecutive clips; raise `NoPersonError`, which names them, if it was hardly found."""
    report = progress or ignore_progress

    def reported(stage: str) -> Iterator[Clip]:
        done = 0
        for clip in clips():
            yield clip
            done += len(clip)
            report(stage, done, total)

    pose = estimator.estimate(reported("estimating pose"))
    if pose.joints != tuple(estimator.joints):
        raise ValueError(
            f"{type(estimator).__name__} announces the joints {estimator.joints} but returns {pose.joints}"
        )
    found = int(pose.found.sum())
    if found < max(MIN_FOUND_FRACTION * len(pose), 1):
        where = f"in {found} of {len(pose)} frames only" if found else "in none of the frames"
        raise NoPersonError(
            f"{name} shows no person ({where} could one be found): leave it out, or cut it to where one is"
        )
    closer: Callable[[Iterable[Clip], Pose], Pose] | None = getattr(estimator, "estimate_closer", None)
    if closer is None or (rated := plausibility(pose)) >= MIN_PLAUSIBILITY:
        return pose
    again = closer(reported("estimating pose again"), pose)
    return again if plausibility(again) > MIN_GAIN * rated else pose
