import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inphase.data import folder
from inphase.data.video import Problem, find_present

NAMES = ["two words.mp4", 'it\'s "quoted".mov', "Übung № 1.webm", "体操.mkv", "a,b;c.MP4", "100%.avi"]


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"video")
    return root


def test_a_sub_folder_is_an_action(tmp_path: Path) -> None:
    root = fill(tmp_path, "serve/b.mp4", "serve/a.mp4", "étirement/a.mp4")
    videos = folder.load(root, split="all")
    assert [(video.id, video.action) for video in videos] == [
        ("serve/a.mp4", "serve"),
        ("serve/b.mp4", "serve"),
        ("étirement/a.mp4", "étirement"),
    ]
    assert videos[0].path == videos[0].sound == root / "serve" / "a.mp4"


def test_a_flat_folder_is_one_action_and_names_are_text(tmp_path: Path) -> None:
    root = fill(tmp_path / "my swings", *NAMES)
    videos = folder.load(root, split="all")
    assert {video.id for video in videos} == set(NAMES)
    assert {video.action for video in videos} == {"my swings"}


def test_folders_of_images_are_videos_but_images_beside_videos_are_not(tmp_path: Path) -> None:
    root = fill(tmp_path, "throw/one/0001.jpg", "throw/one/0002.jpg", "throw/two.mp4", "jump/a.mp4")
    fill(tmp_path, "jump/poster.png")
    with pytest.warns(Problem, match=r"1 \.png ignored"):
        videos = folder.load(root, split="all")
    assert [video.id for video in videos] == ["jump/a.mp4", "throw/one", "throw/two.mp4"]
    assert [video.sound is None for video in videos] == [False, True, False]


def test_repetitions_are_named_by_their_session_as_in_other_commands(tmp_path: Path) -> None:
    root = fill(tmp_path / "videos", "serve/monday.mp4", "serve/friday.mp4", "serve/friday.mov")
    table = tmp_path / "repetitions.csv"
    lines = [
        f"serve/{name},{start},{start + 1}" for name in ("monday.mp4", "friday.mp4", "friday.mov") for start in (0, 2)
    ]
    table.write_text("\n".join(["video,start,end", *lines]), encoding="utf-8")
    videos = folder.load(root, split="all", repetitions=str(table))
    assert [video.id for video in videos][:3] == ["serve/monday#1", "serve/monday#2", "serve/friday.mp4#1"]
    assert len({video.id for video in videos}) == 6
    assert videos[1].spans == ((2.0, 3.0),)
    assert videos[1].path == root / "serve" / "monday.mp4"


def test_other_files_are_counted_and_hidden_ones_are_not(tmp_path: Path) -> None:
    fill(tmp_path, "a.mp4", "notes.txt", "more.txt", "README", ".DS_Store", "wave/deep/er/b.mp4")
    with pytest.warns(Problem, match=r"2 \.txt, 1 folder, 1 no suffix ignored"):
        assert len(folder.load(tmp_path, split="all")) == 1


def test_nothing_to_load_says_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="it is empty"):
        folder.load(tmp_path, split="all")
    fill(tmp_path, "a.txt")
    with pytest.raises(FileNotFoundError, match=r"1 \.txt\): put .*\.mp4"):
        folder.load(tmp_path, split="all")
    with pytest.raises(FileNotFoundError, match="check the spelling"):
        folder.load(tmp_path / "absent", split="all")


def test_a_split_depends_on_the_name_alone(tmp_path: Path) -> None:
    names = [f"clip {i}.mp4" for i in range(300)]
    before = {video.id: video.split for video in folder.load(fill(tmp_path / "x", *names[:150]), split="all")}
    after = {video.id: video.split for video in folder.load(fill(tmp_path / "x", *names), split="all")}
    assert before.items() <= after.items()
    share = [list(after.values()).count(split) / 300 for split in ("train", "val", "test")]
    assert share == pytest.approx([0.7, 0.1, 0.2], abs=0.06)
    assert {video.split for video in folder.load(tmp_path / "x", split="all", val=0, test=0)} == {"train"}


@given(st.text(min_size=1))
@example("not UTF-8: \udcff.mp4")
def test_every_name_has_one_split(name: str) -> None:
    assert folder.split_by_name(name, val=0.0, test=1.0) == "test"
    assert folder.split_by_name(name, val=1.0, test=0.0) == "val"


def test_given_splits_are_used_and_have_to_be_whole(tmp_path: Path) -> None:
    fill(tmp_path, "a.mp4", "b.mp4")
    (tmp_path / "splits.csv").write_text("video,split\na.mp4,test\nb.mp4,val\n")
    assert [video.split for video in folder.load(tmp_path, split="all")] == ["test", "val"]
    (tmp_path / "splits.csv").write_text("video,split\na.mp4,test\n")
    with pytest.raises(ValueError, match=r"does not name b\.mp4"):
        folder.load(tmp_path, split="all")
    (tmp_path / "splits.csv").write_text("video,split\na.mp4,tset\nb.mp4,val\n")
    with pytest.raises(ValueError, match="'tset'; a split is one of train, val, test"):
        folder.load(tmp_path, split="all")


def test_phases_are_seconds_with_numbers_or_names(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "é.mp4")
    fill(tmp_path, "é.mp4", "b, c.mp4")
    table = tmp_path / "phases.csv"
    table.write_text(f"video,start,end,phase\n{decomposed},0.5,1,down\n{decomposed},0,0.5,up\n", encoding="utf-8-sig")
    plain, accented = folder.load(tmp_path, split="all")
    assert accented.intervals == ((0.0, 0.5, 1), (0.5, 1.0, 0))
    assert accented.phase_names == ("down", "up")
    assert plain.intervals == ()
    table.write_text('video,start,end,phase\n"b, c.mp4",0,2,7\n')
    assert folder.load(tmp_path, split="all")[0].intervals == ((0.0, 2.0, 7),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("video,begin\n", "has no column start, end, phase"),
        ("video,start,end,phase\na.mp4,2,1,0\n", "is not an interval"),
        ("video,start,end,phase\na.mp4,0,later,0\n", "start and end are seconds"),
    ],
)
def test_wrong_phases_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    (fill(tmp_path, "a.mp4") / "phases.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        folder.load(tmp_path, split="all")


def test_a_line_about_no_video_is_reported(tmp_path: Path) -> None:
    (fill(tmp_path, "a.mp4") / "phases.csv").write_text("video,start,end,phase\nb.mp4,0,1,0\n")
    with pytest.warns(Problem, match=r"b\.mp4 not among the videos"):
        assert folder.load(tmp_path, split="all")[0].intervals == ()


def test_links_are_followed_except_back_to_the_folder_itself(tmp_path: Path) -> None:
    root = fill(tmp_path / "mine", "serve/a.mp4")
    fill(tmp_path, "elsewhere/b.mp4")
    (root / "linked.mp4").symlink_to(tmp_path / "elsewhere" / "b.mp4")
    (root / "smash").symlink_to(tmp_path / "elsewhere")
    (root / "gone.mp4").symlink_to(tmp_path / "nowhere.mp4")
    (root / "loop").symlink_to(root)
    (root / "up").symlink_to(tmp_path)
    with pytest.warns(Problem, match="2 link to the folder itself ignored"):
        videos = folder.load(root, split="all")
    assert [video.id for video in videos] == ["gone.mp4", "linked.mp4", "serve/a.mp4", "smash/b.mp4"]
    here, absent = find_present(videos)
    assert [video.id for video in absent] == ["gone.mp4"], "a link that leads nowhere is a missing file"
    assert len(here) == 3


def test_a_closed_sub_folder_is_reported_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = fill(tmp_path, "serve/a.mp4", "closed/b.mp4")
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if path.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.warns(Problem, match="closed: permission denied; change its permissions") as caught:
        assert [video.id for video in folder.load(root, split="all")] == ["serve/a.mp4"]
    assert len(caught) == 1


def test_many_named_phases_are_numbered_in_the_order_of_their_first_mention(tmp_path: Path) -> None:
    root = fill(tmp_path, "a.mp4")
    lines = [f"a.mp4,{i},{i + 1},phase {i}" for i in range(20_000)]
    (root / "phases.csv").write_text("\n".join(["video,start,end,phase", *lines]))
    (video,) = folder.load(root, split="all")
    assert video.phase_names[19_999] == "phase 19999"
    assert video.intervals[7] == (7.0, 8.0, 7)


def test_digits_that_are_no_numbers_are_names(tmp_path: Path) -> None:
    root = fill(tmp_path, "a.mp4")
    (root / "phases.csv").write_text("video,start,end,phase\na.mp4,0,1,²\n", encoding="utf-8")
    (video,) = folder.load(root, split="all")
    assert video.phase_names == ("²",)
