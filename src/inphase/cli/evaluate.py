"""`inphase evaluate`: what a run's embeddings are worth, beside what others would score."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table as Grid

from inphase.cli.data import find_loader
from inphase.data.sight import Sight, see
from inphase.data.video import Video

if TYPE_CHECKING:
    from inphase.evaluation.measure import Measured
    from inphase.evaluation.report import Report, Table
    from inphase.models import Encoder

DETAILS = ", by action and event"
# The task of runs with two encoders, and the file of the second.
HEARD, SOUND = "sound_recall", "sound.safetensors"

Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help="a run folder, or an encoder's file")]

# What each number is a mean of, in the words of a table; the details are in docs/evaluation.md.
NOTES = {
    "kendall_tau": "Order of nearest neighbours; rewards whatever grows with time. nc: frames whose context exists.",
    "event_error": "Key events carried from video to video: frames, or fractions of the length. Less is better.",
    "alignment_error": "Difference of canonical time of matched frames. Less is better.",
    "phase_classification": "Frames whose phase a support vector machine tells rightly: kernel/features/labelled.",
    "few_shot": "The same from k labelled videos of each action; mean over episodes, half of its 95 % interval.",
    "phase_progression": "R² of a linear regression of the time since each key event.",
    "retrieval": "Fraction of the nearest frames in other videos that show the same phase.",
    "cycle_error": "Frames that do not return to themselves by nearest neighbours there and back. Less is better.",
    "sound_recall": "A second of sound finds its event within ±0.5 s among all videos, or those of its own action.",
    "health": "mean_cosine 1 or variance 0: collapsed to a point. effective_rank: dimensions in use.",
}


def evaluate(
    run: Run,
    *,
    tasks: tuple[str, ...] = (),
    data: str | None = None,
    root: Path | None = None,
    store: Path | None = None,
    split: str = "test",
    out: Path | None = None,
    setting: str = "released",
    events: tuple[str, ...] = (),
    pairs: int = 10_000,
    controls: bool = True,
    details: bool = False,
    device: str = "cpu",
) -> None:
    """Measure a run: embed its videos once, run tasks on them, print tables, write a report.

    Args:
        run: the run; its recipe says which data it is of.
        tasks: which tasks; all that the labels allow where none is named.
        data: another collection than the recipe's.
        root: the folder the collection lies in.
        store: read frames or poses from this store; poses otherwise come from labels, pictures from the files.
        split: which split is tested; classifiers are trained on "train".
        out: where the report goes; evaluation in the run folder where nothing is said.
        setting: of Kendall's tau: released, tcc, tcc_pouring or every_frame.
        events: carry these events only.
        pairs: carry between at most so many pairs of videos of an action.
        controls: measure an untrained network, position alone and clamping alone as well.
        details: print the numbers of each action and event, too; the report has them.
        device: where the network runs.
    """
    from inphase.evaluation import NotApplicableError
    from inphase.evaluation.measure import CONTROLS, Measured, measure
    from inphase.evaluation.report import write_report
    from inphase.models import load_encoder

    encoder = load_encoder(run, device=device)
    folder = run if run.is_dir() else run.parent
    choice = choose_data(folder, name=data, root=root, store=store)
    size = encoder.shape[0] if encoder.sees == "pictures" else None

    def look(part: str) -> Sight:
        return see(encoder, choice.load(part, size=size), store=choice.store, name=str(choice))

    options: dict[str, dict[str, Any]] = {
        "kendall_tau": {"setting": setting, "device": device},
        "event_error": {"events": events or None, "pairs": pairs},
        "alignment_error": {"pairs": pairs},
        "cycle_error": {"pairs": pairs},
        "retrieval": {"device": device},
    }
    console = Console()
    others = tuple(task for task in tasks if task != HEARD)
    with Progress(console=console, transient=True) as bar:
        line = bar.add_task("", total=1)

        def tell(what: str, done: float) -> None:
            bar.update(line, description=what, completed=done)

        measured = Measured({}, {}, {})
        if others or not tasks:
            measured = measure(
                encoder,
                test=partial(look, split),
                train=partial(look, "train"),
                tasks=others or None,
                options=options,
                compare=CONTROLS if controls else (),
                cache=folder,
                progress=tell,
            )
        if HEARD in tasks or (not tasks and (folder / SOUND).is_file()):
            sight = look(split)
            measured.sizes["test videos"] = len(sight.videos)
            try:
                measured.numbers[HEARD] = _measure_sound(encoder, folder, sight, controls=controls, tell=tell)
            except NotApplicableError as error:
                if tasks:
                    raise
                measured.left_out[HEARD] = str(error)
    report = describe(measured, title=f"{run.resolve().name} on {choice.name}, {split}", recipe=choice.recipe)
    for table in report.tables:
        if details or not table.title.endswith(DETAILS):
            console.print(lay_out(table))
    for name, reason in measured.left_out.items():
        console.print(f"[dim]{name} left out: {escape(reason)}[/dim]")
    files = write_report(report, out or folder / "evaluation")
    console.print(f"[green]{escape(str(files[-1]))}[/green] and the same as report.md and report.json")


def _measure_sound(
    encoder: "Encoder", folder: Path, sight: Sight, *, controls: bool, tell: Callable[[str, float], None]
) -> dict[str, dict[str, float]]:
    """Measure the encoders of pictures and of sounds of one run together."""
    from inphase.evaluation.sound_recall import measure_sound_recall
    from inphase.models import load_encoder

    if not (folder / SOUND).is_file():
        raise ValueError(f"{folder} holds no {SOUND}: {HEARD} is of runs whose recipe has a table [sound]")
    sound = load_encoder(folder / SOUND, device=next(encoder.parameters()).device)
    return measure_sound_recall(encoder, sound, sight, untrained=5 if controls else 0, cache=folder, progress=tell)


@dataclass(frozen=True)
class Choice:
    """The data a run is measured on: a collection, its options and the store its frames come from."""

    name: str
    root: Path | None
    store: Path | None
    options: Mapping[str, Any]
    recipe: str = ""

    def __str__(self) -> str:
        """Tell this data from other data, in which a video of the same name is another."""
        return f"{self.name} {self.root} {sorted(self.options.items())}"

    def load(self, split: str, *, size: int | None) -> list[Video]:
        """List the videos of a split; drawn ones at the size an encoder sees."""
        load = find_loader(self.name, self.root)
        accepted = [name for name in signature(load).parameters if name not in ("root", "split")]
        unknown = [name for name in self.options if name not in accepted]
        if unknown:
            raise ValueError(f"{self.name} takes no {', '.join(unknown)}; it takes {', '.join(accepted) or 'nothing'}")
        options = dict(self.options)
        if size is not None and self.root is None and "size" in accepted:
            options["size"] = size
        return load(self.root, split=split, **options)


def choose_data(folder: Path, *, name: str | None, root: Path | None, store: Path | None) -> Choice:
    """Take the data of a run's recipe, as far as nothing else is said; options go with the recipe's collection only."""
    file = folder / "recipe.toml"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    try:
        table = tomllib.loads(text).get("data", {})
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file} cannot be read ({error}): correct it, or restore it") from error
    known = dict(table) if isinstance(table, dict) else {}
    theirs, their_root, their_store = known.pop("name", None), known.pop("root", None), known.pop("store", None)
    known.pop("split", None)
    if name is None and theirs is None:
        raise ValueError(f"{folder} has no recipe that names its data: say --data NAME and --root ROOT")
    if name is not None and name != theirs:
        return Choice(name, root, store, {}, text)
    root = root or (None if their_root is None else Path(their_root))
    store = store or (None if their_store is None else Path(their_store))
    return Choice(str(theirs), root, store, known, text)


def describe(measured: "Measured", *, title: str, recipe: str = "") -> "Report":
    """Lay out the numbers of each task, and the curve of few shots."""
    from inphase.evaluation.report import Number, Report, Table, versions

    tables, by_action = [], []
    for task, columns in measured.numbers.items():
        rows = [
            (key, *(Number(column[key]) if key in column else None for column in columns.values()))
            for key in columns["this run"]
        ]
        headlines = tuple(row for row in rows if _is_headline(str(row[0])))
        tables.append(Table(task, ("", *columns), headlines, note=NOTES.get(task, "")))
        if len(headlines) < len(rows):
            others = tuple(row for row in rows if not _is_headline(str(row[0])))
            by_action.append(Table(f"{task}{DETAILS}", ("", *columns), others))
    left_out = [f"{task} left out: {reason}" for task, reason in measured.left_out.items()]
    return Report(
        title=title,
        tables=(*tables, *by_action),
        figures=_figures(measured.numbers),
        recipe=recipe,
        notes=(", ".join(f"{count:,} {name}" for name, count in measured.sizes.items()), *left_out),
        versions=versions(),
    )


def _figures(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> tuple[Any, ...]:
    """Draw the curve of few shots, where matplotlib is installed and there is one."""
    from importlib.util import find_spec

    from inphase.evaluation.few_shot import plot_few_shot
    from inphase.evaluation.report import picture

    curves = found.get("few_shot")
    if not curves or find_spec("matplotlib") is None:
        return ()
    return (picture(plot_few_shot(curves), title="Few-shot classification", caption=NOTES["few_shot"]),)


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


def _is_headline(key: str) -> bool:
    """Tell a number over everything from that of one action or event."""
    kinds = ("mean", "median", "mean_fraction", "median_fraction", "nc", "per_action")
    parts = key.split("/")
    return (
        len(parts) == 1
        or parts[-1] in kinds
        or parts[-1].startswith(("k=", "recall@", "action@"))
        or _is_fraction(parts)
    )


def _is_fraction(parts: Sequence[str]) -> bool:
    return len(parts) == 3 and parts[-1].replace(".", "").isdigit()
