"""The index of a store: which recordings it holds whole.

`index.jsonl` opens with a line on the store; a recording is added in one line once its file is whole and on disk. A
file that no line names does not exist; a last line without its end was never written.
"""

import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inphase.storage.errors import StoreError
from inphase.storage.files import fsync_folder

INDEX = "index.jsonl"


@dataclass(frozen=True)
class StoreFormat:
    """What a store holds: a file with `suffix` for each recording, `frame_bytes` long for each of its frames.

    `format` is the kind and version, such as "inphase frames 1", and `settings` is what all its recordings were made
    with: both stand in the first line of the index.
    """

    format: str
    suffix: str
    frame_bytes: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """What the index says of one recording.

    `file` holds `frames` frames and `digest` is its BLAKE2 hash. A recording that could not be cached has no file, and
    `broken` says why. `source` identifies what was decoded and `damage` says what of it was lost.
    """

    id: str
    source: str = ""
    file: str = ""
    frames: int = 0
    digest: str = ""
    damage: str = ""
    broken: str = ""


def is_whole(folder: Path, entry: Entry, *, frame_bytes: int) -> bool:
    """Tell whether the file of an entry is there in full length."""
    file = folder / entry.file
    return file.is_file() and file.stat().st_size == frame_bytes * entry.frames


def read_index(folder: Path, *, format: str) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Read the settings of a store and its entries; of two lines for one id the later holds."""
    try:
        lines = (folder / INDEX).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        raise StoreError(f"{folder} holds no store of {format.split()[1]}: cache recordings into it first") from None
    entries: dict[str, Entry] = {}
    settings: dict[str, Any] | None = None
    for number, line in enumerate(lines, start=1):
        try:
            record: dict[str, Any] = json.loads(line)
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
    """Start the index of a new store; cut off a line that was never finished."""
    index = folder / INDEX
    if index.exists():
        data = index.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(index, data.rfind(b"\n") + 1)
    if not index.exists() or not index.stat().st_size:
        fresh = folder / f"{INDEX}.tmp"
        with fresh.open("wb") as file:
            file.write(_line({"format": kind.format, **kind.settings}))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(index)
        fsync_folder(folder)


def append_entry(folder: Path, entry: Entry) -> None:
    """Add a line to the index, whole or not at all."""
    line = _line({name: value for name, value in asdict(entry).items() if value})
    # Unbuffered, so that closing the file after a failure cannot write again what was just cut off.
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
    return json.dumps(record).encode() + b"\n"
