"""Run commands in forked children: under limits, and killed before a file operation or after some time (Linux only).

Call this from a process that has not used autograd or threads, as `tests.processes.call_in_process` gives one.
"""

import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import run_words

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.chmod",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "os.utime",
    "sqlite3.connect",
}
MORE_MEMORY = 4 * 2**30  # bytes that a command may map beyond what is mapped at its start


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status, or minus the signal; its output, file operations and CPU seconds."""

    status: int
    output: str
    operations: int
    seconds: float
    wall: float


def run_forked(
    words: Sequence[str],
    folder: Path,
    *,
    kill_before: int | None = None,
    kill_after: float | None = None,
    cpu_limit: int = 60,
    wall_limit: float = 900.0,
    more_memory: int = MORE_MEMORY,
) -> Ended:
    """Run `inphase WORDS` in a folder; what it caches and what it writes temporarily is below the folder too.

    SIGKILL ends it and its processes before its file operation number `kill_before`, or after `kill_after` seconds.
    """
    return _fork(lambda: run_words(list(words)), folder, kill_before, kill_after, cpu_limit, wall_limit, more_memory)


def call_forked(function: Callable[[Path], Any], folder: Path) -> Any:
    """Call a function in a child and return its result, which must be JSON."""
    answer = folder.with_name(f"{folder.name}.answer")
    ended = _fork(lambda: answer.write_text(json.dumps(function(folder))), folder, None, None, 300, 1800.0, MORE_MEMORY)
    if ended.status:
        raise RuntimeError(f"{function} failed: {ended.output[-3000:]}")
    return json.loads(answer.read_text())


def _fork(
    work: Callable[[], object],
    folder: Path,
    kill_before: int | None,
    kill_after: float | None,
    cpu_limit: int,
    wall_limit: float,
    more_memory: int,
) -> Ended:
    log = folder.with_name(f"{folder.name}.log")
    receive, send = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(receive)
        _be_child(work, folder, log, send, kill_before, (cpu_limit, more_memory))
    os.close(send)
    limit = wall_limit if kill_after is None else min(kill_after, wall_limit)
    timed_out = not _wait(child, limit)
    for process in (-child, child):  # its group, and itself in case it has made none yet
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _, status, used = os.wait4(child, 0)
    with os.fdopen(receive, "rb") as counted:
        operations = int(counted.read() or 0)
    status = os.waitstatus_to_exitcode(status)
    if timed_out and kill_after is None:
        status = -signal.SIGXCPU  # hung
    output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return Ended(status, output, operations, used.ru_utime + used.ru_stime, time.monotonic() - began)


def _wait(child: int, seconds: float) -> bool:
    """Wait for a child to end; report whether it did in time."""
    watched = os.pidfd_open(child)
    try:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        return bool(poll.poll(1000 * seconds))
    finally:
        os.close(watched)


def _be_child(
    work: Callable[[], object], folder: Path, log: Path, send: int, kill_before: int | None, limits: tuple[int, int]
) -> None:
    status, counter = 1, _Counter(folder, kill_before)
    try:
        os.setsid()
        os.chdir(folder)
        _redirect(log)
        _limit(*limits)
        (folder / "tmp").mkdir(exist_ok=True)
        os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "tmp"), "COLUMNS": "200"}
        tempfile.tempdir = None
        sys.addaudithook(counter)
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            counter.on = False
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(send, b"%d" % counter.count)
        finally:
            os._exit(status)


def _redirect(log: Path) -> None:
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", closefd=False)


def _limit(cpu_limit: int, more_memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 5))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + more_memory, mapped + more_memory))


class _Counter:
    """An audit hook that counts the operations that change files below a folder, and kills before one of them."""

    def __init__(self, folder: Path, kill_before: int | None) -> None:
        self._inside = f"{folder}{os.sep}"
        self._kill_before = kill_before
        self.count = 0
        self.on = True

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count an event."""
        if not self.on or not (event in _CHANGES or (event == "open" and (arguments[2] or 0) & _WRITING)):
            return
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes, os.PathLike)) else ""
        if os.path.isabs(path) and not path.startswith(self._inside):
            return
        self.count += 1
        if self.count == self._kill_before:
            os.killpg(0, signal.SIGKILL)
