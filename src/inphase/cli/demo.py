"""`inphase demo`: everything once, on drawn people whose true alignment is known."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inphase.cli.looking import view_command
from inphase.cli.train import Watching

if TYPE_CHECKING:
    from inphase.data.video import Video
    from inphase.evaluation.measure import Measured
    from inphase.models import Encoder
    from inphase.training import Recipe

WAYS = {"pose": "by pose", "image": "by image"}
# Of each action, whose people and looks no training video has.
TESTED = 6
PAIR_SIZE = 256

Ways = Annotated[tuple[str, ...], tyro.conf.arg(metavar="WAY", help="pose, image or both")]


def demo(*, out: Path = Path("out/demo"), ways: Ways = tuple(WAYS)) -> None:
    """Draw people at four actions, learn to align them, measure on people never seen, and align two of them.

    Takes a few minutes on two cores; what was done before is not done again.

    Args:
        out: where everything goes: a run folder for each way of seeing, and the aligned pair.
        ways: how people are seen, by their keypoints and by pixels.
    """
    from inphase.models import load_encoder
    from inphase.training import read_recipe, train

    unknown = [way for way in ways if way not in WAYS]
    if unknown or not ways:
        raise ValueError(f"people are seen by {' or '.join(WAYS)}, not by {', '.join(unknown) or 'nothing'}")
    console = Console()
    measured = {}
    for way in ways:
        recipe = read_recipe(recipe_of(way))
        console.print(f"[bold]learning {WAYS[way]}[/bold]")
        with Watching(console) as watching:
            train(recipe, out / way, on_status=watching, progress=watching.progress)
        measured[way] = measure_on_test(load_encoder(out / way), recipe, cache=out / way)
    console.print(tabulate(measured))
    folder = align_two(load_encoder(out / ways[0]), read_recipe(recipe_of(ways[0])), out=out)
    console.print(
        f"watch {escape(str(folder / 'aligned.mp4'))}, or open the viewer: {view_command(folder)}", soft_wrap=True
    )


def recipe_of(way: str) -> Path:
    """Find the recipe of a way of seeing."""
    from inphase.training import recipe

    return recipe.SHIPPED / f"demo_{way}.toml"


def measure_on_test(encoder: "Encoder", recipe: "Recipe", *, cache: Path) -> "Measured":
    """Measure an encoder on people it never saw, beside an untrained one and what has not looked at all."""
    from inphase.data.frame_source import FrameSource, open_frame_source
    from inphase.evaluation.measure import measure

    def look() -> FrameSource:
        return open_frame_source(encoder, load_test(recipe, videos=TESTED), name="stage test")

    return measure(encoder, test=look, train=look, tasks=("alignment_error", "kendall_tau"), cache=cache)


def load_test(recipe: "Recipe", **changes: object) -> list["Video"]:
    """Draw the test split of a recipe's stage."""
    from inphase.data import stage_videos

    options = {name: value for name, value in recipe.data.items() if name != "name"}
    return stage_videos.load(split="test", **{**options, **changes})


def tabulate(measured: "dict[str, Measured]") -> Table:
    """Lay the numbers out: one row for each way of aligning."""
    table = Table(title="people never seen in training", title_justify="left")
    for heading in ("", "alignment error after DTW", "by nearest frame", "Kendall's τ", "τ, whole context"):
        table.add_column(heading, justify="right" if heading else "left")
    first = next(iter(measured.values()))
    linear = first.numbers["alignment_error"]["this run"]["linear"]
    table.add_row("linear stretch", _percent(linear), "", "", "")
    table.add_row("time alone", *_numbers(first, "time only"))
    for way, found in measured.items():
        table.add_row(f"untrained, {WAYS[way]}", *_numbers(found, "untrained"))
        table.add_row(f"[bold]trained[/bold], {WAYS[way]}", *_numbers(found, "this run"))
    table.caption = (
        "error: of the action's duration; 0 is perfect. τ: 1 is perfect, and time alone shows what it hides."
    )
    table.caption_justify = "left"
    return table


def _numbers(measured: "Measured", column: str) -> tuple[str, ...]:
    """Write the errors and both τ of one column."""
    error, tau = measured.numbers["alignment_error"][column], measured.numbers["kendall_tau"][column]
    return _percent(error["dtw"]), _percent(error["nearest"]), f"{tau['tau']:.3f}", f"{tau['tau/nc']:.3f}"


def _percent(error: float) -> str:
    return f"{error:.1%}"


def align_two(encoder: "Encoder", recipe: "Recipe", *, out: Path) -> Path:
    """Film two people of the test split at the first action, align them by the encoder, and write the playback."""
    from inphase.apps.align_videos import Aligned, synchronize
    from inphase.apps.tracks import open_recordings
    from inphase.data import stage_videos
    from inphase.data.frame_source import open_frame_source
    from inphase.evaluation import embed_videos

    action = recipe.data["actions"][0]
    options = {"videos": 2, "level": recipe.data["level"], "actions": [action]}
    stage_videos.write(out / "stage", split="test", size=PAIR_SIZE, **options)
    films = [video.path for video in stage_videos.load(out / "stage", split="test", actions=[action]) if video.path]
    seen = open_frame_source(encoder, load_test(recipe, **options), name="stage pair")
    embeddings = [each.embedding for each in embed_videos(encoder, seen.videos, read=seen.read)]
    folder = out / "aligned"
    synchronization = synchronize(embeddings, smooth=0.3)
    Aligned(tuple(open_recordings(films)), tuple(embeddings), synchronization, "Using the trained encoder.").write(
        folder
    )
    return folder
