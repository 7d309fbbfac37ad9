"""`inphase evaluate`: what a run's embeddings are worth, beside what others would score."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table as Grid

if TYPE_CHECKING:
    from inphase.evaluation.report import Table

Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help="a run folder, or an encoder's file")]


def evaluate(
    run: Run,
    *,
    tasks: tuple[str, ...] = (),
    data: str | None = None,
    root: Path | None = None,
    store: Path | None = None,
    split: str = "test",
    out: Path | None = None,
    setting: str = "released",
    stride: int | None = None,
    distance: Literal["squared_euclidean", "cosine"] | None = None,
    events: tuple[str, ...] = (),
    pairs: int = 10_000,
    controls: bool = True,
    details: bool = False,
    device: str = "auto",
) -> None:
    """Measure a run: embed its videos once, run tasks on them, print tables, write a report.

    Args:
        run: the run; its recipe says which data it is of.
        tasks: which tasks; all that the labels allow where none is named.
        data: another collection than the recipe's.
        root: the folder the collection lies in.
        store: read frames or poses from this store; poses otherwise come from labels, pictures from the files.
        split: which split is tested; classifiers are trained on "train".
        out: where the report goes; where nothing is said, evaluation in the run folder, or here for a file.
        setting: of Kendall's tau: released, tcc, tcc_pouring or every_frame.
        stride: every so-many-th frame counts in Kendall's tau, whatever the setting says.
        distance: by which neighbours are found in Kendall's tau, whatever the setting says.
        events: carry these events only.
        pairs: carry between at most so many pairs of videos of an action.
        controls: measure an untrained network, position alone and clamping alone as well.
        details: print the numbers of each action and event, too; the report has them.
        device: where the network runs: auto, cpu or cuda.
    """
    from inphase.evaluation import run as runs
    from inphase.evaluation.choice import choose_data
    from inphase.evaluation.measure import CONTROLS
    from inphase.evaluation.report import write_report
    from inphase.evaluation.summary import DETAILS, summarise_run
    from inphase.models.encoder import choose_device
    from inphase.runs import Run
    from inphase.training.features import cache_features

    console = Console()
    folder = run if run.is_dir() else run.parent
    own = not (data or root or store)  # what was trained on, so that what was seen of it then is of use
    options: dict[str, dict[str, Any]] = {
        "kendall_tau": {"setting": setting, "stride": stride, "distance": distance},
        "event_error": {"events": events or None, "pairs": pairs},
        "alignment_error": {"pairs": pairs},
        "cycle_error": {"pairs": pairs},
    }
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("", total=1)
        measured = runs.evaluate(
            run,
            tasks=tasks,
            data=data,
            root=root,
            store=store,
            split=split,
            options=options,
            compare=CONTROLS if controls else (),
            device=choose_device(device),
            keep=partial(cache_features, folder=Run(run).features) if own and run.is_dir() else None,
            progress=lambda what, done: bar.update(line, description=what, completed=done),
        )
    choice = choose_data(folder, name=data, root=root, store=store)
    report = summarise_run(measured, title=f"{run.resolve().name} on {choice.name}, {split}", recipe=choice.recipe)
    for table in report.tables:
        if details or not table.title.endswith(DETAILS):
            console.print(lay_out(table))
    for name, reason in measured.left_out.items():
        console.print(f"[dim]{name} left out: {escape(reason)}[/dim]")
    files = write_report(report, out or Run(run if run.is_dir() else Path()).evaluation)
    console.print(f"[green]{escape(str(files[-1]))}[/green] and the same as report.md and report.json")


def lay_out(table: "Table") -> Grid:
    """Lay out a table for the terminal."""
    from inphase.evaluation.report import UNDEFINED

    grid = Grid(title=escape(table.title), title_justify="left", caption=escape(table.note), caption_justify="left")
    for number, name in enumerate(table.head):
        grid.add_column(escape(name), justify="right" if number else "left")
    for row in table.rows:
        cells = [escape("–" if cell is None else str(cell)) for cell in row]
        grid.add_row(*(f"[yellow]{cell}[/yellow]" if cell == UNDEFINED else cell for cell in cells))
    return grid
