"""What the commands that look at videos share: their options, and looking behind progress bars."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from inphase.models.embed_videos import EmbeddedVideos
    from inphase.models.embedding import Embedding
    from inphase.models.encoder import Encoder

Videos = Annotated[
    tyro.conf.Positional[tuple[Path, ...]],
    tyro.conf.arg(metavar="VIDEO…", help="video files", help_behavior_hint="(required)"),
]
Out = Annotated[Path, tyro.conf.arg(metavar="DIR", help="the folder to write, which `inphase view` plays")]
Model = Annotated[
    Path | None,
    tyro.conf.arg(metavar="RUN", help="a run folder or an encoder's file; without one, a model that ships is chosen"),
]
CacheFolder = Annotated[
    Path | None,
    tyro.conf.arg(metavar="DIR", help="where to keep what was seen; ~/.cache/inphase where none is named"),
]
Rate = Annotated[
    float | None, tyro.conf.arg(metavar="FPS", help="look at so many frames a second only; at all of them without it")
]


def look_together(
    paths: Sequence[Path], *, model: Path | None, cache: Path | None, rate: float | None
) -> "EmbeddedVideos":
    """Look at videos behind progress bars, and say with which model and why."""
    from inphase.models import load_encoder
    from inphase.models.embed_videos import embed_videos
    from inphase.storage.cache import Cache, default_cache_folder

    encoder = None if model is None else load_encoder(model)
    with bars() as bar:
        tasks = {f"embedding {path.name}": bar.add_task(f"embedding {escape(path.name)}", total=None) for path in paths}
        looked = embed_videos(
            paths,
            model=encoder,
            cache=Cache(cache or default_cache_folder()),
            fps=rate,
            progress=lambda stage, done, total: bar.update(tasks[stage], completed=done, total=total),
        )
    Console().print(escape(looked.why), soft_wrap=True)
    return looked


def look_at_corpus(
    query: Path, paths: Sequence[Path], *, model: Path | None, cache: Path | None, rate: float | None
) -> "tuple[Embedding, dict[Path, Embedding]]":
    """Look at a query, and with the same model at other videos; those that cannot be seen are named and left out."""
    looked = look_together([query], model=model, cache=cache, rate=rate)
    return looked.embeddings[0], look_at_others(paths, encoder=looked.encoder, cache=cache, rate=rate)


def look_at_others(
    paths: Sequence[Path], *, encoder: "Encoder", cache: Path | None, rate: float | None
) -> "dict[Path, Embedding]":
    """Look at many videos; those that cannot be seen are named and left out."""
    from inphase.models.embed_videos import embed_each
    from inphase.storage.cache import Cache, default_cache_folder

    with bars() as bar:
        tell = task_of(bar, f"looking at {len(paths)} videos")
        kept = Cache(cache or default_cache_folder())
        seen, failed = embed_each(
            paths, encoder=encoder, cache=kept, fps=rate, progress=lambda _, done, total: tell(done, total)
        )
    for reason in failed.values():
        Console(stderr=True).print(f"[yellow]left out: {escape(reason)}[/yellow]")
    if not seen:
        raise ValueError(f"none of {len(paths)} videos can be seen by {encoder.modality}: name others, or a --model")
    return seen


def view_command(out: Path) -> str:
    """Word the command that opens a folder, to be copied into a shell: print it with `soft_wrap`, as one line."""
    return f"inphase view {escape(shlex.quote(str(out)))}"


@contextmanager
def bars() -> Iterator[Progress]:
    """Show progress as text, bar, frames and the time that is left; on a terminal only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def task_of(bar: Progress, doing: str) -> Callable[[int, int], None]:
    """Add a bar and give the function that moves it."""
    task = bar.add_task(escape(doing), total=None)
    return lambda done, total: bar.update(task, completed=done, total=total)
