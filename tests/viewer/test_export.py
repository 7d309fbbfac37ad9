"""The page as a folder: from a static host and from the disk."""

import json
import re
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import numpy as np
import pytest

from inphase.viewer.page import STATIC, bundle, export
from tests.viewer.conftest import EVIL, KNOTS, settle

if TYPE_CHECKING:
    from playwright.sync_api import Page

WHERE = "() => [...document.querySelectorAll('video')].map((video) => video.currentTime)"


class Quiet(SimpleHTTPRequestHandler):
    """A static host as plain as they come: it does not even know byte ranges."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def check(page: "Page") -> None:
    """Seek in an exported page and see both videos and the text."""
    assert page.locator("h1").inner_text() == f"Pair {EVIL}"
    page.keyboard.press("ArrowRight")
    settle(page)
    first, second = page.evaluate(WHERE)
    assert first == pytest.approx(1.5 / 30, abs=1e-3)
    assert second == pytest.approx(np.interp(first, *KNOTS), abs=1e-3)
    assert page.evaluate("() => window.evil") is None
    assert page.locator("canvas.matrix").count() == 1
    page.keyboard.press("o")
    assert page.locator(".ghost .placing").inner_text() == "centered", "an overlay without joints"
    page.keyboard.press("o")
    assert page.locator(".ghost").count() == 0


def test_it_opens_from_the_disk(open_page: Callable[..., "Page"], pair_folder: Path, tmp_path: Path) -> None:
    exported = export(pair_folder, tmp_path / "out")
    assert exported.page == tmp_path / "out" / "index.html"
    check(open_page(exported.page.as_uri()))


def test_a_single_page_holds_everything(open_page: Callable[..., "Page"], pair_folder: Path, tmp_path: Path) -> None:
    exported = export(pair_folder, tmp_path / "swing", single=True)
    assert exported.page == tmp_path / "swing.html"
    assert [path.name for path in tmp_path.iterdir()] == ["swing.html"]
    moved = tmp_path / "elsewhere" / "mine.html"
    moved.parent.mkdir()
    exported.page.replace(moved)
    text = moved.read_text(encoding="utf-8")
    assert "static/" not in text.split("<script>")[0]
    assert text.count("</script>") == 2, "names cannot end the script"
    page = open_page(moved.as_uri())
    check(page)
    assert page.evaluate("() => [...document.querySelectorAll('video')].every((v) => v.src.startsWith('blob:'))")
    assert export(pair_folder, tmp_path / "swing.html", single=True).page == tmp_path / "swing.html"


def test_an_archive_holds_the_folder(open_page: Callable[..., "Page"], pair_folder: Path, tmp_path: Path) -> None:
    exported = export(pair_folder, tmp_path / "swing", zipped=True)
    assert exported.page == tmp_path / "swing.zip"
    assert "unpack it" in exported.summary().lines[0]
    with ZipFile(exported.page) as archive:
        archive.extractall(tmp_path / "unpacked")
    check(open_page((tmp_path / "unpacked" / "swing" / "index.html").as_uri()))
    with pytest.raises(ValueError, match="a single page or a zip archive, not both"):
        export(pair_folder, tmp_path / "swing", single=True, zipped=True)


def test_media_too_large_for_one_page_are_refused(
    pair_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inphase.viewer.page.MAX_SINGLE_BYTES", 1000)
    with pytest.raises(ValueError, match="export a folder or a zip archive, or shorter videos"):
        export(pair_folder, tmp_path / "swing", single=True)
    assert not list(tmp_path.iterdir())


def test_it_opens_from_a_static_host(open_page: Callable[..., "Page"], pair_folder: Path, tmp_path: Path) -> None:
    export(pair_folder, tmp_path / "site" / "out")
    handler = partial(Quiet, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        page = open_page(f"http://127.0.0.1:{host.server_port}/out/")
        assert page.locator("h1").inner_text() == f"Pair {EVIL}"
        assert page.locator("#problem").is_hidden()
        # This host knows no byte ranges, without which browsers do not jump.
        page.evaluate("() => inphase.clock.seek(1.5)")
        for _ in range(100):
            seconds = page.evaluate("() => [...document.querySelectorAll('video')].map((each) => each.currentTime)")
            if seconds[0] > 0 and seconds[1] > 0:
                break
            page.wait_for_timeout(100)
        assert seconds == pytest.approx([1.5, 1.35], abs=1e-3)
        page.close()
        host.shutdown()


def test_a_folder_holds_the_playback_and_nothing_else(pair_folder: Path, tmp_path: Path) -> None:
    (pair_folder / "private.txt").write_text("x")
    export(pair_folder, tmp_path / "out")
    (pair_folder / "private.txt").unlink()
    files = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    page = {"index.html", "data.js", "static/viewer.js", "static/style.css", "static/icon.svg"}
    assert files == page | {"data/a.mp4", "data/b.mp4"}
    assert (tmp_path / "out/data/a.mp4").read_bytes() == (pair_folder / "a.mp4").read_bytes()
    script = (tmp_path / "out/data.js").read_text()
    assert json.loads(script.removeprefix("window.INPHASE = ").removesuffix(";\n"))["document"]["version"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_export_is_described_reported_and_can_be_written_again(pair_folder: Path, tmp_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    exported = export(pair_folder, tmp_path / "out", progress=lambda *report: reports.append(report))
    assert reports == [("copying media", 1, 2), ("copying media", 2, 2)]
    described = exported.to_dict()
    assert json.loads(json.dumps(described)) == described
    assert (described["title"], described["page"]) == (f"Pair {EVIL}", str(tmp_path / "out" / "index.html"))
    assert exported.write(tmp_path / "copy") == tmp_path / "copy" / "index.html"
    for name in ("out", "copy"):
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        assert sorted(path.relative_to(tmp_path / name).as_posix() for path in files) == described["files"]
    assert (tmp_path / "copy/data.js").read_bytes() == (tmp_path / "out/data.js").read_bytes()


def test_what_is_there_is_not_overwritten(pair_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ValueError, match="is not empty: name a new folder"):
        export(pair_folder, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_bundle_holds_every_module_and_no_module_syntax() -> None:
    script = bundle()
    for file in STATIC.glob("*.js"):
        assert f"modules.{file.stem} = " in script, f"{file.name} is not reached from main.js"
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)


def test_the_page_asks_no_other_host() -> None:
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        addresses = set(re.findall(r"https?://[^\s\"'<>)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert addresses == set(), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
