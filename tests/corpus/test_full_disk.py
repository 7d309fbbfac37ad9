"""A disk that is full is printed in one line, whatever is being written; with room again the same command goes on."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.vector_index import Index
from inphase.storage.errors import MediaError
from tests.commands import type_command as run
from tests.corpus.made import made_store, row, small_corpus, small_encoder, walk

pytestmark = pytest.mark.slow

ROOMS = range(0, 2**20, 2**13)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 64 megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def leave_room(disk: Path, room: int) -> None:
    """Fill a disk up to so many bytes."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(bytes(max(0, free - room)))


def run_as_room_grows(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> int:
    """Type a command with ever more room until it is enough; count how often it was not."""
    for number, room in enumerate(ROOMS):
        leave_room(disk, room)
        if run(monkeypatch, *words) == 0:
            return number
        printed = " ".join(capsys.readouterr().err.split())
        assert "full" in printed or "make room" in printed, printed
        assert "Traceback" not in printed
    raise AssertionError("a megabyte is not enough")


def test_embedding_goes_on_when_there_is_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_encoder(tmp_path / "model.safetensors")
    corpus = small_corpus(tmp_path / "gym", actions={"vault": 3})
    words = ["embed", "--model", model, "--out", disk / "store", "--workers", "0", "--shard-videos", "1"]
    # The encoder is too large for any of these rooms; with it in the store, the rest is small.
    for room in (0, 2**14, 2**20):
        leave_room(disk, room)
        assert run(monkeypatch, *words, corpus) == 1
        assert "full" in capsys.readouterr().err
    (disk / "ballast").unlink()
    other = small_corpus(tmp_path / "track", actions={"jump": 1})
    assert run(monkeypatch, *words, other) == 0
    assert run_as_room_grows(disk, monkeypatch, capsys, *words, corpus) > 1
    with EmbeddingStore(disk / "store") as store:
        found = [(fact.id, fact.reason) for fact in store.catalog.current(embedded=False)]
    assert sorted(found) == [*((f"gym/vault/0{number}.mp4", "") for number in range(3)), ("track/jump/00.mp4", "")]
    assert not list((disk / "store" / "shards").glob(".*"))


def test_an_index_and_alignments_are_written_when_there_is_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    rows = [row(f"squat/{number}", walk(rng)) for number in range(12)]
    made_store(disk / "store", {"1": rows[:6], "2": rows[6:]})
    with EmbeddingStore(disk / "store") as store:
        pass  # the catalog
    printed = []
    for room in ROOMS:
        leave_room(disk, room)
        try:
            with EmbeddingStore(disk / "store") as store:
                Index(store, exact=10)
            break
        except MediaError as error:
            printed.append(str(error))
    assert printed
    assert all("full" in each for each in printed)
    assert run_as_room_grows(disk, monkeypatch, capsys, "align-all", disk / "store", "--out", disk / "out") > 2
    distances = np.load(disk / "out" / "squat" / "distances.npy")
    assert distances.shape == (12, 12)
    assert not list((disk / "out" / "squat").glob(".*"))
