"""Writing that leaves a folder valid: files that appear once they are whole, one process at a time."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

from inphase.storage.errors import MediaError, StoreError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a place to write to, of the same ending, which becomes `path` at the end; whatever fails leaves nothing.

    Who wants to write the same file meanwhile waits: the last one's stays, and it is whole.
    """
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        with _alone(part):
            try:
                yield part
                part.replace(path)
            finally:
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)
    except OSError as error:
        raise MediaError(f"{path} cannot be written: {explain_os_error(error)}") from error


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[None]:
    """Wait for a lock on a draft and hold it; it dies with its process, and what that left is written over."""
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
    while fcntl is not None:
        # Some network file systems have no locks: there the last one to finish wins, whole or not.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_open(part, descriptor):
            break
        os.close(descriptor)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield
    finally:
        os.close(descriptor)


def _is_open(part: Path, descriptor: int) -> bool:
    """Tell whether a draft still is the file that was opened: who held the lock may have renamed or removed it."""
    try:
        return os.path.samestat(os.stat(part), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def exclusive_lock(folder: Path, *, doing: str = "filling") -> Iterator[None]:
    """Hold a folder for writing: no other process can until the end."""
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(f"another process is {doing} {folder}: wait for it, or use another folder") from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def explain_os_errors(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{folder} keeps what is written so far, but {explain_os_error(error)}") from error


def explain_os_error(error: OSError) -> str:
    """Say what the disk refuses and what to do about it."""
    if error.errno in _FULL:
        return "the disk is full; make room, then run this again"
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "a file is where a folder is to be made; name another folder"
    return f"{error.strerror or error}; check the folder and your rights to it, then run this again"


def write_blocks(file: Path, blocks: Iterable[bytes | memoryview]) -> str:
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
        fsync_folder(file.parent)
    finally:
        part.unlink(missing_ok=True)
    return digest.hexdigest()


def fsync_folder(folder: Path) -> None:
    """Make a rename last, where the system lets a folder be opened."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def require_folder(out: Path) -> None:
    """Raise if an output folder exists as a file; call it before the work that fills the folder."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: choose a folder to write")


def refuse_overwrite(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Raise if an output file is the same file as one of the inputs."""
    given = [path for path in inputs if path.exists()]
    for output in outputs:
        if output.exists() and any(output.samefile(path) for path in given):
            raise ValueError(f"{output} would be overwritten: choose another output folder")
