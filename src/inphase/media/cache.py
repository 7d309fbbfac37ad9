"""Fill stores: decode every recording once, so that training needs no codec.

Whatever interrupts it, a store stays valid and the next run does only what is missing. One process fills a store at a
time; any number may read it meanwhile.
"""

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from inphase.media.atomic import explained, held, write_whole
from inphase.media.errors import MediaError, StoreError
from inphase.media.frames import Clip, in_clips, spliced
from inphase.media.index import Entry, Kind, append_entry, create_index, is_whole, read_index
from inphase.media.recording import Recording, describe_damage, open_recording
from inphase.media.selection import choose
from inphase.media.store import kind_of_frames

# Frames in memory at a time.
LENGTH = 64


@dataclass(frozen=True)
class Source:
    """What to cache of one recording; the fields are the arguments of `read_clip` and `read_spans`."""

    path: Path
    spans: tuple[tuple[float, float], ...] = ()
    rate: float | None = None
    native_rate: float | None = None


@dataclass(frozen=True)
class Progress:
    """One recording dealt with: `outcome` is "written", "kept" or "broken"."""

    id: str
    outcome: str
    frames: int
    done: int
    total: int


@dataclass(frozen=True)
class Filled:
    """What filling a store came to; `broken` and `damaged` map ids to reasons."""

    written: int = 0
    kept: int = 0
    frames: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)


# A source, and the file to write → how many there are, their hash, what was damaged.
Write = Callable[["Source", Path], tuple[int, str, str]]


def fill_store(
    folder: Path | str,
    sources: Mapping[str, Source],
    *,
    size: tuple[int, int],
    workers: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Filled:
    """Decode the sources that a store lacks, scaled to `size` (height, width), and add them under their ids.

    A source is kept where the store has it from the same file (name, size, modification time) with the same settings.
    One that cannot be decoded is recorded with the reason, skipped, and not tried again until its file changes.
    `workers` processes decode side by side; 0 decodes in this one.
    """
    if min(size) < 1:
        raise ValueError(f"size must be (height, width) in pixels, got {size}")
    write = partial(write_frames, size=size)
    return fill(Path(folder), sources, kind=kind_of_frames(size), write=write, workers=workers, progress=progress)


def fill(
    folder: Path,
    sources: Mapping[str, Source],
    *,
    kind: Kind,
    write: Write,
    workers: int,
    progress: Callable[[Progress], None] | None,
) -> Filled:
    """Add what a store of a kind lacks: `write` makes the file of one source."""
    with held(folder):
        with explained(folder):
            create_index(folder, kind)
            settings, entries = read_index(folder, format=kind.format)
            if settings != kind.settings:
                raise StoreError(f"{folder} was filled with {settings}, not {kind.settings}: use another folder")
            _sweep(folder, entries, suffix=kind.suffix)
        missing: dict[str, Source] = {}
        done: list[Entry] = []
        for id, source in sources.items():
            entry = entries.get(id)
            kept = entry is not None and (entry.broken or is_whole(folder, entry, frame_bytes=kind.frame_bytes))
            if entry and kept and entry.source == identify(source) != "":
                done.append(entry)
                _tell(progress, entry, "kept", len(done), len(sources))
            else:
                missing[id] = source
        old = len(done)
        for entry in _written(folder, missing, write=partial(_write, folder, write, kind.suffix), workers=workers):
            with explained(folder):
                append_entry(folder, entry)
                replaced = entries.get(entry.id)
                if replaced and replaced.file and replaced.file != entry.file:
                    (folder / replaced.file).unlink(missing_ok=True)
            done.append(entry)
            _tell(progress, entry, "written", len(done), len(sources))
    return Filled(
        written=sum(not entry.broken for entry in done[old:]),
        kept=sum(not entry.broken for entry in done[:old]),
        frames=sum(entry.frames for entry in done),
        broken={entry.id: entry.broken for entry in done if entry.broken},
        damaged={entry.id: entry.damage for entry in done if entry.damage},
    )


def identify(source: Source) -> str:
    """Name what would be decoded, so that a changed file or setting is noticed; nothing where it cannot be read."""
    try:
        files = sorted(source.path.iterdir()) if source.path.is_dir() else [source.path]
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except OSError:
        return ""
    if not all(os.access(file, os.R_OK) for file in files):
        return ""
    settings = [source.spans, source.rate, source.native_rate]
    return hashlib.blake2b(json.dumps([stats, settings]).encode(), digest_size=16).hexdigest()


def _tell(progress: Callable[[Progress], None] | None, entry: Entry, outcome: str, done: int, total: int) -> None:
    if progress is not None:
        progress(Progress(entry.id, "broken" if entry.broken else outcome, entry.frames, done, total))


def _sweep(folder: Path, entries: Mapping[str, Entry], *, suffix: str) -> None:
    """Remove what an interrupted run left behind."""
    named = {entry.file for entry in entries.values()}
    for file in [*folder.glob("*.tmp"), *folder.glob(f"*{suffix}")]:
        if file.name not in named:
            file.unlink()


def _written(
    folder: Path,
    jobs: Mapping[str, Source],
    *,
    write: Callable[[str, Source], Entry],
    workers: int,
) -> Iterator[Entry]:
    """Write the files of the jobs and yield their entries, in the order in which they get ready."""
    if workers < 1:
        for id, source in jobs.items():
            with explained(folder):
                entry = write(id, source)
            yield entry
        return
    # Forked processes inherit the locks of the codec library's threads.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(write, id, source) for id, source in jobs.items()]
        try:
            for future in as_completed(futures):
                with explained(folder):
                    entry = future.result()
                yield entry
        finally:
            pool.shutdown(cancel_futures=True)


def _write(folder: Path, write: Write, suffix: str, id: str, source: Source) -> Entry:
    """Write one source's file, whole or not at all; a source that cannot be decoded gives a broken entry."""
    identity = identify(source)
    name = hashlib.blake2b(f"{id}\n{identity}".encode(), digest_size=16).hexdigest() + suffix
    try:
        frames, digest, damage = write(source, folder / name)
        if identify(source) != identity:
            (folder / name).unlink()
            raise MediaError(f"{source.path} changed while it was read: run this again when it no longer does")
    except (MediaError, ValueError) as error:
        return Entry(id, identity, broken=str(error))
    return Entry(id, identity, name, frames, digest, damage)


def write_frames(source: Source, file: Path, *, size: tuple[int, int]) -> tuple[int, str, str]:
    """Decode one source into its file."""
    recording = open_recording(source.path, native_rate=source.native_rate)
    times = [np.empty(0)]

    def blocks() -> Iterator[bytes | memoryview]:
        for clip in _clips(recording, source, size):
            times.append(clip.times)
            yield clip.frames.reshape(-1).data
        yield np.concatenate(times).astype("<f8").tobytes()

    digest = write_whole(file, blocks())
    return sum(map(len, times)), digest, describe_damage(recording)


def _clips(recording: Recording, source: Source, size: tuple[int, int]) -> Iterator[Clip]:
    if source.spans:
        return spliced(recording, source.spans, rate=source.rate, size=size, length=LENGTH)
    return in_clips(recording, choose(recording.times, rate=source.rate), size=size, length=LENGTH)
