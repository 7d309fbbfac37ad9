"""Options that several commands share, how words are parsed, and how commands run, show progress and print results."""

import json
import logging
import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from threading import Lock
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from inphase.progress import Progress, Summary, ignore_progress, import_function, share_cores

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class OutputOptions:
    """The options of every command."""

    json: Annotated[bool, arg(help="print the result as JSON instead of a table")] = False
    quiet: Annotated[bool, arg(help="print errors only, and JSON if asked for")] = False
    verbose: Annotated[bool, arg(help="print the log, as INPHASE_LOG=info does")] = False

    def start_logging(self) -> None:
        """Print warnings in one line, and the records of the library's logger from the chosen level on."""
        warnings.showwarning = lambda message, *_, **__: warn_line(str(message))
        level = "info" if self.verbose else os.environ.get("INPHASE_LOG") or ("error" if self.quiet else "warning")
        logger = logging.getLogger("inphase")
        try:
            logger.setLevel(level.upper())
        except ValueError:
            raise ValueError(f"INPHASE_LOG is {level!r}: use debug, info, warning or error") from None
        handler = logging.StreamHandler()
        detailed = logger.level < logging.WARNING
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s" if detailed else "%(message)s"))
        logger.handlers[:] = [handler]


# The options of the running command.
OUTPUT: ContextVar[OutputOptions] = ContextVar("output", default=OutputOptions())  # noqa: B039 (frozen)

VIDEOS_HELP = "video files, folders of them, or patterns such as 'clips/*.mp4'"
Videos = Annotated[
    Positional[tuple[Path, ...]], arg(metavar="VIDEO…", help=VIDEOS_HELP, help_behavior_hint="(required)")
]
Video = Annotated[Positional[Path], arg(metavar="VIDEO", help="a video file")]
Out = Annotated[Path, arg(metavar="DIR", help="the folder to write")]
Model = Annotated[Path | None, arg(metavar="RUN", help="a run folder or an encoder file; default: a shipped encoder")]
RequiredModel = Annotated[Path, arg(metavar="RUN", help="a run folder or an encoder file")]
Modality = Annotated[
    Literal["auto", "pose", "image", "both"],
    arg(help="what to embed; auto: images, and the pose of each video that shows a person"),
]
Fps = Annotated[
    float | None, arg(metavar="FPS", help="frames per second to embed; default: all, or about 30 from 50 fps on")
]
Device = Annotated[str, arg(help="where networks run: auto, cpu or cuda")]
Workers = Annotated[int, arg(metavar="N", help="parallel processes; 0: the calling process")]
PoseEstimator = Annotated[str, arg(metavar="NAME", help="a pose estimator, or an import path module:Class")]
CacheFolder = Annotated[Path | None, arg(metavar="DIR", help="the cache folder; default ~/.cache/inphase")]
Session = Annotated[bool, arg(help="cut longer recordings into their repetitions, each a clip of its own")]
At = Annotated[float | None, arg(metavar="SECONDS", help="the moment of the query, in seconds")]
Top = Annotated[int, arg(metavar="N", help="how many results to return")]
Details = Annotated[bool, arg(help="print the detailed tables too")]
Changes = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(name="set", metavar="TABLE.KEY=VALUE", help="change an entry of the recipe; repeatable"),
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

    video_seconds: Annotated[float, arg(metavar="SECONDS", help="time limit of one video; 0: none")] = 3600
    video_memory: Annotated[float, arg(metavar="GIB", help="memory limit of one video; 0: none")] = 4


DEFAULT_EMBEDDING, DEFAULT_LIMITS, DEFAULT_OUTPUT = EmbeddingOptions(), LimitOptions(), OutputOptions()
IMAGE_EMBEDDING = EmbeddingOptions(modality="image")
Limits = Annotated[LimitOptions, arg(name="")]
Embedding = Annotated[EmbeddingOptions, arg(name="")]  # without a prefix: --model, not --embedding.model
OUTPUT_PARAMETER = Parameter(
    "output", Parameter.KEYWORD_ONLY, default=DEFAULT_OUTPUT, annotation=Annotated[OutputOptions, arg(name="")]
)


def parse(command: Callable[..., None], words: Sequence[str], *, name: str, example: str) -> None:
    """Parse the words after a command's name and call it; on --help print its help, on a usage error exit with 2."""
    share_cores(training=command.__module__ == "inphase.cli.learn")  # before numpy and torch are imported
    about = cleandoc(command.__doc__ or "").partition("\nArgs:")[0].rstrip()
    about += f"\n\nExample:\n  inphase {name} {example}"
    tyro.cli(prepare(command), prog=f"inphase {name}", args=words, description=about)


def prepare(command: Callable[..., None]) -> Callable[..., None]:
    """Add the output options to a command, and hide empty defaults and those of flags in its help."""

    @wraps(command)
    def prepared(*arguments: Any, output: OutputOptions, **options: Any) -> None:
        OUTPUT.set(output)
        output.start_logging()
        command(*arguments, **options)

    hints = get_type_hints(command, include_extras=True)
    parameters = [*signature(command).parameters.values(), OUTPUT_PARAMETER]
    hints[OUTPUT_PARAMETER.name] = OUTPUT_PARAMETER.annotation
    for structure in (EmbeddingOptions, LimitOptions, OutputOptions):
        structure.__annotations__ = _hide_defaults(get_type_hints(structure, include_extras=True), vars(structure))
    defaults = {each.name: each.default for each in parameters}
    prepared.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    prepared.__annotations__ = _hide_defaults(hints, defaults)
    del prepared.__wrapped__  # whose hints tyro would read
    return tyro.conf.configure(tyro.conf.FlagCreatePairsOff)(prepared)


def _hide_defaults(hints: dict[str, Any], defaults: Any) -> dict[str, Any]:
    """Hide defaults that are empty, or of a flag, in the help, and None among the values of an option."""
    made = dict[str, Any]()
    for name, hint in hints.items():
        kind, *extras = get_args(hint) if get_origin(hint) is Annotated else [hint]
        if name in defaults and any(defaults[name] is empty for empty in (None, False, True, "", ())):
            extras.insert(0, arg(help_behavior_hint="", metavar=_metavar(kind)))
        # tyro checks defaults of other types by typeguard, which takes long to import.
        if isinstance(kind, UnionType):
            kind = Union[get_args(kind)]  # noqa: UP007
        elif get_origin(kind) is tuple and get_args(kind)[1:] == (Ellipsis,) and APPENDED not in extras:
            extras.append(_several(get_args(kind)[0]))
            kind = tuple
        made[name] = Annotated[(kind, *extras)] if extras else kind
    return made


APPENDED = get_args(UseAppendAction[int])[1]


def _several(kind: Callable[[str], Any]) -> PrimitiveConstructorSpec[Any]:
    """Describe how several words are parsed, each as a value of one kind."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="VALUE…",
        instance_from_str=lambda words: tuple(map(kind, words)),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(each) for each in value],
    )


def _metavar(kind: Any) -> str | None:
    """Name the values of an optional type without None; None where the usual name does."""
    for option in get_args(kind) if NoneType in get_args(kind) else ():
        if get_origin(option) is Literal:
            return "{" + ",".join(map(str, get_args(option))) + "}"
        return str(option.__name__).upper()
    return None


def run(work: Callable[..., Any] | str, *arguments: Any, done: str = "", **options: Any) -> Any:
    """Call a function of the library, write its result into the folder `out`, print its summary, or JSON; return it.

    `work` is the function, or its name in `inphase`: so that the first line is printed before torch is imported.
    `options` are those of the command, by the names of the function's parameters, and `out`, `embeds`, the videos whose
    number and duration are printed first, and `details`, which prints detailed tables. `done` is the last line; {out}
    stands for the folder, and {view} for the command that plays it. Exit with 1 if the result found something damaged.
    """
    out, details = options.pop("out", None), options.pop("details", False)
    videos = options.pop("embeds", ())
    if "embedding" in options:
        options |= vars(options.pop("embedding"))
    if "limits" in options:
        from inphase.storage.processes import VideoLimits

        options["limits"] = VideoLimits(*vars(options["limits"]).values())
    if out is not None:
        from inphase.storage.files import require_folder

        require_folder(out)
    workload, began = None, time.monotonic()
    if videos:
        from inphase.media.listing import estimate_work

        workload = estimate_work(work.__name__ if callable(work) else work, videos, **options)
        if len(workload.frames) > min(workload.missing, 1):  # otherwise the command ends in an error at once
            print_line(str(workload), stderr=True)
    function = work if callable(work) else import_function(work)
    with show_progress() as progress:
        result = function(*arguments, progress=progress, **options)
        if out is not None and workload is None:
            result.write(out, progress=progress)
        elif out is not None:
            from inphase.playback.playback_folder import replace_outputs

            with replace_outputs(out) as written:
                written += result.write(out, progress=progress)
    if workload is not None:
        workload.record(time.monotonic() - began)
    summary = result.summary()
    for sentence in summary.warnings:
        warn_line(sentence)
    if OUTPUT.get().json:
        print_json(result.to_dict())
    else:
        print_summary(summary, details=details)
        if done:
            print_line(done.format(out=out, view="" if out is None else view_command(out)))
    if not getattr(result, "whole", True):
        sys.exit(1)
    return result


def view_command(out: Path) -> str:
    """Return the shell command that opens a written folder in the viewer."""
    return f"inphase view {shlex.quote(str(out))}"


def print_json(values: dict[str, Any], *, indent: int | None = 2) -> None:
    """Print a result as one JSON document on standard output."""
    print(json.dumps(values, indent=indent, ensure_ascii=False, allow_nan=False), flush=True)


def print_summary(summary: Summary, *, details: bool = False) -> None:
    """Print lines, a table whose columns named with a leading ">" are aligned to the right, and what follows it."""
    for line in summary.lines:
        print_line(line)
    for part in summary.split(_console().width) if summary.columns else ():
        print_table(part)
    for each in summary.then:
        if details or not each.is_detail:
            print_summary(each, details=details)


def print_table(summary: Summary) -> None:
    """Print the table of a summary."""
    from rich.markup import escape
    from rich.table import Table

    title, caption = escape(summary.title), escape(summary.caption)
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in summary.columns:
        table.add_column(heading.lstrip(">"), justify="right" if heading[:1] == ">" else "left", overflow="fold")
    for row in summary.rows:
        table.add_row(*map(escape, row))
    if not OUTPUT.get().quiet:
        _console().print(table)


def print_line(text: str, *, stderr: bool = False) -> None:
    """Print a line as it is, whatever its length."""
    if not OUTPUT.get().quiet:
        _console(stderr=stderr).print(text, soft_wrap=True, markup=False, highlight=False)


def warn_line(text: str) -> None:
    """Print a warning on standard error."""
    if not OUTPUT.get().quiet:
        _console(stderr=True).print(text, style="yellow", soft_wrap=True, markup=False, highlight=False)


def print_error(text: str) -> None:
    """Print an error on standard error."""
    _console(stderr=True).print(text, style="red", soft_wrap=True, markup=False, highlight=False)


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)


# Seconds between two lines of a log file.
LINE_INTERVAL = 10.0


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show every stage that is reported, until it is finished."""
    console = _console(stderr=True)
    if OUTPUT.get().quiet:
        yield ignore_progress
        return
    if not console.is_terminal:
        yield _lines(console)
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

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


def _lines(console: "Console") -> Progress:
    """Print the first report, then at most a line every `LINE_INTERVAL` seconds, and the end of each long stage."""
    printed, stages = -LINE_INTERVAL, dict[str, bool]()  # stage → whether a line of it was printed

    def update(stage: str, done: int, total: int) -> None:
        nonlocal printed
        ends = bool(total) and done >= total and stages.get(stage, False)
        if ends or time.monotonic() - printed >= LINE_INTERVAL:
            printed = time.monotonic()
            stages[stage] = not ends
            console.print(f"{done:>6}/{total or '?'}  {stage}", soft_wrap=True, markup=False, highlight=False)

    return update
