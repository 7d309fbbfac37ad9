"""Embed the videos of a corpus into a store: the missing and the changed ones, in jobs of one shard each.

A job writes its own shard and no other, so that a job done twice, on whichever machine, leaves one result.
"""

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inphase.corpus.embedding_store import SHARD_BYTES, EmbeddingStore
from inphase.corpus.engines import Engine, map_in_threads, open_engine
from inphase.corpus.shards import ShardRow, write_shard
from inphase.media.frame_store import Source, identify
from inphase.media.listing import ListedVideo, list_videos
from inphase.models import Encoder, load_encoder, save_encoder
from inphase.models.embed_videos import Model, choose_shipped, embed_video, open_encoder
from inphase.models.encoder import ModalityChoice, image_precision
from inphase.models.modality import require_video_encoder
from inphase.models.weights import fingerprint
from inphase.progress import Progress, Summary, stage_progress
from inphase.storage.cache import Cache, content_hash, default_cache_folder
from inphase.storage.errors import MediaError, MissingExtraError, describe_error
from inphase.storage.files import atomic_write, exclusive_lock, explain_os_errors, scratch_folder, write_table
from inphase.storage.processes import (
    DEFAULT_LIMITS,
    FATAL,
    VideoLimits,
    WorkerDied,
    count_crashes,
    limited,
    mark_of,
    this_process,
    timed_out,
)

# Videos in a shard before shards are merged: a killed process loses the work on one shard, at most.
SHARD_VIDEOS = 32
# Broken videos whose reasons are returned; the store has the reason of each.
MAX_REASONS = 1000

# Broken videos that a summary names.
MAX_NAMED = 5
# Processes that may end at a video before it is recorded as broken: an engine such as Ray would start them for ever.
MAX_CRASHES = 4


@dataclass(frozen=True)
class EmbeddedCorpus:
    """Counts of an embedded corpus; `broken` maps the first thousand ids of unreadable videos to reasons.

    Of the corpus, `kept` videos were in the store, `new` and `changed` ones were embedded; `done` are the embedded and
    the `failed` ones together, with `frames` frames, in `seconds`.
    """

    store: Path
    kept: int = 0
    new: int = 0
    changed: int = 0
    done: int = 0
    frames: int = 0
    failed: int = 0
    seconds: float = 0.0
    broken: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write embedded.json, the counts, and broken.csv, the videos that cannot be read; the store is written."""
        out = Path(folder)
        with explain_os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        with atomic_write(out / "embedded.json") as part:
            part.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False), encoding="utf-8")
        write_table(out / "broken.csv", [("id", "reason"), *self.broken.items()])
        stage_progress(progress, "writing the counts")(2, 2)
        return [out / "embedded.json", out / "broken.csv"]

    def summary(self) -> Summary:
        """Return the counts, and the reasons of the first broken videos."""
        speed = f", {self.frames / self.seconds:,.0f} frames/s" if self.frames else ""
        work = f"{self.done:,} videos embedded ({self.frames:,} frames, {self.seconds:.1f} s{speed})"
        counts = f"{self.changed:,} of them changed; {self.kept:,} kept; {self.failed:,} broken"
        broken = [f"broken: {reason}" for reason in list(self.broken.values())[:MAX_NAMED]]
        if self.failed > MAX_NAMED:
            broken.append(f"and {self.failed - MAX_NAMED:,} more; the store has the reason of each")
        return Summary([f"{work}, {counts}", str(self.store)], broken)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-ready values."""
        return {**asdict(self), "store": str(self.store)}


def embed_corpus(
    corpus: Path | str,
    store: Path | str,
    *,
    model: Model = None,
    modality: ModalityChoice = "auto",
    fps: float | None = None,
    device: str = "auto",
    workers: int | None = None,
    engine: str | Engine = "processes",
    cache: Path | None = None,
    shard_videos: int = SHARD_VIDEOS,
    shard_bytes: int = SHARD_BYTES,
    limits: VideoLimits = DEFAULT_LIMITS,
    progress: Progress | None = None,
) -> EmbeddedCorpus:
    """Embed every frame of the videos of a corpus into a store; killed at any moment, the next call resumes.

    `corpus` is a folder of videos, with a sub-folder for each action, or a .csv table of path and action; `store` the
    folder to fill. `model` is a run folder, an encoder file or an `Encoder`; without one a shipped encoder is used:
    pose and images together, or the `modality` "pose" or "image" alone. `engine` is a name of `ENGINES` or an engine
    of your own, and `workers` its processes or threads; 0 processes: this one.

    A video is kept where the store has it by the same model from the same contents: size and time of modification
    decide, or failing that the hash of its contents. A broken video is recorded with the reason, whatever the error,
    and tried again when its file changes. So is one that exceeds the `limits` of time or memory, and tried again with
    other limits; videos that are embedded in this process (threads, or 0 processes) have none. Several corpora can be
    embedded into one store at a time, each by one process. Jobs of `shard_videos` videos write a shard each, which are
    merged into files of about `shard_bytes`. Memory: the names of a job's videos, and what the workers hold.
    """
    corpus, folder = Path(corpus), Path(store)
    if shard_videos < 1:
        raise ValueError(f"shard_videos must be at least 1, got {shard_videos}")
    encoder = open_encoder(model, modality) or choose_shipped()[0]
    require_video_encoder(encoder)
    chosen = open_engine(engine, workers=workers, device=device)
    total = sum(1 for _ in list_videos(corpus))
    if not total:
        raise ValueError(f"no videos in {corpus}: name a folder of them, or a .csv table")
    report, began = stage_progress(progress, f"embedding {corpus.name}"), time.perf_counter()
    counts, broken = dict.fromkeys(("kept", "new", "changed", "done", "frames", "failed"), 0), dict[str, str]()
    with EmbeddingStore(folder, create=True) as opened:
        name = model_name(encoder, fps)
        writer = hashlib.blake2b(os.fsencode(corpus.resolve()), digest_size=8).hexdigest()
        own = folder / "writers" / writer
        with exclusive_lock(own, doing=f"embedding {corpus} into"), scratch_folder(own) as marks:
            _save_encoder(opened, encoder, name, fps)
            settings = EmbedSettings(
                folder, opened.encoder_file(name), name, fps, cache or default_cache_folder(), limits, marks
            )
            missing = _list_missing(list_videos(corpus), opened, settings, counts)
            jobs = _make_jobs(missing, videos=shard_videos, counter=opened.next_counter())
            for result in _run_jobs(chosen, settings, jobs):
                counts["done"] += result.videos
                counts["frames"] += result.frames
                counts["failed"] += len(result.broken)
                if len(broken) < MAX_REASONS:
                    broken |= result.broken
                report(counts["kept"] + counts["done"], total)
        opened.refresh()
        opened.compact(shard_bytes=shard_bytes)
    return EmbeddedCorpus(folder, **counts, seconds=time.perf_counter() - began, broken=broken)


def model_name(encoder: Encoder, fps: float | None) -> str:
    """Hash the settings of an embedding: the encoder, and the frames per second that are embedded."""
    network = fingerprint(encoder, source=image_precision())
    return network if fps is None else hashlib.blake2b(f"{network} {fps}".encode(), digest_size=16).hexdigest()


def _save_encoder(store: EmbeddingStore, encoder: Encoder, model: str, fps: float | None) -> None:
    """Copy the encoder into the store: search embeds queries with it, and other machines load it from there."""
    file = store.encoder_file(model)
    if not file.exists():
        with explain_os_errors(store.folder):
            file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(store.fps_file(model)) as part:
            part.write_text(json.dumps(fps), encoding="utf-8")
        save_encoder(file, encoder)


def _list_missing(
    listed: Iterable[ListedVideo], store: EmbeddingStore, settings: "EmbedSettings", counts: dict[str, int]
) -> Iterator[ListedVideo]:
    """Yield the videos that the store lacks, has by another model, or has from other contents."""
    model = settings.model
    for video in listed:
        if not store.catalog.is_first(video):
            continue
        found = store.catalog.find(video.id)
        if found is None:
            counts["new"] += 1
            yield video
            continue
        if found.path != path_text(video.path) and Path(found.path).exists():
            raise ValueError(
                f"{video.id} already names {found.path} in {store.folder}, and now {video.path}: embed one of the two "
                "corpora into another store, or rename its folder"
            )
        stamp = stamp_of(video)
        if found.model == model and store.catalog.last_stamp(found) in (stamp, f"{stamp} {settings.limits}"):
            counts["kept"] += 1
        elif found.model == model and found.content and _has_contents(video, found.content):
            store.catalog.restamp(video.id, content=found.content, stamp=stamp)
            counts["kept"] += 1
        else:
            counts["changed"] += 1
            yield video


def _has_contents(video: ListedVideo, content: str) -> bool:
    try:
        return content_hash(video.path) == content
    except (MediaError, OSError):
        return False


@dataclass(frozen=True)
class EmbedJob:
    """The videos of one shard."""

    shard: str
    videos: tuple[ListedVideo, ...]


@dataclass(frozen=True)
class EmbedJobResult:
    """Counts of a finished job; `broken` maps ids to reasons."""

    shard: str
    videos: int
    frames: int
    broken: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EmbedSettings:
    """How videos are embedded: all that a worker on another machine needs beside a shared folder."""

    store: Path
    encoder: Path
    model: str  # the fingerprint
    fps: float | None = None
    cache: Path | None = None
    limits: VideoLimits = DEFAULT_LIMITS
    marks: Path | None = None  # the folder of marks of videos under way
    caller: str = field(default_factory=this_process)  # where no limits hold


def _make_jobs(missing: Iterable[ListedVideo], *, videos: int, counter: int) -> Iterator[EmbedJob]:
    """Cut videos into jobs. Names of shards begin with the counter: of two rows of a video the higher one counts."""
    run = f"{counter:020d}-{uuid.uuid4().hex[:8]}"
    together: list[ListedVideo] = []
    number = 0
    for video in missing:
        together.append(video)
        if len(together) == videos:
            yield EmbedJob(f"{run}-{number:06d}", tuple(together))
            together, number = [], number + 1
    if together:
        yield EmbedJob(f"{run}-{number:06d}", tuple(together))


def _run_jobs(engine: Engine, settings: EmbedSettings, jobs: Iterable[EmbedJob]) -> Iterator[EmbedJobResult]:
    """Run jobs; a job that ends its worker is run again video by video, and the video that does is recorded."""
    for result in engine.map(partial(start_embedding, settings), jobs):
        if not isinstance(result, WorkerDied):
            yield result
        elif len(result.item.videos) == 1:
            yield _record_fatal(result.item, settings)
        else:
            videos = enumerate(result.item.videos)
            parts = [EmbedJob(f"{result.item.shard}-{number:04d}", (video,)) for number, video in videos]
            yield from _run_jobs(engine, settings, parts)


def _record_fatal(job: EmbedJob, settings: EmbedSettings) -> EmbedJobResult:
    """Record a video that ended the process that read it."""
    (video,) = job.videos
    row = _fatal_row(settings, video) or _row(video, settings, stamp=stamp_of(video), reason=FATAL)
    write_shard(settings.store / "shards", job.shard, [row])
    return EmbedJobResult(job.shard, 1, 0, {row.id: row.reason})


def _fatal_row(settings: EmbedSettings, video: ListedVideo) -> ShardRow | None:
    """Return the row of a video that ended earlier processes, by taking too long or by a fault; None if it did not."""
    if settings.marks is None:
        return None
    mark = mark_of(settings.marks, video.id)
    if not timed_out(mark):
        return (
            _row(video, settings, stamp=stamp_of(video), reason=FATAL) if count_crashes(mark) >= MAX_CRASHES else None
        )
    reason = settings.limits.explain_timeout(path_text(video.path))
    return _row(video, settings, stamp=f"{stamp_of(video)} {settings.limits}", reason=reason)


def start_embedding(settings: EmbedSettings, device: str) -> Callable[[EmbedJob], EmbedJobResult]:
    """Load the encoder in a worker; return the function that embeds the videos of a job and writes their shard."""
    encoder = load_encoder(settings.encoder, device=device)
    # On a GPU the threads that decode videos share batches; worker processes share the cores.
    cores = torch.get_num_threads() if torch.get_num_threads() > 1 else os.cpu_count() or 1
    return partial(run_job, settings, encoder, threads=cores if device == "cuda" else 1)


def run_job(settings: EmbedSettings, encoder: Encoder, job: EmbedJob, *, threads: int = 1) -> EmbedJobResult:
    """Embed the videos of a job and write their shard, with a few of them in memory."""
    broken: dict[str, str] = {}
    frames = 0
    if settings.marks is not None and any(count_crashes(mark_of(settings.marks, each.id)) > 1 for each in job.videos):
        threads = 1  # a crash counts against all videos under way: one at a time, only the faulty one reaches the limit

    def counted() -> Iterator[ShardRow]:
        nonlocal frames
        for row in map_in_threads(partial(_embed, settings, encoder), job.videos, workers=threads):
            frames += 0 if row.embedding is None else len(row.embedding)
            broken.update({row.id: row.reason} if row.reason else {})
            yield row

    write_shard(settings.store / "shards", job.shard, counted())
    return EmbedJobResult(job.shard, len(job.videos), frames, broken)


def _embed(settings: EmbedSettings, encoder: Encoder, video: ListedVideo) -> ShardRow:
    """Embed one video, or return the reason why it is broken; a file that changes meanwhile is embedded next time."""
    stamp = stamp_of(video)
    row, name = partial(_row, video, settings), path_text(video.path)
    is_worker = settings.marks is not None and settings.caller != this_process()
    mark = mark_of(settings.marks, video.id) if settings.marks is not None and is_worker else None
    if is_worker and (late := _fatal_row(settings, video)):
        return late
    content = ""
    try:
        if name != video.path:
            raise MediaError(f"{name}: the file name is not valid UTF-8: rename it")
        content = content_hash(Path(video.path))
        with nullcontext() if mark is None else limited(settings.limits, mark):
            embedding = embed_video(encoder, Path(video.path), cache=Cache(settings.cache), fps=settings.fps)
        if not np.isfinite(embedding.values).all():
            raise ValueError(f"{name} has an embedding that is not finite: check the model, and the video for damage")
        return row(content=content, stamp=stamp if stamp_of(video) == stamp else "", embedding=embedding)
    except MissingExtraError:
        raise
    except (MediaError, ValueError) as error:
        return row(content=content, stamp=stamp, reason=str(error))
    except MemoryError:
        limit_stamp = f"{stamp} {settings.limits}"
        return row(content=content, stamp=limit_stamp, reason=settings.limits.explain_memory(name))
    except OSError as error:  # a disk or a network that fails is no fault of the video, which is tried again
        reason = f"{name} cannot be read: {error.strerror or error}"
        return row(content=content, stamp="", reason=reason)
    except Exception as error:
        return row(content=content, stamp=stamp, reason=describe_error(name, error))


def _row(video: ListedVideo, settings: EmbedSettings, *, content: str = "", **columns: Any) -> ShardRow:
    values = {"embedding": None, "reason": "", **columns}
    return ShardRow(video.id, path_text(video.path), video.action, content, model=settings.model, **values)


def stamp_of(video: ListedVideo) -> str:
    """Hash the size and the time of modification of a video's file; empty where it cannot be read."""
    return identify(Source(Path(video.path)))


def path_text(path: str) -> str:
    """Escape the bytes of a path that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
