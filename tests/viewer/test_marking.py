"""Marks made on the page: by key and by hand, downloaded, and saved to the folder."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import pytest

from inphase.apps.labels import Event, read_labels
from inphase.playback.playback_folder import MARKS, Mark, MarksChangedError, read_marks, write_marks
from inphase.viewer import server
from inphase.viewer.page import export
from tests.viewer.conftest import RATE, answered, settle, where
from tests.viewer.test_server import Answer, ask

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]
TIMES = np.arange(120) / RATE
LIST = "() => inphase.marks.list.map(({ second, label }) => [second, label])"


@pytest.fixture
def folder(pair_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(pair_folder, tmp_path / "play")
    return tmp_path / "play"


def marks_of(page: "Page") -> list[list[float | str]]:
    found: list[list[float | str]] = page.evaluate(LIST)
    return found


@pytest.mark.slow
def test_a_moment_is_marked_named_dragged_undone_and_saved(open_page: Open, folder: Path) -> None:
    with answered(folder, edit=True) as url:
        page = open_page(url)
        page.evaluate("() => inphase.clock.seek(1.01)")
        page.keyboard.press("m")
        page.keyboard.type('=top, of "it"')
        page.keyboard.press("Enter")
        page.evaluate("() => inphase.clock.seek(2.5)")
        page.locator("#mark").click()
        page.keyboard.type("impact")
        page.keyboard.press("Enter")
        assert marks_of(page) == [[1.0, '=top, of "it"'], [2.5, "impact"]]
        assert page.locator(".names .mark-label").all_inner_texts() == ['=top, of "it"', "impact"]
        bar, mark = page.locator(".bar").first.bounding_box(), page.locator(".pin").nth(1).bounding_box()
        assert bar is not None
        assert mark is not None
        page.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
        page.mouse.down()
        for share in (0.6, 0.7, 0.75):
            page.mouse.move(bar["x"] + share * bar["width"], bar["y"] + 5)
        page.mouse.up()
        assert marks_of(page)[1] == [pytest.approx(3.0), "impact"]
        assert where(page)[0] == pytest.approx(3.0, abs=0.01), "the videos show what is dragged"
        page.keyboard.press("<")
        assert marks_of(page)[1][0] == pytest.approx(3 - 1 / RATE)
        page.keyboard.press("Control+z")
        page.keyboard.press("Control+z")
        assert marks_of(page)[1][0] == 2.5
        page.keyboard.press("Control+Shift+z")
        assert marks_of(page)[1][0] == pytest.approx(3.0)
        page.keyboard.press("Delete")
        assert len(marks_of(page)) == 1
        page.keyboard.press("Control+z")
        page.keyboard.press("1")
        assert where(page)[0] == pytest.approx(1.0, abs=0.01)
        page.keyboard.press("Control+s")
        page.get_by_text("2 saved in labels.csv").wait_for()
        found = read_labels(folder / MARKS, times=TIMES, end=4.0)
        assert found.events == (Event(1.0, '=top, of "it"'), Event(3.0, "impact"))
        with page.expect_download() as download:
            page.get_by_role("button", name="Download CSV").click()
        assert download.value.path().read_bytes() == (folder / MARKS).read_bytes()
        assert b"\"'=top" in (folder / MARKS).read_bytes()


@pytest.mark.slow
def test_marks_of_another_tab_are_not_lost(open_page: Open, folder: Path) -> None:
    with answered(folder, edit=True) as url:
        first, second = open_page(url), open_page(url)
        for page in (first, second):
            page.keyboard.press("m")
            page.keyboard.type("mine" if page is first else "theirs")
            page.keyboard.press("Enter")
        first.keyboard.press("Control+s")
        first.get_by_text("1 saved in").wait_for()
        second.keyboard.press("Control+s")
        second.get_by_text("changed by another tab or program").wait_for()
        assert [mark.label for mark in read_marks(folder).marks] == ["mine"]
        second.get_by_role("button", name="Replace theirs").click()
        second.get_by_text("1 saved in").wait_for()
        assert [mark.label for mark in read_marks(folder).marks] == ["theirs"]
        first.keyboard.press("Control+z")
        first.keyboard.press("Control+s")
        first.get_by_role("button", name="Load theirs").click()
        first.get_by_text("1 saved in").wait_for()
        assert marks_of(first) == [[0.0, "theirs"]]


@pytest.mark.slow
def test_an_exported_page_offers_a_download_only(open_page: Open, folder: Path, tmp_path: Path) -> None:
    exported = export(folder, tmp_path / "swing", single=True)
    page = open_page(exported.page.as_uri())
    page.keyboard.press("m")
    page.keyboard.press("Enter")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.path().read_text() == "second,label\n0.000000,mark 1\n"
    assert page.get_by_role("button", name="Save").count() == 0
    page.keyboard.press("m")
    page.keyboard.press("Enter")
    assert "2 marked, not saved: download them" in page.locator(".mark-status").inner_text()
    page.locator(".pin").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Delete")
    assert page.evaluate(LIST) == [[0, "mark 2"]], "a mark is selected by the keyboard, too"


@pytest.mark.slow
def test_names_stand_beside_their_marks_on_a_telephone(open_page: Open, folder: Path) -> None:
    content = json.loads((folder / "playback.json").read_text())
    names = ["address", "toe-up", "mid-backswing", "top", "mid-downswing", "impact", "follow-through", "finish"]
    content["tracks"][0]["events"] = [{"second": 1 + k / 5, "label": name} for k, name in enumerate(names)]
    (folder / "playback.json").write_text(json.dumps(content))
    with answered(folder) as url:
        page = open_page(url, width=390, height=844)
        boxes = page.locator(".names > div").evaluate_all(
            "(all) => all.map((e) => e.getBoundingClientRect()).map((b) => [b.left, b.top, b.right, b.bottom])"
        )
        assert page.locator(".names > div").all_inner_texts() == names
        assert all(left >= 0 and right <= 390 for left, _, right, _ in boxes)
        for k, (left, top, right, bottom) in enumerate(boxes):
            for a, b, c, d in boxes[:k]:
                assert right <= a or c <= left or bottom <= b + 1 or d <= top + 1, "two names cover each other"
        page.get_by_role("button", name="4 top").click()
        assert where(page)[0] == pytest.approx(1.6, abs=0.01)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_a_hundred_thousand_marks_leave_the_page_usable(open_page: Open, folder: Path) -> None:
    rng = np.random.default_rng(0)
    content = json.loads((folder / "playback.json").read_text())
    seconds = np.sort(rng.random(100_000) * 4).tolist()
    content["tracks"][0]["events"] = [{"second": second, "label": f"e{k}"} for k, second in enumerate(seconds)]
    (folder / "playback.json").write_text(json.dumps(content))
    with answered(folder, edit=True) as url:
        page = open_page(url)
        assert page.evaluate("() => document.querySelectorAll('.event').length") <= 240
        assert "100,0" in page.locator("#timeline").inner_text()
        page.evaluate("() => inphase.clock.seek(2)")
        page.keyboard.press("m")
        page.keyboard.press("Enter")
        assert page.get_by_role("button", name="Mark mark 1, 0:02.00").count() == 1
        spent = page.evaluate(
            "() => { const start = performance.now(); inphase.clock.seek(1); return performance.now() - start; }"
        )
        assert spent < 500
        settle(page)


def put(url: str, body: bytes, *, origin: str | None = "", more: tuple[str, ...] = ()) -> Answer:
    own = f"http://{urlsplit(url).netloc}"
    lines = (*more, f"Content-Length: {len(body)}", *(() if origin is None else (f"Origin: {origin or own}",)))
    return ask(url, "/marks", method="PUT", more=lines, body=body)


@pytest.fixture
def edited(folder: Path) -> Iterator[str]:
    with answered(folder, edit=True) as url:
        yield url


def given(marks: list[tuple[float, str]], version: str = "") -> bytes:
    return json.dumps({"marks": [{"second": a, "label": b} for a, b in marks], "version": version}).encode()


def test_the_server_saves_marks_only_if_it_may(edited: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(ask(edited, "/marks").body) == {"marks": [], "version": ""}
    for origin in (None, "null", "http://evil.example", "http://127.0.0.1:1"):
        assert put(edited, given([(1, "a")]), origin=origin).status == 403
    bare = edited.split("?")[0]
    assert put(bare, given([(1, "a")])).status == 403, "without the token"
    assert put(edited, given([(1, "a")]), more=("Host: evil.example",)).status in (400, 421)
    for wrong, reason in (
        (b"{", "not saved"),
        (given([(-1, "a")]), "lasts from 0 to 4 s"),
        (given([(5, "a")]), "lasts from 0 to 4 s"),
        (given([(1, " ")]), "is no name"),
        (given([(1, "a" * 201)]), "is no name"),
        (given([(1, "a\x07")]), "is no name"),
        (b'{"marks": [{"second": NaN, "label": "a"}], "version": ""}', "not saved"),
        (b'{"marks": [], "version": "", "file": "../x"}', "not saved"),
    ):
        answer = put(edited, wrong)
        assert answer.status == 422
        assert reason in json.loads(answer.body)["error"]
    monkeypatch.setattr(server, "MAX_MARKS_BYTES", 1000)
    assert put(edited, given([(1, "a")] * 100)).status == 413
    assert not (folder / MARKS).exists()
    assert ask(edited, "/marks", method="DELETE", more=("Content-Length: 0",)).status == 405
    answer = put(edited, given([(2, "b"), (1, "a")]))
    assert answer.status == 200
    assert (folder / MARKS).read_text() == "second,label\n1.000000,a\n2.000000,b\n"
    version = json.loads(answer.body)["version"]
    assert put(edited, given([(1, "c")])).status == 409
    assert put(edited, given([(1, "c")], version)).status == 200
    assert [mark.label for mark in read_marks(folder).marks] == ["c"]


def test_without_edit_nothing_is_read_or_saved(pair_url: str, pair_folder: Path) -> None:
    assert ask(pair_url, "/marks").status == 404
    assert put(pair_url, given([(1, "a")])).status == 404
    assert not (pair_folder / MARKS).exists()
    assert b"inphase-marks" not in ask(pair_url, "/data/playback.json").headers


def test_another_table_and_a_link_are_left_alone(edited: str, folder: Path) -> None:
    (folder / MARKS).write_text("start,end,label\n0,1,a\n")
    answer = ask(edited, "/marks")
    assert (answer.status, "rename it" in json.loads(answer.body)["error"]) == (422, True)
    assert put(edited, given([(1, "a")])).status == 422
    assert (folder / MARKS).read_text() == "start,end,label\n0,1,a\n"
    (folder / MARKS).unlink()
    (folder.parent / "secret.csv").write_text("second,label\n1,secret\n")
    (folder / MARKS).symlink_to(folder.parent / "secret.csv")
    assert b"1,secret" not in ask(edited, "/marks").body
    assert put(edited, given([(1, "a")])).status == 422
    assert (folder.parent / "secret.csv").read_text() == "second,label\n1,secret\n"


def test_marks_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    version = write_marks(tmp_path, [Mark(1.0, "a  b")], version="", end=2.0)
    assert read_marks(tmp_path).marks == (Mark(1.0, "a b"),)
    assert read_marks(tmp_path).version == version
    with pytest.raises(MarksChangedError, match="changed by another tab"):
        write_marks(tmp_path, [], version="", end=2.0)
    assert [file.name for file in tmp_path.iterdir()] == [MARKS]
    write_marks(tmp_path, [], version=version, end=2.0)
    assert (tmp_path / MARKS).read_text() == "second,label\n"
