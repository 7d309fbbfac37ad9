"""Stores of decoded frames: fill them from recordings once, read them without a codec while training.

A store is a folder: one file per recording, and an index of the complete ones (`inphase.storage.cache`). `fill`
serves stores of any kind: `inphase.pose.pose_store` fills stores of poses with it.
"""

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from inphase.media.frames import Clip, in_clips, spliced
from inphase.media.recording import Recording, describe_damage, open_recording
from inphase.media.sampling import choose
from inphase.progress import Progress, Summary, ignore_progress, summarize
from inphase.storage.cache import ArrayStore, Entry, StoreFormat, append_entry, create_index, is_complete, read_index
from inphase.storage.errors import MediaError, MissingExtraError, StoreError, describe_error, is_disk_full
from inphase.storage.files import exclusive_lock, explain_os_errors, scratch_folder, write_blocks
from inphase.storage.processes import (
    DEFAULT_LIMITS,
    FATAL,
    SpawnedPool,
    VideoLimits,
    WorkerDied,
    limited,
    map_in_processes,
    mark_of,
    timed_out,
)

FRAMES = "inphase frames 1"
# Frames in memory at a time while decoding.
CLIP_LENGTH = 64


class FrameStore(ArrayStore[Clip]):
    """The clips of a store by the id of their recording, memory-mapped.

    A file holds the frames [T, H, W, 3] uint8, then their times [T] float64, little-endian.
    """

    def __init__(self, folder: Path | str) -> None:
        """Open the store in `folder`; recordings added later are not visible."""
        super().__init__(Path(folder), format=FRAMES)
        height, width = self.settings["size"]
        self.size = (int(height), int(width))
        self.frame_bytes = frame_format(self.size).frame_bytes

    def _read(self, file: Path, frames: int) -> Clip:
        """Open one clip; its frames stay on disk until they are indexed."""
        stored = np.memmap(file, dtype=np.uint8, mode="r")
        pixels = len(stored) - 8 * frames
        times = np.frombuffer(stored[pixels:].tobytes(), dtype="<f8").astype(np.float64)
        # A plain array view: slicing np.memmap itself is slower.
        return Clip(np.asarray(stored)[:pixels].reshape(frames, *self.size, 3), times)


def frame_format(size: tuple[int, int]) -> StoreFormat:
    """Describe a store of frames of `size` (height, width) and their times."""
    return StoreFormat(FRAMES, ".frames", size[0] * size[1] * 3 + 8, {"size": list(size)})


@dataclass(frozen=True)
class Source:
    """A recording to put into a store; the fields are the arguments of `read_clip` and `read_spans`."""

    path: Path
    spans: tuple[tuple[float, float], ...] = ()
    fps: float | None = None
    native_fps: float | None = None


@dataclass(frozen=True)
class FillSummary:
    """The result of filling a store: counts of recordings, and reasons by id for the broken and damaged ones.

    `outcomes` maps every id to "written", "kept" or "broken".
    """

    written: int = 0
    kept: int = 0
    frames: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict, compare=False)
    folder: Path = field(default=Path(), compare=False)

    def summary(self) -> Summary:
        """Return the counts, and warnings that list the videos which could not be read whole."""
        counts = f"{self.written + self.kept:,} videos, {self.frames:,} frames in {self.folder} ({self.written:,} new)"
        problems = (("broken", self.broken), ("damaged", self.damaged))
        warnings = [f"{kind}: {summarize(found.values())}" for kind, found in problems if found]
        return Summary([f"{counts}; {len(self.broken):,} broken, {len(self.damaged):,} damaged"], warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return vars(self) | {"folder": str(self.folder)}


# Write a source to a file; return the number of frames, the hash of the file and the damage.
Write = Callable[["Source", Path], tuple[int, str, str]]


def fill_store(
    folder: Path | str,
    sources: Mapping[str, Source],
    *,
    size: tuple[int, int],
    workers: int = 0,
    limits: VideoLimits = DEFAULT_LIMITS,
    progress: Progress | None = None,
) -> FillSummary:
    """Decode the sources that a store lacks, scaled to `size` (height, width), and add them under their ids.

    A source is kept if the store has it from the same file (name, size, modification time) with the same settings. One
    that cannot be decoded is recorded with the reason, skipped, and not tried again until its file changes. `workers`
    processes decode in parallel, each source within `limits` of time and memory; 0 decodes in this one, without limits.
    """
    if min(size) < 1:
        raise ValueError(f"size must be (height, width) in pixels, got {size}")
    write = partial(write_frames, size=size)
    kind = frame_format(size)
    return fill(
        Path(folder),
        sources,
        kind=kind,
        write=write,
        workers=workers,
        limits=limits,
        stage="decoding videos",
        progress=progress,
    )


def fill(
    folder: Path,
    sources: Mapping[str, Source],
    *,
    kind: StoreFormat,
    write: Write,
    workers: int,
    limits: VideoLimits,
    stage: str,
    progress: Progress | None,
) -> FillSummary:
    """Add the sources that a store lacks: `write` makes the file of one source."""
    report = progress or ignore_progress
    with exclusive_lock(folder):
        with explain_os_errors(folder):
            create_index(folder, kind)
            settings, entries = read_index(folder, format=kind.format)
            if settings != kind.settings:
                raise StoreError(f"{folder} was filled with {settings}, not {kind.settings}: use another folder")
            _sweep(folder, entries, suffix=kind.suffix)
        missing: dict[str, Source] = {}
        done: list[Entry] = []
        for id, source in sources.items():
            entry = entries.get(id)
            kept = entry is not None and (entry.broken or is_complete(folder, entry, frame_bytes=kind.frame_bytes))
            identity = identify(source)
            if entry and kept and identity and entry.source in (identity, f"{identity} {limits}"):
                done.append(entry)
                report(stage, len(done), len(sources))
            else:
                missing[id] = source
        old = len(done)
        for entry in _written(_Writing(folder, write, kind.suffix, limits), missing, workers=workers):
            with explain_os_errors(folder):
                append_entry(folder, entry)
                replaced = entries.get(entry.id)
                if replaced and replaced.file and replaced.file != entry.file:
                    (folder / replaced.file).unlink(missing_ok=True)
            done.append(entry)
            report(stage, len(done), len(sources))
    return FillSummary(
        written=sum(not entry.broken for entry in done[old:]),
        kept=sum(not entry.broken for entry in done[:old]),
        frames=sum(entry.frames for entry in done),
        broken={entry.id: entry.broken for entry in done if entry.broken},
        damaged={entry.id: entry.damage for entry in done if entry.damage},
        outcomes={
            entry.id: "broken" if entry.broken else "kept" if number < old else "written"
            for number, entry in enumerate(done)
        },
        folder=folder,
    )


def identify(source: Source) -> str:
    """Hash a source's settings, then the names and sizes of its files, then their times; empty if it cannot be read."""
    try:
        files = sorted(source.path.iterdir()) if source.path.is_dir() else [source.path]
        stats = [file.stat() for file in files]
    except OSError:
        return ""
    if not all(os.access(file, os.R_OK) for file in files):
        return ""
    sizes = [(file.name, stat.st_size) for file, stat in zip(files, stats, strict=True)]
    return "-".join([_settings_hash(source), _hash(sizes), _hash([stat.st_mtime_ns for stat in stats])])


def is_made_from(made: str, source: Source) -> bool:
    """Return whether a store's entry, identified by `made`, holds a source: same spans and rates, same file.

    A file is compared by name and size, not by its time, which copying changes. One that is absent, as on a machine
    that only has the store, is not compared, and neither is a folder of images.
    """
    settings, _, files = made.partition("-")
    if settings != _settings_hash(source):
        return False
    try:
        size = source.path.stat().st_size
    except OSError:
        return True
    return source.path.is_dir() or files.partition("-")[0] == _hash([(source.path.name, size)])


def _settings_hash(source: Source) -> str:
    return _hash([source.spans, source.fps, source.native_fps])


def _hash(content: object) -> str:
    return hashlib.blake2b(json.dumps(content).encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _sweep(folder: Path, entries: Mapping[str, Entry], *, suffix: str) -> None:
    """Remove the files that an interrupted run left behind."""
    named = {entry.file for entry in entries.values()}
    for file in folder.glob(f"*{suffix}"):
        if file.name not in named:
            file.unlink()


@dataclass(frozen=True)
class _Writing:
    """Settings for writing the sources of a store."""

    folder: Path
    write: Write
    suffix: str
    limits: VideoLimits
    marks: Path | None = None  # the folder of marks of videos under way, in a worker process


Job = tuple[str, Source]


def _written(writing: _Writing, jobs: Mapping[str, Source], *, workers: int) -> Iterator[Entry]:
    """Write the files of the jobs and yield their entries in order of completion.

    One process writes all spans of a file, since listing the packets of hours of video takes longer than decoding a
    few seconds of it.
    """
    groups = _by_file(jobs)
    if workers < 1:
        for item in chain.from_iterable(groups):
            with explain_os_errors(writing.folder):
                entry = _write(writing, item)
            yield entry
        return
    with scratch_folder(writing.folder) as marks:
        pool = SpawnedPool(partial(_write_all, replace(writing, marks=marks)), workers=workers)
        try:
            while groups:
                # The sources of a file that ended its process are tried again, each by itself.
                groups = yield from _written_in_processes(writing, groups, pool, marks)
        finally:
            pool.shutdown()


def _by_file(jobs: Mapping[str, Source]) -> list[list[Job]]:
    """Group the sources by file, in the order of their first."""
    groups: dict[Path, list[Job]] = {}
    for item in jobs.items():
        groups.setdefault(item[1].path, []).append(item)
    return list(groups.values())


def _written_in_processes(
    writing: _Writing, groups: list[list[Job]], pool: SpawnedPool, marks: Path
) -> Generator[Entry, None, list[list[Job]]]:
    """Yield the entries of groups of sources; return those to try again."""
    again: list[list[Job]] = []
    results = map_in_processes(pool, groups)
    while True:
        with explain_os_errors(writing.folder):
            result = next(results, None)
        if result is None:
            return again
        if not isinstance(result, WorkerDied):
            yield from result
        elif len(result.item) == 1:
            yield _explain_death(result.item[0], writing.limits, marks)
        else:
            again += [[item] for item in result.item]


def _write_all(writing: _Writing, items: list[Job]) -> list[Entry]:
    """Write the sources of one file, whose packets are listed once."""
    return [_write(writing, item) for item in items]


def _explain_death(item: Job, limits: VideoLimits, marks: Path) -> Entry:
    """Return the entry of a source that ended the process that read it."""
    id, source = item
    if timed_out(mark_of(marks, id)):
        return Entry(id, f"{identify(source)} {limits}", broken=limits.explain_timeout(source.path))
    return Entry(id, identify(source), broken=f"{source.path}: {FATAL}")


def _write(writing: _Writing, item: Job) -> Entry:
    """Write one source's file atomically; return a broken entry for a source that cannot be decoded."""
    folder, limits, (id, source) = writing.folder, writing.limits, item
    identity = identify(source)
    mark = None if writing.marks is None else mark_of(writing.marks, id)
    if writing.marks is not None and mark is not None and timed_out(mark):
        return _explain_death(item, limits, writing.marks)
    name = hashlib.blake2b(f"{id}\n{identity}".encode(), digest_size=16).hexdigest() + writing.suffix
    try:
        with nullcontext() if mark is None else limited(limits, mark):
            frames, digest, damage = writing.write(source, folder / name)
        if identify(source) != identity:
            (folder / name).unlink()
            raise MediaError(f"{source.path} changed while it was read: run this again later")
    except MissingExtraError:
        raise
    except (MediaError, ValueError) as error:
        return Entry(id, identity, broken=str(error))
    except MemoryError:
        return Entry(id, f"{identity} {limits}", broken=limits.explain_memory(source.path))
    except OSError as error:
        if is_disk_full(error) or (error.filename and folder in Path(str(error.filename)).parents):
            raise
        # A disk or a network that fails is no fault of the video, which is tried again.
        return Entry(id, broken=f"{source.path} cannot be read: {error.strerror or error}")
    except Exception as error:
        return Entry(id, identity, broken=describe_error(source.path, error))
    return Entry(id, identity, name, frames, digest, damage)


def write_frames(source: Source, file: Path, *, size: tuple[int, int]) -> tuple[int, str, str]:
    """Decode one source into its file."""
    recording = open_recording(source.path, native_fps=source.native_fps)
    times = [np.empty(0)]

    def blocks() -> Iterator[bytes | memoryview]:
        for clip in _clips(recording, source, size):
            times.append(clip.times)
            yield clip.frames.reshape(-1).data
        yield np.concatenate(times).astype("<f8").tobytes()

    digest = write_blocks(file, blocks())
    return sum(map(len, times)), digest, describe_damage(recording)


def _clips(recording: Recording, source: Source, size: tuple[int, int]) -> Iterator[Clip]:
    if source.spans:
        return spliced(recording, source.spans, fps=source.fps, size=size, length=CLIP_LENGTH)
    return in_clips(recording, choose(recording.times, fps=source.fps), size=size, length=CLIP_LENGTH)
