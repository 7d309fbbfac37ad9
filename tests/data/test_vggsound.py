from collections.abc import Callable
from pathlib import Path

import pytest

from inphase.data import vggsound
from inphase.data.video import Problem, find_present

FULL = """---g-f_I2yQ,1,people marching,test
--0PQM4-hqg,30,waterfall burbling,train
-0q-GsPXeWo,7,"heart sounds, heartbeat",train
"""
SHORT = """glLQrEijrKg_000300.mp4,firing cannon
LDoXsip0BEQ_000177.mp4,"heart sounds, heartbeat"
"""


def test_the_full_list_has_both_splits(tmp_path: Path) -> None:
    (tmp_path / "vggsound.csv").write_text(FULL)
    assert [video.id for video in vggsound.load(tmp_path, split="train")] == [
        "--0PQM4-hqg_000030",
        "-0q-GsPXeWo_000007",
    ]
    (video,) = vggsound.load(tmp_path, split="test")
    assert (video.action, video.split) == ("people marching", "test")
    assert video.path == video.sound == tmp_path / "videos" / "---g-f_I2yQ_000001.mp4"
    assert video.notes == {"youtube": "---g-f_I2yQ", "start": "1"}


def test_the_short_list_takes_its_split_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(SHORT)
    videos = vggsound.load(tmp_path, split="all")
    assert [(video.id, video.split) for video in videos] == [
        ("glLQrEijrKg_000300", "test"),
        ("LDoXsip0BEQ_000177", "test"),
    ]
    assert videos[1].action == "heart sounds, heartbeat"
    assert vggsound.load(tmp_path, split="train") == []


def test_a_class_is_kept_and_a_misspelt_one_gets_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(SHORT)
    assert len(vggsound.load(tmp_path, split="test", classes=("firing cannon",))) == 1
    with pytest.raises(ValueError, match="no class 'fireing cannon' among the 2 listed; near it: firing cannon"):
        vggsound.load(tmp_path, split="test", classes=("fireing cannon",))


def test_absent_clips_are_listed_not_fatal(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(SHORT)
    (tmp_path / "video").mkdir()
    (tmp_path / "video" / "LDoXsip0BEQ_000177.mp4").touch()
    here, absent = find_present(vggsound.load(tmp_path, split="test"))
    assert ([video.id for video in here], [video.id for video in absent]) == (
        ["LDoXsip0BEQ_000177"],
        ["glLQrEijrKg_000300"],
    )


def test_broken_lines_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(SHORT + "nonsense\n\nabc.mp4,bell\n")
    with pytest.warns(Problem, match="line 3, line 5 not in either published form") as caught:
        assert len(vggsound.load(tmp_path, split="all")) == 2
    assert len(caught) == 1
    with pytest.raises(FileNotFoundError, match=r"neither vggsound\.csv nor"):
        vggsound.load(tmp_path / "elsewhere", split="all")


def test_the_real_list(real: Callable[[str], Path]) -> None:
    videos = vggsound.load(real("vggsound"), split="test")
    assert len(videos) == 15_446
    assert len({video.action for video in videos}) == 309
    assert sum(video.action == "firing cannon" for video in videos) == 50
