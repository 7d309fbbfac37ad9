"""Commands that train and measure: demo, fit, train, evaluate, reproduce."""

import shlex
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.options import (
    DEFAULT_LIMITS,
    LINE_INTERVAL,
    CacheFolder,
    Changes,
    Json,
    Limits,
    Modality,
    Out,
    Workers,
    print_json,
    print_line,
    run,
    show_progress,
    video_limits,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from inphase.training import Status
from typing import TYPE_CHECKING, Literal

from inphase.cli.options import Device, print_table, warn_line

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
    for failed, reason in result.failed.items():
        warn_line(f"{failed} failed: {reason}")
    if result.runs:
        print_line(f"{result.runs} runs and controls, {result.kept} of them from before")
    return print_line(f"{folder / name / 'report.html'}, and as report.md and report.json")


def _print_report_table(table: "Table") -> None:
    """Print a table of a report."""
    columns = (table.head[0], *(f">{name}" for name in table.head[1:]))
    rows = [["–" if cell is None else str(cell) for cell in row] for row in table.rows]
    print_table(table.title, columns, rows, caption=table.note)


def fit(
    folder: Annotated[
        tyro.conf.Positional[Path],
        tyro.conf.arg(metavar="FOLDER", help="videos of one action, or a sub-folder of them for each action"),
    ],
    *,
    out: Out = Path("out/fit"),
    modality: Modality = "auto",
    steps: int | None = None,
    workers: Workers = 2,
    limits: Limits = DEFAULT_LIMITS,
    seed: int = 0,
    set: Changes = (),
    cache: CacheFolder = None,
    json: Json = False,
) -> None:
    """Train an encoder on your own videos, without labels: a folder, or a sub-folder for each action.

    Extracts poses or images, trains, and evaluates on a fifth of the videos, which it holds out. The folder written is
    a run, which other commands take as --model. The same command resumes an interrupted run.

    Args:
        steps: training steps; by default those of the recipe.
        seed: another seed, another run.
    """
    from inphase.data.video import Problem
    from inphase.training import fit as fit_folder

    if (steps is not None and steps < 1) or workers < 0:
        raise ValueError(f"--steps must be at least 1 and --workers 0, got {steps} and {workers}")
    changes = [f"run.seed={seed}", *([] if steps is None else [f"run.steps={steps}"]), *set]
    with show_progress() as progress:
        how: dict[str, Any] = {"changes": changes, "workers": workers, "limits": video_limits(limits), "cache": cache}
        fitted = fit_folder(folder, out, modality=modality, on_status=print_status(), progress=progress, **how)
    if json:
        return print_json(fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Problem)  # the messages of `fit` name the videos left out
        evaluate(out, tasks=fitted.tasks, split=fitted.split)
    return print_line(f"done: inphase align A.mp4 B.mp4 --model {shlex.quote(str(out))} --out aligned")


def train(
    recipe: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE", help="a TOML file, or the name of a shipped recipe")
    ],
    *,
    out: Out = Path("out/train"),
    set: Changes = (),
    json: Json = False,
) -> None:
    """Train the encoder of a recipe into a run folder; the same command resumes an interrupted run."""
    from inphase.evaluation.evaluate import validate
    from inphase.training import read_recipe
    from inphase.training import train as train_recipe

    with show_progress() as progress:
        settings = read_recipe(recipe, changes=set)
        trained = train_recipe(settings, out, validate=validate, on_status=print_status(), progress=progress)
    if json:
        print_json(trained)


def print_status() -> "Callable[[Status], None]":
    """Return a callback that prints messages, and the metrics of a run now and then."""
    console, printed = Console(stderr=True), 0.0

    def on_status(status: "Status") -> None:
        nonlocal printed
        for message in status.messages:
            console.print(f"[yellow]{escape(message)}[/yellow]", soft_wrap=True)
        last = status.step == status.steps
        if status.terms and (last or time.monotonic() - printed > LINE_INTERVAL):
            printed = time.monotonic()
            console.print(str(status), soft_wrap=True, highlight=False, markup=False)
        if status.terms and last:
            console.print("[green]trained[/green]")

    return on_status


def demo(
    *,
    out: Out = Path("out/demo"),
    modalities: Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODALITY", help="pose, image or both")] = (
        "pose",
        "image",
    ),
    json: Json = False,
) -> None:
    """Train on drawn people at four actions, evaluate on people not in the training data, and align two of them.

    Takes a few minutes on two cores; the same command resumes. Writes a run folder for each modality and the aligned
    pair.
    """
    from inphase.reproduction.demo import run_demo

    with show_progress() as progress:
        found = run_demo(out, modalities=modalities, on_status=print_status(), progress=progress)
    run(lambda progress: found, out=out / "aligned", json=json, done="watch {out}/aligned.mp4, or: {view}")
