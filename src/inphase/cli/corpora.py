"""Commands for corpora of any number of videos, embed and align-all, and for data sets, `inphase data …`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.extras import SubcommandApp

from inphase.cli.options import (
    DEFAULT_LIMITS,
    CacheFolder,
    Device,
    Fps,
    Json,
    Limits,
    Modality,
    Model,
    Out,
    Workers,
    plain_help,
    print_line,
    print_table,
    run,
    show_progress,
)
from inphase.data import DATASETS

if TYPE_CHECKING:
    from inphase.corpus.engines import Engine


EngineWorkers = Annotated[
    int | None, tyro.conf.arg(metavar="N", help="parallel processes or threads; by default one per core or GPU")
]
EngineName = Annotated[str, tyro.conf.arg(metavar="NAME", help="threads, processes or ray")]
Ray = Annotated[
    str | None,
    tyro.conf.arg(metavar="ADDRESS", help="use the Ray cluster at an address; auto: the one of this machine"),
]


def embed(
    corpus: Annotated[
        tyro.conf.Positional[Path],
        tyro.conf.arg(
            metavar="CORPUS", help="a folder of videos, a sub-folder per action, or a .csv of path and action"
        ),
    ],
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="STORE", help="the store to fill")] = Path("out/embed"),
    model: Model = None,
    modality: Modality = "auto",
    fps: Fps = None,
    device: Device = "auto",
    workers: EngineWorkers = None,
    engine: EngineName = "processes",
    ray: Ray = None,
    cache: CacheFolder = None,
    shard_videos: int = 32,
    limits: Limits = DEFAULT_LIMITS,
    json: Json = False,
) -> None:
    """Embed every frame of any number of videos into a store, for search and for `inphase align-all`.

    Stopped at any moment, the same command resumes. Unchanged videos are kept, changed ones embedded again. A video
    that cannot be read is recorded with the reason.

    Args:
        shard_videos: videos embedded between one save and the next.
    """
    options = dict(locals())
    from inphase.corpus.embed_corpus import embed_corpus

    options["engine"] = _choose_engine(engine, options.pop("ray"), workers)
    run(embed_corpus, options.pop("corpus"), options.pop("out"), **options)


def align_all(
    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE", help="made by `inphase embed`")],
    *,
    out: Out = Path("out/align-all"),
    action: tuple[str, ...] = (),
    reference: str | None = None,
    max_compared: int = 2000,
    device: Device = "auto",
    workers: EngineWorkers = None,
    engine: EngineName = "threads",
    ray: Ray = None,
    json: Json = False,
) -> None:
    """Align every video of an action with one reference and all pairs with each other; show which do not fit.

    Writes report.html, with a page for every action, and for every action distances.npy, videos.csv and
    alignments.parquet, which has for each frame of the reference the second of the video that matches it.

    Args:
        action: actions to align; by default all.
        reference: the video to align with; by default the one with the least sum of distances to the others.
        max_compared: align all pairs of at most this many videos of an action, drawn at random if there are more.
    """
    options = dict(locals())
    from inphase.corpus.align_corpus import align_corpus

    options["engine"] = _choose_engine(engine, options.pop("ray"), workers)
    run(align_corpus, options.pop("store"), out, actions=options.pop("action"), **options, done="{out}/report.html")


def _choose_engine(name: str, ray: str | None, workers: int | None) -> "str | Engine":
    """Return the engine of a name, or the cluster at an address."""
    from inphase.corpus.engines import RayCluster

    return name if ray is None else RayCluster(ray, workers=workers)


commands = SubcommandApp()

Name = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME", help=f"one of {', '.join(DATASETS)}")]
Root = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="ROOT", help="the folder of the data set")]
OptionalRoot = Annotated[
    tyro.conf.Positional[Path | None],
    tyro.conf.arg(metavar="ROOT", help="the folder of the data set; the stage is drawn if there is none"),
]
Store = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE", help="the folder to write")]
Split = Annotated[str, tyro.conf.arg(help="train, val, test or all")]

MAX_LISTED_ACTIONS = 30


@commands.command(name="check")
@plain_help
def check_data(name: Name, root: OptionalRoot = None, *, open: bool = False) -> None:
    """Examine a data set: videos, frames, actions, splits, and missing or broken files.

    Args:
        open: open every file and count its frames.
    """
    from inphase.data.check import check
    from inphase.data.frame_source import find_loader
    from inphase.data.video import file_length

    report = check(find_loader(name, root), root, name=name, frame_count=file_length if open else None)
    columns, rows = report.count_table(max_actions=MAX_LISTED_ACTIONS)
    title = f"{report.name} · {report.root or 'drawn'}"
    print_table(title, (columns[0], *(f">{name}" for name in columns[1:])), rows)
    print_line(f"labels: {', '.join(f'{kind} ({n:,})' for kind, n in report.labels.items()) or 'none'}")
    if report.findings:
        print_table("findings", ("", "finding", "fix"), [(each.kind, each.what, each.fix) for each in report.findings])
    else:
        print_line(f"Nothing is missing or broken.{'' if report.opened else ' No file was opened.'}")
    sys.exit(0 if report.whole else 1)


@commands.command(name="show")
@plain_help
def show_data(
    name: Name,
    root: OptionalRoot = None,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="IMAGE", help="the image to write")] = Path("out/data/sheet.png"),
    split: Split = "all",
    action: str = "",
    rows: int = 8,
    columns: int = 10,
) -> None:
    """Draw a contact sheet with phases.

    Args:
        action: only videos of this action.
        rows: how many videos.
        columns: how many frames of each.
    """
    from inphase.data.contact_sheet import write_contact_sheet
    from inphase.data.frame_source import find_loader

    videos = find_loader(name, root)(root, split=split)
    found = [video for video in videos if action in ("", video.action)]
    if not found:
        known = ", ".join(sorted({video.action for video in videos})) or "none"
        raise ValueError(f"no video of action {action!r} in split {split!r}; actions there: {known}")
    write_contact_sheet(out, found, rows=rows, columns=columns)
    print_line(f"{min(rows, len(found))} of {len(found)} videos → {out}")


@commands.command(name="cache")
@plain_help
def cache_data(
    name: Name,
    root: Root,
    store: Store,
    *,
    size: tuple[int, int] = (224, 224),
    split: Split = "all",
    workers: Workers = 1,
    limits: Limits = DEFAULT_LIMITS,
    json: Json = False,
) -> None:
    """Decode and resize a data set once, for training without a codec; an interrupted run is resumed.

    Args:
        size: height and width of the images.
    """
    from inphase.data.frame_source import list_sources
    from inphase.media.frame_store import fill_store

    sources = list_sources(name, root, split=split)
    run(fill_store, store, sources, size=size, workers=workers, limits=limits, json=json)


@commands.command(name="pose")
@plain_help
def pose_data(
    name: Name,
    root: Root,
    store: Store,
    *,
    estimator: str = "blazepose",
    complexity: int | None = None,
    split: Split = "all",
    workers: Workers = 1,
    limits: Limits = DEFAULT_LIMITS,
    cache: CacheFolder = None,
    json: Json = False,
) -> None:
    """Estimate the pose of the person in every video of a data set, once; an interrupted run is resumed.

    Poses are written to a folder of their own in the store, beside the frames if it has some.

    Args:
        estimator: the pose estimator, by name or as an import path package.module:Class.
        complexity: an option of blazepose: the size of its network, 0 to 2; 1 is installed, the others are downloaded.
    """
    from inphase.data.frame_source import list_sources
    from inphase.pose.pose_store import fill_poses
    from inphase.storage.cache import Cache, default_cache_folder

    sources, kept = list_sources(name, root, split=split), Cache(cache or default_cache_folder())
    options = {} if complexity is None else {"complexity": complexity}
    how: dict[str, Any] = {"estimator": estimator, "options": options, "workers": workers, "limits": limits}
    run(fill_poses, store, sources, cache=kept, json=json, **how)


@commands.command(name="verify")
@plain_help
def verify_data(
    store: Annotated[
        tyro.conf.Positional[Path],
        tyro.conf.arg(metavar="STORE", help="a store of frames, poses or embeddings, a run folder or a cache"),
    ],
    *,
    json: Json = False,
) -> None:
    """Read all files of a store, a run folder or a cache, and name each that changed since it was written.

    Changes nothing. Exits with 1 if a file is damaged.
    """
    from inphase.corpus.verify_store import verify_store

    sys.exit(0 if run(verify_store, store, json=json).whole else 1)


@commands.command(name="stage")
@plain_help
def write_stage(
    root: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="ROOT", help="the folder to write")],
    *,
    split: Split = "all",
    actions: tuple[str, ...] = (),
    videos: int = 20,
    level: str = "medium",
    size: int = 128,
    seed: int = 0,
) -> None:
    """Write the procedural data set as mp4 files with sound and labels; an interrupted run is resumed.

    Args:
        actions: which actions; all by default.
        videos: how many of each action and split.
        level: plain, medium or hard.
        size: height and width of the images.
        seed: another seed draws other people.
    """
    options = dict(locals()) | {"actions": actions or None}
    from inphase.data import stage_videos

    with show_progress() as progress:
        new, kept = stage_videos.write(options.pop("root"), **options, progress=progress)
    print_line(f"{new + kept:,} videos in {root} ({new:,} new)")
