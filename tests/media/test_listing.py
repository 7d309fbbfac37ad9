import os
from pathlib import Path
from typing import Any

import pytest

from inphase.media.listing import (
    ListedVideo,
    describe_seconds,
    estimate_work,
    find_videos,
    list_videos,
    videos_in,
)
from tests.media.recordings import write_video


def test_folders_are_actions(tmp_path: Path) -> None:
    root = tmp_path / "gym"
    for name in ("vault/a.mp4", "vault/2019/b.MOV", "flat.mkv", "vault/notes.txt", ".hidden/c.mp4", "vault/.d.mp4"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "beam" / "frames").mkdir(parents=True)
    (root / "beam" / "frames" / "0001.jpg").write_text("")
    (root / "beam" / "loop").symlink_to(root, target_is_directory=True)
    found = {video.id: (video.path, video.action) for video in list_videos(root)}
    assert found == {
        "gym/vault/a.mp4": (str(root / "vault/a.mp4"), "vault"),
        "gym/vault/2019/b.MOV": (str(root / "vault/2019/b.MOV"), "vault"),
        "gym/flat.mkv": (str(root / "flat.mkv"), "gym"),
        "gym/beam/frames": (str(root / "beam/frames"), "beam"),
    }


def test_a_table_names_files_anywhere(tmp_path: Path) -> None:
    table = tmp_path / "list.csv"
    table.write_text("action,path\nserve,a/1.mp4\nlob,/far/2.mp4\n", encoding="utf-8")
    assert list(list_videos(table)) == [
        ListedVideo("list/a/1.mp4", str(tmp_path / "a/1.mp4"), "serve"),
        ListedVideo("list//far/2.mp4", "/far/2.mp4", "lob"),
    ]
    table.write_text("video\na.mp4\n")
    with pytest.raises(ValueError, match="needs the columns path and action"):
        list(list_videos(table))
    with pytest.raises(ValueError, match="neither a folder of videos nor"):
        list_videos(tmp_path / "absent")


def test_a_name_that_is_no_text_can_be_named(tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/\xff.mp4"
    try:
        with open(file, "wb"):
            pass
    except OSError:
        pytest.skip("this file system knows text only")
    (found,) = list_videos(tmp_path)
    assert found.id == f"{tmp_path.name}/\\xff.mp4"


def test_videos_are_sorted_and_links_followed_unless_they_loop(tmp_path: Path) -> None:
    root, other = tmp_path / "gym", tmp_path / "other"
    for file in (root / "b.mp4", root / "a.mp4", root / "z" / "c.mp4", other / "d.mp4", root / "z" / "notes.txt"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    (root / "linked").symlink_to(other)
    (other / "back").symlink_to(root)
    (root / "gone.mp4").symlink_to(tmp_path / "nowhere.mp4")
    skipped: list[tuple[str, str]] = []
    found = find_videos(root, on_skip=lambda path, reason: skipped.append((path.name, reason)))
    names = ["a.mp4", "b.mp4", "gone.mp4", "linked/d.mp4", "z/c.mp4"]
    assert [path.relative_to(root).as_posix() for path in found] == names
    assert skipped == [("back", "loop"), ("notes.txt", "not a video")]
    skipped.clear()
    found = find_videos(root, max_depth=1, on_skip=lambda path, reason: skipped.append((path.name, reason)))
    assert [path.name for path in found] == names[:3]
    assert skipped == [("linked", "too deep"), ("z", "too deep")]


def test_places_are_files_or_folders_of_files_each_named_once(tmp_path: Path) -> None:
    for name in ("gym/a.mp4", "gym/frames/1.png", "gym/.hidden/b.mp4", "note.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    video, note = tmp_path / "gym" / "a.mp4", tmp_path / "note.txt"
    assert videos_in([note, tmp_path / "gym", video]) == [note, video]
    with pytest.raises(ValueError, match="absent does not exist: name a folder of videos or a video file"):
        videos_in([tmp_path / "absent"])


def test_files_folders_and_patterns_are_listed_once(tmp_path: Path) -> None:
    (tmp_path / "clips" / "more").mkdir(parents=True)
    a, b, c = (tmp_path / "clips" / name for name in ("a.mp4", "b.MOV", "more/c.mp4"))
    for file in (a, b, c, tmp_path / "clips" / "notes.txt"):
        file.touch()
    folder = tmp_path / "clips"
    assert videos_in([folder]) == [a, b, c]
    assert videos_in([folder / "*"]) == [a, b]
    assert videos_in([b, folder / "**" / "*.mp4", folder]) == [b, a, c]
    assert videos_in([a, a, folder], as_named=True) == [a, a, b, c]
    assert videos_in([tmp_path / "gone.mp4"], as_named=True) == [tmp_path / "gone.mp4"]
    odd = tmp_path / "swing [1].mp4"
    odd.touch()
    assert videos_in([odd]) == [odd], "a file whose name is a pattern"
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "*.avi", tmp_path / "empty"):
        with pytest.raises(ValueError, match="there is no video in"):
            videos_in([place])
    with pytest.raises(ValueError, match="does not exist"):
        videos_in([tmp_path / "gone.mp4"])


def test_an_estimate_learns_from_what_was_measured(tmp_path: Path) -> None:
    fast, usual = write_video(tmp_path / "a.mp4", count=120, rate=60), write_video(tmp_path / "b.mp4", count=45)
    (tmp_path / "broken.mp4").write_bytes(b"nonsense")
    options: dict[str, Any] = {"modality": "pose", "cache": tmp_path / "cache", "neighbors": 3}
    first = estimate_work("align_videos", [tmp_path], **options)
    assert str(first) == "2 videos, 105 frames, about 10 s"  # 60 of the fast one; 4 s and 0.06 s a frame
    first.record(4 + 105 * 0.5)
    again = estimate_work("align_videos", [fast, usual], **options)
    assert str(again) == "2 videos, 105 frames, embedded before: about 5 s"
    again.record(4 + 105 * 0.2)
    other = estimate_work("align_videos", [fast, usual], **{**options, "modality": "image"})
    assert str(other) == "2 videos, 105 frames, about 55 s"
    every = estimate_work("align_videos", [fast], fps=240.0, **options)
    assert str(every) == "1 video, 120 frames, about 65 s"
    assert estimate_work("align_videos", [fast], **options).seconds == pytest.approx(4 + 60 * 0.2)
    (tmp_path / "cache" / "rates.json").write_text("{")
    assert estimate_work("align_videos", [usual], **options).seconds == pytest.approx(4 + 45 * 0.06)


def test_copies_of_embedded_videos_halve_the_estimate_at_most(tmp_path: Path) -> None:
    options: dict[str, Any] = {"modality": "pose", "cache": tmp_path / "cache"}
    video = write_video(tmp_path / "a.mp4", count=60)
    estimate_work("align_videos", [video], **options).record(4 + 60 * 0.5)
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(video.read_bytes())
    estimate_work("align_videos", [copy], **options).record(4.1)  # its content was in the cache
    other = write_video(tmp_path / "other.mp4", count=90)
    assert estimate_work("align_videos", [other], **options).seconds == pytest.approx(4 + 90 * 0.25)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (7.4, "7 s"), (43, "45 s"), (200, "3 min"), (7300, "2 h")]
)
def test_durations_are_rounded(seconds: float, words: str) -> None:
    assert describe_seconds(seconds) == words


def test_a_table_of_videos_may_be_separated_by_semicolons(tmp_path: Path) -> None:
    table = tmp_path / "list.csv"
    table.write_bytes("\ufeffpath;action\r\na, first.mp4;serve\r\n".encode())
    assert list(list_videos(table)) == [ListedVideo("list/a, first.mp4", str(tmp_path / "a, first.mp4"), "serve")]
