"""Commands that measure: the scores of a run, and the tables and figures of the paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console

from inphase.cli.options import Changes, Device, Json, print_json, print_line, print_table, show_progress, warn_line

if TYPE_CHECKING:
    from inphase.evaluation.report import Table

Root = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help="the folder of the data set")]
Store = Annotated[Path | None, tyro.conf.arg(metavar="STORE", help="a store of its frames or poses")]
RunArgument = Annotated[
    tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help="a run or encoder file, or shipped")
]

NAMES = ("ablation", "recognition", "events", "few-shot", "synchronization", "per-class", "minima")
Name = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME", help=f"one of {', '.join(NAMES)}")]


def evaluate(
    run: RunArgument,
    *,
    tasks: tuple[str, ...] = (),
    modality: Literal["auto", "pose", "image", "both"] = "auto",
    data: str | None = None,
    root: Root = None,
    store: Store = None,
    split: str = "test",
    out: Path | None = None,
    setting: str = "released",
    stride: int | None = None,
    distance: Literal["squared_euclidean", "cosine"] | None = None,
    events: tuple[str, ...] = (),
    pairs: int = 10_000,
    neighbors: int = 0,
    controls: bool = True,
    details: bool = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Evaluate a run: embed its videos once, run tasks on them, print tables, write a report.

    Args:
        tasks: the tasks to run; by default all that the labels allow.
        modality: one part of a run that trained both, or a shipped encoder.
        data: another data set than the recipe's.
        split: the split to test on; classifiers are fitted on "train".
        out: the folder of the report; by default evaluation/ in the run folder, or here for an encoder file.
        setting: the setting of Kendall's tau: released, tcc, tcc_pouring or every_frame.
        stride: use every n-th frame in Kendall's tau; overrides the setting.
        distance: the distance of neighbors in Kendall's tau; overrides the setting.
        events: transfer only these events.
        pairs: at most this many pairs of videos of an action for the errors.
        neighbors: let this many videos of the action vote on each transferred event as well.
        controls: score an untrained network, position alone and clamping alone as well.
        details: also print the scores of each action and event; the report has them.
    """
    import inphase
    from inphase.evaluation.embedded_videos import CONTROLS
    from inphase.models.encoder import choose_device
    from inphase.runs import Run

    options: dict[str, dict[str, Any]] = {
        "kendall_tau": {"setting": setting, "stride": stride, "distance": distance},
        "event_error": {"events": events or None, "pairs": pairs, "neighbors": neighbors},
        "alignment_error": {"pairs": pairs},
        "cycle_error": {"pairs": pairs},
    }
    with show_progress() as progress:
        evaluation = inphase.evaluate(
            run,
            tasks=tasks,
            modality=modality,
            data=data,
            root=root,
            store=store,
            split=split,
            options=options,
            compare=CONTROLS if controls else (),
            device=choose_device(device),
            progress=progress,
        )
    files = evaluation.write(out or Run(run if run.is_dir() else Path()).evaluation)
    if json:
        return print_json(evaluation)
    for table in evaluation.report.tables:
        if details or not table.detail:
            _print_report_table(table)
    for name, reason in evaluation.left_out.items():
        print_line(f"{name} left out: {reason}")
    return print_line(f"{files[-1]}, and as report.md and report.json")


def reproduce(
    name: Name,
    *,
    data: str = "stage",
    root: Root = None,
    store: Store = None,
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
        modality: pose or image; auto: images for FineGym, pose for all others.
        seeds: how many times each network is trained.
        budget: small, medium or full; for images full is the paper's network and its 150,000 steps.
        out: the folder of runs and reports; by default out/reproduce/DATA_MODALITY.
        methods: only these, such as gta tcc.
        workers: how many runs are trained at a time; by default one per core for pose, one for images.
    """
    options = {key: value for key, value in locals().items() if key not in ("modality", "out", "set", "json")}
    from inphase.reproduction import STUDY_DATA
    from inphase.reproduction import reproduce as run_study

    if modality == "auto" and data in STUDY_DATA:
        modality = STUDY_DATA[data].modality
    folder = out or Path("out/reproduce") / f"{data}_{modality}"
    with show_progress() as progress:
        result = run_study(options.pop("name"), folder, modality=modality, changes=set, **options, progress=progress)
        result.write(folder / name, progress=progress)
    if json:
        return print_json(result)
    for table in result.report.tables[0].split(Console().width):
        _print_report_table(table)
    for note in result.report.notes:
        print_line(note)
    for run, reason in result.failed.items():
        warn_line(f"{run} failed: {reason}")
    if result.runs:
        print_line(f"{result.runs} runs and controls, {result.kept} of them from before")
    return print_line(f"{folder / name / 'report.html'}, and as report.md and report.json")


def _print_report_table(table: "Table") -> None:
    """Print a table of a report."""
    columns = (table.head[0], *(f">{name}" for name in table.head[1:]))
    rows = [["–" if cell is None else str(cell) for cell in row] for row in table.rows]
    print_table(table.title, columns, rows, caption=table.note)
