"""`inphase fit`: your own videos, in minutes, without labels or a GPU."""

import shlex
import warnings
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.evaluate import evaluate
from inphase.cli.looking import CacheFolder
from inphase.cli.train import Changes, Watching
from inphase.data.video import Problem

Modality = Literal["auto", "pose", "image", "both"]
Folder = Annotated[
    tyro.conf.Positional[Path],
    tyro.conf.arg(metavar="FOLDER", help="videos of one action, or a sub-folder of them for each action"),
]


def fit(
    folder: Folder,
    *,
    out: Path,
    modality: Modality = "auto",
    steps: int = 0,
    workers: int = 2,
    seed: int = 0,
    set: Changes = (),
    cache: CacheFolder = None,
) -> None:
    """Learn to align your own videos; only which of them show the same action has to be known.

    Looks at the videos, through the people in them where there are some, trains, and measures on a fifth of the videos,
    which it holds out. Stopped at any moment, the same command goes on.

    Args:
        folder: where the videos are.
        out: the run folder, which every other command takes as --model.
        modality: pose, image, or auto: pose where a person is found in most of the videos.
        steps: how long to train; as the recipe says where nothing is said.
        workers: processes that look at videos side by side.
        seed: another seed, another run.
        set: changes to the recipe, as of `inphase train`.
        cache: where to keep the poses that were found, for other commands too.
    """
    from inphase.training import fit as learn
    from inphase.training.fitting import MIN_VIDEOS_TO_HOLD_OUT

    if steps < 0 or workers < 0:
        raise ValueError(f"--steps and --workers must not be negative, got {steps} and {workers}")
    console = Console()
    changes = [f"run.seed={seed}", *([f"run.steps={steps}"] if steps else []), *set]

    with Watching(console) as watching:
        fitted = learn(
            folder,
            out,
            modality=modality,
            changes=changes,
            workers=workers,
            cache=cache,
            on_status=watching,
            progress=watching.progress,
        )
    if fitted.split == "train":
        few = f"Fewer than {MIN_VIDEOS_TO_HOLD_OUT} videos of an action: none is held out"
        console.print(f"[yellow]{few}, so the evaluation is on training videos.[/yellow]", soft_wrap=True)
    events = ("event_error",) if fitted.labeled else ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Problem)  # those that cannot be seen were named above
        evaluate(out, tasks=("kendall_tau", *events, "cycle_error", "health"), split=fitted.split)
    run = escape(shlex.quote(str(out)))
    console.print(f"[green]done[/green]: inphase align A.mp4 B.mp4 --model {run} --out aligned", soft_wrap=True)
