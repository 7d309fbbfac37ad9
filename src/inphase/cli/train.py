"""`inphase train`: train what a recipe describes."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

if TYPE_CHECKING:
    from inphase.training import Status

# Seconds between lines where there is no terminal to draw a bar on.
_PATIENCE = 10.0
# Measured for the record, too much for a line.
_HIDDEN = {"lr", "frames_per_second", "variance"}

RecipeName = Annotated[
    tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE", help="a TOML file, or the name of one that ships")
]
Changes = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(name="set", metavar="TABLE.KEY=VALUE", help="change an entry of the recipe; may be repeated"),
]


def train_recipe(recipe: RecipeName, *, out: Path, set: Changes = ()) -> None:
    """Train an encoder; the same command continues a run that was stopped, whenever that was.

    Args:
        recipe: what to train.
        out: the run folder: recipe, weights, state and metrics.
        set: changes to the recipe.
    """
    from inphase.evaluation.measure import validate
    from inphase.training import read_recipe, train

    with Watching(Console()) as watching:
        train(read_recipe(recipe, changes=set), out, validate=validate, on_status=watching, progress=watching.progress)


class Watching:
    """Show how a run stands: a bar on a terminal, now and then a line in a log file."""

    def __init__(self, console: Console) -> None:
        """Prepare the bar."""
        self._console, self._said = console, 0.0
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("")

    def __enter__(self) -> "Watching":
        """Begin to draw."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state on the screen."""
        self._bar.stop()

    def __call__(self, status: "Status") -> None:
        """Show one state."""
        if status.steps:
            self.show(status.step, status.steps, describe(status))
        for message in status.messages:
            self._console.print(f"[yellow]{escape(message)}[/yellow]", soft_wrap=True)
        if status.step == status.steps and status.terms:
            self._console.print("[green]trained[/green]")

    def progress(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage; training itself is shown by its status."""
        if stage != "training":
            self.show(done, total, stage)

    def show(self, done: int, total: int, line: str) -> None:
        """Show how much is done, and what is being done in a line."""
        self._bar.update(self._task, completed=done, total=total, description=escape(line))
        now = time.monotonic()
        if not self._console.is_terminal and (now - self._said > _PATIENCE or done == total):
            self._console.print(f"{done:>6}/{total}  {escape(line)}", soft_wrap=True)
            self._said = now


def describe(status: "Status") -> str:
    """Say in a line how a run stands: its terms, its speed, and the time left."""
    terms = [f"{name} {value:.3f}" for name, value in status.terms.items() if name not in _HIDDEN]
    if not terms:
        return "beginning"
    minutes, seconds = divmod(round(status.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    left = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    return "  ".join([*terms, f"{status.frames_per_second:,.0f} frames/s", f"{left} left"])
