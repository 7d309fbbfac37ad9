"""A job: a few videos that become one shard.

Whoever does it, on whichever machine and however often, writes that shard and no other: what was done twice is there
once.
"""
# MERGED: Embed a corpus into a store: what is missing, what changed, and nothing else.

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from inphase.corpus.compaction import LARGE, compact
from inphase.corpus.embed_job import (
    EmbedJob,
    EmbedJobResult,
    EmbedSettings,
    give_up,
    path_text,
    run_embed_job,
    stamp_of,
)
from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.processes import run_here
from inphase.media.listing import ListedVideo, list_videos
from inphase.models import Encoder, save_encoder
from inphase.models.modality import require_video_encoder
from inphase.models.weights import fingerprint
from inphase.storage.cache import content_hash, default_cache_folder
from inphase.storage.errors import MediaError
from inphase.storage.files import atomic_write, exclusive_lock, explain_os_errors

# Videos in a shard before shards are merged: what a killed process loses, at most.
VIDEOS = 32

Engine = Callable[[Iterable[EmbedJob], EmbedSettings], Iterator[EmbedJobResult]]


@dataclass
class EmbedSummary:
    """What embedding a corpus came to so far; `broken` maps the first thousand ids to reasons."""

    kept: int = 0
    new: int = 0
    changed: int = 0
    done: int = 0
    frames: int = 0
    failed: int = 0
    broken: dict[str, str] = field(default_factory=dict)


Tell = Callable[[EmbedSummary], None]


def embed_corpus(
    corpus: Path,
    out: Path,
    encoder: Encoder,
    *,
    engine: Engine,
    device: str = "cpu",
    rate: float | None = None,
    cache: Path | None = None,
    videos: int = VIDEOS,
    threads: int = 1,
    side_by_side: int = 1,
    merged: int = LARGE,
    progress: Tell | None = None,
) -> EmbedSummary:
    """Bring a store up to a corpus, with an engine that does jobs; killed at any moment, the next run goes on.

    A video counts as done where the store has it by the same model from the same contents: its size and time of
    modification say so, or failing that the hash of its contents. One that is broken is recorded with the reason, and
    tried again when its file changes. Corpora are embedded into one store side by side, each by one process at a time.
    Shards are merged into files of about `merged` bytes. Memory: a job's names, and what the engine's processes hold.
    """
    if videos < 1:
        raise ValueError(f"a shard has at least 1 video, got {videos}")
    require_video_encoder(encoder)
    came = EmbedSummary()
    with EmbeddingStore(out, create=True) as store:
        model = _model(encoder, rate)
        writer = hashlib.blake2b(os.fsencode(corpus.resolve()), digest_size=8).hexdigest()
        with exclusive_lock(out / "writers" / writer, doing=f"embedding {corpus} into"):
            _keep_encoder(store, encoder, model, rate)
            settings = EmbedSettings(
                out,
                store.encoder_file(model),
                model,
                device=device,
                rate=rate,
                cache=cache or default_cache_folder(),
                threads=threads,
                side_by_side=side_by_side,
            )
            for done in engine(_jobs(_missing(list_videos(corpus), store, model, came), videos=videos), settings):
                came.done += done.videos
                came.frames += done.frames
                came.failed += len(done.broken)
                if len(came.broken) < 1000:
                    came.broken |= done.broken
                if progress is not None:
                    progress(came)
        store.refresh()
        compact(store, large=merged)
    return came


def here(*, workers: int) -> Engine:
    """Do jobs in processes of this machine; 0: in this one."""

    def run(jobs: Iterable[EmbedJob], settings: EmbedSettings) -> Iterator[EmbedJobResult]:
        work = partial(run_embed_job, settings=settings)
        return run_here(jobs, work=work, give_up=partial(_give_up, settings=settings), workers=workers)

    return run


def _give_up(job: EmbedJob, reason: str, *, settings: EmbedSettings) -> EmbedJobResult:
    return give_up(job, settings, reason)


def _model(encoder: Encoder, rate: float | None) -> str:
    """Name what decides an embedding beside the video: the encoder, and how many frames a second it looks at."""
    network = fingerprint(encoder)
    return network if rate is None else hashlib.blake2b(f"{network} {rate}".encode(), digest_size=16).hexdigest()


def _keep_encoder(store: EmbeddingStore, encoder: Encoder, model: str, rate: float | None) -> None:
    """Copy the encoder into the store: search needs it for queries, and machines of a cluster find it there."""
    file = store.encoder_file(model)
    if not file.exists():
        with explain_os_errors(store.folder):
            file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(store.rate_file(model)) as part:
            part.write_text(json.dumps(rate))
        save_encoder(file, encoder)


def _missing(
    listed: Iterable[ListedVideo], store: EmbeddingStore, model: str, came: EmbedSummary
) -> Iterator[ListedVideo]:
    """Choose the videos that the store lacks, has by another model, or has from other contents."""
    for video in listed:
        if not store.catalogue.plan(video):
            continue
        fact = store.catalogue.find(video.id)
        if fact is None:
            came.new += 1
            yield video
            continue
        if fact.path != path_text(video.path) and Path(fact.path).exists():
            raise ValueError(
                f"{video.id} is {fact.path} in {store.folder} already, and not {video.path}: embed one of the two "
                "corpora into another store, or rename its folder"
            )
        stamp = stamp_of(video)
        if fact.model == model and store.catalogue.stamp_of(fact) == stamp:
            came.kept += 1
        elif fact.model == model and fact.content and _same_contents(video, fact.content):
            store.catalogue.restamp(video.id, content=fact.content, stamp=stamp)
            came.kept += 1
        else:
            came.changed += 1
            yield video


def _same_contents(video: ListedVideo, content: str) -> bool:
    try:
        return content_hash(video.path) == content
    except (MediaError, OSError):
        return False


def _jobs(videos_to_do: Iterable[ListedVideo], *, videos: int) -> Iterator[EmbedJob]:
    """Cut videos into jobs. The names of their shards begin with the time: what is written later counts."""
    run = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
    together: list[ListedVideo] = []
    number = 0
    for video in videos_to_do:
        together.append(video)
        if len(together) == videos:
            yield EmbedJob(f"{run}-{number:06d}", tuple(together))
            together, number = [], number + 1
    if together:
        yield EmbedJob(f"{run}-{number:06d}", tuple(together))
