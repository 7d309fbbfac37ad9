"""A server in its own process, as `inphase view` starts it, and the system's chromium."""

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import uvicorn

from inphase.playback import Pair, Phase, Playback, PlaybackEvent, TimeMap, VideoTrack, write_playback
from inphase.viewer.server import TimedProtocol, application
from tests.media.recordings import clicks, write_video

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

RATE = 30
TOKEN = "token-of-tests"
# Reference second → the other's: slower, faster, and as fast.
KNOTS = (np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.6, 2.1, 3.3, 4.3]))
EVIL = '<img src=x onerror="window.evil = true">'


def write_pair(folder: Path) -> Path:
    """Write two videos with sound, one of them warped, and their alignment."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("a.mp4", 120), ("b.mp4", 140)):
        write_video(
            folder / name,
            count=count,
            rate=RATE,
            height=90,
            width=160,
            sound=clicks([0.5, 1, 2], length=count / RATE),
            options={"g": "30"},
            faststart=True,
        )
    rows, columns = np.arange(120) / RATE, np.arange(140) / RATE
    own = np.interp(rows, *KNOTS)
    path = np.stack([np.arange(120), np.round(own * RATE).astype(int)], axis=1)
    cost = np.abs(own[:, None] - columns[None])
    tracks = (
        VideoTrack(
            "first",
            4.0,
            RATE,
            (90, 160),
            media="a.mp4",
            phases=(Phase(0, 2, EVIL), Phase(2, 4, "down")),
            events=(PlaybackEvent(1.0, "top", 0.8), PlaybackEvent(3.0, "end")),
        ),
        VideoTrack(
            EVIL, 140 / RATE, RATE, (90, 160), media="b.mp4", time_map=TimeMap(*KNOTS), phases=(Phase(0, 2.1, "up"),)
        ),
    )
    write_playback(folder, Playback(f"Pair {EVIL}", tracks, (Pair(0, 1, cost, rows, columns, path),)))
    return folder


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run `inphase view` on a folder and give the address it prints."""
    code = "from inphase.cli import main; main()"
    command = [sys.executable, "-c", code, "view", str(folder), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", line)
            assert found, f"no address in {line!r}"
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)


@contextlib.contextmanager
def answered(folder: Path, *, edit: bool = False) -> Iterator[str]:
    """Answer for a folder from this process, which starts in no time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            application(folder, port=port, token=TOKEN, edit=edit),
            log_level="warning",
            lifespan="off",
            ws="none",
            http=TimedProtocol,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/?token={TOKEN}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("viewer") / "pair")


@pytest.fixture(scope="session")
def pair_url(pair_folder: Path) -> Iterator[str]:
    with answered(pair_folder) as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'inphase[dev]'")
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def tabs(browser: "Browser") -> Iterator[tuple["BrowserContext", list["Page"]]]:
    """Keep blank pages for other tests: a new one starts processes, which takes a second of CPU."""
    context = browser.new_context()
    yield context, []
    context.close()


@pytest.fixture
def open_page(tabs: tuple["BrowserContext", list["Page"]]) -> Iterator[Callable[..., "Page"]]:
    """Open pages that fail the test when they throw, or ask any other host for anything.

    What earlier tests stored in the browser is gone.
    """
    context, blank = tabs
    pages: list[tuple[Page, dict[Any, Callable[..., None]]]] = []
    wrong: list[str] = []
    cleared: set[str] = set()

    def open_(
        url: str, *, width: int = 1280, height: int = 900, ready: bool = True, dark: bool = False, unfold: bool = True
    ) -> "Page":
        page = blank.pop() if blank else context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if dark else "light")
        origin = url.split("/")[2]
        if origin not in cleared:
            cleared.add(origin)
            stored = {"origin": f"http://{origin}", "storageTypes": "all"}
            context.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
        listeners: dict[Any, Callable[..., None]] = {
            "request": lambda sent: wrong.append(sent.url) if leaves(sent.url, origin) else None,
            "pageerror": lambda error: wrong.append(str(error)),
        }
        pages.append((page, listeners))
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(url)
        if ready:
            settle(page)
            if unfold and page.locator("#details").is_visible():
                page.keyboard.press("d")
        return page

    yield open_
    for page, listeners in pages:
        if not page.is_closed():
            for event, listener in listeners.items():
                page.remove_listener(event, listener)
            page.unroute_all()
            page.goto("about:blank")
            blank.append(page)
    assert wrong == []


def leaves(url: str, origin: str) -> bool:
    """Report whether a request goes to another host; data that the page itself holds does not."""
    return not url.startswith(("data:", "blob:")) and url.split("/")[2] != origin


def settle(page: "Page") -> None:
    """Wait until every video stands where it belongs. (The page's policy forbids evaluating texts in a loop there.)"""
    for _ in range(200):
        if page.evaluate("() => !!window.inphase && inphase.clock.players.every((player) => player.settled)"):
            return
        page.wait_for_timeout(50)
    raise AssertionError("the videos did not load: " + page.locator("body").inner_text()[:300])


def where(page: "Page") -> list[float]:
    """Give the clock and both videos' seconds once everything stands."""
    settle(page)
    found: list[float] = page.evaluate(
        "() => [inphase.clock.time, ...[...document.querySelectorAll('video')].map((video) => video.currentTime)]"
    )
    return found
