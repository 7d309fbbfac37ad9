"""Commands that train: fit, train, demo."""

import shlex
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.measurement import evaluate
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
