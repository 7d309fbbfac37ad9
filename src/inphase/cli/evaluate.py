"""`inphase evaluate`: the scores of a run beside those of its controls."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from inphase.cli.bars import show_progress
from inphase.cli.options import Device, Json, print_json

if TYPE_CHECKING:
    from inphase.evaluation.report import Table

RunArgument = Annotated[
    tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help="a run folder or an encoder file")
]


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
