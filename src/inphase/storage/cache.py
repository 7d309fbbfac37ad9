"""Arrays on disk: a content-addressed cache shared by every command, networks compiled, and stores with an index.

Cache: a key is a hash of a file's bytes and of settings, so a renamed or copied file is found and a changed one is not.
Each entry is one file, written atomically, so any number of processes share a cache folder, and any file in it may be
deleted.

Store: a folder with one file per recording. The first line of `index.jsonl` describes the store; a recording gets its
line once its file is complete and on disk. A file without a line does not count, and neither does a last line without a
line end.
"""

import errno
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Condition, Lock
from typing import Any, TypeVar

import numpy as np
from cachetools import LRUCache, cached
from filelock import FileLock
from numpy.typing import NDArray

from inphase.storage.errors import MediaError, StoreError, explain_os_error
from inphase.storage.files import (
    draft_file,
    file_stamp,
    find_changed,
    scratch_folder,
    sweep_once,
    write_blocks,
    write_sums,
)


class Cache:
    """Named arrays by key in a folder; without a folder nothing is cached."""

    def __init__(self, folder: Path | str | None) -> None:
        """Cache in `folder`, which is created with the first entry."""
        self.folder = None if folder is None else Path(folder)

    def get(self, key: str) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of a key; None if they are missing, or damaged, which is a warning."""
        if self.folder is None:
            return None
        sweep_once(self.folder.absolute())
        try:
            return read_arrays(self._file(key))
        except OSError:
            return None
        except MediaError as error:
            warnings.warn(f"{error}; it is computed again", stacklevel=2)
            return None

    def put(self, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store arrays under a key; warn if the folder cannot be written, since the work can go on without it."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with draft_file(self._file(key)) as draft:
                np.savez(draft, allow_pickle=False, **arrays)
        except OSError as error:
            warnings.warn(f"nothing is cached in {self.folder}: {explain_os_error(error)}", stacklevel=2)

    def _file(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.npz"


def open_cache(folder: Path | None) -> Cache:
    """Open the cache in `folder`, by default in the user's cache folder."""
    return Cache(folder or default_cache_folder())


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an .npz file, whose checksums are verified; raise MediaError if it is damaged."""
    try:
        try:
            return _load(file)
        except SystemError:  # the parser of array headers fails now and then in threads of Python 3.11 (gh-106905)
            return _load(file)
    except OSError:
        raise
    # zipfile and numpy raise errors of many kinds for headers that cannot be
    except Exception as error:
        raise MediaError(f"{file} is damaged ({type(error).__name__}: {error})") from error


def _load(file: Path) -> dict[str, NDArray[Any]]:
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def default_cache_folder() -> Path:
    """Return the user's cache folder: $XDG_CACHE_HOME/inphase, or ~/.cache/inphase."""
    # The standard asks to ignore a relative path.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "inphase"


# How OpenVINO runs the networks of one thread.
CPU_OPTIONS = {
    "INFERENCE_PRECISION_HINT": "f32",  # some CPUs would round to bfloat16
    "INFERENCE_NUM_THREADS": 1,  # recordings are processed side by side
    "NUM_STREAMS": 1,
    "ENABLE_CPU_PINNING": False,
}


# Two threads that make the first lookup of a number type at once wait for each other forever inside OpenVINO.
_first_lookup = Lock()


def compile_cached(openvino: Any, name: str, build: Callable[[], Any], options: Mapping[str, Any]) -> Any:
    """Compile the model that `build` makes for this CPU; model and compiled form are cached under `name`.

    A damaged file is replaced; where the cache cannot be written, the model is compiled in memory.
    """
    with _first_lookup:
        openvino.Type.f32.to_dtype()
    folder, core = default_cache_folder() / "networks" / name, openvino.Core()
    sweep_once(folder.parent)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # OpenVINO maps the compiled form into memory: another process that wrote it again meanwhile would end this one.
        lock = FileLock(folder.parent / f"{name}.lock") if os.access(folder.parent, os.W_OK) else nullcontext()
        with lock:
            if not _is_intact(folder):
                shutil.rmtree(folder, ignore_errors=True)
                with scratch_folder(folder.parent) as scratch:
                    draft = scratch / "model"
                    draft.mkdir()
                    openvino.save_model(build(), draft / "model.xml", compress_to_fp16=False)
                    write_sums(draft, ("model.xml", "model.bin"))
                    draft.rename(folder)
            return core.compile_model(folder / "model.xml", "CPU", {**options, "CACHE_DIR": str(folder)})
    except (OSError, MediaError, RuntimeError):  # RuntimeError is OpenVINO's
        return core.compile_model(build(), "CPU", dict(options))


def _is_intact(folder: Path) -> bool:
    try:
        changed = find_changed(folder)
    except OSError:
        return False
    return bool(changed) and not any(changed.values())


def cache_key(path: Path | str, *settings: object) -> str:
    """Hash the contents of a file, or of a folder of images, together with settings, compared by their `repr`."""
    return hashlib.blake2b(f"{content_hash(path)} {settings!r}".encode(), digest_size=20).hexdigest()


def content_hash(path: Path | str) -> str:
    """Hash the bytes of a file, or the names and bytes of a folder's files; once per process, at about 1 GB/s."""
    if not Path(path).exists():
        raise MediaError(f"{path} does not exist: check the path")
    path = Path(path).absolute()
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return _hash_files(path, tuple((file, file_stamp(file)) for file in files))


# Threads that ask for the same file wait for one of them to read it.
@cached(LRUCache(maxsize=4096), condition=Condition())
def _hash_files(path: Path, stamped: tuple[tuple[Path, tuple[int, ...]], ...]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for file, _ in stamped:
        try:
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, hashlib.blake2b).digest())
        except PermissionError as error:
            raise MediaError(f"{file} is not readable: change its permissions, for example by `chmod u+r`") from error
        digest.update(file.name.encode(errors="surrogatepass") if path.is_dir() else b"")
    return digest.hexdigest()


Item = TypeVar("Item")

INDEX = "index.jsonl"


@dataclass(frozen=True)
class StoreFormat:
    """The format of a store: a file with `suffix` per recording, `frame_bytes` long for each of its frames.

    `format` is the kind and version, such as "inphase frames 1"; `settings` hold for all recordings. Both are written
    in the first line of the index.
    """

    format: str
    suffix: str
    frame_bytes: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """The index line of one recording.

    `file` holds `frames` frames and `digest` is its BLAKE2 hash. A recording that could not be read has no file but a
    reason in `broken`. `source` identifies the decoded file and its settings; `damage` describes lost frames.
    """

    id: str
    source: str = ""
    file: str = ""
    frames: int = 0
    digest: str = ""
    damage: str = ""
    broken: str = ""


class ArrayStore(Mapping[str, Item]):
    """A read-only mapping from the ids of recordings to their arrays."""

    frame_bytes: int  # size of a frame in the files

    def __init__(self, folder: Path, *, format: str) -> None:
        """Open the store in `folder`; recordings added later are not visible."""
        self.folder = folder
        self.settings, entries = read_index(folder, format=format)
        self._entries = {id: entry for id, entry in entries.items() if not entry.broken}
        self.broken = {id: entry.broken for id, entry in entries.items() if entry.broken}
        self.damaged = {id: entry.damage for id, entry in entries.items() if entry.damage}

    def _read(self, file: Path, frames: int) -> Item:
        """Read a complete file."""
        raise NotImplementedError

    def __getitem__(self, id: str) -> Item:
        """Open one recording."""
        if id in self.broken:
            raise StoreError(f"{id} is not in {self.folder} because it could not be decoded: {self.broken[id]}")
        entry = self._entries[id]
        if not is_complete(self.folder, entry, frame_bytes=self.frame_bytes):
            raise StoreError(
                f"{self.folder / entry.file} ({id}) has changed since it was written: cache the recording again"
            )
        return self._read(self.folder / entry.file, entry.frames)

    def __contains__(self, id: object) -> bool:
        """Report whether a recording can be read."""
        return id in self._entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of readable recordings."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Count the readable recordings."""
        return len(self._entries)

    def frames(self, id: str) -> int:
        """Count the frames of a recording without opening its file."""
        return self._entries[id].frames

    def source(self, id: str) -> str:
        """Return the identity of a readable recording, its file and its settings; empty for another id."""
        return self._entries[id].source if id in self._entries else ""

    def verify(self) -> list[str]:
        """Read all files and list the ids whose bytes have changed since they were written."""
        return [id for id, entry in self._entries.items() if not self._is_intact(entry)]

    def _is_intact(self, entry: Entry) -> bool:
        if not is_complete(self.folder, entry, frame_bytes=self.frame_bytes):
            return False
        with (self.folder / entry.file).open("rb") as file:
            return hashlib.file_digest(file, hashlib.blake2b).hexdigest() == entry.digest


def is_complete(folder: Path, entry: Entry, *, frame_bytes: int) -> bool:
    """Report whether the file of an entry exists in full length."""
    file = folder / entry.file
    return file.is_file() and file.stat().st_size == frame_bytes * entry.frames


def read_index(folder: Path, *, format: str) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Read the settings of a store and its entries; the last of several lines for one id counts."""
    try:
        lines = (folder / INDEX).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        raise StoreError(f"{folder} holds no store of {format.split()[1]}: cache recordings into it first") from None
    entries: dict[str, Entry] = {}
    settings: dict[str, Any] | None = None
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_index_line(line)
            if number == 1:
                settings = _settings(record, folder, format=format)
            else:
                entries[record["id"]] = Entry(**record)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{folder / INDEX} is damaged in line {number}: remove {folder}, cache again") from error
    if settings is None:
        raise StoreError(f"{folder / INDEX} is empty: remove {folder}, cache again")
    return settings, entries


def _settings(header: dict[str, Any], folder: Path, *, format: str) -> dict[str, Any]:
    if header["format"] != format:
        raise StoreError(f"{folder} is written as {header['format']!r}, not {format!r}: cache again into a new folder")
    return {name: value for name, value in header.items() if name != "format"}


def create_index(folder: Path, kind: StoreFormat) -> None:
    """Start the index of a new store; cut off an unfinished line of an existing one."""
    index = folder / INDEX
    if index.exists():
        data = index.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(index, data.rfind(b"\n") + 1)
    if not index.exists() or not index.stat().st_size:
        write_blocks(index, [_line({"format": kind.format, **kind.settings})])


def append_entry(folder: Path, entry: Entry) -> None:
    """Append a line to the index; after a failure the index is as before."""
    line = _line({name: value for name, value in asdict(entry).items() if value})
    # Unbuffered, so that closing the file after a failure cannot write the line after all.
    with (folder / INDEX).open("ab", buffering=0) as index:
        before = index.tell()
        try:
            if index.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(index.fileno())
        except OSError:
            os.truncate(folder / INDEX, before)
            raise


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps({**record, "sum": _line_sum(record)}).encode() + b"\n"


def parse_index_line(line: bytes, *, strict: bool = False) -> dict[str, Any]:
    """Read a line of an index; raise ValueError if its checksum does not match or, where `strict`, is missing."""
    try:
        record: dict[str, Any] = json.loads(line)
        written = record.pop("sum", None)
        if written != _line_sum(record) and (strict or written is not None):
            raise ValueError("its checksum does not match its contents")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return record


def _line_sum(record: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(record).encode(), digest_size=8).hexdigest()
