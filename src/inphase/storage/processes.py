"""Work on videos that may hang, crash or fill the memory: limits for one video, and pools that survive their workers.

A time limit cannot be enforced inside a process that a codec keeps busy: `limited` ends the whole process. Its pool
starts another one and runs the items under way again, one after the other; the video that was under way when the time
ran out has left a mark and is not tried again.
"""

import faulthandler
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item")
GIB = 2**30
FATAL = "reading it ended the process, as a fault in a codec or too little memory does: convert it or make it shorter"


@dataclass(frozen=True)
class VideoLimits:
    """Limits for one video in a worker process: `seconds`, and `memory` in GiB on top of what the process holds.

    0 means no limit. Memory is limited on Linux only.
    """

    seconds: float = 3600.0
    memory: float = 4.0

    def __post_init__(self) -> None:
        """Raise if a limit is not a number from 0."""
        for name, value in vars(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"the limit of {name} of a video must be 0 (none) or above, got {value}")

    def __str__(self) -> str:
        """Return the limits as text, which a store records beside a video that exceeded them."""
        return f"{self.seconds:g} s {self.memory:g} GiB"

    def explain_timeout(self, path: Path | str) -> str:
        """Describe a video that took too long."""
        return f"{path} took longer than {self.seconds:g} s: convert it or make it shorter, or raise --video-seconds"

    def explain_memory(self, path: Path | str) -> str:
        """Describe a video that took too much memory."""
        return f"{path} needs more than {self.memory:g} GiB of memory: make it smaller, or raise --video-memory"


DEFAULT_LIMITS = VideoLimits()


def this_process() -> str:
    """Name this process among those of all machines."""
    return f"{socket.gethostname()} {os.getpid()}"


def mark_of(folder: Path, id: str) -> Path:
    """Return the file that marks a video as under way."""
    return folder / hashlib.blake2b(id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def timed_out(mark: Path) -> bool:
    """Report whether a process ended because this video took too long."""
    try:
        return b"Timeout" in mark.read_bytes()
    except OSError:
        return False


def count_crashes(mark: Path) -> int:
    """Return how many processes ended while they worked on this video; a run that finishes removes its mark."""
    return mark.stat().st_size if mark.exists() else 0  # every attempt adds a byte


@dataclass
class _UnderWay:
    """A video under way in this process: when its time is over, and its open mark, a binary file."""

    deadline: float
    mark: Any


_lock = threading.Lock()
_under_way: dict[Path, _UnderWay] = {}
_unlimited: tuple[int, int] | None = None  # the limits of memory without a video under way
_memory_before = 0


@contextmanager
def limited(limits: VideoLimits, mark: Path) -> Iterator[None]:
    """Work on one video within limits: the process ends when its time is over, allocations fail beyond its memory.

    Several threads may each work on a video. `mark` is a file for this video, which `timed_out` reads later.
    """
    with mark.open("ab", buffering=0) as opened:
        opened.write(b".")
        with _lock:
            _limit_memory(limits, videos=len(_under_way) + 1)
            _under_way[mark] = _UnderWay(time.monotonic() + (limits.seconds or float("inf")), opened)
            _set_alarm()
        try:
            yield
        finally:
            with _lock:
                del _under_way[mark]
                _set_alarm()
                _limit_memory(limits, videos=len(_under_way))
    mark.unlink(missing_ok=True)


def _set_alarm() -> None:
    """End the process at the first deadline; the watchdog is a C thread, which does not need the GIL."""
    faulthandler.cancel_dump_traceback_later()
    first = min(_under_way.values(), key=lambda each: each.deadline, default=None)
    if first is not None and first.deadline < float("inf"):
        left = max(1e-3, first.deadline - time.monotonic())
        faulthandler.dump_traceback_later(left, exit=True, file=first.mark)


def _limit_memory(limits: VideoLimits, *, videos: int) -> None:
    global _unlimited, _memory_before
    held = _private_bytes()
    if held is None or not limits.memory:
        return
    import resource  # which Windows lacks

    if _unlimited is None:
        _unlimited = resource.getrlimit(resource.RLIMIT_DATA)
    if not _under_way:
        _memory_before = held
    soft, hard = _unlimited
    if videos:
        wanted = _memory_before + int(videos * limits.memory * GIB)
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _private_bytes() -> int | None:
    """Return the private memory of this process that RLIMIT_DATA counts; None where the system does not list it."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmData")), None)
    except OSError:
        return None


@dataclass(frozen=True)
class WorkerDied(Generic[Item]):
    """The result of an item whose worker died twice, the second time with no other item under way."""

    item: Item


class ItemPool(Protocol):
    """Worker processes that one function is bound to."""

    workers: int

    def submit(self, item: Any) -> "Future[Any]":
        """Run one item; a pool that broke since the last one is replaced first."""


class SpawnedPool:
    """Processes of the standard library, started fresh: forked ones would inherit locked locks of the codecs."""

    def __init__(self, work: Callable[[Any], Any], *, workers: int) -> None:
        """Start with no process."""
        self.workers = workers
        self._work, self._pool = work, self._start()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))

    def submit(self, item: Any) -> "Future[Any]":
        """Run one item; a pool that broke since the last one is replaced first."""
        while True:
            try:
                return self._pool.submit(self._work, item)
            except BrokenExecutor:
                self._pool.shutdown(wait=False)
                self._pool = self._start()

    def shutdown(self) -> None:
        """End the workers when they have finished the items under way."""
        self._pool.shutdown(cancel_futures=True)


def map_in_processes(pool: ItemPool, items: Iterable[Item]) -> Iterator[Any]:
    """Yield the result of every item as it is finished; `WorkerDied` for one whose worker died.

    A worker that dies takes no other item with it: the items under way are run again, one after another.
    """
    source, under_way = iter(items), dict[Future[Any], Item]()
    while True:
        under_way |= {pool.submit(item): item for item in islice(source, 2 * pool.workers - len(under_way))}
        if not under_way:
            return
        ready, _ = wait(under_way, return_when=FIRST_COMPLETED)
        if any(isinstance(future.exception(), BrokenExecutor) for future in ready):
            ready, _ = wait(under_way)  # the others fail with it
        suspects = []
        for future in ready:
            item = under_way.pop(future)
            if isinstance(future.exception(), BrokenExecutor):
                suspects.append(item)
            else:
                yield future.result()
        for item in suspects:
            try:
                yield pool.submit(item).result()  # alone
            except BrokenExecutor:
                yield WorkerDied(item)
