"""Commands that measure: the scores of a run, and the tables and figures of the paper."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from inphase.cli.bars import show_progress
from inphase.cli.options import Changes, Device, Json, print_json, print_line, warn_line

if TYPE_CHECKING:
    from inphase.evaluation.report import Table

RunArgument = Annotated[
    tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help="a run folder or an encoder file")
]

NAMES = ("ablation", "recognition", "events", "few-shot", "synchronization", "per-class", "minima")
# The width of a mean and a deviation in a printed table.
COLUMN_WIDTH = 19

Name = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME", help=f"one of {', '.join(NAMES)}")]


def evaluate(
    run: RunArgument,
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
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Evaluate a run: embed its videos once, run tasks on them, print tables, write a report.

    Args:
        run: the run; its recipe names the data.
        tasks: the tasks to run; by default all that the labels allow.
        data: another data set than the recipe's.
        root: the folder of the data set.
        store: a store of frames or poses; by default poses come from labels, images from the files.
        split: the split to test on; classifiers are fitted on "train".
        out: the folder of the report; by default evaluation/ in the run folder, or here for an encoder file.
        setting: the setting of Kendall's tau: released, tcc, tcc_pouring or every_frame.
        stride: use every n-th frame in Kendall's tau; overrides the setting.
        distance: the distance of neighbors in Kendall's tau; overrides the setting.
        events: transfer only these events.
        pairs: at most this many pairs of videos of an action for the errors.
        controls: score an untrained network, position alone and clamping alone as well.
        details: also print the scores of each action and event; the report has them.
    """
    import inphase
    from inphase.evaluation.embedded_videos import CONTROLS
    from inphase.models.encoder import choose_device
    from inphase.runs import Run
    from inphase.training.features import cache_features

    options: dict[str, dict[str, Any]] = {
        "kendall_tau": {"setting": setting, "stride": stride, "distance": distance},
        "event_error": {"events": events or None, "pairs": pairs},
        "alignment_error": {"pairs": pairs},
        "cycle_error": {"pairs": pairs},
    }
    with show_progress() as progress:
        evaluation = inphase.evaluate(
            run,
            tasks=tasks,
            data=data,
            root=root,
            store=store,
            split=split,
            options=options,
            compare=CONTROLS if controls else (),
            device=choose_device(device),
            cache_features=cache_features,
            progress=progress,
        )
    files = evaluation.write(out or Run(run if run.is_dir() else Path()).evaluation)
    if json:
        return print_json(evaluation)
    console = Console()
    for table in evaluation.report.tables:
        if details or not table.detail:
            console.print(lay_out(table))
    for name, reason in evaluation.left_out.items():
        console.print(f"[dim]{name} left out: {escape(reason)}[/dim]")
    return console.print(f"[green]{escape(str(files[-1]))}[/green], and as report.md and report.json")


def reproduce(
    name: Name,
    *,
    data: str = "stage",
    root: Path | None = None,
    store: Path | None = None,
    modality: Literal["auto", "pose", "image", "both"] = "auto",
    seeds: int = 3,
    budget: str = "small",
    out: Path | None = None,
    methods: tuple[str, ...] = (),
    workers: int | None = None,
    set: Changes = (),
    json: Json = False,
) -> None:
    """Train and measure what a table or figure of the paper needs, and report it beside the paper's numbers.

    Stopped at any moment, the same command resumes. Studies share runs.

    Args:
        data: stage, penn_action, golfdb or finegym.
        root: the folder of the data set.
        store: a store of its poses or frames.
        modality: pose or image; auto: images for FineGym, pose for all others.
        seeds: how many times each network is trained.
        budget: small, medium or full; for images full is the paper's network and its 150,000 steps.
        out: the folder of runs and reports; by default reproduced/DATA_MODALITY.
        methods: only these, such as gta tcc.
        workers: how many runs are trained at a time; by default one per core for pose, one for images.
    """
    from inphase.reproduction import STUDY_DATA
    from inphase.reproduction import reproduce as run_study

    if modality == "auto" and data in STUDY_DATA:
        modality = STUDY_DATA[data].modality
    folder = out or Path("reproduced") / f"{data}_{modality}"
    with show_progress() as progress:
        result = run_study(
            name,
            folder,
            data=data,
            root=root,
            store=store,
            modality=modality,
            budget=budget,
            seeds=seeds,
            methods=methods,
            changes=set,
            workers=workers,
            progress=progress,
        )
        result.write(folder / name, progress=progress)
    if json:
        print_json(result)
        return
    console = Console()
    for table in split(result.report.tables[0], width=console.width):
        console.print(lay_out(table))
    for note in result.report.notes:
        print_line(note)
    for run, reason in result.failed.items():
        warn_line(f"{run} failed: {reason}")
    if result.runs:
        print_line(f"{result.runs} runs and controls, {result.kept} of them from before")
    print_line(f"{folder / name / 'report.html'} and the same as report.md and report.json")


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


def split(table: "Table", *, width: int) -> "list[Table]":
    """Cut a table into several, one below the other, that fit the width of the terminal."""
    names = 5 + max(len(str(row[0])) for row in table.rows)
    room = max(1, (width - names) // COLUMN_WIDTH)
    parts = []
    for first in range(1, len(table.head), room):
        kept = (0, *range(first, min(first + room, len(table.head))))
        rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
        last = kept[-1] == len(table.head) - 1
        head = tuple(table.head[place] for place in kept)
        parts.append(replace(table, title=table.title * (first == 1), head=head, rows=rows, note=table.note * last))
    return parts
