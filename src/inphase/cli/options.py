"""Options that several commands share, each with one meaning, and how the words of a command are parsed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from inphase.cli.output import OUTPUT, OutputOptions

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
