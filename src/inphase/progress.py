"""Progress: the one callback that every long-running function of the package takes."""

from collections.abc import Callable

# Called as progress(stage, done, total): `stage` names the work in a few words ("embedding a.mp4"), `done` of `total`
# units are finished. A stage may be reported from several threads; a `total` of 0 is not known yet.
Progress = Callable[[str, int, int], None]


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Do nothing: the default of functions that take a `Progress`."""


def stage_progress(progress: Progress | None, stage: str) -> Callable[[int, int], None]:
    """Bind a stage: return the function of (done, total) that reports it."""
    report = progress or ignore_progress
    return lambda done, total: report(stage, done, total)
