"""A shelf of results that took long to make, found again by what they were made from.

A key is a hash of contents and settings, so that a file that was renamed or copied is known and one that changed is
not. Every result is a file of its own which appears once it is whole: any number of processes share a cache, and
removing anything from it costs time only.
"""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from inphase.storage.errors import MediaError
from inphase.storage.files import explain_os_error


class Cache:
    """Named arrays kept by key in a folder; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        """Keep results in `folder`, which is made when the first one is kept."""
        self.folder = folder

    def find(self, key: str) -> dict[str, NDArray[Any]] | None:
        """Give the arrays kept under a key; nothing where there are none, or where they are damaged."""
        if self.folder is None:
            return None
        try:
            with (self.folder / f"{key}.npz").open("rb") as file, np.load(file, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
        except (OSError, ValueError, EOFError, KeyError, BadZipFile):
            return None

    def keep(self, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep arrays under a key; a shelf that cannot be written is warned of, since work goes on without it."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".npz")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    np.savez(file, allow_pickle=False, **arrays)
                Path(draft).replace(self.folder / f"{key}.npz")
            finally:
                Path(draft).unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(f"nothing is kept in {self.folder}: {explain_os_error(error)}", stacklevel=2)


def default_cache_folder() -> Path:
    """Name the folder for what can be made again: $XDG_CACHE_HOME/inphase, or ~/.cache/inphase."""
    # The standard asks to ignore a relative path.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "inphase"


def content_key(path: Path | str, *settings: object) -> str:
    """Hash what a file, or a folder of pictures, holds together with settings, which are told apart by how they print.

    About a gigabyte a second.
    """
    path, digest = Path(path), hashlib.blake2b(digest_size=20)
    if not path.exists():
        raise MediaError(f"{path} does not exist: check the path")
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if not file.is_file():
            continue
        try:
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, hashlib.blake2b).digest())
        except PermissionError as error:
            raise MediaError(f"{file} may not be read: give yourself the right to, as `chmod u+r` does") from error
        digest.update(file.name.encode(errors="surrogatepass") if path.is_dir() else b"")
    digest.update(repr(settings).encode())
    return digest.hexdigest()
