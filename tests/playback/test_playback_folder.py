"""Playbacks on disk: what is written, what is read back, and which documents are refused."""

import json
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.playback import (
    INDEX,
    Pair,
    Phase,
    Playback,
    PlaybackError,
    PlaybackEvent,
    PlaybackMoment,
    Result,
    TimeMap,
    VideoTrack,
    add_media,
    open_playback,
    read_playback,
    write_playback,
)
from inphase.playback.playback_folder import replace_outputs
from tests.playback.conftest import RNG, A, same, whole


def test_what_is_written_is_read_back_exactly(folder: Path) -> None:
    playback = whole()
    index = write_playback(folder, playback)
    assert index == folder / INDEX
    assert same(read_playback(folder), playback)


DOCUMENT = (
    '{"format": "inphase playback", "version": 1, "title": "\\u00fc \\udcff", "tracks": [{"name": "a", '
    '"duration": 2.0, "rate": 30.0, "size": [64, 96], "media": "a.mp4"}, {"name": "b", "duration": 2.0, '
    '"rate": 30.0, "size": [64, 96], '
    '"media": "heat.mp4", "time_map": {"reference": [0.0, 1.5], "own": [0.0, 1e-07]}, '
    '"phases": [{"start": 0.0, "end": 1.0, "label": "up", "confidence": 0.5}], '
    '"events": [{"second": 1.0, "label": "top"}]}], '
    '"results": [{"query": {"name": "q", "second": 0.0}, "hits": []}], "reference": 1}'
)


def test_the_text_of_a_document_is_fixed(folder: Path) -> None:
    one = VideoTrack("a", np.float32(2), Fraction(30), [np.int64(64), 96], "a.mp4")  # type: ignore[arg-type]
    other = one.replace(name="b", media="heat.mp4", phases=[Phase(0, 1, "up", 0.5)], events=[PlaybackEvent(1, "top")])
    moment = PlaybackMoment("q", 0, duration=float("1"))  # equal to the default, but another object
    playback = Playback("ü \udcff", (one, other), results=(Result(moment, ()),), reference=1)
    written = playback.replace(tracks=(one, other.replace(time_map=TimeMap(A([0, 1.5]), A([0, 1e-7])))), reference=0)
    assert write_playback(folder, written).read_text() == DOCUMENT.replace(', "reference": 1', "")
    (folder / INDEX).write_text(DOCUMENT.replace('"time_map": {"reference": [0.0, 1.5], "own": [0.0, 1e-07]}, ', ""))
    assert same(read_playback(folder), playback)


def test_one_array_in_two_fields_is_two_files(folder: Path) -> None:
    times = np.arange(2.0)
    pair = Pair(0, 1, np.zeros((2, 2)), times, times, A([[0, 0]]))
    content = json.loads(write_playback(folder, whole().replace(pairs=(pair,))).read_text())
    names = [content["pairs"][0][name]["file"].split("-")[0] for name in ("row_times", "column_times")]
    assert names == ["arrays/row_times", "arrays/column_times"]


def test_arrays_are_little_endian_and_lie_beside_the_document(folder: Path) -> None:
    playback = whole()
    content = json.loads(write_playback(folder, playback).read_text())
    cost = content["pairs"][0]["cost"]
    assert (cost["dtype"], cost["shape"]) == ("float16", [7, 5])
    raw = np.frombuffer((folder / cost["file"]).read_bytes(), "<f2").reshape(7, 5)
    np.testing.assert_array_equal(raw, playback.pairs[0].cost)
    assert content["version"] == 1


def test_files_are_those_the_document_needs_and_no_others(folder: Path) -> None:
    (folder / "stranger.mp4").write_bytes(b"")
    write_playback(folder, whole())
    files = open_playback(folder).files
    media = {"a.mp4", "b ü%#?.webm", "heat.mp4", "query.wav", "images/hit.jpg"}
    assert {path for path in files if not path.endswith(".bin")} == media | {INDEX}
    assert all(file.is_file() for file in files.values())


def test_writing_again_replaces_the_arrays_and_leaves_nothing(folder: Path) -> None:
    write_playback(folder, whole())
    smaller = Playback("U", whole().tracks[:1])
    write_playback(folder, smaller)
    assert read_playback(folder).title == "U"
    arrays = {f"arrays/{file.name}" for file in (folder / "arrays").iterdir()}
    assert arrays == {path for path in open_playback(folder).files if path.endswith(".bin")}


def test_what_cannot_be_written_leaves_the_old_one(folder: Path) -> None:
    playback = whole()
    write_playback(folder, playback)
    with pytest.raises(PlaybackError, match=r"tracks\[0\]\.media: gone\.mp4 is not in"):
        write_playback(folder, Playback("U", (playback.tracks[0].replace(media="gone.mp4"),)))
    assert same(read_playback(folder), playback)


def test_a_long_cost_is_written_as_means_of_blocks(folder: Path) -> None:
    cost = RNG.random((5000, 3))
    pair = Pair(0, 1, cost, np.arange(5000) / 30, np.arange(3) / 30, A([[0, 0], [2, 1], [3, 1], [4999, 2]]))
    write_playback(folder, whole().replace(pairs=(pair,)))
    (read,) = read_playback(folder).pairs
    assert read.cost.shape == (1667, 3)  # threes, and two at the end
    np.testing.assert_allclose(read.cost[0], cost[:3].mean(0), atol=2e-3)
    np.testing.assert_allclose(read.cost[-1], cost[-2:].mean(0), atol=2e-3)
    np.testing.assert_allclose(read.row_times[:2], [1 / 30, 4 / 30])
    assert read.path.tolist() == [[0, 0], [0, 1], [1, 1], [1666, 2]]


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit a document as a stranger would."""
    content = json.loads((folder / INDEX).read_text())
    edit(content)
    (folder / INDEX).write_text(json.dumps(content))


BROKEN: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    (r"it has version 2 and this release reads 1", lambda c: c.update(version=2)),
    (r'"format" must be "inphase playback"', lambda c: c.update(format="x")),
    (r"title is missing", lambda c: c.pop("title")),
    (r"script is unknown: remove it; the fields here are title, tracks", lambda c: c.update(script="x")),
    (r"tracks\[1\]\.color is unknown", lambda c: c["tracks"][1].update(color="x")),
    (r"tracks\[0\]\.duration is missing", lambda c: c["tracks"][0].pop("duration")),
    (r"tracks\[0\]\.duration must be a finite number, got 'x'", lambda c: c["tracks"][0].update(duration="x")),
    (r"tracks\[1\]\.time_map: own runs backwards", lambda c: c["tracks"][1]["time_map"].update(own=[0, 2, 1])),
    (
        r"tracks\[1\]\.time_map\.own\[1\] must be a finite number, got \{\}",
        lambda c: c["tracks"][1]["time_map"].update(own=[0, {}, 1]),
    ),
    (r"tracks\[0\]: media is '\.\./a\.mp4'", lambda c: c["tracks"][0].update(media="../a.mp4")),
    (r"tracks\[0\]\.media: c\.mp4 is not in", lambda c: c["tracks"][0].update(media="c.mp4")),
    (
        r"tracks\[0\]\.phases\[1\]\.label must be text, got None",
        lambda c: c["tracks"][0]["phases"][1].update(label=None),
    ),
    (r"tracks must be a list", lambda c: c.update(tracks={})),
    (r"tracks\[0\] must be a VideoTrack \(an object with name, duration", lambda c: c.update(tracks=[3])),
    (
        r"pairs\[0\]\.cost: it must be a StoredArray \(an object with file, dtype, shape\)",
        lambda c: c["pairs"][0].update(cost=[[1]]),
    ),
    (r"pairs\[0\]\.cost: dtype is 'float64'", lambda c: c["pairs"][0]["cost"].update(dtype="float64")),
    (r"cost-\w+\.bin has 70 bytes, not the 96", lambda c: c["pairs"][0]["cost"].update(shape=[6, 8])),
    (r"pairs\[0\]\.cost: shape\[0\] must be from 0 to", lambda c: c["pairs"][0]["cost"].update(shape=[-7, -5])),
    (r"cost: file is '/etc/x\.bin'", lambda c: c["pairs"][0]["cost"].update(file="/etc/x.bin")),
    (r"cost: file is 'a\.mp4'", lambda c: c["pairs"][0]["cost"].update(file="a.mp4")),
    (r"results\[0\]\.hits\[0\]\.second must be", lambda c: c["results"][0]["hits"][0].update(second=None)),
]


@pytest.mark.parametrize(("message", "edit"), BROKEN, ids=[message for message, _ in BROKEN])
def test_broken_documents_are_refused_by_place(
    folder: Path, message: str, edit: Callable[[dict[str, Any]], object]
) -> None:
    write_playback(folder, whole())
    change(folder, edit)
    with pytest.raises(PlaybackError, match=message):
        read_playback(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"a": NaN}'])
def test_what_is_no_document_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / INDEX).write_bytes(content)
    with pytest.raises(PlaybackError, match=r"playback\.json(:| is not JSON)"):
        read_playback(tmp_path)


STRANGE = ["null", "true", "-1", "1e999", "9" * 400, "[null]", f"[{'9' * 400}]", '"x"', '"\\ud800"', '{"\\ud800": 1}',
           "{}", "[]", "[[]]", '[{"a\\nb": 1}]', '{"file": null, "dtype": 1, "shape": [0, 1e5]}',
           f'{{"file": "arrays/x.bin", "dtype": "float32", "shape": [0, {"9" * 400}]}}']  # fmt: skip


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value inside a document; of a list to its last item."""
    items = value.items() if isinstance(value, dict) else [*enumerate(value)][-1:] if isinstance(value, list) else ()
    for key, item in items:
        yield (*way, key)
        yield from places(item, (*way, key))


@pytest.mark.parametrize("text", STRANGE, ids=[text[:30] for text in STRANGE])
def test_a_strange_value_anywhere_gives_one_line(folder: Path, text: str) -> None:
    first, second = whole().tracks
    playback = whole().replace(tracks=(second.replace(time_map=None), first.replace(time_map=second.time_map)))
    document = write_playback(folder, playback).read_text()
    refused = []
    for *way, last in places(json.loads(document)):
        content = inside = json.loads(document)
        for key in way:
            inside = inside[key]
        inside[last] = "HERE"
        (folder / INDEX).write_text(json.dumps(content).replace('"HERE"', text))
        try:
            read_playback(folder)
        except PlaybackError as error:
            refused.append(str(error))
    assert len(refused) > 40
    assert not [message for message in refused if "\n" in message or len(message) > 1000]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlaybackError, match=r"no playback\.json in"):
        read_playback(tmp_path / "nowhere")


def test_links_may_not_leave_the_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.mp4"
    secret.write_bytes(b"secret")
    write_playback(folder, whole())
    (folder / "a.mp4").unlink()
    (folder / "a.mp4").symlink_to(secret)
    with pytest.raises(PlaybackError, match=r"a\.mp4 is a link that leaves"):
        read_playback(folder)
    (folder / "a.mp4").unlink()
    (folder / "a.mp4").symlink_to("heat.mp4")
    assert open_playback(folder).files["a.mp4"].name == "heat.mp4"


def test_media_are_brought_in_once_and_under_free_names(tmp_path: Path) -> None:
    sources = [tmp_path / name for name in ("one/clip.mp4", "two/clip.mp4")]
    for number, source in enumerate(sources):
        source.parent.mkdir()
        source.write_bytes(bytes([number]) * 9)
    folder = tmp_path / "playback"
    assert add_media(folder, sources[0]) == "clip.mp4"
    assert add_media(folder, sources[0]) == "clip.mp4"
    assert add_media(folder, sources[1]) == "clip-2.mp4"
    link = tmp_path / "link.mp4"
    link.symlink_to(sources[1])
    assert add_media(folder, link, name="third.mp4") == "third.mp4"
    assert not (folder / "third.mp4").is_symlink()
    assert (folder / "third.mp4").read_bytes() == b"\1" * 9
    with pytest.raises(FileNotFoundError):
        add_media(folder, tmp_path / "absent.mp4")


def test_media_are_copied_where_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("another disk")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "a.mp4").write_bytes(b"media")
    assert add_media(tmp_path / "to", tmp_path / "a.mp4") == "a.mp4"
    assert (tmp_path / "to" / "a.mp4").read_bytes() == b"media"
    assert [file.name for file in (tmp_path / "to").iterdir()] == ["a.mp4"]


def test_a_second_run_removes_what_the_first_wrote_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "mine").mkdir(parents=True)
    for name in ("notes.txt", "mine/a.csv"):
        (out / name).write_text("my own")

    def write(*names: str) -> None:
        with replace_outputs(out) as written:
            for name in names:
                (out / name).parent.mkdir(exist_ok=True)
                (out / name).write_text("a result")
                written.append(out / name)

    write("a.csv", "b.csv", "c.csv", "students/d.csv", "mine/e.csv")
    (out / "c.csv").write_text("edited by hand")
    (out / "f.csv").write_text("put there by hand")
    write("a.csv")
    left = sorted(file.relative_to(out).as_posix() for file in out.rglob("*"))
    assert left == [".inphase-files.json", "a.csv", "c.csv", "f.csv", "mine", "mine/a.csv", "notes.txt"]
    (tmp_path / "outside.txt").write_text("far away")
    (out / ".inphase-files.json").write_text('{"../outside.txt": [8, 0, 1], "f.csv": [1, 1, 1]}')
    write("a.csv")
    assert (tmp_path / "outside.txt").exists()
    assert (out / "f.csv").exists()


def test_the_last_link_to_a_video_and_a_source_in_the_folder_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "a.mp4").write_bytes(b"first")
    (tmp_path / "b.mp4").write_bytes(b"second")
    (out / "own.mp4").write_bytes(b"third")

    def write(*sources: Path) -> None:
        with replace_outputs(out) as written:
            written += [out / add_media(out, source) for source in sources]

    write(tmp_path / "a.mp4", tmp_path / "b.mp4", out / "own.mp4")
    (tmp_path / "a.mp4").unlink()  # the link in the folder is now the only one
    write()
    assert sorted(file.name for file in out.glob("*.mp4")) == ["a.mp4", "own.mp4"]
    assert (tmp_path / "b.mp4").read_bytes() == b"second"
