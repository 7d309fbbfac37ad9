"""A job: a few videos that become one shard.

Whoever does it, on whichever machine and however often, writes that shard and no other: what was done twice is there
once.
"""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch

from inphase.corpus.shards import ShardRow, write_shard
from inphase.media.frame_store import Source, identify
from inphase.media.listing import ListedVideo
from inphase.models import Encoder, load_encoder
from inphase.models.embed_videos import embed_video
from inphase.storage.cache import Cache, content_hash
from inphase.storage.errors import MediaError


@dataclass(frozen=True)
class EmbedSettings:
    """How videos are embedded: everything a process on another machine has to know, given a shared folder."""

    store: Path
    encoder: Path
    model: str  # the fingerprint
    device: str = "cpu"
    rate: float | None = None
    cache: Path | None = None
    threads: int = 1  # of torch
    side_by_side: int = 1  # videos looked at in one process


@dataclass(frozen=True)
class EmbedJob:
    """The videos of one shard."""

    shard: str
    videos: tuple[ListedVideo, ...]


@dataclass(frozen=True)
class EmbedJobResult:
    """What a job came to."""

    shard: str
    videos: int
    frames: int
    broken: dict[str, str] = field(default_factory=dict)


def run_embed_job(job: EmbedJob, settings: EmbedSettings) -> EmbedJobResult:
    """Embed the videos of a job and write their shard. The encoder is loaded once a process."""
    torch.set_num_threads(settings.threads)
    return embed_job(job, settings, _loaded(settings.encoder, settings.device))


@lru_cache(maxsize=1)
def _loaded(file: Path, device: str) -> Encoder:
    return load_encoder(file, device=device)


def embed_job(job: EmbedJob, settings: EmbedSettings, encoder: Encoder) -> EmbedJobResult:
    """Embed the videos of a job with an encoder and write their shard, holding no more than a few of them."""
    broken: dict[str, str] = {}
    frames = 0

    def noted() -> Iterator[ShardRow]:
        nonlocal frames
        for row in _rows(job, settings, encoder):
            frames += 0 if row.embedding is None else len(row.embedding)
            broken.update({row.id: row.reason} if row.reason else {})
            yield row

    write_shard(settings.store / "shards", job.shard, noted())
    return EmbedJobResult(job.shard, len(job.videos), frames, broken)


def give_up(job: EmbedJob, settings: EmbedSettings, reason: str) -> EmbedJobResult:
    """Record the videos of a job as broken, for a reason that no process survived to tell."""
    rows = [
        ShardRow(video.id, video.path, video.action, "", stamp_of(video), settings.model, None, reason)
        for video in job.videos
    ]
    write_shard(settings.store / "shards", job.shard, rows)
    return EmbedJobResult(job.shard, len(rows), 0, {row.id: row.reason for row in rows})


def stamp_of(video: ListedVideo) -> str:
    """Name the file of a video by its size and time of modification; nothing where it cannot be read."""
    return identify(Source(Path(video.path)))


def _rows(job: EmbedJob, settings: EmbedSettings, encoder: Encoder) -> Iterator[ShardRow]:
    """Embed the videos in order, some side by side: one is decoded while the network sees another."""
    with ThreadPoolExecutor(settings.side_by_side) as pool:
        waiting: deque[Future[ShardRow]] = deque()
        try:
            for video in job.videos:
                if len(waiting) > settings.side_by_side:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(_row, video, settings, encoder))
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _row(video: ListedVideo, settings: EmbedSettings, encoder: Encoder) -> ShardRow:
    """Embed one video, or say why that is impossible; a file that changes meanwhile is seen again the next time."""
    path, stamp = Path(video.path), stamp_of(video)
    content, reason, embedding = "", "", None
    try:
        _require_text(video)
        content = content_hash(path)
        embedding = embed_video(encoder, path, cache=Cache(settings.cache), fps=settings.rate)
        if stamp_of(video) != stamp:
            stamp = ""
    except (MediaError, ValueError) as error:
        reason = str(error)
    except OSError as error:  # a disk or a network that fails: nothing is known of the video, which is tried again
        reason, stamp = f"{path_text(video.path)} cannot be read: {error.strerror or error}", ""
    return ShardRow(video.id, path_text(video.path), video.action, content, stamp, settings.model, embedding, reason)


def path_text(path: str) -> str:
    """Spell out the bytes of a path that are no text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _require_text(video: ListedVideo) -> None:
    if path_text(video.path) != video.path:
        raise MediaError(f"{path_text(video.path)}: its name is not text in UTF-8: rename it")
