"""Writing that leaves a store valid whatever interrupts it."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from inphase.media.errors import StoreError
from inphase.media.index import folder_to_disk

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a store for writing."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(f"another process is filling {folder}: wait for it, or use another folder") from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses into an error that says what to do."""
    try:
        yield
    except OSError as error:
        what = "the disk is full" if error.errno in FULL else f"writing failed ({error.strerror})"
        raise StoreError(
            f"{folder}: {what}; everything cached so far is kept: make room or check the folder, then run this again"
        ) from error


def write_whole(file: Path, blocks: Iterable[bytes | memoryview]) -> str:
    """Write blocks into a file that appears when all of them are on disk, or not at all; give their BLAKE2 hash."""
    part, digest = file.with_suffix(".tmp"), hashlib.blake2b()
    try:
        with part.open("wb") as opened:
            for block in blocks:
                opened.write(block)
                digest.update(block)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
        folder_to_disk(file.parent)
    finally:
        part.unlink(missing_ok=True)
    return digest.hexdigest()
