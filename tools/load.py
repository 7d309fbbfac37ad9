"""Load: many clients on one viewer, and embedding and searching one store at the same time; memory must stay flat.

    python -m tools.load view [--clients 200] [--minutes 10]     # requests, failures, latency, memory of the server
    python -m tools.load store [--minutes 60]                    # one process embeds, another searches

`--write` enters the line into docs/engineering/reliability.md. Linux only: memory is read from /proc.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import numpy as np

from tests.corpus.made import small_corpus, small_encoder
from tests.media.recordings import write_video
from tests.processes import FORK_SERVER, kill_group, start_command
from tests.viewer.conftest import write_pair

PAGE = Path(__file__).parents[1] / "docs" / "engineering" / "reliability.md"
GROWTH = 30.0  # MB that a process may grow from the second third of the time to the last: caches are full by then
FILES = ("", "data/playback.json", "static/main.js", "data/a.mp4", "data/b.mp4")


def resident(process: int) -> float:
    """Return the resident memory of a process, in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Memory:
    """Samples the memory of processes once a second."""

    def __init__(self, *processes: int) -> None:
        """Watch processes."""
        self._processes = processes
        self.samples: list[list[float]] = []

    def sample(self) -> None:
        """Take a sample."""
        self.samples.append([resident(process) for process in self._processes])

    def describe(self) -> tuple[str, bool]:
        """Describe the peaks of the second and the last third of the time; report whether they are alike."""
        third = max(1, len(self.samples) // 3)
        before, after = (np.max(part, axis=0) for part in (self.samples[third : 2 * third], self.samples[-third:]))
        text = "; ".join(f"{one:.0f} MB, then {other:.0f} MB" for one, other in zip(before, after, strict=True))
        return text, bool((after - before <= GROWTH).all())


@contextmanager
def viewer(folder: Path) -> Iterator[tuple[str, int]]:
    """Run `inphase view` and yield its URL and its process."""
    log = folder.with_name("view.log")
    process = start_command("view", folder, "--no-open", log=log, environment={"COLUMNS": "200"})
    try:
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/\S*", log.read_text() if log.exists() else "")):
            if not process.is_alive():
                raise RuntimeError(log.read_text())
            time.sleep(0.05)
        assert process.pid is not None
        yield found[0], process.pid
        os.kill(process.pid, signal.SIGINT)
        process.join(20)
    finally:
        kill_group(process)


class Client(threading.Thread):
    """A browser that asks for the page, the document and parts of the videos, again and again."""

    def __init__(self, url: str, seed: int, stop: threading.Event) -> None:
        """Prepare to ask."""
        super().__init__(daemon=True)
        self._url, self._rng, self._end = urlsplit(url), Random(seed), stop
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def run(self) -> None:
        """Ask until stopped, about once a second."""
        cookie = self._ask("", {}) or ""
        while not self._end.wait(self._rng.uniform(0.5, 1.5)):
            start = self._rng.randrange(2000)
            headers = {"Range": f"bytes={start}-{start + 65535}"} if self._rng.random() < 0.5 else {}
            self._ask(self._rng.choice(FILES), {**headers, **({"Cookie": cookie} if cookie else {})})

    def _ask(self, path: str, headers: dict[str, str]) -> str | None:
        began = time.monotonic()
        try:
            wire = HTTPConnection(self._url.hostname or "", self._url.port, timeout=30)
            wire.request(
                "GET", f"{self._url.path}{path}" + (f"?{self._url.query}" if self._url.query else ""), headers=headers
            )
            answer = wire.getresponse()
            answer.read()
            if answer.status not in (200, 206, 302, 303, 307, 416):
                self.failures.append(f"{answer.status} for {path or 'the page'}")
            wire.close()
        except (OSError, HTTPException) as error:
            self.failures.append(f"{type(error).__name__} for {path or 'the page'}")
            return None
        self.seconds.append(time.monotonic() - began)
        return (answer.getheader("Set-Cookie") or "").split(";")[0] or None


def load_viewer(clients: int, minutes: float) -> tuple[str, bool]:
    """Let clients ask one viewer; return a summary and whether all was well."""
    with tempfile.TemporaryDirectory() as place, viewer(write_pair(Path(place) / "pair")) as (url, process):
        stop, memory = threading.Event(), Memory(process)
        asking = [Client(url, seed, stop) for seed in range(clients)]
        for client in asking:
            client.start()
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            memory.sample()
            time.sleep(1)
        stop.set()
        for client in asking:
            client.join(60)
        seconds = np.array([second for client in asking for second in client.seconds])
        failures = [failure for client in asking for failure in client.failures]
        held, flat = memory.describe()
    summary = (
        f"{clients} clients on `inphase view` for {minutes:g} minutes: {len(seconds):,} requests, "
        f"{len(failures)} failed"
        f"{' (' + failures[0] + ')' if failures else ''}, median {1000 * np.median(seconds):.0f} ms, "
        f"99 % below {1000 * np.quantile(seconds, 0.99):.0f} ms; memory of the server {held}"
    )
    return summary, flat and not failures


def embed_forever(place: Path, log: Path) -> None:
    """Replace videos of a corpus and embed it, again and again."""
    from inphase.corpus.embed_corpus import embed_corpus

    rng = Random(0)
    films = sorted((place / "films").rglob("*.mp4"))
    for turn in count(1):
        for _ in range(3):
            shutil.copyfile(rng.choice(films), place / "gym" / "vault" / f"{rng.randrange(12):02d}.mp4")
        done = embed_corpus(place / "gym", place / "store", model=place / "model.safetensors", workers=0, device="cpu")
        log.write_text(f"{turn} turns, {done.failed} broken")
        if done.failed:
            sys.exit(1)


def search_forever(place: Path, log: Path) -> None:
    """Search the store, again and again."""
    from inphase.corpus.store_search import search

    for turn in count(1):
        query = place / "films" / "vault" / f"{turn % 6:02d}.mp4"
        found = search(query, [place / "store"], at=0.1, model=place / "model.safetensors", cache=place / "cache")
        if not found.moments:
            sys.exit(1)
        log.write_text(f"{turn} searches")


def load_store(minutes: float) -> tuple[str, bool]:
    """Embed and search one store at the same time; return a summary and whether all was well."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        small_encoder(place / "model.safetensors")
        small_corpus(place / "films", actions={"vault": 6})
        shutil.copytree(place / "films", place / "gym")
        write_video(place / "gym" / "vault" / "long.mp4", count=60)
        work: tuple[Callable[[Path, Path], None], ...] = (embed_forever, search_forever)
        first = FORK_SERVER.Process(target=embed_forever, args=(place, place / "0.log"))
        first.start()
        while first.is_alive() and not (place / "0.log").exists():  # the store is there
            time.sleep(0.1)
        second = FORK_SERVER.Process(target=work[1], args=(place, place / "1.log"))
        second.start()
        assert first.pid is not None
        assert second.pid is not None
        memory, end = Memory(first.pid, second.pid), time.monotonic() + 60 * minutes
        while time.monotonic() < end and first.is_alive() and second.is_alive():
            memory.sample()
            time.sleep(1)
        alive = first.is_alive() and second.is_alive()
        for process in (first, second):
            process.kill()
            process.join()
        said = ", ".join(
            (place / f"{number}.log").read_text() for number in (0, 1) if (place / f"{number}.log").exists()
        )
    held, flat = memory.describe()
    return f"`embed` and `search` on one store for {minutes:g} minutes: {said}; memory {held}", alive and flat


def write_line(name: str, line: str) -> None:
    """Replace the line of a measurement in docs/engineering/reliability.md."""
    mark = f"<!-- load {name} -->"
    before, _, after = PAGE.read_text(encoding="utf-8").partition(mark)
    PAGE.write_text(f"{before}{mark} {line}\n" + after.partition("\n")[2], encoding="utf-8")


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["view", "store"])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    summary, good = load_viewer(given.clients, given.minutes) if given.what == "view" else load_store(given.minutes)
    print(summary)
    if given.write:
        write_line(given.what, summary)
    sys.exit(not good)


if __name__ == "__main__":
    main()
