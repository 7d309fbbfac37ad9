import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.playback import (
    INDEX,
    Curves,
    Keypoints,
    Pair,
    Phase,
    Playback,
    PlaybackError,
    PlaybackEvent,
    PlaybackMoment,
    Result,
    Skeleton,
    TimeMap,
    VideoTrack,
    add_media,
    open_playback,
    principal_curves,
    read_playback,
    write_playback,
)
from inphase.playback.part import Part

RNG = np.random.default_rng(0)
A = np.array
JOINTS = ("head", "left_wrist", "right_wrist")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the media of `whole`."""
    for name in ("a.mp4", "b ü%#?.webm", "heat.mp4", "query.wav", "pictures/hit.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"media")
    return tmp_path


def whole() -> Playback:
    """Build a playback that has something in every field."""
    times = np.arange(7) / 30
    points = RNG.random((7, 3, 3)).astype(np.float32)
    points[2, 1] = np.nan
    first = VideoTrack(
        "a <b>&",
        duration=7 / 30,
        rate=30,
        size=(64, 96),
        media="a.mp4",
        phases=(Phase(0, 0.1, "up"), Phase(0.1, 0.2, "down", 0.5)),
        events=(PlaybackEvent(0.1, "top", 0.9), PlaybackEvent(0.2, "end")),
        curves=Curves(times, RNG.random((7, 2)), ("PC 1", "PC 2")),
        keypoints=Keypoints(times, points, JOINTS, ((0, 1), (0, 2))),
        overlay="heat.mp4",
    )
    second = VideoTrack(
        "b", 0.5, 29.97, (64, 96), media="b ü%#?.webm", time_map=TimeMap(A([0, 0.1, 0.2]), A([0, 0, 0.4]))
    )
    pair = Pair(0, 1, RNG.random((7, 5)), times, np.arange(5) / 10, A([[0, 0], [1, 1], [6, 4]]))
    skeleton = Skeleton("a", times, points, JOINTS, ((0, 1),), up="-y")
    query = PlaybackMoment("q", 0.3, media="query.wav")
    hits = (PlaybackMoment("h", 1.5, score=0.5, media="a.mp4", thumbnail="pictures/hit.jpg", duration=2, note="right"),)
    return Playback("T", (first, second), (pair,), (skeleton,), (Result(query, hits),))


def same(one: Any, other: Any) -> bool:
    """Compare parts field by field, arrays with their types."""
    if isinstance(one, Part):
        return type(one) is type(other) and all(same(getattr(one, f), getattr(other, f)) for f in one.__struct_fields__)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(one == other)


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


def test_every_field_is_really_compared(folder: Path) -> None:
    playback = whole()
    assert not same(playback.replace(title="other"), playback)
    pair = playback.pairs[0].replace(cost=playback.pairs[0].cost + 1)
    assert not same(playback.replace(pairs=(pair,)), playback)


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
    media = {"a.mp4", "b ü%#?.webm", "heat.mp4", "query.wav", "pictures/hit.jpg"}
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


@given(st.lists(st.tuples(st.floats(0.01, 9), st.floats(0, 9)), min_size=1, max_size=20), st.floats(-5, 200))
def test_a_time_map_is_read_between_its_knots(steps: list[tuple[float, float]], second: float) -> None:
    reference, own = np.cumsum(steps, axis=0).T
    found = float(TimeMap(reference, own)(second))
    assert own[0] - 1e-9 <= found <= own[-1] + 1e-9
    after = int(np.searchsorted(reference, second))
    if 0 < after < len(reference):
        part = (second - reference[after - 1]) / (reference[after] - reference[after - 1])
        assert found == pytest.approx(own[after - 1] + part * (own[after] - own[after - 1]))


TIMES = np.arange(3) / 30
TRACK: dict[str, Any] = {"name": "a", "duration": 1.0, "rate": 30.0, "size": (64, 96), "media": "a.mp4"}
WRONG: list[tuple[str, Callable[[], object]]] = [
    (r"own runs backwards at knot 2 \(2 s, then 1 s\)", lambda: TimeMap(A([0, 1, 2]), A([0, 2, 1]))),
    (r"reference must increase, but entry 1 is 1 s after 1 s", lambda: TimeMap(A([1, 1]), A([0, 1]))),
    (
        r"own must be \[2\], one second for each second of the reference; got \[3\]",
        lambda: TimeMap(A([0, 1]), A([0, 1, 2])),
    ),
    (r"own\[1\] is nan", lambda: TimeMap(A([0, 1]), A([0, np.nan]))),
    (r"reference must be a list of seconds", lambda: TimeMap(A([]), A([]))),
    (r"reference must be an array of numbers", lambda: TimeMap(A(["x"]), A([0]))),
    (r"reference\[1\] is None: it must be a finite number", lambda: TimeMap([0, None], [0, 1])),  # type: ignore[arg-type]
    (r"own must be an array of numbers", lambda: TimeMap([0, 1], [0, 10**400])),  # type: ignore[arg-type]
    (r"duration must be a finite number, got 1000", lambda: VideoTrack("a", 10**400, 30, (1, 1), "a.mp4")),
    (r"'up' ends at 1 s, before it starts at 1 s", lambda: Phase(1, 1, "up")),
    (r"start must be a finite number, got nan", lambda: Phase(float("nan"), 1, "up")),
    (r"label must be text, got 3", lambda: Phase(0, 1, 3)),  # type: ignore[arg-type]
    (r"confidence is 1\.5: it must be in \[0, 1\]", lambda: PlaybackEvent(0, "x", 1.5)),
    (r"second must be a finite number, got '1'", lambda: PlaybackEvent("1", "x")),  # type: ignore[arg-type]
    (r"second must be a finite number, got True", lambda: PlaybackEvent(True, "x")),
    (r"values must be \[3, any\]", lambda: Curves(TIMES, np.zeros((2, 2)))),
    (r"values has 9 columns", lambda: Curves(TIMES, np.zeros((3, 9)))),
    (r"names has 1 entries for 2 curves", lambda: Curves(TIMES, np.zeros((3, 2)), ("x",))),
    (r"points must be \[3, 1, any\]", lambda: Keypoints(TIMES, np.zeros((3, 2, 2)), ("head",))),
    (r"points has 4 columns", lambda: Keypoints(TIMES, np.zeros((3, 1, 4)), ("head",))),
    (r"points\[0, 0, 0\] is inf", lambda: Keypoints(TIMES, np.full((3, 1, 2), np.inf), ("head",))),
    (r"the bone \(0, 1\) connects", lambda: Keypoints(TIMES, np.zeros((3, 1, 2)), ("head",), ((0, 1),))),
    (r"bones\[0\] must be a list of 2", lambda: Skeleton("s", TIMES, np.zeros((3, 1, 3)), ("a",), ((0,),))),  # type: ignore[arg-type]
    (r"up is 'w'", lambda: Skeleton("s", TIMES, np.zeros((3, 1, 3)), ("a",), (), up="w")),
    (r"points must be \[3, 1, 3\]", lambda: Skeleton("s", TIMES, np.zeros((3, 1, 2)), ("a",), ())),
    (r"must be positive, got 0, 30", lambda: VideoTrack(**{**TRACK, "duration": 0})),
    (r"neither media nor keypoints", lambda: VideoTrack(**{**TRACK, "media": None})),
    (r"size must be a list of 2", lambda: VideoTrack(**{**TRACK, "size": (1, 2, 3)})),
    (r"phases\[0\] must be a Phase", lambda: VideoTrack(**TRACK, phases=((0, 1, "x"),))),  # type: ignore[arg-type]
    (r"cost must be \[3, 2\]", lambda: Pair(0, 1, np.zeros((2, 3)), TIMES, TIMES[:2], A([[0, 0]]))),
    (r"cost\[0, 1\] is nan", lambda: Pair(0, 1, A([[0, np.nan]]), A([0]), A([0, 1]), A([[0, 0]]))),
    (
        r"cost\[0, 0\] is 1e\+06, too large for float16",
        lambda: Pair(0, 1, A([[1e6]]), A([0]), A([0]), A([[0, 0]])),
    ),
    (r"path must contain indices of a cost of 1 × 1", lambda: Pair(0, 1, A([[0]]), A([0]), A([0]), A([[0, 1]]))),
    (r"path must contain whole numbers", lambda: Pair(0, 1, A([[0]]), A([0]), A([0]), A([[0, 0.5]]))),
    (r"path runs backwards after step 0", lambda: Pair(0, 1, A([[0, 0]]), A([0]), A([0, 1]), A([[0, 1], [0, 0]]))),
    (r"second must not be negative", lambda: PlaybackMoment("m", -1)),
    (r"nothing to show", lambda: Playback("t")),
    (r"10 tracks are too many", lambda: Playback("t", (VideoTrack(**TRACK),) * 10)),
    (r"reference is 1, but there are 1", lambda: Playback("t", (VideoTrack(**TRACK),), reference=1)),
    (
        r"its time_map must be None",
        lambda: Playback("t", (VideoTrack(**TRACK, time_map=TimeMap(A([0, 1]), A([0, 2]))),)),
    ),
    (
        r"pairs\[0\]\.columns is track 1",
        lambda: Playback("t", (VideoTrack(**TRACK),), (Pair(0, 1, A([[0]]), A([0]), A([0]), A([[0, 0]])),)),
    ),
]


@pytest.mark.parametrize(("message", "build"), WRONG, ids=[message for message, _ in WRONG])
def test_wrong_parts_are_refused_by_name(message: str, build: Callable[[], object]) -> None:
    with pytest.raises(PlaybackError, match=message):
        build()


BAD_PATHS = [
    "/etc/a.mp4", "../a.mp4", "x/../../a.mp4", "./a.mp4", "a//b.mp4", "..\\a.mp4", "C:/a.mp4", "", ".", ".hidden.mp4",
    "x/.git/a.mp4", "a\n.mp4", "a\x00.mp4", "a.html", "a.svg", "a.js", "a", "a.avi", "//host/a.mp4",
    "http://host/a.mp4",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_media_lie_in_the_folder_and_are_media(path: str) -> None:
    with pytest.raises(PlaybackError, match="media is "):
        VideoTrack(**{**TRACK, "media": path})


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
    (r"tracks\[1\]\.colour is unknown", lambda c: c["tracks"][1].update(colour="x")),
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


def test_principal_curves_are_those_of_a_singular_value_decomposition() -> None:
    values = RNG.random((40, 6)) * np.array([9, 5, 3, 1, 1, 1])
    (curves,) = principal_curves([values])
    _, _, directions = np.linalg.svd(values - values.mean(0), full_matrices=False)
    expected = (values - values.mean(0)) @ directions[:3].T
    expected *= np.sign(expected[-1] - expected[0])
    np.testing.assert_allclose(curves, expected, atol=1e-5)
    both = principal_curves([values, np.repeat(values, 2, axis=0)])
    np.testing.assert_allclose(both[1][::2], both[0], atol=1e-6)


def test_a_playback_needs_no_torch() -> None:
    code = "import sys, inphase.playback; sys.exit('torch' in sys.modules or 'av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
