"""Commands for corpora of any number of videos: embed and align-all."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from inphase.cli.options import (
    CacheFolder,
    Device,
    Fps,
    Json,
    Modality,
    Model,
    Out,
    print_json,
    print_line,
    show_progress,
    warn_line,
)

if TYPE_CHECKING:
    from inphase.corpus.engines import Engine

Workers = Annotated[
    int | None, tyro.conf.arg(metavar="N", help="parallel processes or threads; by default one per core or GPU")
]
EngineName = Annotated[str, tyro.conf.arg(metavar="NAME", help="threads, processes or ray")]
Ray = Annotated[
    str | None,
    tyro.conf.arg(metavar="ADDRESS", help="use the Ray cluster at an address; auto: the one of this machine"),
]
# Names that are printed of a list that may be long.
MAX_NAMES = 5


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
    workers: Workers = None,
    engine: EngineName = "processes",
    ray: Ray = None,
    cache: CacheFolder = None,
    shard_videos: int = 32,
    json: Json = False,
) -> None:
    """Embed every frame of any number of videos into a store, for search and for `inphase align-all`.

    Stopped at any moment, the same command resumes. Unchanged videos are kept, changed ones embedded again. A video
    that cannot be read is recorded with the reason.

    Args:
        shard_videos: videos embedded between one save and the next.
    """
    from inphase.corpus.embed_corpus import embed_corpus

    with show_progress() as progress:
        result = embed_corpus(
            corpus,
            out,
            model=model,
            modality=modality,
            fps=fps,
            device=device,
            workers=workers,
            engine=_choose_engine(engine, ray, workers),
            cache=cache,
            shard_videos=shard_videos,
            progress=progress,
        )
    if json:
        return print_json(result)
    speed = f", {result.frames / result.seconds:,.0f} frames/s" if result.frames else ""
    counts = f"{result.changed:,} of them changed; {result.kept:,} kept; {result.failed:,} broken"
    print_line(f"{result.done:,} videos embedded ({result.frames:,} frames, {result.seconds:.1f} s{speed}), {counts}")
    for reason in list(result.broken.values())[:MAX_NAMES]:
        warn_line(f"broken: {reason}")
    if result.failed > MAX_NAMES:
        warn_line(f"and {result.failed - MAX_NAMES:,} more; the store has the reason of each")
    return print_line(str(out))


def align_all(
    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE", help="made by `inphase embed`")],
    *,
    out: Out = Path("out/align-all"),
    action: tuple[str, ...] = (),
    reference: str | None = None,
    max_compared: int = 2000,
    device: Device = "auto",
    workers: Workers = None,
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
    from inphase.corpus.align_corpus import align_corpus

    with show_progress() as progress:
        result = align_corpus(
            store,
            out,
            actions=action,
            reference=reference,
            max_compared=max_compared,
            device=device,
            workers=workers,
            engine=_choose_engine(engine, ray, workers),
            progress=progress,
        )
        result.write(out, progress=progress)
    if json:
        return print_json(result)
    for each in result.actions:
        speed = f"{each.pairs:,} pairs in {each.pair_seconds:.1f} s ({each.pairs_per_second:,.0f} pairs/s)"
        print_line(f"{each.action}: {each.videos:,} videos, reference {each.reference}; {speed}")
        if each.misfits:
            more = f" and {each.misfits - MAX_NAMES} more" if each.misfits > MAX_NAMES else ""
            names = ", ".join(id for id, _, _ in each.worst[:MAX_NAMES])
            print_line(f"  {each.misfits} do not fit: {names}{more}")
    return print_line(str(out / "report.html"))


def _choose_engine(name: str, ray: str | None, workers: int | None) -> "str | Engine":
    """Return the engine of a name, or the cluster at an address."""
    from inphase.corpus.engines import RayCluster

    return name if ray is None else RayCluster(ray, workers=workers)
