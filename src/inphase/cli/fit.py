"""`inphase fit`: your own videos, in minutes, without labels or a GPU."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.data import fill_behind_bar
from inphase.cli.evaluate import evaluate
from inphase.cli.train import Changes, Watching
from inphase.data import folder as collection
from inphase.data.reading import sources
from inphase.data.video import Problem, Video, summarise
from inphase.media.cache import Filled, fill_store
from inphase.media.errors import MissingExtraError
from inphase.media.pose_cache import fill_poses

See = Literal["auto", "pose", "pixels"]
Folder = Annotated[
    tyro.conf.Positional[Path],
    tyro.conf.arg(metavar="FOLDER", help="videos of one action, or a sub-folder of them for each action"),
]

SEEN = "seen"
# People are what the videos are about where so large a part of them shows somebody.
MOSTLY = 0.8
# Of fewer videos of an action none is held out: there would be too little to learn from, or to measure.
FEW = 10
HELD_OUT = 0.2


def fit(
    folder: Folder, *, out: Path, see: See = "auto", steps: int = 0, workers: int = 2, seed: int = 0, set: Changes = ()
) -> None:
    """Learn to align your own videos; only which of them show the same action has to be known.

    Looks at the videos, through the people in them where there are some, trains, and measures on a fifth of the videos,
    which it holds out. Stopped at any moment, the same command goes on.

    Args:
        folder: where the videos are.
        out: the run folder, which every other command takes as --model.
        see: pose looks at people, pixels at pictures, auto at people where there are some in most of the videos.
        steps: how long to train; as the recipe says where nothing is said.
        workers: processes that look at videos side by side.
        seed: another seed, another run.
        set: changes to the recipe, as of `inphase train`.
    """
    from inphase.training import read_recipe, train
    from inphase.training.recipe import SHIPPED

    console = Console()
    videos = collection.load(folder, split="all", val=0.0, test=0.0)
    _require_pairs(videos, folder)
    way, left_out = look_at(videos, out / SEEN, see=see, workers=workers, console=console)
    kept = [video for video in videos if video.id not in left_out]
    _require_pairs(kept, folder)
    held_out = HELD_OUT if min(Counter(video.action for video in kept).values()) >= FEW else 0.0
    changes = [f"run.seed={seed}", *([f"run.steps={steps}"] if steps else []), *set]
    recipe = read_recipe(SHIPPED / f"fit_{way}.toml", changes=changes)
    data: dict[str, Any] = {"root": str(folder.resolve()), "store": str((out / SEEN).resolve()), "val": 0.0}
    recipe = replace(recipe, data={**recipe.data, **data, "test": held_out})
    with warnings.catch_warnings(), Watching(console) as watching:
        warnings.simplefilter("ignore", Problem)  # what cannot be seen was said when it was looked at
        train(recipe, out, watch=watching)
    split = "test" if held_out else "train"
    if not held_out:
        console.print(
            f"[yellow]fewer than {FEW} videos of an action: none is held out, and what follows is measured on the "
            "videos it was trained on[/yellow]"
        )
    tasks = ("kendall_tau", "event_error") if any(video.intervals for video in kept) else ("kendall_tau",)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Problem)
        evaluate(out, tasks=(*tasks, "cycle_error", "health"), split=split)
    console.print(f"[green]done[/green]: inphase align A.mp4 B.mp4 --model {escape(str(out))} --out aligned")


def look_at(
    videos: Sequence[Video], store: Path, *, see: See, workers: int, console: Console
) -> tuple[str, dict[str, str]]:
    """Look at every video once, and say in which way and which of them cannot be seen so."""
    wanted = sources(videos)
    if see in ("auto", "pose"):
        try:
            filled = fill_behind_bar(store, wanted, "following people", partial(fill_poses, workers=workers))
        except MissingExtraError as error:
            if see == "pose":
                raise
            console.print(f"[yellow]{escape(str(error))}[/yellow]")
        else:
            share = 1 - len(filled.broken) / len(wanted)
            if see == "pose" or share >= MOSTLY:
                _tell_left_out(console, filled)
                console.print(f"looking at people: they are found in {share:.0%} of the videos")
                return "pose", filled.broken
            console.print(f"looking at pictures: people are found in {share:.0%} of the videos only")
    filled = fill_behind_bar(store, wanted, "decoding", partial(fill_store, size=(112, 112), workers=workers))
    _tell_left_out(console, filled)
    return "pixels", filled.broken


def _tell_left_out(console: Console, filled: Filled) -> None:
    if filled.broken:
        reasons = summarise(f"{name} ({reason})" for name, reason in filled.broken.items())
        console.print(f"[yellow]left out: {escape(reasons)}[/yellow]")


def _require_pairs(videos: Sequence[Video], folder: Path) -> None:
    """Refuse an action with a single video: there is nothing to align it with."""
    lonely = [action for action, number in Counter(video.action for video in videos).items() if number < 2]
    if lonely or not videos:
        what = f"{summarise(lonely)} has one" if lonely else "there is none that can be seen"
        raise ValueError(f"alignment needs two videos of an action in {folder}; {what}: add some, or remove it")
