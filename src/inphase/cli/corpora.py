"""Commands for corpora of any number of videos: embed and align-all."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

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
    run,
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
    options = dict(locals())
    from inphase.corpus.align_corpus import align_corpus

    options["engine"] = _choose_engine(engine, options.pop("ray"), workers)
    run(align_corpus, options.pop("store"), out, actions=options.pop("action"), **options, done="{out}/report.html")


def _choose_engine(name: str, ray: str | None, workers: int | None) -> "str | Engine":
    """Return the engine of a name, or the cluster at an address."""
    from inphase.corpus.engines import RayCluster

    return name if ray is None else RayCluster(ray, workers=workers)
