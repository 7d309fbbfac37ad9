"""The index of a frame store: which recordings it holds whole.

`index.jsonl` opens with a line on the store; a recording is added in one line once its file is whole and on disk. A
file that no line names does not exist; a last line without its end was never written.
"""

import contextlib
import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inphase.media.errors import StoreError

INDEX = "index.jsonl"
FORMAT = "inphase frames 1"


@dataclass(frozen=True)
class Entry:
    """What the index says of one recording.

    `file` holds `frames` pictures [T, H, W, 3] uint8 and after them their times [T] float64, little-endian; `digest`
    is the BLAKE2 hash of both. A recording that could not be cached has no file, and `broken` says why. `source`
    identifies what was decoded and `damage` says what of it was lost.
    """

    id: str
    source: str = ""
    file: str = ""
    frames: int = 0
    digest: str = ""
    damage: str = ""
    broken: str = ""


def is_whole(folder: Path, entry: Entry, *, size: tuple[int, int]) -> bool:
    """Tell whether the file of an entry is there in full length."""
    file = folder / entry.file
    return file.is_file() and file.stat().st_size == bytes_of_frames(entry, size) + 8 * entry.frames


def bytes_of_frames(entry: Entry, size: tuple[int, int]) -> int:
    """Count the bytes before the times in the file of an entry."""
    return entry.frames * size[0] * size[1] * 3


def read_index(folder: Path) -> tuple[tuple[int, int], dict[str, Entry]]:
    """Read the size of a store's pictures and its entries; of two lines for one id the later holds."""
    try:
        lines = (folder / INDEX).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        raise StoreError(f"{folder} holds no frame store: cache recordings into it first") from None
    entries: dict[str, Entry] = {}
    size: tuple[int, int] | None = None
    for number, line in enumerate(lines, start=1):
        try:
            record: dict[str, Any] = json.loads(line)
            if number == 1:
                size = _size_of(record, folder)
            else:
                entries[record["id"]] = Entry(**record)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{folder / INDEX} is damaged in line {number}: remove {folder}, cache again") from error
    if size is None:
        raise StoreError(f"{folder / INDEX} is empty: remove {folder}, cache again")
    return size, entries


def _size_of(header: dict[str, Any], folder: Path) -> tuple[int, int]:
    if header["format"] != FORMAT:
        raise StoreError(f"{folder} is written as {header['format']!r}, not {FORMAT!r}: cache again into a new folder")
    height, width = header["size"]
    return int(height), int(width)


def create_index(folder: Path, size: tuple[int, int]) -> None:
    """Start the index of a new store; cut off a line that was never finished."""
    index = folder / INDEX
    if index.exists():
        data = index.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(index, data.rfind(b"\n") + 1)
    if not index.exists() or not index.stat().st_size:
        fresh = folder / f"{INDEX}.tmp"
        with fresh.open("wb") as file:
            file.write(_line({"format": FORMAT, "size": list(size)}))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(index)
        folder_to_disk(folder)


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


def folder_to_disk(folder: Path) -> None:
    """Make a rename last, where the system lets a folder be opened."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
