"""A content-addressed cache of computed arrays, shared by every command.

A key is a hash of a file's bytes and of settings: a renamed or copied file is found, a changed one is not. Each entry
is one file, written atomically, so any number of processes share a cache folder, and any file in it may be deleted.
"""

import hashlib
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from threading import Condition
from typing import Any
from zipfile import BadZipFile

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from inphase.storage.errors import MediaError
from inphase.storage.files import draft_file, explain_os_error, file_stamp


class Cache:
    """Named arrays by key in a folder; without a folder nothing is cached."""

    def __init__(self, folder: Path | str | None) -> None:
        """Cache in `folder`, which is created with the first entry."""
        self.folder = None if folder is None else Path(folder)

    def get(self, key: str) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of a key; None if they are missing or damaged."""
        if self.folder is None:
            return None
        try:
            with self._file(key).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, ValueError, EOFError, KeyError, BadZipFile):
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


def default_cache_folder() -> Path:
    """Return the user's cache folder: $XDG_CACHE_HOME/inphase, or ~/.cache/inphase."""
    # The standard asks to ignore a relative path.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "inphase"


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
