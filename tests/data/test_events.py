"""The layout events.csv, and the data sets that have its shape."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from inphase.data import DATASETS
from inphase.data.folder import split_people
from inphase.data.frame_source import load_videos
from inphase.data.keypoints import load_events as load
from inphase.data.video import Problem
from tests.media.recordings import write_video
from tests.real_data import REASON, real_folder


def write(root: Path, *lines: str, table: str = "events.csv") -> Path:
    (root / table).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Write three videos of 12 frames at 30 fps."""
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        write_video(tmp_path / name, count=12)
    return tmp_path


def test_seconds_and_frames_become_frames_and_phases(videos: Path) -> None:
    write(videos, "file,person,top,impact_frame", "a.mp4,ann,0.1,7", "b.mp4,bob,0.2,9", "c.mp4,ann,0.2,8")
    a, b, c = load(videos, split="all")
    assert (dict(a.events), dict(b.events)) == ({"top": 3, "impact": 7}, {"top": 6, "impact": 9})
    assert (a.id, a.action, a.length, a.path) == ("a.mp4", videos.resolve().name, 12, videos / "a.mp4")
    assert a.rate == pytest.approx(30.0, abs=0.1)
    assert a.phases is not None
    assert a.phases.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert a.phase_names == ("start", "top", "impact")
    assert a.split == c.split, "a person is in one split"
    assert a.notes == {"person": "ann"}
    for name in ("events", "folder"):
        assert load_videos({"name": name, "root": str(videos)}, split="all")[1].events == b.events


def test_an_empty_cell_is_an_event_that_does_not_occur(videos: Path) -> None:
    write(videos, "file,action,top,impact", "a.mp4,serve,0.1,0.3", "b.mp4,serve,,0.3")
    a, b = load(videos, split="all")
    assert list(b.events) == ["impact"]
    assert a.phases is None
    assert a.action == "serve"


def test_a_split_column_decides(videos: Path) -> None:
    write(videos, "file,split,top", "a.mp4,train,0.1", "b.mp4,test,0.1", "c.mp4,test,0.1")
    assert [each.id for each in load(videos, split="test")] == ["b.mp4", "c.mp4"]
    write(videos, "file,split,top", "a.mp4,later,0.1")
    with pytest.raises(ValueError, match=r"a\.mp4: split 'later'; write one of train, val, test"):
        load(videos, split="all")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("gone.mp4,0.1,3", r"gone\.mp4: the file does not exist; correct the row"),
        ("b.mp4,soon,3", r"could not convert string to float: 'soon'"),
        ("b.mp4,0.1,12", r"impact at 12 lies outside of the video, which has 12 frames"),
        ("b.mp4,7.5,3", r"top at 7\.5 lies outside of the video"),
    ],
)
def test_one_bad_row_does_not_spoil_the_others(videos: Path, row: str, reason: str) -> None:
    write(videos, "file,top,impact_frame", "a.mp4,0.1,7", row)
    with pytest.warns(Problem, match=reason):
        (video,) = load(videos, split="all")
    assert video.id == "a.mp4"


def test_a_folder_without_a_table_or_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no events\.csv in .*: write one row per video"):
        load(tmp_path, split="all")
    with pytest.raises(ValueError, match=r"has no event column: add one for each event"):
        load(write(tmp_path, "file,person", "a.mp4,ann"), split="all")


def test_people_are_held_out_whole_and_by_seed() -> None:
    people = [f"p{k // 5}" for k in range(50)]
    found = split_people(people, val=0.1, test=0.2)
    assert Counter(found.values()) == {"train": 7, "test": 2, "val": 1}
    assert found == split_people(people, val=0.1, test=0.2)
    others = {
        frozenset(p for p, s in split_people(people, val=0.0, test=0.2, seed=k).items() if s == "test")
        for k in range(5)
    }
    assert len(others) > 1
    assert "test" in split_people(["a"] * 9 + ["b"] * 8, val=0.0, test=0.2).values()


def test_ski_jumps_are_poses_without_videos(tmp_path: Path) -> None:
    points = np.random.default_rng(0).uniform(10, 90, (5, 23, 3)).astype(np.float32)
    points[..., 2] = 2
    np.savez(tmp_path / "poses.npz", j1=points, j1_frame=np.array([7, 8, 10, 11, 12]))
    head = "id,file,action,person,first_frame,take_off_frame,landing,telemark_start"
    write(tmp_path, head, "j1,poses.npz:j1,ski_jump,a,7,8,11,", table="index.csv")
    (video,) = DATASETS["ski_jump_poses"](tmp_path, split="all")
    assert dict(video.events) == {"take_off": 1, "landing": 4}
    assert video.keypoints is not None
    assert video.visibility is not None
    assert video.keypoints.shape == (6, 13, 2)
    assert video.visibility.all(1).tolist() == [True, True, False, True, True, True]
    np.testing.assert_array_equal(video.keypoints[3, 4], points[2, 3, :2])  # right elbow


@pytest.mark.parametrize(
    ("name", "count", "event"),
    [("lsa64_signs", 70, "hand_half"), ("knot_tying", 12, "drop"), ("ski_jump_poses", 32, "landing")],
)
def test_real_data_sets_are_read_whole(name: str, count: int, event: str) -> None:
    if not real_folder(name).is_dir():
        pytest.skip(REASON.format(name=name))
    found = DATASETS[name](real_folder(name), split="all")
    assert len(found) == count
    assert sum(event in each.events for each in found) >= 0.9 * count
    assert len({each.split for each in found}) == 3
