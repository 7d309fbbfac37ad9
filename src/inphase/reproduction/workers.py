"""What a study runs on, in words."""
# MERGED: Jobs side by side, a process for each: one that fails, or is killed for its memory, takes no other with it.

import multiprocessing
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inphase.progress import Progress
from inphase.reproduction.machine import cores
from inphase.reproduction.study_runs import TrainingJob, perform

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


_PATIENCE = 60.0  # seconds that a run which was asked to stop has to save itself


@dataclass(frozen=True)
class WorkerEvent:
    """How a job stands: what it does and the fraction of it that is done; `failed` says why it ended without."""

    key: Path  # the job's folder
    doing: str = ""
    fraction: float = 0.0
    ended: bool = False
    failed: str = ""


OnWorkerEvent = Callable[[WorkerEvent], None]


def perform_all(jobs: Sequence[TrainingJob], out: Path, *, processes: int, watch: OnWorkerEvent) -> dict[Path, str]:
    """Perform jobs, `processes` at a time; give the folders of those that failed, and why.

    One at a time runs in this process.
    """
    if processes < 2:
        return _one_by_one(jobs, out, watch)
    return _Workers(jobs, out, processes=processes, watch=watch).go()


def _one_by_one(jobs: Sequence[TrainingJob], out: Path, watch: OnWorkerEvent) -> dict[Path, str]:
    failed = {}
    for job in jobs:
        reason = _try(job, out, partial(_tell, watch, job.folder))
        if reason:
            failed[job.folder] = reason
        watch(WorkerEvent(job.folder, ended=True, failed=reason))
    return failed


def _tell(watch: OnWorkerEvent, key: Path, doing: str, done: int, total: int) -> None:
    watch(WorkerEvent(key, doing, done / max(1, total)))


def _try(job: TrainingJob, out: Path, tell: Progress) -> str:
    """Perform a job, and give what went wrong."""
    try:
        perform(job, out, tell)
    # Whatever is wrong with one run, the table says so and the others go on.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class _Workers:
    """The jobs that wait and those that run."""

    def __init__(self, jobs: Sequence[TrainingJob], out: Path, *, processes: int, watch: OnWorkerEvent) -> None:
        """Keep what is to be done."""
        self._waiting, self._out, self._watch = list(reversed(jobs)), out, watch
        self._processes, self._threads = processes, max(1, cores() // processes)
        # A server that has imported everything forks a job in no time; where there is none each imports it again.
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            self._context.set_forkserver_preload(["inphase.reproduction.workers"])
        self._running: dict[Connection, tuple[TrainingJob, BaseProcess]] = {}
        self._failed: dict[Path, str] = {}
        self._interrupted = False

    def go(self) -> dict[Path, str]:
        """Run all; interrupted, wait until those that run have saved themselves."""
        try:
            while (self._waiting or self._running) and not self._interrupted:
                while self._waiting and len(self._running) < self._processes:
                    self._start(self._waiting.pop())
                self._hear_all(None)
        except KeyboardInterrupt:
            self._interrupted = True
        if self._interrupted:
            self._end()
            raise KeyboardInterrupt
        return self._failed

    def _end(self) -> None:
        """Hear those out that run, which Ctrl-C has reached as well; ask those that it has not."""
        for ask in (False, True):
            for _, process in self._running.values():
                if ask:
                    process.terminate()
            deadline = time.monotonic() + _PATIENCE
            while self._running and time.monotonic() < deadline:
                self._hear_all(deadline - time.monotonic())

    def _hear_all(self, patience: float | None) -> None:
        for connection in wait(list(self._running), patience):
            assert isinstance(connection, Connection)
            self._hear(connection)

    def _start(self, job: TrainingJob) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(job, self._out, theirs, self._threads))
        process.start()
        theirs.close()
        self._running[ours] = job, process

    def _hear(self, connection: Connection) -> None:
        """Pass on what a job says; one that ends without a word was killed."""
        job, process = self._running[connection]
        try:
            event: WorkerEvent = connection.recv()
        except EOFError:
            process.join()
            event = WorkerEvent(job.folder, ended=True, failed=f"its process ended with status {process.exitcode}")
        if event.ended:
            del self._running[connection]
            connection.close()
            process.join()
            if event.failed == _INTERRUPTED:
                self._interrupted = True
                return
            if event.failed:
                self._failed[job.folder] = event.failed
        self._watch(event)


_INTERRUPTED = "interrupted"


def _work(job: TrainingJob, out: Path, connection: Connection, threads: int) -> None:
    """Perform a job in its own process."""
    import numba
    import torch
    from threadpoolctl import threadpool_limits

    # Every library that computes has threads of its own, as many as there are cores unless told.
    torch.set_num_threads(threads)
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    threadpool_limits(threads)
    # Many runs warn of the same videos: what each says stays with it.
    warnings.showwarning = partial(_note_warning, out / job.folder)
    try:
        reason = _try(job, out, partial(_tell, connection.send, job.folder))
    except KeyboardInterrupt:
        reason = _INTERRUPTED
    connection.send(WorkerEvent(job.folder, ended=True, failed=reason))
    connection.close()


def _note_warning(folder: Path, message: Warning | str, *_: object, **__: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "warnings.txt").open("a", encoding="utf-8") as file:
        file.write(f"{message}\n")
