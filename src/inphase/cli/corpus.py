"""`inphase embed` and `inphase align-all`: corpora of any number of videos."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.looking import Rate, bars

if TYPE_CHECKING:
    from inphase.corpus.embed_corpus import EmbedSummary

Corpus = Annotated[
    tyro.conf.Positional[Path],
    tyro.conf.arg(metavar="CORPUS", help="a folder of videos, a sub-folder per action, or a .csv of path and action"),
]
StoreFolder = Annotated[Path, tyro.conf.arg(metavar="STORE", help="the folder to fill")]
RunFolder = Annotated[
    Path | None,
    tyro.conf.arg(metavar="RUN", help="a run folder or an encoder's file; without one, the model of poses that ships"),
]
Ray = Annotated[
    str | None,
    tyro.conf.arg(metavar="ADDRESS", help="work on the Ray cluster there; auto: the one this machine belongs to"),
]


def embed(
    corpus: Corpus,
    *,
    out: StoreFolder,
    model: RunFolder = None,
    workers: int | None = None,
    ray: Ray = None,
    rate: Rate = None,
    device: str = "auto",
    cache: Path | None = None,
    shard_videos: int = 32,
) -> None:
    """Embed every frame of any number of videos into a store, for search and for `inphase align-all`.

    Stopped at any moment, the same command goes on; what is there already is kept, and a changed video or model is
    noticed. A video that cannot be read is recorded with the reason.

    Args:
        corpus: the videos.
        out: the store.
        model: what to see videos with.
        workers: processes on this machine; one for every core, or one for a GPU, where nothing is said; 0: this one.
        ray: where a Ray cluster is.
        rate: frames a second to look at.
        device: where the network runs on this machine: auto, cpu or cuda.
        cache: folder for poses and embeddings that other commands reuse; ~/.cache/inphase by default.
        shard_videos: videos embedded between one save and the next.
    """
    from inphase.corpus.embed_corpus import embed_corpus, here
    from inphase.media.listing import list_videos
    from inphase.models import load_encoder, load_shipped
    from inphase.models.encoder import choose_device

    encoder = load_shipped("pose") if model is None else load_encoder(model)
    device = choose_device(device)
    cores = os.cpu_count() or 1
    workers = workers if workers is not None else (1 if device == "cuda" else cores)
    if workers < 0:
        raise ValueError(f"--workers must be at least 0, got {workers}")
    if ray is None:
        engine = here(workers=workers)
    else:
        from inphase.corpus.cluster import on_cluster

        engine = on_cluster(ray)
    total = sum(1 for _ in list_videos(corpus))
    if not total:
        raise ValueError(f"no videos in {corpus}: name a folder of them, or a .csv table")
    began = time.perf_counter()
    with bars() as bar:
        task = bar.add_task(f"embedding {escape(corpus.name)}", total=total)

        def tell(came: "EmbedSummary") -> None:
            bar.update(task, completed=came.kept + came.done)

        came = embed_corpus(
            corpus,
            out,
            encoder,
            engine=engine,
            device=device,
            rate=rate,
            cache=cache,
            videos=shard_videos,
            threads=max(1, cores // max(1, workers)),
            side_by_side=cores if device == "cuda" else 1,
            progress=tell,
        )
    _say(came, out, seconds=time.perf_counter() - began)


def _say(came: "EmbedSummary", out: Path, *, seconds: float) -> None:
    """Tell what embedding came to."""
    console = Console()
    speed = f", {came.frames / seconds:,.0f} frames/s" if came.frames else ""
    console.print(
        f"[green]{came.done:,} videos embedded[/green] ({came.frames:,} frames, {seconds:.1f} s{speed}), "
        f"{came.changed:,} of them changed; {came.kept:,} kept; {came.failed:,} broken → {escape(str(out))}",
        soft_wrap=True,
    )
    for reason in list(came.broken.values())[:5]:
        console.print(f"[yellow]broken:[/yellow] {escape(reason)}", soft_wrap=True)
    if came.failed > 5:
        console.print(f"[yellow]and {came.failed - 5:,} more; the store has the reason of each[/yellow]")
