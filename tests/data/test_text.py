"""Lists as people's tools leave them: byte order marks, Windows line ends, other encodings."""

import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inphase.data import finegym, folder, golfdb, vggsound
from inphase.data.video import Video, read_json, read_numbered_table, read_rows, read_table
from tests.data import test_finegym, test_golfdb, test_vggsound


def write_folder(root: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        (root / name).write_bytes(b"video")
    (root / "splits.csv").write_text("video,split\na.mp4,train\nb.mp4,test\n")
    (root / "phases.csv").write_text('video,start,end,phase\na.mp4,0,1.5,wind up\nb.mp4,0,1,"up, then down"\n')


def write_vggsound(root: Path) -> None:
    (root / "vggsound.csv").write_text(test_vggsound.FULL)


def write_golfdb(root: Path) -> None:
    test_golfdb.write(root, "0007,p1,f,driver,face-on,4,12,2,3,4,5,6,7,8,10")


def write_finegym(root: Path) -> None:
    test_finegym.write(root)


COLLECTIONS: list[tuple[Callable[[Path], None], Callable[..., list[Video]]]] = [
    (write_folder, folder.load),
    (write_vggsound, vggsound.load),
    (write_golfdb, golfdb.load),
    (write_finegym, finegym.load),
]


def known(videos: list[Video]) -> list[dict[str, Any]]:
    names = ("id", "action", "split", "spans", "intervals", "phase_names", "events", "notes")
    return [{name: getattr(video, name) for name in names} for video in videos]


@pytest.mark.parametrize(("write", "load"), COLLECTIONS)
def test_byte_order_marks_and_windows_line_ends_change_nothing(
    tmp_path: Path, write: Callable[[Path], None], load: Callable[..., list[Video]]
) -> None:
    write(tmp_path)
    plain = known(load(tmp_path, split="all"))
    assert plain
    for file in (file for kind in ("*.csv", "*.txt", "*.json") for file in tmp_path.glob(kind)):
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes().replace(b"\n", b"\r\n"))
    assert known(load(tmp_path, split="all")) == plain


@pytest.mark.parametrize(("write", "load"), COLLECTIONS)
def test_another_encoding_is_named_with_its_file(
    tmp_path: Path, write: Callable[[Path], None], load: Callable[..., list[Video]]
) -> None:
    write(tmp_path)
    for file in (file for kind in ("*.csv", "*.txt") for file in tmp_path.glob(kind)):
        file.write_bytes(file.read_text().encode("utf-16"))
    with pytest.raises(ValueError, match=r"(csv|txt) is not text in UTF-8 \(invalid start byte at byte 0\): save it"):
        load(tmp_path, split="all")


def test_what_is_no_json_or_table_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"a": 1})[:-1])
    with pytest.raises(ValueError, match=r"a\.json is damaged or not JSON .*: copy it again"):
        read_json(file)
    (tmp_path / "a.csv").write_text("a" * 200_000)
    with pytest.raises(ValueError, match=r"a\.csv is not a table of comma-separated values \(field larger"):
        read_rows(tmp_path / "a.csv")


def test_a_table_needs_its_columns_and_may_have_others_and_gaps(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('b, a ,c\n1,2\n\n"3\n4",5,6,7\n')
    assert read_table(file, columns=("a", "b")) == [{"a": "2", "b": "1", "c": ""}, {"a": "5", "b": "3\n4", "c": "6"}]
    file.write_bytes(b'a,b\r\n"1\r\n2",3\r\n')
    assert read_table(file, columns=("a", "b")) == [{"a": "1\r\n2", "b": "3"}], "a break inside a cell is the cell's"
    for content, wrong in (
        ("", "has no column a, b"),
        ("a|b\n1|2\n", r"begins with a\|b and has no column a, b"),
        ("a\n", "begins with a and has no column b"),
    ):
        file.write_text(content)
        with pytest.raises(ValueError, match=f"{wrong}: its first line must be a,b"):
            read_table(file, columns=("a", "b"))


def test_lines_are_numbered_as_an_editor_does_and_those_without_a_word_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('a,b\n1,2\n\n , \n"3\n4",5\n6,7\n,\n')
    rows = read_numbered_table(file)
    assert rows == {2: {"a": "1", "b": "2"}, 5: {"a": "3\n4", "b": "5"}, 7: {"a": "6", "b": "7"}}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(("between", "comma"), [(",", "."), (";", ","), (";", "."), ("\t", ",")])
def test_tables_of_spreadsheets_in_any_country_are_read(tmp_path: Path, between: str, comma: str, mark: str) -> None:
    lines = [["second", "label"], [f"0{comma}5", "top, left"], [f"-1{comma}25", "a;b"]]
    quoted = "\r\n".join(
        between.join(f'"{cell}"' if set(cell) & set(",;") else cell for cell in line) for line in lines
    )
    file = tmp_path / "labels.csv"
    file.write_bytes((mark + quoted + "\r\n").encode())
    rows = read_table(file, columns=("second", "label"))
    assert [row["label"] for row in rows] == ["top, left", "a;b"]
    assert [float(row["second"]) for row in rows] == [0.5, -1.25]
