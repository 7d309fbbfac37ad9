"""Reproduce a table or figure of the paper: train and measure what is missing, each job in a process, and report."""

import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from inphase.evaluation.report import Cell, Number, Report, write_report
from inphase.progress import Progress, Summary, ignore_progress, stage_progress
from inphase.reproduction.figures import report_alignment, report_minima, report_order
from inphase.reproduction.results import Results, summarize_study
from inphase.reproduction.studies import STUDIES
from inphase.reproduction.study import STUDY_DATA, Setup, Study
from inphase.reproduction.study_runs import TrainingJob, count_cores, is_done, run_job
from inphase.storage.errors import MissingExtraError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


# Figures 1 and 2, 3 and 7 are computed, not trained; each takes the folder of its data, where it needs some.
FIGURES: dict[str, Callable[[Path | None], Report]] = {
    "minima": report_minima,
    "alignment": report_alignment,
    "order": report_order,
}
# Figures 5, 6 and 8 show applications, which have commands of their own.
APPLICATIONS = {
    "pose3d": "Figure 5 is `inphase pose3d VIDEO …`",
    "sound": "Figure 6 is `inphase train vggsound_cannon`, then `inphase retrieve --sound`",
    "activations": "Figure 8 is `inphase activations VIDEO --model RUN`",
}


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A reproduced study: its report, the number of runs and controls, how many of them existed, and which failed."""

    study: str
    report: Report
    runs: int = 0
    kept: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # the run's folder → the reason

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write report.html, report.md with its plots, and report.json into a folder; return the files."""
        files = write_report(self.report, Path(folder))
        stage_progress(progress, "writing the report")(len(files), len(files))
        return files

    def summary(self) -> Summary:
        """Return the table beside the paper's numbers, the notes, and a warning for every run that failed."""
        failed = [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        runs = [f"{self.runs} runs and controls, {self.kept} of them from before"] if self.runs else []
        return Summary((), failed, then=[self.report.tables[0].summary(), Summary([*self.report.notes, *runs])])

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-ready rows: a mean, a deviation and a number of seeds, or a text, by column."""
        table = self.report.tables[0]
        rows = [{head: _cell(cell) for head, cell in zip(table.head[1:], row[1:], strict=True)} for row in table.rows]
        return {
            "study": self.study,
            "title": self.report.title,
            "rows": [{"name": str(row[0]), "scores": found} for row, found in zip(table.rows, rows, strict=True)],
            "published": list(table.published),
            "notes": list(self.report.notes),
            "about": dict(self.report.about),
            "runs": self.runs,
            "kept": self.kept,
            "failed": dict(self.failed),
        }


def _cell(cell: Cell) -> Any:
    if not isinstance(cell, Number):
        return None if cell is None else str(cell)
    mean = None if cell.mean != cell.mean else cell.mean  # NaN: undefined
    return {"mean": mean, "deviation": None if mean is None else cell.deviation, "seeds": cell.count}


def reproduce(
    study: str | Study,
    out: Path | str,
    *,
    data: str = "stage",
    root: Path | None = None,
    store: Path | None = None,
    modality: str = "auto",
    budget: str = "small",
    seeds: int = 3,
    methods: Sequence[str] = (),
    changes: Sequence[str] = (),
    tasks: Sequence[str] = (),
    workers: int | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Reproduce a table or figure of the paper: train and measure the runs that `out` does not hold yet.

    `study` is a name of `STUDIES` or of a figure in `FIGURES`, as "minima", or a `Study` of your own. `data` is a name
    of `STUDY_DATA`, read from the folder `root` and, where given, from a `store` of its poses or frames. `modality` is
    "pose", "image", or "both", which trains a head of each; "auto" is that of the data set. `budget` is small, medium
    or full: an eighth, half or all of the recipe's steps; for images full is the paper's network and its 150,000 steps.
    `methods` chooses some, as gta and tcc, and `tasks` some of the scores; `changes`, as "run.steps=10", apply to every
    recipe. `workers` runs are trained at a time: by default one per core for pose, otherwise one per GPU. Each has one
    GPU, and several share one if there are more of them than GPUs.

    Runs are stored in `out` and shared by studies; after an interruption the same call resumes.
    """
    if isinstance(study, str) and study in FIGURES:
        return Reproduction(study, FIGURES[study](root))
    chosen = _find_study(study)
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if modality == "auto" and data in STUDY_DATA:
        modality = STUDY_DATA[data].modality
    setup = Setup(data, root, store, modality, budget, seeds, tuple(methods), tuple(changes), tuple(tasks))
    results = Results(chosen, setup, Path(out))
    jobs = results.jobs()
    left = [job for job in jobs if not is_done(job, results.out)]
    if left and find_spec("lightning") is None:  # else every run would fail by itself
        raise MissingExtraError("Training needs lightning: pip install 'inphase[train]'")
    workers = workers or (count_cores() if modality == "pose" else max(1, torch.cuda.device_count()))
    on_event = _report_events(progress or ignore_progress, chosen.name, done=len(jobs) - len(left), total=len(jobs))
    failed = run_jobs(left, results.out, workers=min(workers, len(left)), on_event=on_event)
    return Reproduction(
        study=chosen.name,
        report=summarize_study(replace(results, failed=failed)),
        runs=len(jobs),
        kept=len(jobs) - len(left),
        failed={folder.as_posix(): reason for folder, reason in failed.items()},
    )


def _find_study(study: str | Study) -> Study:
    if isinstance(study, Study):
        return study
    if study in APPLICATIONS:
        raise ValueError(f"{study} is an application: {APPLICATIONS[study]}")
    if study not in STUDIES:
        raise ValueError(f"no study {study!r}: choose one of {', '.join((*STUDIES, *FIGURES))}")
    return STUDIES[study]


def _report_events(progress: Progress, study: str, *, done: int, total: int) -> Callable[["WorkerEvent"], None]:
    """Report events of workers: a stage for all runs, and one for each stage of a run."""
    stages: dict[Path, str] = {}
    progress(f"{study}: runs", done, total)

    def on_event(event: WorkerEvent) -> None:
        nonlocal done
        name = event.key.name if event.key.parts[0] == "runs" else "controls"
        stage = f"{name}: {event.stage}"
        before = stages.pop(event.key, None)
        if before is not None and (event.ended or before != stage):
            progress(before, 1, 1)
        if event.ended:
            done += 1
            progress(f"{study}: runs", done, total)
        else:
            stages[event.key] = stage
            progress(stage, event.done, event.total)

    return on_event


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


def run_jobs(
    jobs: Sequence[TrainingJob], out: Path, *, workers: int, on_event: OnWorkerEvent, gpus: Sequence[str] | None = None
) -> dict[Path, str]:
    """Run jobs, `workers` at a time, each on one of `gpus`; return the folders of failed jobs, with the reasons.

    One worker is this process. `gpus` are names for CUDA_VISIBLE_DEVICES, by default those of all GPUs of the machine.
    """
    if workers < 2:
        return _run_here(jobs, out, on_event)
    gpus = list_gpus() if gpus is None else gpus
    return _Workers(jobs, out, workers=workers, on_event=on_event, gpus=gpus).run()


def list_gpus() -> list[str]:
    """List the GPUs of this machine by the names that CUDA_VISIBLE_DEVICES takes."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return (named or list(map(str, range(torch.cuda.device_count()))))[: torch.cuda.device_count()]


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

    def __init__(
        self, jobs: Sequence[TrainingJob], out: Path, *, workers: int, on_event: OnWorkerEvent, gpus: Sequence[str]
    ) -> None:
        """Queue the jobs."""
        # The GPU of each idle worker: round-robin, so that no GPU waits while another has two jobs.
        self._idle = [gpus[number % len(gpus)] if gpus else "" for number in reversed(range(workers))]
        self._waiting, self._out, self._on_event = list(reversed(jobs)), out, on_event
        self._threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, count_cores() // workers))
        # A server that has imported everything forks a job at once; without one every job imports it again.
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            self._context.set_forkserver_preload(["inphase.reproduction.reproduce", "lightning.fabric", "sklearn.svm"])
        self._running: dict[Connection, tuple[TrainingJob, BaseProcess, str]] = {}
        self._failed: dict[Path, str] = {}
        self._interrupted = False

    def run(self) -> dict[Path, str]:
        """Run all jobs; when interrupted, wait until the running ones have saved their state."""
        try:
            while (self._waiting or self._running) and not self._interrupted:
                while self._waiting and self._idle:
                    self._start(self._waiting.pop(), self._idle.pop())
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
            for _, process, _ in self._running.values():
                if terminate:
                    process.terminate()
            deadline = time.monotonic() + _GRACE_SECONDS
            while self._running and time.monotonic() < deadline:
                self._receive_all(deadline - time.monotonic())

    def _receive_all(self, timeout: float | None) -> None:
        for connection in wait(list(self._running), timeout):
            assert isinstance(connection, Connection)
            self._receive(connection)

    def _start(self, job: TrainingJob, gpu: str) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(job, self._out, theirs, self._threads, gpu))
        process.start()
        theirs.close()
        self._running[ours] = job, process, gpu

    def _receive(self, connection: Connection) -> None:
        """Forward an event of a job; a job whose connection closes without one was killed."""
        job, process, gpu = self._running[connection]
        try:
            event: WorkerEvent = connection.recv()
        except EOFError:
            process.join()
            event = WorkerEvent(job.folder, ended=True, failed=f"its process ended with status {process.exitcode}")
        if event.ended:
            del self._running[connection]
            self._idle.append(gpu)
            connection.close()
            process.join()
            if event.failed == _INTERRUPTED:
                self._interrupted = True
                return
            if event.failed:
                self._failed[job.folder] = event.failed
        self._on_event(event)


_INTERRUPTED = "interrupted"


def _work(job: TrainingJob, out: Path, connection: Connection, threads: int, gpu: str) -> None:
    """Run a job in its own process, which has one GPU or none."""
    import numba
    from threadpoolctl import threadpool_limits

    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # read when CUDA is used for the first time, after this
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
