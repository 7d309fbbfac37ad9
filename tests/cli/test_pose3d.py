from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import inphase.apps.pose3d.reconstruct_pose
from inphase.apps.pose3d import read_reconstruction
from inphase.data import DATASETS, stage_videos
from inphase.data.frame_source import select_joints
from inphase.data.video import Video
from inphase.models import PoseEncoder, save_encoder
from inphase.models.embed_videos import EmbeddedVideos, embed_videos
from inphase.playback import read_playback
from inphase.pose import pose_store
from inphase.pose.pose import JOINTS13, Pose
from inphase.storage.errors import NoPersonError
from tests.apps.test_retrieve_sound import ears
from tests.commands import type_command as run
from tests.media.recordings import write_video

pytestmark = pytest.mark.slow
reconstruct_pose_module = inphase.apps.pose3d.reconstruct_pose


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_encoder(tmp_path / "model.safetensors", PoseEncoder(joints=JOINTS13, hidden=(16,), dimension=16))
    return tmp_path / "model.safetensors"


def test_a_collection_becomes_a_body_in_space(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["--data", "stage", "--action", "squat", "--views", "5", "--model", str(model), "--out", str(out)]
    assert run(monkeypatch, "pose3d", *words) == 0
    printed = capsys.readouterr().out
    assert "from 5 views" in printed
    found = read_reconstruction(out / "pose3d.npz")
    assert found.joints3d.shape == (len(found.times), 13, 3)
    assert len(found.names) == 5
    assert np.isfinite(found.joints3d).all()
    played = read_playback(out)
    assert played.tracks[0].name == found.names[0]
    assert len(played.skeletons) == 1
    assert (out / "pose3d.png").stat().st_size > 1000


def test_own_videos_of_any_kind_are_followed_once_and_played(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    takes = [select_joints(video) for video in stage_videos.load(split="test", actions=["squat"], videos=4)]
    names = ("query.mp4", "one/clip.mkv", "two/clip.mp4", "three.mp4", "nobody.mp4")
    files = [tmp_path / name for name in names]
    followed = []
    for number, file in enumerate(files):
        file.parent.mkdir(exist_ok=True)
        write_video(file, count=5 + number)

    def follow(path: Path, **_: object) -> Pose:
        followed.append(path)
        if path.name == "nobody.mp4":
            raise NoPersonError(f"{path} shows no person")
        return posed(takes[files.index(path)])

    monkeypatch.setattr(pose_store, "estimate_pose", follow)
    words = ["--model", str(model), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    for _ in range(2):
        assert run(monkeypatch, "pose3d", *map(str, files), *words) == 0
    assert sorted(followed) == sorted(files), "what was found the first time is kept"
    assert "left out: " in (printed := capsys.readouterr()).err
    assert "nobody.mp4 shows no person" in " ".join(printed.err.split())
    tracks = read_playback(tmp_path / "out").tracks
    assert len({track.name for track in tracks}) == 4, "those called alike are told apart"
    assert all(track.media is not None and track.media.endswith(".mp4") for track in tracks)
    assert run(monkeypatch, "pose3d", *map(str, files[::-1]), *words) == 1
    assert "nobody.mp4 shows no person" in " ".join(capsys.readouterr().err.split())
    assert run(monkeypatch, "pose3d", *map(str, (*files[:2], files[4])), *words) == 1
    assert "2 of 3 do" in " ".join(capsys.readouterr().err.split())


def test_files_are_aligned_by_pose_and_images_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    takes = [select_joints(video) for video in stage_videos.load(split="test", actions=["squat"], videos=4)]
    files = [tmp_path / f"{number}.mp4" for number in range(4)]
    for file in files:
        write_video(file, count=24)

    def follow(path: Path, **_: object) -> Pose:
        whole = posed(takes[files.index(path)])
        some = np.linspace(0, len(whole.times) - 1, 24).astype(int)
        arrays = {name: getattr(whole, name)[some] for name in ("keypoints", "visibility", "found")}
        return replace(whole, **arrays, times=np.arange(24) / 30)

    embedded: list[str] = []

    def watched(paths: Sequence[Path], **given: Any) -> EmbeddedVideos:
        found = embed_videos(paths, **given)
        embedded.append(found.encoder.modality)
        return found

    monkeypatch.setattr(pose_store, "estimate_pose", follow)
    monkeypatch.setattr(reconstruct_pose_module, "embed_videos", watched)
    words = [*map(str, files), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    for modality in ("auto", "both", "pose", "image"):
        assert run(monkeypatch, "pose3d", *words, "--modality", modality) == 0
        assert read_reconstruction(tmp_path / "out" / "pose3d.npz").joints3d.shape == (24, 13, 3)
    assert embedded == ["both", "both", "pose", "image"]
    words = ["--data", "stage", "--action", "squat", "--modality", "both"]
    assert run(monkeypatch, "pose3d", *words) == 1
    assert "a data set has keypoints and no images" in capsys.readouterr().err


@pytest.mark.parametrize(("action", "repeats"), [("jog", True), ("squat", False), ("pitch", False)])
def test_an_action_that_repeats_is_reported(
    action: str,
    repeats: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if action == "jog":
        people = stage_videos.load(split="test", actions=["squat"], videos=5)
        jogs = [jogging(select_joints(video), phase=0.1 * number) for number, video in enumerate(people)]
        monkeypatch.setitem(DATASETS, "stage", lambda root, split: jogs)
    words = ["--data", "stage", "--action", action, "--views", "5", "--out", str(tmp_path / "out")]
    assert run(monkeypatch, "pose3d", *words) == 0
    warned = " ".join(capsys.readouterr().err.split())
    assert ("The action repeats every 0.7 s: the videos may be off by a repetition." in warned) == repeats
    assert ("repeats" in warned) == repeats


def jogging(video: Video, *, phase: float, period: float = 0.7, frames: int = 90) -> Video:
    """Let the person at the start of a video jog on the spot."""
    assert video.keypoints is not None
    points = video.keypoints[:1].repeat(frames, axis=0)
    torso = np.linalg.norm(points[0, [1, 2]].mean(0) - points[0, [7, 8]].mean(0))
    lifted = np.sin(2 * np.pi * (np.arange(frames) / 30 / period + phase))
    for joint, reach in {"knee": 0.25, "ankle": 0.5, "wrist": -0.3}.items():
        for side, sign in {"left": 1, "right": -1}.items():
            points[:, JOINTS13.index(f"{side}_{joint}"), 1] -= reach * torso * np.maximum(sign * lifted, 0)
    seen = np.ones(points.shape[:2], np.bool_)
    return replace(video, action="jog", keypoints=points, visibility=seen, length=frames, rate=30.0)


def posed(video: Video) -> Pose:
    """Return the joints of a drawn person as a pose estimator would."""
    assert video.keypoints is not None
    length = len(video.keypoints)
    order = [video.joints.index(joint) for joint in JOINTS13]
    visible, found = np.ones((length, len(JOINTS13)), np.float32), np.ones(length, np.bool_)
    return Pose(JOINTS13, video.keypoints[:, order], visible, found, np.arange(length) / 30, (120, 160))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name video files"),
        (["a.mp4", "--data", "stage"], "one of the two"),
        (["a.mp4", "b.mp4"], "depth needs 3 videos or more"),
        (["--data", "nothing"], "no data set 'nothing'"),
        (["--data", "utd_mhad", "--action", "squat"], "--root"),
        (["--data", "stage"], "name an --action"),
        (["--data", "stage", "--action", "squat", "--query", "nobody"], "no video 'nobody'"),
        (["--data", "stage", "--action", "squat", "--views", "2"], "at least 3 views"),
    ],
)
def test_what_is_missing_is_named(
    words: list[str],
    message: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "pose3d", *words, "--model", str(model), "--out", str(tmp_path / "out")) == 1
    assert message in capsys.readouterr().err


def test_an_encoder_of_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_encoder(tmp_path / "audio.safetensors", ears())
    words = ["--data", "stage", "--action", "squat", "--model", str(tmp_path / "audio.safetensors")]
    assert run(monkeypatch, "pose3d", *words) == 1
    assert "does not embed poses" in capsys.readouterr().err
