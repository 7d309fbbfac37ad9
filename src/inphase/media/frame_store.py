"""Stores of what recordings hold, read by the id of the recording, without a codec.

A store is a folder: one file per recording, and an index of the complete ones (`inphase.storage.array_store`).
"""
# MERGED: Fill stores: decode every recording once, so that training needs no codec.

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from inphase.media.frames import Clip, Recording, choose, describe_damage, in_clips, open_recording, spliced
from inphase.storage.array_store import Entry, StoreFormat, append_entry, create_index, is_complete, read_index
from inphase.storage.errors import MediaError, StoreError
from inphase.storage.files import exclusive_lock, explain_os_errors, sweep_drafts, write_blocks

Item = TypeVar("Item")

FRAMES = "inphase frames 1"


class ArrayStore(Mapping[str, Item]):
    """What a store holds, by the id of the recording."""

    frame_bytes: int  # that a frame takes in the files

    def __init__(self, folder: Path, *, format: str) -> None:
        """Open the store in `folder` as far as it is written."""
        self.folder = folder
        self.settings, entries = read_index(folder, format=format)
        self._entries = {id: entry for id, entry in entries.items() if not entry.broken}
        self.broken = {id: entry.broken for id, entry in entries.items() if entry.broken}
        self.damaged = {id: entry.damage for id, entry in entries.items() if entry.damage}

    def _read(self, file: Path, frames: int) -> Item:
        """Read a file that is whole."""
        raise NotImplementedError

    def __getitem__(self, id: str) -> Item:
        """Open one recording."""
        if id in self.broken:
            raise StoreError(f"{id} is not in {self.folder}, since it could not be decoded: {self.broken[id]}")
        entry = self._entries[id]
        if not is_complete(self.folder, entry, frame_bytes=self.frame_bytes):
            raise StoreError(f"{self.folder / entry.file} ({id}) is not as it was written: cache the recording again")
        return self._read(self.folder / entry.file, entry.frames)

    def __contains__(self, id: object) -> bool:
        """Tell whether a recording can be read."""
        return id in self._entries

    def __iter__(self) -> Iterator[str]:
        """Walk through the ids of what can be read."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Count what can be read."""
        return len(self._entries)

    def frames(self, id: str) -> int:
        """Count the frames of a recording without opening its file."""
        return self._entries[id].frames

    def verify(self) -> list[str]:
        """Read everything and list the ids whose bytes are not those that were written."""
        return [id for id, entry in self._entries.items() if not self._is_intact(entry)]

    def _is_intact(self, entry: Entry) -> bool:
        if not is_complete(self.folder, entry, frame_bytes=self.frame_bytes):
            return False
        with (self.folder / entry.file).open("rb") as file:
            return hashlib.file_digest(file, hashlib.blake2b).hexdigest() == entry.digest


class FrameStore(ArrayStore[Clip]):
    """The clips of a store by the id of their recording, each mapped into memory and read where it is used.

    A file holds the pictures [T, H, W, 3] uint8 and after them their times [T] float64, little-endian.
    """

    def __init__(self, folder: Path | str) -> None:
        """Open the store in `folder` as far as it is written."""
        super().__init__(Path(folder), format=FRAMES)
        height, width = self.settings["size"]
        self.size = (int(height), int(width))
        self.frame_bytes = frame_format(self.size).frame_bytes

    def _read(self, file: Path, frames: int) -> Clip:
        """Open one clip; its frames stay on disk until they are indexed."""
        stored = np.memmap(file, dtype=np.uint8, mode="r")
        pixels = len(stored) - 8 * frames
        times = np.frombuffer(stored[pixels:].tobytes(), dtype="<f8").astype(np.float64)
        # A plain view of the mapping: np.memmap makes every later slice pay for its subclass.
        return Clip(np.asarray(stored)[:pixels].reshape(frames, *self.size, 3), times)


def frame_format(size: tuple[int, int]) -> StoreFormat:
    """Describe a store of pictures of `size` (height, width) and their times."""
    return StoreFormat(FRAMES, ".frames", size[0] * size[1] * 3 + 8, {"size": list(size)})


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
class StoredVideo:
    """One recording dealt with: `outcome` is "written", "kept" or "broken"."""

    id: str
    outcome: str
    frames: int
    done: int
    total: int


@dataclass(frozen=True)
class FillSummary:
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
    progress: Callable[[StoredVideo], None] | None = None,
) -> FillSummary:
    """Decode the sources that a store lacks, scaled to `size` (height, width), and add them under their ids.

    A source is kept where the store has it from the same file (name, size, modification time) with the same settings.
    One that cannot be decoded is recorded with the reason, skipped, and not tried again until its file changes.
    `workers` processes decode side by side; 0 decodes in this one.
    """
    if min(size) < 1:
        raise ValueError(f"size must be (height, width) in pixels, got {size}")
    write = partial(write_frames, size=size)
    return fill(Path(folder), sources, kind=frame_format(size), write=write, workers=workers, progress=progress)


def fill(
    folder: Path,
    sources: Mapping[str, Source],
    *,
    kind: StoreFormat,
    write: Write,
    workers: int,
    progress: Callable[[StoredVideo], None] | None,
) -> FillSummary:
    """Add what a store of a kind lacks: `write` makes the file of one source."""
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
            if entry and kept and entry.source == identify(source) != "":
                done.append(entry)
                _tell(progress, entry, "kept", len(done), len(sources))
            else:
                missing[id] = source
        old = len(done)
        for entry in _written(folder, missing, write=partial(_write, folder, write, kind.suffix), workers=workers):
            with explain_os_errors(folder):
                append_entry(folder, entry)
                replaced = entries.get(entry.id)
                if replaced and replaced.file and replaced.file != entry.file:
                    (folder / replaced.file).unlink(missing_ok=True)
            done.append(entry)
            _tell(progress, entry, "written", len(done), len(sources))
    return FillSummary(
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


def _tell(progress: Callable[[StoredVideo], None] | None, entry: Entry, outcome: str, done: int, total: int) -> None:
    if progress is not None:
        progress(StoredVideo(entry.id, "broken" if entry.broken else outcome, entry.frames, done, total))


def _sweep(folder: Path, entries: Mapping[str, Entry], *, suffix: str) -> None:
    """Remove what an interrupted run left behind."""
    named = {entry.file for entry in entries.values()}
    sweep_drafts(folder)
    for file in folder.glob(f"*{suffix}"):
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
            with explain_os_errors(folder):
                entry = write(id, source)
            yield entry
        return
    # Forked processes inherit the locks of the codec library's threads.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(write, id, source) for id, source in jobs.items()]
        try:
            for future in as_completed(futures):
                with explain_os_errors(folder):
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

    digest = write_blocks(file, blocks())
    return sum(map(len, times)), digest, describe_damage(recording)


def _clips(recording: Recording, source: Source, size: tuple[int, int]) -> Iterator[Clip]:
    if source.spans:
        return spliced(recording, source.spans, rate=source.rate, size=size, length=LENGTH)
    return in_clips(recording, choose(recording.times, rate=source.rate), size=size, length=LENGTH)
