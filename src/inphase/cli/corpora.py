"""Commands for corpora of any number of videos, embed and align-all, and for data sets, `inphase data …`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from inphase.cli.options import DEFAULT_LIMITS, CacheFolder, Device, Fps, Limits, Modality, Model, Out, Workers, run

if TYPE_CHECKING:
    from inphase.corpus.engines import Engine

EngineWorkers = Annotated[int | None, arg(metavar="N", help="processes or threads; default: one per core or GPU")]
EngineName = Annotated[str, arg(metavar="NAME", help="threads, processes or ray")]
Ray = Annotated[str | None, arg(metavar="ADDRESS", help="a Ray cluster's address; auto: this machine's cluster")]
CORPUS_HELP = "a folder of videos, a sub-folder per action, or a .csv of path and action"


def embed(
    corpus: Annotated[Positional[Path], arg(metavar="CORPUS", help=CORPUS_HELP)],
    *,
    out: Annotated[Path, arg(metavar="STORE", help="the store to fill")] = Path("out/embed"),
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
) -> None:
    """Embed every frame of any number of videos into a store, for search and for `inphase align-all`.

    Stopped at any moment, the same command resumes. Unchanged videos are kept, changed ones embedded again. A video
    that cannot be read is recorded with the reason.

    Args:
        shard_videos: how many videos are saved together, as one file of the store.
    """
    options = dict(locals())
    options["engine"] = _choose_engine(engine, options.pop("ray"), workers)
    run("embed_corpus", options.pop("corpus"), options.pop("out"), **options)


def align_all(
    store: Annotated[Positional[Path], arg(metavar="STORE", help="made by `inphase embed`")],
    *,
    out: Out = Path("out/align-all"),
    action: tuple[str, ...] = (),
    reference: str | None = None,
    max_compared: int = 2000,
    device: Device = "auto",
    workers: EngineWorkers = None,
    engine: EngineName = "threads",
    ray: Ray = None,
) -> None:
    """Align every video of an action with one reference, and all pairs; list the videos that do not fit.

    Writes report.html, with a page for every action, and for every action distances.npy, videos.csv and
    alignments.parquet, which has for each frame of the reference the second of the video that matches it.

    Args:
        action: actions to align; by default all.
        reference: the video to align with; by default the one with the least sum of distances to the others.
        max_compared: align all pairs of at most this many videos of an action, drawn at random if there are more.
    """
    options = dict(locals())
    options["engine"] = _choose_engine(engine, options.pop("ray"), workers)
    options |= {"actions": options.pop("action"), "done": "{out}/report.html"}
    run("align_corpus", options.pop("store"), out, **options)


def _choose_engine(name: str, ray: str | None, workers: int | None) -> "str | Engine":
    """Return the engine of a name, or the cluster at an address."""
    from inphase.corpus.engines import RayCluster

    return name if ray is None else RayCluster(ray, workers=workers)


_FIRST = ("events", "finegym", "folder", "golfdb", "keypoints", "knot_tying", "lsa64_signs")
DATASET_NAMES = (*_FIRST, "penn_action", "pouring", "ski_jump_poses", "stage", "utd_mhad", "vggsound")
Name = Annotated[Positional[str], arg(metavar="NAME", help=f"one of {', '.join(DATASET_NAMES)}")]
Root = Annotated[Positional[Path], arg(metavar="ROOT", help="the folder of the data set")]
OptionalRoot = Annotated[Positional[Path | None], arg(metavar="ROOT", help="its folder; the stage needs none")]
Store = Annotated[Positional[Path], arg(metavar="STORE", help="the folder to write")]
Split = Annotated[str, arg(help="train, val, test or all")]


def data_check(name: Name, root: OptionalRoot = None, *, open: bool = False) -> None:
    """Examine a data set: videos, frames, actions, splits, and missing or broken files.

    Args:
        open: open every file and count its frames.
    """
    from inphase.data.check import check
    from inphase.data.frame_source import find_loader
    from inphase.data.video import file_length

    run(check, find_loader(name, root), root, name=name, frame_count=file_length if open else None)


def data_show(
    name: Name,
    root: OptionalRoot = None,
    *,
    out: Annotated[Path, arg(metavar="IMAGE", help="the image to write")] = Path("out/data/sheet.png"),
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
    options = dict(locals())
    from inphase.data.contact_sheet import show_dataset

    run(show_dataset, options.pop("name"), options.pop("root"), file=options.pop("out"), **options)


def data_cache(
    name: Name,
    root: Root,
    store: Store,
    *,
    size: tuple[int, int] = (224, 224),
    split: Split = "all",
    labels: tuple[int, ...] = (),
    unit: tuple[str, ...] = (),
    workers: Workers = 1,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Decode and resize a data set once, for training without a codec; an interrupted run is resumed.

    Args:
        size: height and width of the images.
        labels: the label sets of FineGym, 99, 101, 288, 290; one store holds several.
        unit: event or element, of FineGym: whole events, the original clips, or both.
    """
    from inphase.data.frame_source import list_files, sources
    from inphase.media.frame_store import fill_store

    options = {key: list(values) for key, values in (("labels", labels), ("unit", unit)) if values}
    found = sources(list_files(name, root, split=split, options=options))
    run(fill_store, store, found, size=size, workers=workers, limits=limits)


def data_pose(
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
) -> None:
    """Estimate the pose of the person in every video of a data set, once; an interrupted run is resumed.

    Poses are written to a folder of their own in the store, beside the frames if it has some.

    Args:
        estimator: the pose estimator, by name or as an import path package.module:Class.
        complexity: an option of blazepose: the size of its network, 0 to 2; 1 is installed, the others are downloaded.
    """
    from inphase.data.frame_source import list_files, pose_sources
    from inphase.pose.pose_store import fill_poses
    from inphase.storage.cache import Cache, default_cache_folder

    sources, kept = pose_sources(list_files(name, root, split=split)), Cache(cache or default_cache_folder())
    how: dict[str, Any] = {"options": {} if complexity is None else {"complexity": complexity}, "limits": limits}
    run(fill_poses, store, sources, estimator=estimator, workers=workers, cache=kept, **how)


def data_verify(store: Annotated[Positional[Path], arg(metavar="STORE", help="a store, run folder or cache")]) -> None:
    """Read all files of a store, a run folder or a cache, and name each that changed since it was written.

    Changes nothing. Exits with 1 if a file is damaged.
    """
    run("verify_store", store)


def data_stage(
    root: Annotated[Positional[Path], arg(metavar="ROOT", help="the folder to write")],
    *,
    split: Split = "all",
    actions: tuple[str, ...] = (),
    videos: int = 20,
    level: str = "medium",
    size: int = 128,
    seed: int = 0,
) -> None:
    """Write the drawn data set as mp4 files with sound and labels; an interrupted run is resumed.

    Args:
        actions: which actions; all by default.
        videos: how many of each action and split.
        level: plain, medium or hard.
        size: height and width of the images.
        seed: another seed draws other people.
    """
    options = dict(locals()) | {"actions": actions or None}
    from inphase.data import stage_videos

    run(stage_videos.write, options.pop("root"), **options)
