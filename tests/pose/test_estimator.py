"""A pose estimator from outside the package is one class, named by its import path."""

import ast
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import inphase
from inphase.media.frame_store import Source
from inphase.media.frames import Clip
from inphase.models import PoseEncoder
from inphase.models.embed_videos import embed_video, embed_videos
from inphase.pose.estimator import (
    POSE_ESTIMATORS,
    _shows_person,
    complete_options,
    estimate_pose,
    find_estimator,
    first_without_person,
    open_estimator,
)
from inphase.pose.pose import JOINTS13, Pose
from inphase.pose.pose_store import PoseStore, cached_pose, fill_poses
from inphase.storage.cache import Cache
from inphase.storage.errors import NoPersonError
from tests.media.recordings import write_video

TOY = f"{__name__}:ToyEstimator"


class ToyEstimator:
    """A person whose arms turn with the brightness of the image; a black image shows nobody."""

    joints: ClassVar[tuple[str, ...]] = ("nose", *JOINTS13[1:])
    calls: ClassVar[list[float]] = []
    closed: ClassVar[int] = 0

    def __init__(self, *, arm: float = 20.0) -> None:
        self.arm = arm

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        self.calls.append(self.arm)
        frames, times = [], []
        for clip in clips:
            frames.append(clip.frames.mean((1, 2, 3)))
            times.append(clip.times)
            size = (clip.frames.shape[1], clip.frames.shape[2])
        brightness = np.concatenate(frames)
        rest = np.random.default_rng(0).uniform(10, 50, (len(self.joints), 2))
        points = np.repeat(rest[None], len(brightness), axis=0)
        angle = brightness / 255 * 2 * np.pi
        turn = self.arm * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        for joint in ("left_wrist", "right_wrist", "left_elbow"):
            points[:, self.joints.index(joint)] += turn
        found = brightness > 10
        visibility = np.repeat(found[:, None], len(self.joints), axis=1).astype(np.float32)
        return Pose(self.joints, points.astype(np.float32), visibility, found, np.concatenate(times), size)

    def shows_person(self, image: NDArray[np.uint8]) -> bool:
        return bool(image.mean() > 10)

    def close(self) -> None:
        type(self).closed += 1


def write_phases(path: Path, phases: NDArray[np.float64]) -> Path:
    """Write a video whose brightness is the phase of an action, from 0 to 1."""
    images = [np.full((48, 64, 3), 30 + round(200 * phase), np.uint8) for phase in phases.tolist()]
    return write_video(path, images=images, height=48, width=64, rate=20)


@pytest.fixture
def encoder() -> PoseEncoder:
    torch.manual_seed(0)
    return PoseEncoder(joints=JOINTS13, context=(0,), hidden=(32,), dimension=16).eval()


@pytest.fixture(autouse=True)
def _forget_calls() -> None:
    ToyEstimator.calls.clear()
    ToyEstimator.closed = 0


def test_embedding_uses_an_estimator_from_outside_and_caches_its_poses(tmp_path: Path, encoder: PoseEncoder) -> None:
    video, cache = write_phases(tmp_path / "a.mp4", np.linspace(0, 1, 30)), Cache(tmp_path / "cache")
    embedded = embed_videos([video], model=encoder, cache=cache, pose_estimator=TOY)
    again = embed_video(encoder, video, cache=cache, pose_estimator=TOY)
    np.testing.assert_array_equal(embedded.embeddings[0].values, again.values)
    assert embedded.embeddings[0].values.shape == (30, 16)
    assert (ToyEstimator.calls, ToyEstimator.closed) == ([20.0], 1)
    # The default written out is the same estimator, another option is not, and neither are other frames.
    pose = cached_pose(video, cache=cache, estimator=TOY, options={"arm": 20.0})
    assert (pose.joints, pose.world, ToyEstimator.calls) == (ToyEstimator.joints, None, [20.0])
    cached_pose(video, cache=cache, estimator=TOY, options={"arm": 5.0})
    cached_pose(video, cache=cache, estimator=TOY, fps=5)
    cached_pose(video, cache=cache, estimator=TOY, spans=[(0.0, 1.0)])
    assert ToyEstimator.calls == [20.0, 5.0, 20.0, 20.0]


def test_aligning_by_an_estimator_from_outside_recovers_the_tempo(tmp_path: Path, encoder: PoseEncoder) -> None:
    fast = write_phases(tmp_path / "fast.mp4", np.linspace(0, 1, 30))
    slow = write_phases(tmp_path / "slow.mp4", np.linspace(0, 1, 60))
    aligned = inphase.align_videos([fast, slow], model=encoder, cache=tmp_path / "cache", pose_estimator=TOY)
    clock, seconds = aligned.seconds[:, 0], aligned.seconds[:, 1]
    inside = (clock > 0.2) & (clock < 1.2)
    np.testing.assert_allclose(seconds[inside], clock[inside] * 59 / 29, atol=0.2)


def test_a_store_is_filled_by_an_estimator_from_outside(tmp_path: Path) -> None:
    sources = {
        "a": Source(write_phases(tmp_path / "a.mp4", np.linspace(0, 1, 12))),
        "dark": Source(write_video(tmp_path / "dark.mp4", images=[np.zeros((48, 64, 3), np.uint8)] * 5, rate=20)),
    }
    filled = fill_poses(tmp_path / "store", sources, estimator=TOY, options={"arm": 9})
    assert filled.outcomes == {"a": "written", "dark": "broken"}
    assert "shows no person (in none of the frames" in filled.broken["dark"]
    store = PoseStore(tmp_path / "store")
    assert store.joints == store["a"].joints == ToyEstimator.joints
    assert store.settings["options"] == {"arm": 9}
    np.testing.assert_array_equal(
        store["a"].keypoints, estimate_pose(sources["a"].path, estimator=TOY, options={"arm": 9}).keypoints
    )


def test_a_name_is_one_line_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSE_ESTIMATORS, "toy", TOY)
    with open_estimator("toy", {"arm": 3.0}) as estimator:
        assert isinstance(estimator, ToyEstimator)
        assert estimator.arm == 3.0
    assert ToyEstimator.closed == 1
    assert complete_options("toy") == {"arm": 20.0}
    assert complete_options("blazepose") == {"complexity": 1, "device": "cpu"}


@pytest.mark.parametrize("nobody", [True, False])
def test_a_few_frames_show_whether_there_is_a_person(tmp_path: Path, nobody: bool) -> None:
    dark = np.zeros((48, 64, 3), np.uint8)
    empty = write_video(tmp_path / "b.mp4", images=[dark] * 20 if nobody else [dark, dark + 200] * 10, rate=20)
    videos = [write_phases(tmp_path / "a.mp4", np.linspace(0, 1, 20)), empty]
    assert first_without_person(videos, estimator=TOY) == (empty if nobody else None)
    assert first_without_person([], estimator="nonsense") is None
    assert first_without_person([empty], estimator=f"{__name__}:WithoutPreview") is None
    searched: list[np.ndarray] = []

    def search(image: np.ndarray) -> bool:
        searched.append(image)
        return not nobody

    assert _shows_person(search, empty) is not nobody
    assert len(searched) == (9 if nobody else 4)  # of 12: the rest could not change the answer
    if nobody:
        with pytest.raises(NoPersonError, match=r"b\.mp4 shows no person"):
            estimate_pose(empty, estimator=TOY)


class SecondLook(ToyEstimator):
    """Jitters by `noise` pixels at first, and by `closer` at the second attempt."""

    attempts: ClassVar[list[str]] = []

    def __init__(self, *, noise: float = 0.0, closer: float = 0.0) -> None:
        super().__init__()
        self.noise, self.closer = noise, closer

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        return self._shaken(super().estimate(clips), self.noise, "first")

    def estimate_closer(self, clips: Iterable[Clip], pose: Pose) -> Pose:
        assert pose.found.all()
        return self._shaken(super().estimate(clips), self.closer, "closer")

    def _shaken(self, pose: Pose, noise: float, name: str) -> Pose:
        self.attempts.append(name)
        jitter = np.random.default_rng(1).normal(0, noise + 1e-9, pose.keypoints.shape).astype(np.float32)
        return replace(pose, keypoints=pose.keypoints * 3 + jitter)


@pytest.mark.parametrize(
    ("noise", "closer", "attempts", "kept"),
    [(0, 0, ["first"], 0.0), (60, 1, ["first", "closer"], 1.0), (60, 70, ["first", "closer"], 60.0)],
    ids=["plausible", "closer is better", "closer is worse"],
)
def test_an_implausible_pose_is_estimated_again_and_the_better_one_kept(
    tmp_path: Path, noise: float, closer: float, attempts: list[str], kept: float
) -> None:
    video = write_phases(tmp_path / "a.mp4", np.linspace(0, 0.3, 30))
    SecondLook.attempts.clear()
    name, options, stages = f"{__name__}:SecondLook", {"noise": noise, "closer": closer}, []
    pose = estimate_pose(video, estimator=name, options=options, progress=lambda stage, *_: stages.append(stage))
    assert SecondLook.attempts == attempts
    assert set(stages) == {"estimating pose", "estimating pose again"} if len(attempts) > 1 else {"estimating pose"}
    bend = pose.keypoints[2:, 0] - 2 * pose.keypoints[1:-1, 0] + pose.keypoints[:-2, 0]  # the nose does not move
    assert bend.std() / np.sqrt(6) == pytest.approx(kept, rel=0.5, abs=0.01)


class WithoutPreview:
    joints: ClassVar[tuple[str, ...]] = ("nose",)

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        raise NotImplementedError


class WithoutJoints:
    def estimate(self, clips: Iterable[Clip]) -> Pose:
        raise NotImplementedError


class WithoutEstimate:
    joints: ClassVar[tuple[str, ...]] = ("nose",)


class OtherJoints(ToyEstimator):
    joints: ClassVar[tuple[str, ...]] = ("head", *JOINTS13[1:])

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        return ToyEstimator(arm=self.arm).estimate(clips)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("posenet", r"no pose estimator 'posenet': use blazepose, or an import path 'package\.module:Class'"),
        ("no.such.module:Pose", "cannot be imported .*check the module and the class"),
        (f"{__name__}:Nothing", "cannot be imported .*check the module and the class"),
        (f"{__name__}:WithoutJoints", "needs a class attribute `joints`, a tuple of names, got None"),
        (f"{__name__}:WithoutEstimate", r"needs a method estimate\(self, clips\) that returns a Pose"),
    ],
)
def test_a_contract_that_is_broken_is_named(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_estimator(name)


def test_unknown_options_and_other_joints_than_announced_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unexpected keyword argument 'leg'; its options are arm"):
        complete_options(TOY, {"leg": 1})
    clip = Clip(np.full((3, 8, 8, 3), 100, np.uint8), np.arange(3) / 10)
    with pytest.raises(ValueError, match=r"OtherJoints announces the joints .* but returns"):
        estimate_pose(clip, estimator=f"{__name__}:OtherJoints")


def test_nothing_imports_mediapipe_and_only_the_registry_blazepose() -> None:
    package = Path(inphase.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.startswith(("mediapipe", "inphase.pose.blazepose")) for name in names):
                found.add(path.relative_to(package).as_posix())
    assert found == set()
