"""Options that several commands share, each with one meaning; how commands run, show progress and print results."""

import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from threading import Lock
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, get_args, get_origin, get_type_hints

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from inphase.progress import Progress
from inphase.storage.files import require_folder

if TYPE_CHECKING:
    from inphase.storage.processes import VideoLimits

Videos = Annotated[
    tyro.conf.Positional[tuple[Path, ...]],
    tyro.conf.arg(metavar="VIDEO…", help="video files", help_behavior_hint="(required)"),
]
Video = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="VIDEO", help="a video file")]
Out = Annotated[Path, tyro.conf.arg(metavar="DIR", help="the folder to write")]
Model = Annotated[
    Path | None, tyro.conf.arg(metavar="RUN", help="a run or encoder file; default: shipped", help_behavior_hint="")
]
RequiredModel = Annotated[Path, tyro.conf.arg(metavar="RUN", help="a run folder or an encoder file")]
Modality = Annotated[
    Literal["auto", "pose", "image", "both"],
    tyro.conf.arg(help="what to embed; auto: images, and the pose of each video that shows a person"),
]
Fps = Annotated[
    float | None,
    tyro.conf.arg(metavar="FPS", help="frames per second to embed; by default every frame", help_behavior_hint=""),
]
Device = Annotated[str, tyro.conf.arg(help="where networks run: auto, cpu or cuda")]
Workers = Annotated[int, tyro.conf.arg(metavar="N", help="parallel processes; 0 works in this one")]
PoseEstimator = Annotated[str, tyro.conf.arg(metavar="NAME", help="a pose estimator, or an import path module:Class")]
CacheFolder = Annotated[
    Path | None, tyro.conf.arg(metavar="DIR", help="the cache folder; default ~/.cache/inphase", help_behavior_hint="")
]


@dataclass(frozen=True)
class EmbeddingOptions:
    """The options of commands that embed video files."""

    model: Model = None
    modality: Modality = "auto"
    fps: Fps = None
    cache: CacheFolder = None
    pose_estimator: PoseEstimator = "blazepose"


@dataclass(frozen=True)
class LimitOptions:
    """The options of commands that process each of many videos in a process that can be ended."""

    video_seconds: Annotated[float, tyro.conf.arg(metavar="SECONDS", help="time for one video; 0: no limit")] = 3600
    video_memory: Annotated[float, tyro.conf.arg(metavar="GIB", help="memory for one video; 0: no limit")] = 4


DEFAULT_EMBEDDING, DEFAULT_LIMITS = EmbeddingOptions(), LimitOptions()
IMAGE_EMBEDDING = EmbeddingOptions(modality="image")
Limits = Annotated[LimitOptions, tyro.conf.arg(name="")]
Embedding = Annotated[EmbeddingOptions, tyro.conf.arg(name="")]  # without a prefix: --model, not --embedding.model
Json = Annotated[bool, tyro.conf.arg(help="print the result as JSON instead of a table", name="json")]
At = Annotated[float | None, tyro.conf.arg(metavar="SECONDS", help="a second of the query")]
Top = Annotated[int, tyro.conf.arg(metavar="N", help="how many results to return")]
Changes = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(name="set", metavar="TABLE.KEY=VALUE", help="change an entry of the recipe; repeatable"),
]


class JsonReady(Protocol):
    """A result of the library."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""


def run(work: Callable[..., Any], *arguments: Any, done: str = "", **options: Any) -> Any:
    """Call a function of the library, write its result into the folder `out`, print its summary, or JSON; return it.

    `options` are those of the command, by the names of the function's parameters, and `out` and `json`. `done` is the
    last line; {out} stands for the folder, and {view} for the command that plays it.
    """
    out, json = options.pop("out", None), options.pop("json", False)
    if "embedding" in options:
        options |= vars(options.pop("embedding"))
    if "limits" in options:
        options["limits"] = video_limits(options["limits"])
    if out is not None:
        require_folder(out)
    with show_progress() as progress:
        result = work(*arguments, progress=progress, **options)
        if out is not None:
            result.write(out, progress=progress)
    summary = result.summary()
    for sentence in summary.warnings:
        warn_line(sentence)
    if json:
        print_json(result)
        return result
    for line in summary.lines:
        print_line(line)
    if summary.columns:
        print_table(summary.title, summary.columns, summary.rows)
    if done:
        print_line(done.format(out=out, view="" if out is None else view_command(out)))
    return result


def video_limits(options: LimitOptions) -> "VideoLimits":
    """Return the limits in the form of the library."""
    from inphase.storage.processes import VideoLimits

    return VideoLimits(options.video_seconds, options.video_memory)


def view_command(out: Path) -> str:
    """Return the shell command that opens a written folder in the viewer."""
    return f"inphase view {shlex.quote(str(out))}"


def plain_help(command: Callable[..., None]) -> Callable[..., None]:
    """Leave None and empty defaults out of a command's help: the help text explains them."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in signature(command).parameters.items():
        if parameter.default in (None, "", ()):
            kind, *extras = get_args(hints[name]) if get_origin(hints[name]) is Annotated else [hints[name]]
            hidden = tyro.conf.arg(help_behavior_hint="", metavar=_metavar(kind))
            hints[name] = Annotated[(kind, hidden, *extras)]
    command.__annotations__ = hints
    return command


def _metavar(kind: Any) -> str | None:
    """Name the values of an optional type without None; None where the usual name does."""
    for option in get_args(kind) if NoneType in get_args(kind) else ():
        if get_origin(option) is Literal:
            return "{" + ",".join(map(str, get_args(option))) + "}"
        return str(option.__name__).upper()
    return None


def print_json(result: JsonReady) -> None:
    """Print a result as one JSON document on standard output."""
    print(json.dumps(result.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> None:
    """Print a table whose columns named with a leading ">" are aligned to the right."""
    table = Table(title=escape(title), title_justify="left", caption=escape(caption), caption_justify="left")
    for heading in columns:
        table.add_column(heading.lstrip(">"), justify="right" if heading[:1] == ">" else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def print_line(text: str) -> None:
    """Print a line as it is, whatever its length."""
    Console(highlight=False).print(text, soft_wrap=True, markup=False)


def warn_line(text: str) -> None:
    """Print a warning on standard error."""
    Console(stderr=True).print(f"[yellow]{escape(text)}[/yellow]", soft_wrap=True)


# Seconds between two lines of a log file.
LINE_INTERVAL = 10.0


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show every stage that is reported, until it is finished."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    lock = Lock()  # stages may be reported from several threads
    with Bars(*columns, console=console, transient=True) as bars:

        def update(stage: str, done: int, total: int) -> None:
            with lock:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(escape(stage), total=None)
                bars.update(tasks[stage], completed=done, total=total or None, visible=not total or done < total)

        yield update


def _lines(console: Console) -> Progress:
    """Print at most a line every `LINE_INTERVAL` seconds."""
    printed = time.monotonic()

    def update(stage: str, done: int, total: int) -> None:
        nonlocal printed
        if time.monotonic() - printed >= LINE_INTERVAL:
            printed = time.monotonic()
            console.print(f"{done:>6}/{total or '?'}  {stage}", soft_wrap=True, markup=False, highlight=False)

    return update
