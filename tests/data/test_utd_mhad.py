from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from inphase.data import utd_mhad
from inphase.data.video import Problem

JOINTS = ["head", "shoulder_center", "spine", "hip_center", "left_hip", "right_hip"]


def write(root: Path, **extra: np.ndarray) -> Path:
    """Write a miniature: two subjects, two actions, a few frames of half precision."""
    rng = np.random.default_rng(0)
    names = [f"seq_a{action:02d}_s{subject}_t1" for action in (1, 2) for subject in (1, 2)]
    sequences = {name: rng.normal(size=(5, 6, 3)).astype(np.float16) for name in names}
    np.savez(
        root / "skeleton3d.npz",
        joint_names=np.array(JOINTS),
        action_names=np.array(["wave", "clap"]),
        parents=np.zeros(6, np.int64),
        fps=np.float32(30),
        **(sequences | extra),
    )
    return root


def test_skeletons_become_videos_split_by_subject(tmp_path: Path) -> None:
    train, test = (utd_mhad.load(write(tmp_path), split=split) for split in ("train", "test"))
    assert [(video.id, video.action) for video in train] == [("a01_s1_t1", "wave"), ("a02_s1_t1", "clap")]
    assert [video.notes["subject"] for video in test] == ["2", "2"]
    video = train[0]
    assert (video.length, video.rate, video.path, video.joints) == (5, 30.0, None, tuple(JOINTS))
    assert video.joints3d is not None
    assert video.keypoints is not None
    assert video.visibility is not None
    assert video.joints3d.shape == (5, 6, 3)
    assert video.joints3d.dtype == np.float32
    assert (video.keypoints.shape, video.visibility.shape) == ((5, 6, 2), (5, 6))


def test_a_camera_depends_on_the_seed_and_the_video_alone(tmp_path: Path) -> None:
    write(tmp_path)
    (once,) = utd_mhad.load(tmp_path, split="train", actions=("clap",))
    again = utd_mhad.load(tmp_path, split="all")[2]
    (other,) = utd_mhad.load(tmp_path, split="train", actions=("clap",), seed=1)
    assert once.id == again.id
    assert np.array_equal(once.keypoints, again.keypoints)  # type: ignore[arg-type]
    assert not np.allclose(once.keypoints, other.keypoints)  # type: ignore[arg-type]


def test_every_video_has_a_camera_of_its_own(tmp_path: Path) -> None:
    body = np.random.default_rng(1).normal(size=(5, 6, 3))
    one, other = utd_mhad.load(write(tmp_path, seq_a01_s1_t1=body, seq_a02_s1_t1=body), split="train")
    assert np.array_equal(one.joints3d, other.joints3d)  # type: ignore[arg-type]
    assert not np.allclose(one.keypoints, other.keypoints)  # type: ignore[arg-type]


def test_broken_skeletons_are_reported_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, seq_a01_s1_t1=np.full((5, 6, 3), np.nan), seq_a02_s1_t1=np.zeros((5, 4, 3)))
    with pytest.warns(Problem, match="instead of finite") as caught:
        assert utd_mhad.load(tmp_path, split="train") == []
    assert len(caught) == 2


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no skeleton3d\.npz"):
        utd_mhad.load(tmp_path, split="all")
    with pytest.raises(ValueError, match="no such action: swim; there are wave, clap"):
        utd_mhad.load(write(tmp_path), split="all", actions=("swim",))
    (tmp_path / "skeleton3d.npz").write_bytes(b"PK\x03\x04nonsense")
    with pytest.raises(ValueError, match="is damaged"):
        utd_mhad.load(tmp_path, split="all")


def test_the_real_skeletons(real: Callable[[str], Path]) -> None:
    videos = utd_mhad.load(real("utd_mhad"), split="test")
    assert len(videos) == 430
    assert len({video.action for video in videos}) == 27
    assert Counter(video.notes["subject"] for video in videos).keys() == {"2", "4", "6", "8"}
    seen = np.concatenate([video.visibility for video in videos if video.visibility is not None])
    assert 0.7 < seen.mean() < 0.95
    head, left_wrist = (seen[:, videos[0].joints.index(name)].mean() for name in ("head", "left_wrist"))
    assert head > left_wrist


def test_another_archive_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "skeleton3d.npz", seq_a01_s1_t1=np.zeros((5, 6, 3)))
    with pytest.raises(ValueError, match=r"skeleton3d.npz has no action_names, joint_names, fps: copy it again"):
        utd_mhad.load(tmp_path, split="all")
    write(tmp_path, seq_a09_s1_t1=np.zeros((5, 6, 3)))
    assert utd_mhad.load(tmp_path, split="train")[-1].action == "action 9", "an action nobody named"
