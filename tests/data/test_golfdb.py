from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from inphase.data import golfdb
from inphase.data.video import Problem

HEADER = "id,player,sex,club,view,split,frames," + ",".join(golfdb.EVENTS)


def write(root: Path, *rows: str) -> Path:
    (root / "index.csv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return root


def test_eight_events_make_nine_phases_and_the_lead_in_stays(tmp_path: Path) -> None:
    (video,) = golfdb.load(write(tmp_path, "0007,p1,f,driver,face-on,4,12,2,3,4,5,6,7,8,10"), split="test")
    assert video.phases is not None
    assert video.phases.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8]
    assert (video.id, video.length, video.rate, video.path) == ("0007", 12, 30.0, tmp_path / "videos" / "0007.mp4")
    assert video.events["impact"] == 7
    assert video.phase_names[video.phases[video.events["impact"]]] == "impact"
    assert video.notes == {"player": "p1", "sex": "f", "club": "driver", "view": "face-on", "split": "4"}


def test_validation_is_a_fifth_of_the_clips_and_shares_no_player(tmp_path: Path) -> None:
    rows = [f"{i:04d},p{i // 4},m,iron,other,{2 + i % 2},20,1,2,3,4,5,6,7,8" for i in range(100)]
    root = write(tmp_path, *rows)
    train, val = golfdb.load(root, split="train"), golfdb.load(root, split="val")
    assert (len(train), len(val)) == (80, 20)
    assert not {video.notes["player"] for video in train} & {video.notes["player"] for video in val}
    assert [video.id for video in golfdb.load(root, split="val")] == [video.id for video in val]
    assert golfdb.load(root, split="val", held_out=0.0) == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,p,f,d,o,2,12,2,3,4,5,6,7,8,12", "do not increase within 12 frames"),
        ("1,p,f,d,o,2,20,2,3,4,4,6,7,8,12", "do not increase"),
        ("1,p,f,d,o,2,20,-2,3,4,5,6,7,8,12", "do not increase"),
        ("1,p,f,d,o,2,20,2,3,?,5,6,7,8,12", "invalid literal"),
        ("1,p,f,d,o,9,20,2,3,4,5,6,7,8,12", "split '9'"),
    ],
)
def test_a_contradictory_row_is_reported_and_left_out(tmp_path: Path, row: str, message: str) -> None:
    with pytest.warns(Problem, match=message):
        assert golfdb.load(write(tmp_path, row), split="all") == []


def test_a_wrong_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no index\.csv"):
        golfdb.load(tmp_path, split="all")
    (tmp_path / "index.csv").write_text("id,player\n1,2\n")
    with pytest.raises(ValueError, match="has no column split, frames, address"):
        golfdb.load(tmp_path, split="all")


def test_the_real_index(real: Callable[[str], Path]) -> None:
    videos = golfdb.load(real("golfdb"), split="all")
    assert Counter(video.split for video in videos) == {"train": 303, "val": 76, "test": 188}
    for video in videos:
        assert video.path is not None
        assert video.path.is_file()
        assert video.phases is not None
        assert set(video.phases.tolist()) == set(range(9))
