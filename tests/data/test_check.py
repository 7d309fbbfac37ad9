import warnings
from pathlib import Path

import numpy as np
import pytest

from inphase.data import golfdb
from inphase.data.check import DataReport, check
from inphase.data.video import Problem, Video


def examine(*videos: Video, **how: object) -> DataReport:
    return check(lambda root, split: list(videos), "somewhere", name="mine", **how)  # type: ignore[arg-type]


def found(report: DataReport) -> list[tuple[str, str]]:
    return [(finding.kind, finding.what) for finding in report.findings]


def test_a_whole_collection_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")
    pair = [
        Video(f"{i}", "wave", "train", path=tmp_path / "a.mp4", length=5, phases=np.zeros(5, int)) for i in range(2)
    ]
    report = examine(*pair, Video("c", "clap", "test", length=7, keypoints=np.zeros((7, 2, 2), np.float32)))
    assert report.findings == ()
    assert report.whole
    assert report.actions == ["clap", "wave"]
    assert report.videos == {("wave", "train"): 2, ("clap", "test"): 1}
    assert report.frames == {"wave": 10, "clap": 7}
    assert report.labels == {"phases": 2, "keypoints": 1}


def test_absent_empty_and_miscounted_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "nothing").mkdir()
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "000001.jpg").touch()
    paths = ("gone.mp4", "empty.mp4", "nothing", "few")
    report = examine(*(Video(name, "wave", "test", path=tmp_path / name, length=2) for name in paths))
    assert not report.whole
    assert found(report) == [
        ("missing", f"absent files (1) of 1 videos: {tmp_path / 'gone.mp4'}"),
        ("broken", "empty files (1): empty.mp4"),
        ("broken", "folders without images (1): nothing"),
        ("broken", "folders whose number of images is not as annotated (1): few"),
    ]
    assert all(finding.fix for finding in report.findings)


def test_labels_that_do_not_fit_are_found() -> None:
    points = np.zeros((3, 2, 2), np.float32)
    points[1, 1, 0] = np.nan
    boxes = np.array([[5, 5, 1, 9]] * 4, np.float32)
    report = examine(
        Video("a", "wave", "test", length=4, phases=np.zeros(3, np.int64), keypoints=points),
        Video("b", "wave", "test", length=4, phases=np.zeros(3, np.int64), boxes=boxes, notes={"repaired": "yes"}),
    )
    assert found(report) == [
        ("broken", "phases that are not one per frame (2): a, b"),
        ("broken", "keypoints that are not one per frame (1): a"),
        ("broken", "keypoints that are not numbers (1): a"),
        ("remark", "some boxes without an area (1): b"),
        ("remark", "labels repaired while loading (1): b"),
    ]


def test_videos_are_compared_with_each_other() -> None:
    twice = [Video("a", "wave", "train"), Video("a", "wave", "train")]
    shared = [Video(f"b_{split}", "clap", split, notes={"instance": "b"}) for split in ("train", "test")]
    report = examine(*twice, *shared)
    assert found(report) == [
        ("broken", "ids that are not unique (1): a"),
        ("remark", "performances in more than one split (1): b"),
        ("remark", "actions with a single training video (1): clap"),
    ]


def test_files_are_opened_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")

    def count(video: Video) -> int:
        if video.id == "bad":
            raise OSError("moov atom not found")
        return 9

    videos = [Video(name, "wave", "test", path=tmp_path / "a.mp4", length=10) for name in ("bad", "short")]
    assert found(examine(*videos, frame_count=count)) == [
        ("broken", "files that cannot be opened (moov atom not found) (1): bad"),
        ("broken", "files whose number of frames is not as annotated (1): short"),
    ]
    assert examine(*videos).whole


def test_what_a_loader_warns_of_is_part_of_the_report_and_other_warnings_go_through(tmp_path: Path) -> None:
    header = "id,player,split,frames," + ",".join(golfdb.EVENTS)
    (tmp_path / "index.csv").write_text(f"{header}\n1,p,2,5,0,1,2,3,4,5,6,7\n")
    (finding,) = check(golfdb.load, tmp_path, name="golfdb").findings
    assert finding.kind == "broken"
    assert "do not increase within 5 frames" in finding.what
    assert finding.fix == "correct the row"

    def noisy(root: Path, split: str) -> list[Video]:
        warnings.warn("something else", DeprecationWarning, stacklevel=1)
        warnings.warn(Problem("a", "odd", "look"), stacklevel=1)
        warnings.warn(Problem("b", "unusual", "look", harmless=True), stacklevel=1)
        return []

    with pytest.warns(DeprecationWarning, match="something else"):
        assert [finding.kind for finding in check(noisy, tmp_path, name="noisy").findings] == ["broken", "remark"]


def test_files_with_the_same_fault_are_one_finding_and_the_others_are_counted(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"x")

    def count(video: Video) -> int:
        if video.id != "c":
            raise ValueError(f"{video.path} cannot be opened: copy it again")
        return 9

    report = examine(*(Video(name, "wave", "test", path=tmp_path / name) for name in "abc"), frame_count=count)
    assert found(report) == [("broken", "files that cannot be opened (cannot be opened: copy it again) (2): a, b")]
    assert report.frames == {"wave": 9}


def test_a_collection_without_videos_is_not_whole() -> None:
    assert found(examine()) == [("missing", "no video")]
