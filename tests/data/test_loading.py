from pathlib import Path

import pytest

from inphase.data import stage_videos
from inphase.data.frame_source import load_videos

STAGE = {"name": "stage", "actions": ["kick"], "videos": 2, "level": "plain"}


def test_a_table_names_the_videos_its_loader_lists() -> None:
    table = {**STAGE, "store": "elsewhere", "split": "val"}  # of which the loader knows nothing
    expected = stage_videos.load(split="test", actions=["kick"], videos=2, level="plain")
    assert [video.id for video in load_videos(table, split="test")] == [video.id for video in expected]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"\[data\] has no name: choose one of events, finegym, folder"),
        ({"name": "attic"}, "no data set 'attic': choose one of"),
        ({"name": "golfdb"}, "golfdb is read from a folder: name it as root"),
        ({**STAGE, "color": 1}, r"\[data\] does not take 'color': it takes actions, videos, level, size, seed"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(table: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_videos(table, split="train")


def test_other_data_sets_are_added() -> None:
    other = {**STAGE, "actions": ["squat"], "videos": 3}
    found = load_videos({**STAGE, "also": [other]}, split="test")
    assert [video.action for video in found] == ["kick"] * 2 + ["squat"] * 3
    with pytest.raises(ValueError, match=r"\[data\] also must be"):
        load_videos({**STAGE, "also": ["squat"]}, split="test")
    with pytest.raises(ValueError, match="no data set 'attic'"):
        load_videos({**STAGE, "also": [{"name": "attic"}]}, split="test")


def test_a_folder_is_read_where_the_table_says(tmp_path: Path) -> None:
    (tmp_path / "kick").mkdir()
    (tmp_path / "kick" / "a.mp4").touch()
    (video,) = load_videos({"name": "folder", "root": str(tmp_path), "val": 0.0, "test": 0.0}, split="train")
    assert (video.id, video.action) == ("kick/a.mp4", "kick")
