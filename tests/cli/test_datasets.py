import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from inphase.data import stage_videos
from inphase.media.frame_store import FrameStore
from inphase.pose.pose_store import PoseStore
from tests.commands import type_command as run
from tests.media.recordings import write_video
from tests.pose.people import needs_networks


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Write a PennAction of three label files."""
    (tmp_path / "labels").mkdir()
    rng = np.random.default_rng(0)
    for number, (action, train) in enumerate([("squat", 1), ("squat", 1), ("bowl", -1)], start=1):
        x, y = rng.uniform(0, 99, (2, 6, 13))
        rest = {"visibility": np.ones((6, 13), np.uint8), "bbox": np.tile([1.0, 1, 9, 9], (6, 1)), "pose": "left"}
        sizes = {"dimensions": np.array([[100, 100, 6]]), "nframes": 6, "train": train}
        savemat(tmp_path / "labels" / f"{number:04d}.mat", {"action": action, "x": x, "y": y, **rest, **sizes})
    return tmp_path


def test_check_prints_counts_and_says_that_all_is_well(
    labels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "data", "check", "penn_action", str(labels)) == 0
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert ["bowl", "0", "1", "1", "6"] in rows
    assert ["squat", "2", "0", "2", "12"] in rows
    assert ["2 actions", "2", "1", "3", "18"] in rows
    assert "keypoints (3), boxes (3)" in out
    assert "Nothing is missing or broken. No file was opened." in out


def test_check_lists_what_is_missing_and_exits_with_1(
    labels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (labels / "frames" / "0001").mkdir(parents=True)
    assert run(monkeypatch, "data", "check", "penn_action", str(labels)) == 1
    out = capsys.readouterr().out
    assert "absent files (2) of 2 videos: frames/0002, frames/0003" in out
    assert "folders without images (1): 0001" in out


def test_show_writes_a_sheet(labels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = labels / "it's a [sheet].png"
    assert run(monkeypatch, "data", "show", "penn_action", str(labels), "--out", str(out), "--columns", "4") == 0
    assert "3 of 3 videos" in capsys.readouterr().out
    with Image.open(out) as sheet:
        assert sheet.width == 150 + 4 * 100
        assert len(sheet.convert("RGB").getcolors(100_000) or []) > 10


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--rows", "-1"], "rows and columns of at least 1, got -1 and 10"),
        (["--out", "sheet"], "sheet is not the name of an image: let it end in .png"),
        (["--out", "sheet.mp4"], "sheet.mp4 is not the name of an image"),
    ],
)
def test_a_sheet_that_cannot_be_drawn_is_refused(
    labels: Path, words: list[str], wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "data", "show", "penn_action", str(labels), *words) == 1
    assert wrong in capsys.readouterr().err


def test_own_videos_are_checked_shown_and_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "my swings"
    root.mkdir()
    for name in ("it's one.mp4", "zwei.mp4"):
        write_video(root / name, count=20, rate=10)
    assert run(monkeypatch, "data", "check", "folder", str(root), "--open") == 0
    assert "Nothing is missing or broken." in capsys.readouterr().out
    (root / "damaged.mp4").write_bytes(b"nonsense")
    assert run(monkeypatch, "data", "check", "folder", str(root), "--open") == 1
    assert "files that cannot be opened (cannot be opened (Invalid data" in capsys.readouterr().out
    assert run(monkeypatch, "data", "show", "folder", str(root), "--out", str(tmp_path / "a.png"), "--rows", "3") == 0
    with Image.open(tmp_path / "a.png") as sheet:
        rows = np.asarray(sheet).astype(int)
    broken, shown = rows[:96, 150:], rows[116:212, 150:]
    assert (broken[..., 0] - broken[..., 1] > 100).any()
    assert len(np.unique(shown)) > 10
    capsys.readouterr()
    for new in ("2 new", "0 new"):
        words = ("data", "cache", "folder", str(root), str(tmp_path / "store"), "--size", "16", "24")
        assert run(monkeypatch, *words) == 0
        out = capsys.readouterr().out
        assert "2 videos, 40 frames in" in out
        assert new in out
        assert "1 broken" in out
        assert "decoding" not in out, "no bar where there is no terminal"
    assert FrameStore(tmp_path / "store")["zwei.mp4"].frames.shape == (20, 16, 24, 3)
    assert run(monkeypatch, "data", "cache", "folder", str(root), str(tmp_path / "a.png")) == 1
    assert "a file is where a folder is to be made; name another" in capsys.readouterr().err


@pytest.mark.slow
@needs_networks
def test_poses_are_cached_and_videos_without_a_person_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "signs"
    root.mkdir()
    for name in ("one.mp4", "two.mp4"):
        write_video(root / name, count=3, rate=10)
    assert run(monkeypatch, "data", "pose", "folder", str(root), str(tmp_path / "store")) == 0
    out, err = capsys.readouterr()
    assert "0 videos, 0 frames in" in out
    assert "2 broken" in out
    assert "one.mp4 shows no person" in err
    assert sorted(PoseStore(tmp_path / "store").broken) == ["one.mp4", "two.mp4"]
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert run(monkeypatch, "data", "pose", "folder", str(root), str(tmp_path / "store")) == 1
    assert "pip install 'inphase[pose]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", "nope", "."), "no data set 'nope': choose one of"),
        (("check", "golfdb", "/nowhere"), "no index.csv in /nowhere"),
        (("check", "golfdb"), "golfdb is read from a folder: name it as root"),
        (("show", "stage", "LABELS"), "no stage.json in"),
        (("stage", "LABELS", "--level", "easy"), "unknown level 'easy': choose one of plain, medium, hard"),
        (("show", "penn_action", "LABELS", "--action", "swim"), "no video of action 'swim'"),
        (("show", "penn_action", "LABELS", "--split", "val"), "split 'val' does not exist here"),
        (("cache", "penn_action", "LABELS", "store"), "there is nothing to cache"),
    ],
)
def test_a_foreseen_error_is_one_line_and_exits_with_1(
    words: tuple[str, ...],
    message: str,
    labels: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "data", *(str(labels) if word == "LABELS" else word for word in words)) == 1
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_the_stage_is_written_checked_shown_and_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "stage"
    small = ("--videos", "2", "--size", "16", "--split", "train", "--actions", "squat", "kick")
    for new in ("4 new", "0 new"):
        assert run(monkeypatch, "data", "stage", str(root), *small) == 0
        assert f"({new})" in capsys.readouterr().out
    assert run(monkeypatch, "data", "check", "stage", str(root), "--open") == 0
    out = capsys.readouterr().out
    assert "Nothing is missing or broken." in out
    assert "canonical time (4), sound (4)" in out
    assert run(monkeypatch, "data", "cache", "stage", str(root), str(tmp_path / "store"), "--size", "16", "16") == 0
    assert len(FrameStore(tmp_path / "store")) == 4


def test_the_stage_needs_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "inphase.data.frame_source.DATASETS",
        {"stage": partial(stage_videos.load, videos=1, actions=["squat", "kick"])},
    )
    assert run(monkeypatch, "data", "check", "stage", "--open") == 0
    out = capsys.readouterr().out
    assert "stage · drawn" in out
    assert "2 actions" in out
    assert run(monkeypatch, "data", "show", "stage", "--out", str(tmp_path / "a.png"), "--columns", "4") == 0
    with Image.open(tmp_path / "a.png") as sheet:
        assert len(sheet.convert("RGB").getcolors(2**24) or []) > 1000
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_an_interrupted_command_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage_videos, "write", interrupt)
    assert run(monkeypatch, "data", "stage", str(tmp_path)) == 130
    assert "Finished files are kept; run the same command to resume." in capsys.readouterr().err


def test_warnings_are_lines_and_what_the_system_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_video(tmp_path / "a.mp4", count=5)
    (tmp_path / "notes [draft].txt").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run(monkeypatch, "data", "show", "folder", str(tmp_path), "--out", str(tmp_path / "a.png")) == 0
    assert capsys.readouterr().err.replace("\n", " ").split(": ", 1)[1].startswith("1 .txt ignored; convert them")

    def refuse(root: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", "index.csv")

    monkeypatch.setattr("inphase.data.frame_source.DATASETS", {"mine": refuse})
    assert run(monkeypatch, "data", "check", "mine", str(tmp_path)) == 1
    assert capsys.readouterr().err.startswith("index.csv: Permission denied; check the folder and your rights to it")

    def fill(root: Path, **_: object) -> None:
        raise OSError(28, "No space left on device")  # as writing to a file says it: without its name

    monkeypatch.setattr("inphase.data.frame_source.DATASETS", {"mine": fill})
    assert run(monkeypatch, "data", "check", "mine", str(tmp_path)) == 1
    assert capsys.readouterr().err.strip() == "the disk is full; make room, then run this again"

    def copy(root: Path, **_: object) -> None:
        raise OSError(28, "No space left on device", "a.mp4", None, "out/a.mp4")  # as copying says it

    monkeypatch.setattr("inphase.data.frame_source.DATASETS", {"mine": copy})
    assert run(monkeypatch, "data", "check", "mine", str(tmp_path)) == 1
    assert capsys.readouterr().err.startswith("a.mp4 → out/a.mp4: the disk is full")
