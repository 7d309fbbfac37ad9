"""Commands that train: fit, train, demo."""

import shlex
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.bars import LINE_INTERVAL, show_progress
from inphase.cli.evaluate import evaluate
from inphase.cli.options import (
    CacheFolder,
    Changes,
    Json,
    Modality,
    Out,
    Workers,
    print_json,
    print_line,
    print_table,
    view_command,
    warn_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from inphase.data.video import Video
    from inphase.evaluation.measure import Measured
    from inphase.models import Encoder
    from inphase.training import Recipe, Status

# Metrics that are recorded and not printed.
HIDDEN_TERMS = {"lr", "frames_per_second", "variance"}
# Videos of each action that the demo measures on, and the size of the pair that it writes, in pixels.
DEMO_TEST_VIDEOS, DEMO_PAIR_SIZE = 6, 256
DEMO_MODALITIES = ("pose", "image")


def fit(
    folder: Annotated[
        tyro.conf.Positional[Path],
        tyro.conf.arg(metavar="FOLDER", help="videos of one action, or a sub-folder of them for each action"),
    ],
    *,
    out: Out = Path("out/fit"),
    modality: Modality = "auto",
    steps: int = 0,
    workers: Workers = 2,
    seed: int = 0,
    set: Changes = (),
    cache: CacheFolder = None,
    json: Json = False,
) -> None:
    """Train an encoder on your own videos; only which of them show the same action has to be known.

    Extracts poses or images, trains, and evaluates on a fifth of the videos, which it holds out. The folder written is
    a run, which other commands take as --model. The same command resumes an interrupted run.

    Args:
        steps: training steps; by default those of the recipe.
        seed: another seed, another run.
    """
    from inphase.data.video import Problem
    from inphase.training import fit as fit_folder
    from inphase.training.fitting import MIN_VIDEOS_TO_HOLD_OUT

    if steps < 0 or workers < 0:
        raise ValueError(f"--steps and --workers must not be negative, got {steps} and {workers}")
    changes = [f"run.seed={seed}", *([f"run.steps={steps}"] if steps else []), *set]
    with show_progress() as progress:
        fitted = fit_folder(
            folder,
            out,
            modality=modality,
            changes=changes,
            workers=workers,
            cache=cache,
            on_status=print_status(),
            progress=progress,
        )
    if json:
        return print_json(fitted)
    if fitted.split == "train":
        few = f"Fewer than {MIN_VIDEOS_TO_HOLD_OUT} videos of an action: none is held out"
        warn_line(f"{few}, so the evaluation is on training videos.")
    events = ("event_error",) if fitted.labeled else ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Problem)  # the messages of `fit` name the videos left out
        evaluate(out, tasks=("kendall_tau", *events, "cycle_error", "health"), split=fitted.split)
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
    from inphase.evaluation.measure import validate
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
            console.print(f"{status.step:>6}/{status.steps}  {describe(status)}", soft_wrap=True, highlight=False)
        if status.terms and last:
            console.print("[green]trained[/green]")

    return on_status


def describe(status: "Status") -> str:
    """Return the metrics of a run, its speed and the time left in a line."""
    terms = [f"{name} {value:.3f}" for name, value in status.terms.items() if name not in HIDDEN_TERMS]
    minutes, seconds = divmod(round(status.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    left = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    return "  ".join([*terms, f"{status.frames_per_second:,.0f} frames/s", f"{left} left"])


def demo(
    *,
    out: Out = Path("out/demo"),
    modalities: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="MODALITY", help="pose, image or both")
    ] = DEMO_MODALITIES,
) -> None:
    """Train on drawn people at four actions, evaluate on people not in the training data, and align two of them.

    Takes a few minutes on two cores; the same command resumes. Writes a run folder for each modality and the aligned
    pair.
    """
    from inphase.models import load_encoder
    from inphase.training import read_recipe
    from inphase.training import train as train_recipe

    unknown = [modality for modality in modalities if modality not in DEMO_MODALITIES]
    if unknown or not modalities:
        raise ValueError(f"the demo trains {' or '.join(DEMO_MODALITIES)}, not {', '.join(unknown) or 'nothing'}")
    measured = {}
    for modality in modalities:
        recipe = read_recipe(f"demo_{modality}")
        print_line(f"training by {modality}")
        with show_progress() as progress:
            train_recipe(recipe, out / modality, on_status=print_status(), progress=progress)
        measured[modality] = _measure(load_encoder(out / modality), recipe, cache=out / modality)
    columns = ("", ">alignment error after DTW", ">by nearest frame", ">Kendall's τ", ">τ, whole context")
    print_table("people not in the training data", columns, _rows(measured))
    print_line("error: fraction of the action's duration, 0 is perfect; τ: 1 is perfect, time alone is a control")
    folder = _align_pair(load_encoder(out / modalities[0]), read_recipe(f"demo_{modalities[0]}"), out=out)
    print_line(f"watch {folder / 'aligned.mp4'}, or open the viewer: {view_command(folder)}")


def _measure(encoder: "Encoder", recipe: "Recipe", *, cache: Path) -> "Measured":
    """Evaluate an encoder on the test split of the stage, with its controls."""
    from inphase.data.frame_source import FrameSource, open_frame_source
    from inphase.evaluation.measure import measure

    def source() -> FrameSource:
        return open_frame_source(encoder, _load_test(recipe, videos=DEMO_TEST_VIDEOS), name="stage test")

    return measure(encoder, test=source, train=source, tasks=("alignment_error", "kendall_tau"), cache=cache)


def _load_test(recipe: "Recipe", **changes: object) -> "list[Video]":
    """List the test split of a recipe's stage."""
    from inphase.data import stage_videos

    options = {name: value for name, value in recipe.data.items() if name != "name"}
    return stage_videos.load(split="test", **{**options, **changes})


def _rows(measured: "dict[str, Measured]") -> list[tuple[str, ...]]:
    """Tabulate the numbers: a row for each encoder and control."""

    def row(label: str, found: "Measured", column: str) -> tuple[str, ...]:
        error, tau = found.numbers["alignment_error"][column], found.numbers["kendall_tau"][column]
        return (label, f"{error['dtw']:.1%}", f"{error['nearest']:.1%}", f"{tau['tau']:.3f}", f"{tau['tau/nc']:.3f}")

    first = next(iter(measured.values()))
    linear = first.numbers["alignment_error"]["this run"]["linear"]
    rows = [("linear stretch", f"{linear:.1%}", "", "", ""), row("time alone", first, "time only")]
    for modality, found in measured.items():
        rows += [
            row(f"untrained, by {modality}", found, "untrained"),
            row(f"trained, by {modality}", found, "this run"),
        ]
    return rows


def _align_pair(encoder: "Encoder", recipe: "Recipe", *, out: Path) -> Path:
    """Write two videos of the test split at the first action, aligned; return their folder."""
    from inphase.apps.align_videos import Aligned, synchronize
    from inphase.apps.tracks import open_recordings
    from inphase.data import stage_videos
    from inphase.data.frame_source import open_frame_source
    from inphase.evaluation import embed_videos

    action = recipe.data["actions"][0]
    options = {"videos": 2, "level": recipe.data["level"], "actions": [action]}
    stage_videos.write(out / "stage", split="test", size=DEMO_PAIR_SIZE, **options)
    films = [video.path for video in stage_videos.load(out / "stage", split="test", actions=[action]) if video.path]
    source = open_frame_source(encoder, _load_test(recipe, **options), name="stage pair")
    embeddings = tuple(each.embedding for each in embed_videos(encoder, source.videos, read=source.read))
    aligned = Aligned(
        tuple(open_recordings(films)), embeddings, synchronize(embeddings, smooth=0.3), "Using the trained encoder."
    )
    aligned.write(out / "aligned")
    return out / "aligned"
