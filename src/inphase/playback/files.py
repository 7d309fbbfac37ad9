"""A playback on disk: `playback.json`, its arrays beside it, and the media it names, all in one folder."""

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.playback.coding import decode, encode
from inphase.playback.document import Playback
from inphase.playback.part import PlaybackError, check_path

INDEX = "playback.json"
ARRAYS = "arrays"
FORMAT = "inphase playback"
VERSION = 1
# A document of nine long tracks has a few megabytes; more is something else.
MOST_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class Opened:
    """A playback that was read, and every file it needs: its path in the folder → where that really lies."""

    playback: Playback
    files: dict[str, Path]


def write_playback(folder: Path | str, playback: Playback) -> Path:
    """Write a playback into the folder its media lie in and return the path of its JSON.

    What was there stays whole until the new one is: arrays are named after their content, and the JSON comes last.
    Costs of more than 2048 rows or columns are written as means of blocks.
    """
    folder = Path(folder)
    playback = replace(playback, pairs=tuple(pair.reduced() for pair in playback.pairs))
    (folder / ARRAYS).mkdir(parents=True, exist_ok=True)
    before, written = _arrays_of(folder), set()

    def save(name: str, array: NDArray[Any]) -> dict[str, Any]:
        content = array.astype(array.dtype.newbyteorder("<")).tobytes()
        file = f"{ARRAYS}/{name}-{hashlib.blake2b(content, digest_size=8).hexdigest()}.bin"
        _write(folder / file, content)
        written.add(file)
        return {"file": file, "dtype": array.dtype.name, "shape": list(array.shape)}

    content = {"format": FORMAT, "version": VERSION, **encode(playback, save)}
    # Reading it back is what finds media that were forgotten, before the old document is replaced.
    text = json.dumps(content, allow_nan=False)
    _decode(folder, json.loads(text))
    _write(folder / INDEX, text.encode())
    for file in before - written:
        with contextlib.suppress(OSError):
            (folder / file).unlink()
    return folder / INDEX


def read_playback(folder: Path | str) -> Playback:
    """Read a playback and all its arrays, or say what is wrong and where."""
    return open_playback(folder).playback


def open_playback(folder: Path | str) -> Opened:
    """Read a playback and find every file it needs, or say what is wrong and where."""
    folder = Path(folder)
    index = folder / INDEX
    if not index.is_file():
        raise PlaybackError(f"no {INDEX} in {folder}: name a folder that `inphase align` or another command wrote")
    if index.stat().st_size > MOST_BYTES:
        raise PlaybackError(f"{index} has {index.stat().st_size:,} bytes: no playback is that large")
    try:
        content = json.loads(_inside(folder, INDEX, "the document").read_bytes())
    except PlaybackError:
        raise
    except (ValueError, RecursionError) as error:
        raise PlaybackError(f"{index} is not JSON ({error}): write it again") from error
    try:
        return _decode(folder, content)
    except PlaybackError as error:
        raise PlaybackError(f"{index}: {error}") from error


def add_media(folder: Path | str, source: Path | str, *, name: str | None = None) -> str:
    """Bring a file into a playback's folder, as a hard link where the disk allows it, and return its path there.

    A name that is taken by another file gets a number. A symbolic link would not do: the viewer follows none that
    leaves the folder.
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
            with _part(target) as part:
                shutil.copyfile(source, part)
        return target.name
    raise PlaybackError(f"{folder} is full of files called {wanted}: use an empty folder")


def _decode(folder: Path, content: Any) -> Opened:
    """Check the head of a document, then build its parts."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PlaybackError(f'it is not a playback: "format" must be "{FORMAT}"')
    if (version := content.get("version")) != VERSION:
        raise PlaybackError(
            f"it has version {version!r:.20} and this release reads {VERSION}: update inphase, or write it again"
        )
    files: dict[str, Path] = {}

    def note(where: str, path: str) -> None:
        files[path] = _inside(folder, path, where)

    def load(where: str, reference: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
        path, shape = _array_reference(where, reference, dtype)
        note(f"{where}.file", path)
        return _read_array(files[path], where, dtype, shape)

    body = {name: value for name, value in content.items() if name not in ("format", "version")}
    playback = decode(Playback, body, "", load=load, note=note)
    return Opened(playback, {INDEX: folder / INDEX, **files})


def _array_reference(where: str, reference: Any, dtype: np.dtype[Any]) -> tuple[str, list[int]]:
    """Check how an array is said to be found."""
    if not isinstance(reference, dict) or set(reference) != {"file", "dtype", "shape"}:
        raise PlaybackError(f"{where} must say file, dtype and shape of an array, got {reference!r:.60}")
    path, shape = reference["file"], reference["shape"]
    if not isinstance(path, str):
        raise PlaybackError(f"{where}.file must be a text, got {path!r:.60}")
    check_path(f"{where}.file", path, {".bin": ""})
    if reference["dtype"] != dtype.name:
        raise PlaybackError(f"{where}.dtype is {reference['dtype']!r:.60}: it must be {dtype.name!r}")
    if not isinstance(shape, list) or not all(type(length) is int and length >= 0 for length in shape):
        raise PlaybackError(f"{where}.shape must be a list of lengths, got {shape!r:.60}")
    return path, shape


def _read_array(file: Path, where: str, dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Read little-endian numbers, exactly as many as the shape says."""
    expected, found = math.prod(shape) * dtype.itemsize, file.stat().st_size
    if found != expected:
        raise PlaybackError(
            f"{where}: {file.name} has {found:,} bytes, not the {expected:,} of {dtype.name} {list(shape)}: "
            "it was cut off or belongs to another playback"
        )
    array = np.fromfile(file, dtype=dtype.newbyteorder("<")).reshape(shape)
    return array.astype(dtype, copy=False)


def _inside(folder: Path, path: str, where: str) -> Path:
    """Find a file of the folder, and insist that it really lies there, whatever links say."""
    root = folder.resolve()
    try:
        real = (root / path).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise PlaybackError(f"{where}: {path} is not in {folder}: put it there") from error
    if not real.is_relative_to(root):
        raise PlaybackError(f"{where}: {path} is a link that leaves {folder}: put the file itself there")
    if not real.is_file():
        raise PlaybackError(f"{where}: {path} is not a file")
    return real


def _arrays_of(folder: Path) -> set[str]:
    """List the arrays the document now in the folder refers to, as far as it can be read."""
    with contextlib.suppress(PlaybackError, OSError):
        return {path for path in open_playback(folder).files if path.startswith(f"{ARRAYS}/")}
    return set()


def _same_content(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    digests = []
    for file in (one, other):
        with file.open("rb") as opened:
            digests.append(hashlib.file_digest(opened, "blake2b").digest())
    return digests[0] == digests[1]


def _write(file: Path, content: bytes) -> None:
    with _part(file) as part:
        part.write_bytes(content)


@contextlib.contextmanager
def _part(file: Path) -> Any:
    """Give a place to write to, of this process alone, which becomes `file` at the end."""
    handle, name = tempfile.mkstemp(prefix=f".{file.stem}.", suffix=file.suffix, dir=file.parent)
    os.close(handle)
    part = Path(name)
    try:
        part.chmod(0o644)
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
