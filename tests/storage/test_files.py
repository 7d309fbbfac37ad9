import csv
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import inphase
from inphase.storage.cache import Cache
from inphase.storage.errors import MediaError
from inphase.storage.files import (
    CHECKSUM,
    DRAFT_SUFFIX,
    atomic_write,
    exclusive_lock,
    is_draft,
    read_cell,
    refuse_overwrite,
    require_folder,
    scratch_folder,
    sweep_drafts,
    verify_checksum,
    write_blocks,
    write_checksum,
    write_table,
)
from inphase.storage.files import sweep_once as swept_folders


def test_a_file_appears_when_it_is_whole_and_what_fails_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "path.csv"
    with atomic_write(file) as part:
        part.write_text("half")
        assert (part.suffix, file.exists()) == (".csv", False)
    assert file.read_text() == "half"
    with pytest.raises(ZeroDivisionError), atomic_write(file) as part:
        part.write_text(str(1 / 0))
    with pytest.raises(MediaError, match=r"path.csv cannot be written: No such file"), atomic_write(file):
        (tmp_path / "absent" / "x").write_text("")
    assert [path.name for path in tmp_path.iterdir()] == ["path.csv"]
    assert file.read_text() == "half"


def test_two_that_write_one_file_take_turns(tmp_path: Path) -> None:
    file, order = tmp_path / "aligned.txt", []

    def write(name: str) -> None:
        with atomic_write(file) as part:
            order.append(f"{name} begins")
            part.write_text(name * 1000)
            time.sleep(0.05)
            assert part.read_text() == name * 1000
            order.append(f"{name} ends")

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [word.split()[0] for word in order[::2]] == [word.split()[0] for word in order[1::2]]
    assert file.read_text() == order[-1][0] * 1000
    assert [path.name for path in tmp_path.iterdir()] == ["aligned.txt"]


WRITER = (
    "import sys, time; from pathlib import Path; from inphase.storage.files import atomic_write, scratch_folder\n"
    "file = Path(sys.argv[1])\n"
    "with scratch_folder(file.parent) as folder, atomic_write(file) as part:\n"
    "    (folder / 'a').mkdir(); (folder / 'a' / 'b').write_text('b')\n"
    "    part.write_text('half'); print('there', flush=True); time.sleep(60)"
)


@contextmanager
def another_writer(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds drafts of a file and of a folder, and kill it at the end."""
    command = [sys.executable, "-c", WRITER, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield process
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["x.txt", "y.txt"])
def test_a_killed_writer_blocks_nobody_and_the_next_one_removes_its_drafts(tmp_path: Path, name: str) -> None:
    with another_writer(tmp_path / "x.txt"):
        pass
    assert len([path for path in tmp_path.iterdir() if is_draft(path)]) == len([*tmp_path.iterdir()]) == 2
    with atomic_write(tmp_path / name) as part:
        part.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "whole"


def test_drafts_of_living_writers_stay(tmp_path: Path) -> None:
    with another_writer(tmp_path / "x.txt"):
        before = sorted(tmp_path.rglob("*"))
        sweep_drafts(tmp_path)
        assert sorted(tmp_path.rglob("*")) == before
    sweep_drafts(tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_locks_writers_use_drafts_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with atomic_write(tmp_path / "x") as one, atomic_write(tmp_path / "x") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
        sweep_drafts(tmp_path)
    assert (tmp_path / "x").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    old, young = (tmp_path / f".{name}{DRAFT_SUFFIX}" for name in ("old", "young"))
    for draft in (old, young):
        draft.mkdir()
    os.utime(old, (1, 1))
    sweep_drafts(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if is_draft(path)] == [young.name]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o007, 0o660), (0o077, 0o600)])
def test_files_follow_the_umask_whoever_writes_them(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "plain") as part:
            part.write_text("")
        with atomic_write(tmp_path / "private") as part:
            os.close(os.open(part, os.O_CREAT | os.O_WRONLY, 0o600))
        write_blocks(tmp_path / "blocks", [b"a", b"b"])
        Cache(tmp_path).put("key", {"values": np.zeros(1)})
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == dict.fromkeys(
        ["plain", "private", "blocks", "key.npz"], mode
    )


def test_a_scratch_folder_is_removed_and_moves_out_what_is_renamed(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "whole" / "deep").mkdir(parents=True)
        (folder / "rest").write_text("")
        (folder / "whole").replace(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_inputs_and_files_are_not_overwritten(tmp_path: Path) -> None:
    given = tmp_path / "a.mp4"
    given.write_bytes(b"video")
    with pytest.raises(ValueError, match=r"a\.mp4 is a file: choose a folder to write"):
        require_folder(given)
    require_folder(tmp_path)
    require_folder(tmp_path / "new")
    (tmp_path / "link.mp4").symlink_to(given)
    with pytest.raises(ValueError, match=r"link\.mp4 would be overwritten: choose another output folder"):
        refuse_overwrite([given], [tmp_path / "new.mp4", tmp_path / "link.mp4"])
    refuse_overwrite([given, tmp_path / "gone.mp4"], [tmp_path / "new.mp4", tmp_path / "gone.mp4"])


FORMULAS = ["=1+1", "+1 or 2", "-cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"]
PLAIN = ["", "a=b", "'quoted", "-1.5", "+3", "-1e-3", "1,2", 'say "x"', "ü\n"]


def test_no_cell_of_a_table_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    write_table(file, [["name", "seconds"], *([text, -0.25] for text in (*FORMULAS, *PLAIN))])
    with file.open(encoding="utf-8", newline="") as opened:
        cells = [row[0] for row in csv.reader(opened)][1:]
    assert cells == [*(f"'{text}" for text in FORMULAS), *PLAIN]
    assert [read_cell(cell) for cell in cells] == [*FORMULAS, *PLAIN]
    assert file.read_text(encoding="utf-8").count(",-0.25") == len(cells)


def test_every_table_is_written_by_one_function() -> None:
    sources = [*Path(inphase.__file__).parent.rglob("*.py")]
    writers = [path.name for path in sources if "csv.writer" in path.read_text(encoding="utf-8")]
    assert writers == ["files.py"]
    assert not [path for path in sources if "DictWriter" in path.read_text(encoding="utf-8")]


FILE_OPERATIONS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.scandir", "os.listdir"}


def write_until_killed(file: Path, operation: int) -> bool:
    """Write a file in a forked process that is killed before a file operation; return whether it was."""
    child = os.fork()
    if child == 0:
        seen: list[str] = []

        def watch(event: str, _: object) -> None:
            if event in FILE_OPERATIONS:
                seen.append(event)
                if len(seen) == operation:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        with scratch_folder(file.parent) as folder, atomic_write(file) as part:
            (folder / "made").mkdir()
            part.write_text("new")
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("sweep", ["next write", "next lock"])
def test_a_writer_killed_at_any_operation_leaves_nothing_that_the_next_one_does_not_sweep(
    tmp_path: Path, sweep: str
) -> None:
    file, kills = tmp_path / "x.txt", 0
    file.write_text("old")
    while write_until_killed(file, kills + 1):
        kills += 1
        assert file.read_text() in ("old", "new")
        if sweep == "next lock":
            with exclusive_lock(tmp_path):
                pass
        else:
            swept_folders.cache_clear()  # as in a new process
            with atomic_write(tmp_path / "y.txt") as part:
                part.write_text("")
        left = {path.name for path in tmp_path.iterdir()} - {"x.txt", "y.txt", "lock"}
        assert not left
        file.write_text("old")
    assert kills > 10
    assert file.read_text() == "new"


def test_a_checksum_covers_every_byte(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("no text")
    assert verify_checksum(file) is None
    with pytest.raises(ValueError, match="has 0 places for a checksum"):
        write_checksum(file)
    write_checksum(file, append=True)
    assert verify_checksum(file) is True
    content = file.read_bytes()
    assert len(content) == len("no text") + len(CHECKSUM)
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        assert verify_checksum(file) is not True
    large = tmp_path / "large"
    large.write_bytes(b"0" * 5_000_000)
    write_checksum(large, append=True)
    assert verify_checksum(large) is True
    with large.open("r+b") as opened:
        opened.seek(2_500_000)
        opened.write(b"1")
    assert verify_checksum(large) is False
