"""`inphase reproduce`: the tables and figures of the paper, trained and measured."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from inphase.cli.evaluate import lay_out
from inphase.cli.options import Changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inphase.evaluation.report import Report, Table
    from inphase.reproduction.study_runs import TrainingJob
    from inphase.reproduction.workers import WorkerEvent

NAMES = ("ablation", "recognition", "events", "few-shot", "synchronisation", "per-class", "minima")

Name = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME", help=f"one of {', '.join(NAMES)}")]


def reproduce(
    name: Name,
    *,
    data: str = "stage",
    root: Path | None = None,
    store: Path | None = None,
    modality: str | None = None,
    seeds: int = 3,
    budget: str = "small",
    out: Path | None = None,
    methods: tuple[str, ...] = (),
    jobs: int = 0,
    set: Changes = (),
) -> None:
    """Train and measure what a table or figure of the paper needs, and report it beside the paper's numbers.

    Stopped at any moment, the same command goes on; a run that another study made is not made again.

    Args:
        name: which table or figure.
        data: stage, penn_action, golfdb or finegym.
        root: the folder the collection lies in.
        store: a store of its poses or frames.
        modality: pose or image; image for FineGym and pose for all else by default.
        seeds: how many times each network is trained.
        budget: small, medium or full; for pictures full is the paper's network and its 150,000 steps.
        out: where runs and reports go; reproduced/DATA_SEE where nothing is said.
        methods: only these, such as gta tcc.
        jobs: how many runs go on side by side; one for each core where poses are seen, otherwise one.
        set: changes to every recipe.
    """
    from inphase.reproduction import STUDIES, Setup
    from inphase.reproduction import reproduce as run_study
    from inphase.reproduction.machine import cores

    console = Console()
    if name not in NAMES:
        raise ValueError(f"no study {name!r}: choose one of {', '.join(NAMES)}")
    if jobs < 0:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    modality = modality or ("image" if data == "finegym" else "pose")
    out = out or Path("reproduced") / f"{data}_{modality}"
    if name == "minima":
        _show(console, _minima(out), out / name)
        return
    setup = Setup(data, root, store, modality, budget, seeds, methods, set)
    with Watching(console) as watching:
        report = run_study(
            STUDIES[name],
            setup,
            out,
            processes=jobs or (cores() if modality == "pose" else 1),
            begin=watching.begin,
            watch=watching,
        )
    _show(console, report, out / name)


def _minima(out: Path) -> "Report":
    from inphase.evaluation.report import write_report
    from inphase.reproduction.figures import minima

    report = minima()
    write_report(report, out / "minima")
    return report


def _show(console: Console, report: "Report", folder: Path) -> None:
    """Print the table, what is to be known of it, and where the rest is."""
    for table in split(report.tables[0], width=console.width):
        console.print(lay_out(table))
    for note in report.notes:
        console.print(f"[dim]{escape(note)}[/dim]")
    console.print(f"[green]{escape(str(folder / 'report.html'))}[/green] and the same as report.md and report.json")


def split(table: "Table", *, width: int) -> "list[Table]":
    """Cut a table into several, one below the other, that are no wider than the terminal."""
    names = 5 + max(len(str(row[0])) for row in table.rows)
    room = max(1, (width - names) // _COLUMN)
    parts = []
    for first in range(1, len(table.head), room):
        kept = (0, *range(first, min(first + room, len(table.head))))
        rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
        last = kept[-1] == len(table.head) - 1
        head = tuple(table.head[place] for place in kept)
        parts.append(replace(table, title=table.title * (first == 1), head=head, rows=rows, note=table.note * last))
    return parts


_COLUMN = 19  # as wide as a mean and a deviation


class Watching:
    """Show how a study stands: a bar over all runs, and one for each that goes on; in a log file a line for each."""

    def __init__(self, console: Console) -> None:
        """Prepare the bars."""
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._all: TaskID | None = None
        self._each: dict[Path, TaskID] = {}
        self._done, self._total = 0, 0

    def __enter__(self) -> "Watching":
        """Begin to draw."""
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bars away."""
        self._bars.stop()

    def begin(self, left: "Sequence[TrainingJob]", total: int) -> None:
        """Say how much there is to do."""
        self._done, self._total = total - len(left), total
        kept = f", {self._done} of them are there already" if self._done else ""
        self._console.print(f"{total} runs and controls{kept}")
        self._all = self._bars.add_task("all", total=total, completed=self._done)

    def __call__(self, event: "WorkerEvent") -> None:
        """Show how one job stands."""
        name = event.key.name if event.key.parts[0] == "runs" else "controls"
        if event.key not in self._each:
            self._each[event.key] = self._bars.add_task(name, total=100)
        bar = self._each[event.key]
        if not event.ended:
            self._bars.update(bar, completed=round(100 * event.fraction), description=f"{name}  {escape(event.doing)}")
            return
        self._bars.remove_task(self._each.pop(event.key))
        self._done += 1
        if self._all is not None:
            self._bars.update(self._all, completed=self._done)
        if event.failed:
            self._console.print(f"[yellow]{name} failed: {escape(event.failed)}[/yellow]")
        elif not self._console.is_terminal:
            self._console.print(f"{self._done:>4}/{self._total}  {name}")
