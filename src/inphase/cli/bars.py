"""Progress on standard error: bars on a terminal, a line now and then in a log file."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from inphase.progress import Progress

# Seconds between two lines of a log file.
LINE_INTERVAL = 10.0


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show every stage that is reported, until it is finished."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    lock = Lock()  # stages may be reported from several threads
    with Bars(*columns, console=console, transient=True) as bars:

        def update(stage: str, done: int, total: int) -> None:
            with lock:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(escape(stage), total=None)
                bars.update(tasks[stage], completed=done, total=total or None, visible=not total or done < total)

        yield update


def _lines(console: Console) -> Progress:
    """Print at most a line every `LINE_INTERVAL` seconds."""
    printed = time.monotonic()

    def update(stage: str, done: int, total: int) -> None:
        nonlocal printed
        if time.monotonic() - printed >= LINE_INTERVAL:
            printed = time.monotonic()
            console.print(f"{done:>6}/{total or '?'}  {stage}", soft_wrap=True, markup=False, highlight=False)

    return update
