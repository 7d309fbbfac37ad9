"""`inphase data …`: look at collections of videos and prepare them."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from PIL import Image
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table
from tyro.extras import SubcommandApp

from inphase.data import DATASETS, stage_videos
from inphase.data.check import DataReport, check
from inphase.data.contact_sheet import choose, draw_contact_sheet
from inphase.data.reading import file_length, measured_length, read_pictures, sources
from inphase.data.recipe_tables import find_loader
from inphase.data.video import summarise
from inphase.media.frame_store import FillSummary, Source, fill_store
from inphase.pose.pose_store import fill_poses
from inphase.storage.cache import Cache, default_cache_folder
from inphase.storage.files import atomic_write

commands = SubcommandApp()

Name = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME", help=f"one of {', '.join(DATASETS)}")]
Root = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="ROOT", help="the folder it lies in")]
RootIfAny = Annotated[
    tyro.conf.Positional[Path | None],
    tyro.conf.arg(metavar="ROOT", help="the folder it lies in; the stage is drawn where there is none"),
]
Store = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE", help="the folder to write")]

_MOST_ACTIONS = 30


@commands.command(name="check")
def check_data(name: Name, root: RootIfAny = None, *, open: bool = False) -> None:
    """Examine a collection: videos, frames, classes, splits, and what is missing or broken.

    Args:
        name: which collection.
        root: where it lies.
        open: open every file and count its frames as well.
    """
    report = check(find_loader(name, root), root, name=name, frame_count=file_length if open else None)
    console = Console()
    console.print(_counts_table(report))
    if report.findings:
        console.print(_findings_table(report))
    else:
        seen = "" if report.opened else " No file was opened."
        console.print(f"[green]Nothing is missing or broken.[/green]{seen}")
    sys.exit(0 if report.whole else 1)


@commands.command(name="show")
def show_data(
    name: Name,
    root: RootIfAny = None,
    *,
    out: Path = Path("sheet.png"),
    split: str = "all",
    action: str = "",
    rows: int = 8,
    columns: int = 10,
) -> None:
    """Draw a contact sheet with phases.

    Args:
        name: which collection.
        root: where it lies.
        out: the picture to write.
        split: train, val, test or all.
        action: only videos of this action.
        rows: how many videos.
        columns: how many frames of each.
    """
    if rows < 1 or columns < 1:
        raise ValueError(f"a sheet needs --rows and --columns of at least 1, got {rows} and {columns}")
    if Image.registered_extensions().get(out.suffix.lower()) not in Image.SAVE:
        raise ValueError(f"{out} is not named as a picture: let it end in .png or .jpg")
    videos = find_loader(name, root)(root, split=split)
    found = [video for video in videos if action in ("", video.action)]
    if not found:
        known = ", ".join(sorted({video.action for video in videos})) or "none"
        raise ValueError(f"no video of action {action!r} in split {split!r}; actions there: {known}")
    sheet = draw_contact_sheet(
        choose(found, rows=rows), columns=columns, read=read_pictures, frame_count=measured_length
    )
    with atomic_write(out) as part:
        sheet.save(part)
    Console().print(f"{min(rows, len(found))} of {len(found)} videos → {escape(str(out))}")


@commands.command(name="cache")
def cache_data(
    name: Name, root: Root, store: Store, *, size: tuple[int, int] = (224, 224), split: str = "all", workers: int = 0
) -> None:
    """Decode and resize a collection once, so that training needs no codec; what is interrupted is resumed.

    Args:
        name: which collection.
        root: where it lies.
        store: the folder to write.
        size: height and width of the pictures.
        split: train, val, test or all.
        workers: processes that decode side by side; 0 decodes in this one.
    """
    fill_behind_bar(
        store, _sources(name, root, split=split), "decoding", partial(fill_store, size=size, workers=workers)
    )


@commands.command(name="pose")
def pose_data(
    name: Name, root: Root, store: Store, *, complexity: int = 1, split: str = "all", workers: int = 0
) -> None:
    """Find the joints of the person in every video of a collection, once; what is interrupted is resumed.

    Args:
        name: which collection.
        root: where it lies.
        store: the folder to write: poses go into a folder of their own in it, beside the frames where it has some.
        complexity: the size of MediaPipe's network, 0 to 2; 1 is installed, the others are downloaded.
        split: train, val, test or all.
        workers: processes that work side by side; 0 works in this one.
    """
    wanted = _sources(name, root, split=split)
    fill = partial(fill_poses, complexity=complexity, workers=workers, cache=Cache(default_cache_folder()))
    fill_behind_bar(store, wanted, "following people", fill)


def fill_behind_bar(
    store: Path, wanted: dict[str, Source], doing: str, fill: Callable[..., FillSummary]
) -> FillSummary:
    """Fill a store behind a progress bar and say what it holds now."""
    console = Console()
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(doing, total=len(wanted))
        filled = fill(store, wanted, progress=lambda *_: bar.advance(task))
    _print_filled(console, filled, store)
    return filled


def _sources(name: str, root: Path, *, split: str) -> dict[str, Source]:
    """List what there is to cache of a collection."""
    wanted = sources(find_loader(name, root)(root, split=split))
    if not wanted:
        raise ValueError(f"{name} in {root} has no video files: there is nothing to cache")
    return wanted


def _print_filled(console: Console, filled: FillSummary, store: Path) -> None:
    """Say what a store holds now, and what it could not."""
    console.print(
        f"{filled.written + filled.kept:,} videos, {filled.frames:,} frames in {escape(str(store))} "
        f"({filled.written:,} new); {len(filled.broken):,} broken, {len(filled.damaged):,} damaged"
    )
    for kind, found in (("broken", filled.broken), ("damaged", filled.damaged)):
        if found:
            console.print(f"[yellow]{kind}[/yellow] {escape(summarise(found.values()))}")


@commands.command(name="stage")
def write_stage(
    root: Root,
    *,
    split: str = "all",
    actions: tuple[str, ...] = (),
    videos: int = 20,
    level: str = "medium",
    size: int = 128,
    seed: int = 0,
) -> None:
    """Write the procedural set as mp4 files with sound and labels; what is interrupted is resumed.

    Args:
        root: the folder to write.
        split: train, val, test or all.
        actions: which actions; all of them where none is named.
        videos: how many of each action and split.
        level: plain, medium or hard.
        size: height and width of the pictures.
        seed: another seed, other people.
    """
    console = Console()
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("drawing")
        new, kept = stage_videos.write(
            root,
            split=split,
            actions=actions or None,
            videos=videos,
            level=level,
            size=size,
            seed=seed,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    console.print(f"{new + kept:,} videos in {escape(str(root))} ({new:,} new)")


def _counts_table(report: DataReport) -> Table:
    """Tabulate videos and frames by action and split."""
    splits = [split for split in ("train", "val", "test") if any(split == found for _, found in report.videos)]
    table = Table(
        title=f"{report.name} · {escape(str(report.root or 'drawn'))}", show_footer=True, title_justify="left"
    )
    table.add_column("action", footer=f"{len(report.actions)} action{'s' * (len(report.actions) != 1)}")
    for split in splits:
        footer = f"{sum(number for (_, found), number in report.videos.items() if found == split):,}"
        table.add_column(split, justify="right", footer=footer)
    table.add_column("videos", justify="right", footer=f"{report.videos.total():,}")
    table.add_column("frames", justify="right", footer=f"{report.frames.total():,}" if report.frames.total() else "?")
    for action in report.actions[:_MOST_ACTIONS]:
        counts = [report.videos[action, split] for split in splits]
        frames = f"{report.frames[action]:,}" if report.frames[action] else "?"
        table.add_row(escape(action), *(f"{count:,}" for count in (*counts, sum(counts))), frames)
    if len(report.actions) > _MOST_ACTIONS:
        table.add_row(f"[dim]and {len(report.actions) - _MOST_ACTIONS} more[/dim]")
    labels = [f"{kind} ({number:,})" for kind, number in report.labels.items()]
    table.caption = f"labels: {', '.join(labels) or 'none'}"
    table.caption_justify = "left"
    return table


def _findings_table(report: DataReport) -> Table:
    """Tabulate what was found and what to do."""
    colours = {"missing": "yellow", "broken": "red", "remark": "cyan"}
    table = Table(show_lines=True)
    for heading in ("", "what was found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in report.findings:
        kind = f"[{colours[finding.kind]}]{finding.kind}[/]"
        table.add_row(kind, escape(finding.what), escape(finding.fix))
    return table
