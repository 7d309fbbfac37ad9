"""Run a study: train and measure what is missing, and write its report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from inphase.evaluation.report import Report, write_report
from inphase.reproduction.results import Results, summarise_study
from inphase.reproduction.study import Setup, Study
from inphase.reproduction.study_runs import TrainingJob, is_done
from inphase.reproduction.workers import WorkerEvent, perform_all

Begin = Callable[[Sequence[TrainingJob], int], None]


def reproduce(
    study: Study,
    setup: Setup,
    out: Path,
    *,
    processes: int = 1,
    begin: Begin | None = None,
    watch: Callable[[WorkerEvent], None] | None = None,
) -> Report:
    """Train and measure what a study needs and is not in `out` yet; write its report to `out`/NAME and give it.

    `begin` is told the jobs that are left and how many there are in all; `watch` how they stand.
    """
    results = Results(study, setup, out)
    jobs = results.jobs()
    left = [job for job in jobs if not is_done(job, out)]
    if begin is not None:
        begin(left, len(jobs))
    failed = perform_all(left, out, processes=min(processes, len(left)), watch=watch or (lambda _: None))
    report = summarise_study(replace(results, failed=failed))
    write_report(report, out / study.name)
    return report
