"""A user's own pose sequences: files with named joints, and what is wrong with them."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.data import DATASETS
from inphase.data.check import check
from inphase.data.frame_source import fill_joints, open_frame_source
from inphase.data.keypoints import load, read_joints
from inphase.data.video import Problem
from inphase.models import PoseEncoder

JOINTS = ("left_hip", "right_hip", "left_shoulder", "right_shoulder", "racket_tip")


def swing(seed: int, *, frames: int = 30, space: int = 2) -> NDArray[np.float32]:
    """Move five joints on smooth random curves."""
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, frames)[:, None, None]
    middle, speed = rng.uniform(40, 60, (5, space)), rng.uniform(0.5, 2, (5, space))
    return np.asarray(middle + 20 * np.sin(2 * np.pi * speed * time), np.float32)


def write_npz(file: Path, points: NDArray[np.float32], **more: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"points": points, "joints": np.array(JOINTS), "fps": 25.0} | more
    np.savez(file, allow_pickle=False, **{name: value for name, value in arrays.items() if value is not None})


def write_csv(file: Path, header: list[str], rows: list[list[object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for action in ("serve", "smash"):
        for number in range(4):
            write_npz(tmp_path / action / f"{number}.npz", swing(number))
    return tmp_path


def test_npz_files_become_videos_of_keypoints(root: Path) -> None:
    hidden = np.ones((30, 5))
    hidden[3, 4] = 0.2
    write_npz(root / "serve" / "0.npz", swing(0), visibility=hidden, size=np.array([90, 120]))
    videos = {video.id: video for video in load(root, split="all")}
    assert list(videos) == [f"{action}/{number}.npz" for action in ("serve", "smash") for number in range(4)]
    first, second = videos["serve/0.npz"], videos["serve/1.npz"]
    assert (first.action, first.rate, first.length, first.size, first.joints) == ("serve", 25, 30, (90, 120), JOINTS)
    assert first.keypoints is not None
    assert first.visibility is not None
    assert not first.visibility[3, 4]
    assert first.visibility.sum() == 149
    np.testing.assert_array_equal(first.keypoints[first.visibility], swing(0)[first.visibility])
    assert (first.keypoints[3, 4] == 0).all()
    assert second.size is not None
    assert second.size[1] >= swing(1)[..., 0].max()
    assert DATASETS["keypoints"] is load
    assert check(load, root, name="keypoints").whole


def test_csv_files_have_gaps_and_times(tmp_path: Path) -> None:
    names = [f"{joint}_{axis}" for joint in JOINTS for axis in "xy"]
    points: list[list[Any]] = swing(2, frames=4).reshape(4, -1).tolist()
    write_csv(
        tmp_path / "by_frame.csv",
        ["frame", *names, "racket_tip_visibility"],
        [[frame, *row, 1] for frame, row in zip((10, 11, 13, 14), points, strict=True)],
    )
    points[1][0] = ""
    write_csv(tmp_path / "by_time.csv", ["time", *names], [[0.1 * k, *row] for k, row in enumerate(points)])
    by_frame, by_time = load(tmp_path, split="all", fps=50)
    assert by_frame.action == tmp_path.name
    assert (by_frame.length, by_frame.rate) == (5, 50)
    assert by_frame.visibility is not None
    assert by_frame.visibility.all(-1).tolist() == [True, True, False, True, True]
    assert by_frame.keypoints is not None
    np.testing.assert_allclose(by_frame.keypoints[3], swing(2, frames=4)[2], rtol=1e-5)
    assert by_time.rate == pytest.approx(10)
    assert by_time.visibility is not None
    assert not by_time.visibility[1, 0]
    assert by_time.visibility.sum() == 19


def test_tables_label_phases_events_and_splits(root: Path) -> None:
    (root / "phases.csv").write_text("video,start,end,phase\nserve/0.npz,0,0.4,toss\nserve/0.npz,0.4,1.2,hit\n")
    (root / "events.csv").write_text("video,event,time\nserve/0.npz,contact,0.8\n")
    splits = "".join(f"{a}/{n}.npz,{'test' if n > 2 else 'train'}\n" for a in ("serve", "smash") for n in range(4))
    (root / "splits.csv").write_text("video,split\n" + splits)
    assert [video.id for video in load(root, split="test")] == ["serve/3.npz", "smash/3.npz"]
    first = load(root, split="train")[0]
    assert first.intervals == ((0.0, 0.4, 0), (0.4, 1.2, 1))
    assert (first.phase_names, dict(first.events)) == (("toss", "hit"), {"contact": 20})
    (root / "events.csv").write_text("video,event,time\nserve/0.npz,contact,7\n")
    with pytest.raises(ValueError, match=r"serve/0\.npz: contact is after its end at 1\.20 seconds"):
        load(root, split="train")


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"joints": None}, "has no array joints"),
        ({"joints": np.array(JOINTS[:3])}, "5 joints need as many different names"),
        ({"points": np.zeros((4, 5), np.float32)}, r"must be \[T, J, 2\]"),
        ({"visibility": np.ones((3, 5))}, r"visibility must be \[30, 5\], got \[3, 5\]"),
        ({"visibility": np.zeros((30, 5))}, "no joint is visible"),
        ({"fps": 0.0}, "fps must be above 0"),
        ({"size": np.array([3])}, "size must be height and width"),
    ],
)
def test_a_wrong_file_is_named_and_skipped(root: Path, arrays: dict[str, Any], fault: str) -> None:
    points = arrays.pop("points", swing(0))
    write_npz(root / "serve" / "0.npz", points, **arrays)
    with pytest.warns(Problem, match=fault):
        assert len(load(root, split="all")) == 7


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("frame,head\n1,2\n", "no columns <joint>_x"),
        ("frame,head_x\n1,2\n", "no column head_y"),
        ("head_x,head_y\n1,2\n", "neither a column frame nor a column time"),
        ("frame,head_x,head_y\n1,2,3\n1,2,3\n", "frame must increase"),
        ("frame,head_x,head_y\n1,2,left\n", "line 2: head_y is 'left', not a number"),
    ],
)
def test_a_wrong_table_is_named_and_skipped(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.warns(Problem, match=fault):
        assert load(tmp_path, split="all") == []


def test_folders_without_sequences_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"put \.npz or \.csv files there"):
        load(tmp_path, split="all")
    with pytest.raises(FileNotFoundError, match="check the spelling"):
        load(tmp_path / "none", split="all")


def test_an_encoder_is_built_for_the_joints_of_the_files(root: Path) -> None:
    data = {"name": "keypoints", "root": str(root)}
    table = fill_joints({"name": "pose", "hidden": [8]}, data)
    assert (table["joints"], table["space"]) == (list(JOINTS), 2)
    assert fill_joints({"name": "pose", "joints": ["head"]}, data)["joints"] == ["head"]
    assert "joints" not in fill_joints({"name": "pose"}, {"name": "stage"})
    source = open_frame_source(PoseEncoder(joints=table["joints"], hidden=(8,)), load(root, split="all"))
    values, times = source.read(source.videos[0], np.array([0, 5]))
    assert values.shape == (2, 5, 3)
    assert times[1] == pytest.approx(5 / 25)


def test_joints_in_space_go_to_an_encoder_of_space(tmp_path: Path) -> None:
    for number in range(2):
        write_npz(tmp_path / f"{number}.npz", swing(number, space=3))
    joints, space = read_joints(tmp_path)
    assert (joints, space) == (JOINTS, 3)
    encoder = PoseEncoder(joints=joints, space=space, hidden=(8,))
    source = open_frame_source(encoder, load(tmp_path, split="all"))
    values, _ = source.read(source.videos[0], np.array([2]))
    assert values.shape == (1, 5, 4)
    write_npz(tmp_path / "flat.npz", swing(3))
    with pytest.raises(ValueError, match="one number of dimensions"):
        read_joints(tmp_path)
