"""Reproduce a table or figure of the paper: train and measure what is missing, and report it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inphase.evaluation.report import Cell, Number, Report, write_report
from inphase.progress import Progress, ignore_progress, stage_progress
from inphase.reproduction.figures import report_minima
from inphase.reproduction.results import Results, summarize_study
from inphase.reproduction.studies import STUDIES
from inphase.reproduction.study import STUDY_DATA, Setup, Study
from inphase.reproduction.study_runs import count_cores, is_done
from inphase.reproduction.workers import WorkerEvent, run_jobs

# Figure 3 is computed, not trained.
MINIMA = "minima"


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
    workers: int | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Train and measure what a table or figure of the paper needs and `out` does not hold yet.

    `study` is a name of `STUDIES`, "minima" for Figure 3, or a `Study` of your own. `data` is a name of `STUDY_DATA`,
    read from the folder `root` and, where given, from a `store` of its poses or frames. `modality` is "pose" or
    "image"; "auto" is that of the data set. `budget` is small, medium or full: an eighth, half or all of the recipe's
    steps; for images full is the paper's network and its 150,000 steps. `methods` chooses some, as gta and tcc;
    `changes`, as "run.steps=10", apply to every recipe. `workers` runs are trained at a time: by default one per core
    for pose, one for images.

    Runs are stored in `out` and shared by studies; after an interruption the same call resumes.
    """
    if study == MINIMA:
        return Reproduction(MINIMA, report_minima())
    chosen = _find_study(study)
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if modality == "both":
        raise ValueError("modality 'both' is not available yet: use auto, pose or image")
    if modality == "auto" and data in STUDY_DATA:
        modality = STUDY_DATA[data].modality
    setup = Setup(data, root, store, modality, budget, seeds, tuple(methods), tuple(changes))
    results = Results(chosen, setup, Path(out))
    jobs = results.jobs()
    left = [job for job in jobs if not is_done(job, results.out)]
    workers = workers or (count_cores() if modality == "pose" else 1)
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
    if study not in STUDIES:
        raise ValueError(f"no study {study!r}: choose one of {', '.join((*STUDIES, MINIMA))}")
    return STUDIES[study]


def _report_events(progress: Progress, study: str, *, done: int, total: int) -> Callable[[WorkerEvent], None]:
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
