"""A playback on disk: a folder with `playback.json`, its arrays, its media files and the marks made in the viewer."""

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from inphase.playback.document import Playback, TimeMap
from inphase.playback.part import Part, PlaybackError, dtype_of, explain, join_place
from inphase.storage.cache import content_hash
from inphase.storage.files import atomic_write, format_table, read_cell

P = TypeVar("P", bound=Part)
INDEX = "playback.json"
ARRAYS = "arrays"
FORMAT = "inphase playback"
VERSION = 1
# A document of nine long tracks has a few megabytes.
MAX_DOCUMENT_BYTES = 256 * 2**20
# The longest side an array may have.
MAX_LENGTH = 2**31 - 1
# The marks made in the viewer: a table that `inphase transfer` reads.
MARKS = "labels.csv"
MARK_COLUMNS = ["second", "label"]
MAX_MARKS, MAX_MARK_LETTERS, MAX_MARKS_BYTES = 100_000, 200, 32 * 2**20


@dataclass(frozen=True, eq=False)
class OpenedPlayback:
    """A playback and every file it needs: path in the folder → resolved path."""

    playback: Playback
    files: dict[str, Path]


class StoredArray(Part, frozen=True):
    """The entry of an array in the document; its numbers are in a file, little-endian and in C order."""

    FILE_TYPES: ClassVar = {"file": {".bin": "application/octet-stream"}}

    file: str
    dtype: str
    shape: tuple[int, ...]

    def check(self) -> None:
        """Raise if a length is negative or larger than any array."""
        for i, length in enumerate(self.shape):
            if not 0 <= length <= MAX_LENGTH:
                raise PlaybackError(f"shape[{i}] must be from 0 to {MAX_LENGTH:,}, got {length!r:.20}")


def write_playback(folder: Path | str, playback: Playback) -> Path:
    """Write a playback into the folder that holds its media and return the path of its JSON.

    Arrays are named by a hash of their content and the JSON is written last, so an earlier playback in the folder stays
    complete until the new one is. Costs of more than 2048 rows or columns are written as means of blocks.
    """
    folder = Path(folder)
    playback = playback.replace(pairs=tuple(pair.downsample() for pair in playback.pairs))
    (folder / ARRAYS).mkdir(parents=True, exist_ok=True)
    before = _stored_arrays(folder)
    stored = {id(array): _store(folder, name, array) for name, array in _arrays_of(playback)}

    def encode(array: NDArray[Any]) -> Any:
        return stored[id(array)] if id(array) in stored else array.tolist()

    content = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(playback, enc_hook=encode)}
    # The standard library writes the text: msgspec's writer refuses the names of files that are not valid Unicode.
    text = json.dumps(content, allow_nan=False)
    # Decoding it again finds missing media before the old document is replaced.
    _decode(folder, json.loads(text))
    _write(folder / INDEX, text.encode())
    for file in before - {each.file for each in stored.values()}:
        with contextlib.suppress(OSError):
            (folder / file).unlink()
    return folder / INDEX


def read_playback(folder: Path | str) -> Playback:
    """Read a playback with all its arrays; raise a PlaybackError that names the invalid field."""
    return open_playback(folder).playback


def open_playback(folder: Path | str) -> OpenedPlayback:
    """Read a playback and resolve every file it needs; raise a PlaybackError that names the invalid field."""
    folder = Path(folder)
    index = folder / INDEX
    if not index.is_file():
        raise PlaybackError(f"no {INDEX} in {folder}: name a folder that `inphase align` or another command wrote")
    if index.stat().st_size > MAX_DOCUMENT_BYTES:
        raise PlaybackError(
            f"{index} has {index.stat().st_size:,} bytes, more than {MAX_DOCUMENT_BYTES:,}: write the playback again"
        )
    try:
        document = find_file(folder, INDEX).read_bytes()
        try:
            content = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise PlaybackError(f"the document is not JSON ({error}): write the playback again") from error
        return _decode(folder, content)
    except PlaybackError as error:
        raise PlaybackError(f"{index}: {error}") from error


def add_media(folder: Path | str, source: Path | str, *, name: str | None = None) -> str:
    """Add a file to a playback's folder, as a hard link if the disk allows it, and return its path there.

    A number is appended to a name that another file has. Symbolic links are not used: the viewer follows none that
    leave the folder.
    """
    folder, source = Path(folder), Path(source)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = Path(name or source.name)
    for number in range(1, 10_000):
        target = folder / (wanted.name if number == 1 else f"{wanted.stem}-{number}{wanted.suffix}")
        if target.exists():
            if target.samefile(source) or _same_content(target, source):
                return target.name
            continue
        try:
            os.link(source.resolve(strict=True), target)
        except FileExistsError:
            continue
        except FileNotFoundError:
            raise
        except OSError:
            with atomic_write(target) as part:
                shutil.copyfile(source, part)
        return target.name
    raise PlaybackError(f"{folder} has 9,999 files named like {wanted}: use an empty folder")


def find_file(folder: Path, path: str) -> Path:
    """Resolve a path in a playback's folder; raise if it is missing or a link leads out of the folder."""
    root = folder.resolve()
    try:
        real = (root / path).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise PlaybackError(f"{path} is not in {folder}: put it there") from error
    if not real.is_relative_to(root):
        raise PlaybackError(f"{path} is a link that leaves {folder}: put the file itself there")
    if not real.is_file():
        raise PlaybackError(f"{path} is not a file: put a file there")
    return real


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named moment of the reference track, in its seconds."""

    second: float
    label: str


@dataclass(frozen=True)
class SavedMarks:
    """The marks in a playback's folder, and the version of their file: a hash of its content, "" without a file."""

    marks: tuple[Mark, ...]
    version: str


class MarksChangedError(PlaybackError):
    """Marks that were not saved, since their file has changed."""


def read_marks(folder: Path | str) -> SavedMarks:
    """Read the marks in a playback's folder; raise if `labels.csv` there is another table."""
    folder = Path(folder)
    if not (folder / MARKS).exists() and not (folder / MARKS).is_symlink():
        return SavedMarks((), "")
    file = find_file(folder, MARKS)
    if file.stat().st_size > MAX_MARKS_BYTES:
        raise PlaybackError(f"{file} has more than {MAX_MARKS_BYTES:,} bytes: rename it to make marks here")
    content = file.read_bytes()
    marks = []
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
        if rows[:1] != [MARK_COLUMNS]:
            raise ValueError(f"its first line is not {','.join(MARK_COLUMNS)}")
        for second, label in filter(None, rows[1:]):
            marks.append(Mark(float(second), read_cell(label)))
    except (ValueError, csv.Error) as error:
        raise PlaybackError(f"{file} is not a table of marks ({error}): rename it to make marks here") from error
    return SavedMarks(tuple(marks), _version(content))


def write_marks(folder: Path | str, marks: Sequence[Mark], *, version: str, end: float) -> str:
    """Replace the marks in a playback's folder, whose reference ends at second `end`; return their new version.

    Raise `MarksChangedError` if the file is not the given version: another tab or program has written it since.
    """
    if len(marks) > MAX_MARKS:
        raise PlaybackError(f"{len(marks):,} marks are too many: save at most {MAX_MARKS:,}")
    rows = []
    for mark in sorted(marks, key=lambda each: each.second):
        label = " ".join(mark.label.split())
        if not 0 < len(label) <= MAX_MARK_LETTERS or any(ord(letter) < 32 or ord(letter) == 127 for letter in label):
            raise PlaybackError(f"{mark.label!r:.60} is no name of a mark: use 1 to {MAX_MARK_LETTERS} letters")
        if not 0 <= mark.second <= end:
            raise PlaybackError(f"{label!r} is at {mark.second:g} s, but the reference lasts from 0 to {end:g} s")
        rows.append([f"{mark.second:.6f}", label])
    content = format_table([MARK_COLUMNS, *rows]).encode()
    file = Path(folder) / MARKS
    with atomic_write(file) as part:  # which holds a lock on the file
        if read_marks(folder).version != version:
            raise MarksChangedError(f"{MARKS} was changed by another tab or program after it was read here")
        part.write_bytes(content)
    return _version(content)


def _version(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _decode(folder: Path, content: Any) -> OpenedPlayback:
    """Check the format and version of a document, then convert it and resolve its files."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PlaybackError(f'it is not a playback: "format" must be "{FORMAT}"')
    if (version := content.get("version")) != VERSION:
        raise PlaybackError(
            f"it has version {version!r:.20} and this release reads {VERSION}: update inphase, or write it again"
        )
    files = {INDEX: folder / INDEX}

    def load(hint: Any, value: Any) -> NDArray[Any]:
        stored = _converted(StoredArray, value)
        files[stored.file] = find_file(folder, stored.file)
        dtype = dtype_of(hint)
        if dtype is None:
            raise TypeError(f"a playback holds no {hint}")
        return _read_array(files[stored.file], stored, dtype)

    body = {name: value for name, value in content.items() if name not in ("format", "version")}
    playback = _converted(Playback, body, load)
    for place, part in playback.walk():
        for name in part.FILE_TYPES:
            if (path := getattr(part, name)) is not None:
                try:
                    files[path] = find_file(folder, path)
                except PlaybackError as error:
                    raise PlaybackError(f"{join_place(place, name)}: {error}") from error
    return OpenedPlayback(playback, files)


def _converted(kind: type[P], value: Any, load: Callable[[Any, Any], NDArray[Any]] | None = None) -> P:
    """Convert plain values to a part; `load` reads the arrays."""
    try:
        return msgspec.convert(value, kind, dec_hook=load)
    except msgspec.ValidationError as error:
        raise explain(error, kind, value) from error
    except UnicodeEncodeError as error:  # raised by msgspec itself
        raise PlaybackError(f"a field name is not valid Unicode ({error}): remove the field") from error


def _arrays_of(playback: Playback) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays that are stored as files, each with the name of its field."""
    for _, part in playback.walk():
        for name in part.__struct_fields__:
            if isinstance(array := getattr(part, name), np.ndarray) and not isinstance(part, TimeMap):
                yield name, array


def _store(folder: Path, name: str, array: NDArray[Any]) -> StoredArray:
    """Write an array to a file that is named by a hash of its content."""
    content = array.astype(array.dtype.newbyteorder("<")).tobytes()
    file = f"{ARRAYS}/{name}-{hashlib.blake2b(content, digest_size=8).hexdigest()}.bin"
    _write(folder / file, content)
    return StoredArray(file, array.dtype.name, array.shape)


def _read_array(file: Path, stored: StoredArray, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read an array whose file has exactly the bytes of its shape."""
    if stored.dtype != dtype.name:
        raise PlaybackError(f"dtype is {stored.dtype!r:.60}: it must be {dtype.name!r}")
    expected, found = math.prod(stored.shape) * dtype.itemsize, file.stat().st_size
    if found != expected:
        raise PlaybackError(
            f"{file.name} has {found:,} bytes, not the {expected:,} of {dtype.name} {list(stored.shape)}: "
            "it is incomplete or belongs to another playback; write the playback again"
        )
    array = np.fromfile(file, dtype=dtype.newbyteorder("<")).reshape(stored.shape)
    return array.astype(dtype, copy=False)


def _stored_arrays(folder: Path) -> set[str]:
    """List the array files of the playback in the folder; an empty set if it cannot be read."""
    with contextlib.suppress(PlaybackError, OSError):
        return {path for path in open_playback(folder).files if path.startswith(f"{ARRAYS}/")}
    return set()


def _same_content(one: Path, other: Path) -> bool:
    return one.stat().st_size == other.stat().st_size and content_hash(one) == content_hash(other)


def _write(file: Path, content: bytes) -> None:
    with atomic_write(file) as part:
        part.write_bytes(content)


# The files that a command wrote into a folder: size, time and links of each when it was written.
WRITTEN = ".inphase-files.json"
Stamp = tuple[int, int, int]


@contextlib.contextmanager
def replace_outputs(folder: Path) -> Iterator[list[Path]]:
    """Yield a list for the files that the block writes, then remove those of an earlier run that are not in it.

    Files that a listed playback needs are kept too. A file is removed only if an earlier run wrote it and it has not
    changed since, and never the last link to a video.
    """
    before, written = _read_written(folder), list[Path]()
    existed = {_below(file, folder): _stamp(file) for file in _files(folder, depth=3)} if folder.is_dir() else {}
    yield written
    current = {_below(file, folder) for file in written if file.is_relative_to(folder)}
    for index in [file for file in written if file.name == INDEX]:
        current |= {_below(file, folder) for file in open_playback(index.parent).files.values()}
    for name in before.keys() - current:
        file = folder / name
        if existed.get(name) == before[name]:
            file.unlink(missing_ok=True)
            for parent in file.parents[: len(Path(name).parts) - 1]:
                with contextlib.suppress(OSError):
                    parent.rmdir()
    made = {name: _stamp(folder / name) for name in current}
    # A file that lay there before and was not written, such as a video that is its own source, is not ours.
    made = {name: stamp for name, stamp in made.items() if name in before or existed.get(name) != stamp}
    _write(folder / WRITTEN, msgspec.json.encode(made))


def _files(folder: Path, *, depth: int) -> Iterator[Path]:
    for file in folder.iterdir():
        if file.is_symlink() or not file.is_dir():
            yield file
        elif depth > 1:
            yield from _files(file, depth=depth - 1)


def _read_written(folder: Path) -> dict[str, Stamp]:
    try:
        found = msgspec.json.decode((folder / WRITTEN).read_bytes(), type=dict[str, Stamp])
    except (OSError, msgspec.MsgspecError):
        return {}
    parents = {name: (folder / name).parent.resolve() for name in found}
    return {name: stamp for name, stamp in found.items() if parents[name].is_relative_to(folder.resolve())}


def _below(file: Path, folder: Path) -> str:
    return (file.parent.resolve() / file.name).relative_to(folder.resolve()).as_posix()


def _stamp(file: Path) -> Stamp:
    """Return size, time of modification, and whether there are other links to a file."""
    found = file.lstat()
    return found.st_size, found.st_mtime_ns, min(found.st_nlink, 2)
