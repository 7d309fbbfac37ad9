"""Run jobs in processes, one each: a job that fails, or is killed for its memory, takes no other with it."""

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
from inphase.reproduction.study_runs import TrainingJob, count_cores, run_job

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


_GRACE_SECONDS = 60.0  # for an interrupted run to save its state


@dataclass(frozen=True)
class WorkerEvent:
    """The state of a job: the stage it is in, done of total; `failed` is the reason why it ended without a result."""

    key: Path  # the job's folder
    stage: str = ""
    done: int = 0
    total: int = 0
    ended: bool = False
    failed: str = ""


OnWorkerEvent = Callable[[WorkerEvent], None]


def run_jobs(jobs: Sequence[TrainingJob], out: Path, *, workers: int, on_event: OnWorkerEvent) -> dict[Path, str]:
    """Run jobs, `workers` at a time; return the folders of those that failed, with the reasons.

    One worker is this process.
    """
    if workers < 2:
        return _run_here(jobs, out, on_event)
    return _Workers(jobs, out, workers=workers, on_event=on_event).run()


def _run_here(jobs: Sequence[TrainingJob], out: Path, on_event: OnWorkerEvent) -> dict[Path, str]:
    failed = {}
    for job in jobs:
        reason = _try(job, out, partial(_report, on_event, job.folder))
        if reason:
            failed[job.folder] = reason
        on_event(WorkerEvent(job.folder, ended=True, failed=reason))
    return failed


def _report(on_event: OnWorkerEvent, key: Path, stage: str, done: int, total: int) -> None:
    on_event(WorkerEvent(key, stage, done, total))


def _try(job: TrainingJob, out: Path, progress: Progress) -> str:
    """Run a job; return the error, or an empty text."""
    try:
        run_job(job, out, progress)
    # Any error of one run is shown in the table, and the others continue.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class _Workers:
    """The waiting and the running jobs."""

    def __init__(self, jobs: Sequence[TrainingJob], out: Path, *, workers: int, on_event: OnWorkerEvent) -> None:
        """Queue the jobs."""
        self._waiting, self._out, self._on_event = list(reversed(jobs)), out, on_event
        self._workers, self._threads = workers, max(1, count_cores() // workers)
        # A server that has imported everything forks a job at once; without one every job imports it again.
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            self._context.set_forkserver_preload(["inphase.reproduction.workers"])
        self._running: dict[Connection, tuple[TrainingJob, BaseProcess]] = {}
        self._failed: dict[Path, str] = {}
        self._interrupted = False

    def run(self) -> dict[Path, str]:
        """Run all jobs; when interrupted, wait until the running ones have saved their state."""
        try:
            while (self._waiting or self._running) and not self._interrupted:
                while self._waiting and len(self._running) < self._workers:
                    self._start(self._waiting.pop())
                self._receive_all(None)
        except KeyboardInterrupt:
            self._interrupted = True
        if self._interrupted:
            self._end()
            raise KeyboardInterrupt
        return self._failed

    def _end(self) -> None:
        """Wait for the running jobs, which Ctrl-C has reached as well; then terminate the rest."""
        for terminate in (False, True):
            for _, process in self._running.values():
                if terminate:
                    process.terminate()
            deadline = time.monotonic() + _GRACE_SECONDS
            while self._running and time.monotonic() < deadline:
                self._receive_all(deadline - time.monotonic())

    def _receive_all(self, timeout: float | None) -> None:
        for connection in wait(list(self._running), timeout):
            assert isinstance(connection, Connection)
            self._receive(connection)

    def _start(self, job: TrainingJob) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(job, self._out, theirs, self._threads))
        process.start()
        theirs.close()
        self._running[ours] = job, process

    def _receive(self, connection: Connection) -> None:
        """Forward an event of a job; a job whose connection closes without one was killed."""
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
        self._on_event(event)


_INTERRUPTED = "interrupted"


def _work(job: TrainingJob, out: Path, connection: Connection, threads: int) -> None:
    """Run a job in its own process."""
    import numba
    import torch
    from threadpoolctl import threadpool_limits

    # Every numerical library has its own threads, by default one per core.
    torch.set_num_threads(threads)
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    threadpool_limits(threads)
    # Many runs warn of the same videos: the warnings of each go to its folder.
    warnings.showwarning = partial(_write_warning, out / job.folder)
    try:
        reason = _try(job, out, partial(_report, connection.send, job.folder))
    except KeyboardInterrupt:
        reason = _INTERRUPTED
    connection.send(WorkerEvent(job.folder, ended=True, failed=reason))
    connection.close()


def _write_warning(folder: Path, message: Warning | str, *_: object, **__: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "warnings.txt").open("a", encoding="utf-8") as file:
        file.write(f"{message}\n")
