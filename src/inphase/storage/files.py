"""Write files atomically, add and verify checksums, lock folders against concurrent writers, check outputs early.

A file is written inside a hidden draft folder beside it, `.NAME.inphase-draft`, and renamed out of it when it is
complete and on disk. The writer holds a lock in the draft folder: a second writer of the same file waits for it, and a
draft whose lock is free belongs to a killed process and is removed by the next process that writes or reads beside it.

A file with a checksum contains the text `blake2b:` and 64 hexadecimal digits wherever its format has room for a text:
the BLAKE2 hash of the file with zeros in place of these digits. So one function verifies files of every format.
"""

import contextlib
import csv
import functools
import hashlib
import io
import os
import re
import shutil
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

from inphase.storage.errors import MediaError, StoreError, UnverifiedWeightsWarning, explain_os_error

DRAFT_SUFFIX = ".inphase-draft"
# File systems without locks cannot show that a draft's writer is alive: there a draft is stale after a day.
MAX_DRAFT_SECONDS = 24 * 3600
_LOCK = ".lock"
# The text that `write_checksum` completes, and how many bytes from either end of a file it is searched in.
CHECKSUM = "blake2b:" + 64 * "0"
SHA256SUMS = "SHA256SUMS"
_DIGITS = re.compile(rb"blake2b:([0-9a-f]{64})")
_SEARCHED_BYTES = 2**20


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a draft to write, which replaces `path` when the block succeeds; on failure `path` stays as it was.

    The file gets the permissions of the umask. Concurrent writers of one file take turns. An `OSError` becomes a
    `MediaError` that names the file and what to do.
    """
    try:
        with draft_file(path) as draft:
            yield draft
    except OSError as error:
        raise MediaError(f"{path} cannot be written: {explain_os_error(error)}") from error


@contextlib.contextmanager
def draft_file(path: Path) -> Iterator[Path]:
    """Write atomically like `atomic_write`, but let an `OSError` through."""
    sweep_once(path.parent.absolute())
    with _locked_draft(path.with_name(f".{path.name}{DRAFT_SUFFIX}")) as folder:
        draft = folder / path.name
        yield draft
        # Some writers create their file with mode 0600; the folder was created under the umask.
        draft.chmod(folder.stat().st_mode & 0o666)
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.replace(path)
    fsync_folder(path.parent)


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Yield a new hidden folder inside `parent` and remove it at the end, or at the next write after a kill."""
    sweep_once(parent.absolute())
    with _locked_draft(parent / f".{uuid.uuid4().hex[:12]}{DRAFT_SUFFIX}") as folder:
        yield folder


def is_draft(path: Path) -> bool:
    """Report whether a path is the draft of a running or killed writer."""
    return path.name.startswith(".") and path.name.endswith(DRAFT_SUFFIX)


def sweep_drafts(folder: Path) -> None:
    """Remove the drafts in a folder whose writers were killed."""
    try:
        drafts = [Path(entry.path) for entry in os.scandir(folder) if is_draft(Path(entry.name))]
    except OSError:
        return
    for draft in drafts:
        with contextlib.suppress(OSError):
            _remove_if_stale(draft)


@functools.lru_cache(maxsize=1024)
def sweep_once(folder: Path) -> None:
    """Do the same once per process: listing a large folder at every write would cost more than the write."""
    sweep_drafts(folder)


def _remove_if_stale(draft: Path) -> None:
    """Remove a draft unless its writer holds the lock or, on a file system without locks, may be alive."""
    is_old = time.time() - draft.stat().st_mtime > MAX_DRAFT_SECONDS
    if fcntl is None:
        if is_old:
            _remove_draft(draft)
        return
    descriptor = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_stale = _is_same_file(draft / _LOCK, descriptor)
    except BlockingIOError:
        is_stale = False
    except OSError:
        is_stale = is_old
    try:
        if is_stale:
            _remove_draft(draft)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked_draft(folder: Path) -> Iterator[Path]:
    """Create an empty draft folder and hold its lock; wait where another writer holds it."""
    descriptor = _lock(folder)
    if descriptor is None:  # no locks on this file system: a unique name keeps concurrent writers apart
        folder = folder.with_name(f".{uuid.uuid4().hex[:12]}{folder.name}")
        folder.mkdir()
    try:
        _clear(folder)
        yield folder
    finally:
        with contextlib.suppress(OSError):
            _remove_draft(folder)
        if descriptor is not None:
            os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Create a draft folder, wait for its lock, and return the open lock file; None where locks do not work."""
    while fcntl is not None:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        try:
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the last holder has just removed the folder
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
            _remove_draft(folder)
            return None
        if _is_same_file(folder / _LOCK, descriptor):
            return descriptor
        os.close(descriptor)
    return None


def _is_same_file(path: Path, descriptor: int) -> bool:
    """Report whether a path still leads to the opened file: the holder of its lock may have removed it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_draft(folder: Path) -> None:
    # The lock goes last: from then on the folder may belong to the next writer.
    _clear(folder)
    (folder / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != _LOCK:
            entry.unlink(missing_ok=True)


def write_blocks(file: Path, blocks: Iterable[bytes | memoryview]) -> str:
    """Write blocks to a file atomically and return their BLAKE2 hash."""
    digest = hashlib.blake2b()
    with draft_file(file) as draft, draft.open("wb") as opened:
        for block in blocks:
            opened.write(block)
            digest.update(block)
    return digest.hexdigest()


def write_checksum(file: Path, *, append: bool = False) -> None:
    """Replace the digits of `CHECKSUM` in a file by its hash; append the text first where the format allows that."""
    with file.open("r+b") as opened:
        if append:
            opened.seek(0, os.SEEK_END)
            opened.write(CHECKSUM.encode())
            opened.flush()
        zeros = [place for place, digits in _find_checksums(file) if digits == 64 * b"0"]
        if len(zeros) != 1:
            raise ValueError(f"{file} has {len(zeros)} places for a checksum: write the text CHECKSUM into it once")
        opened.seek(zeros[0])
        opened.write(_hash_without(file, zeros[0]).encode())


def verify_checksum(file: Path) -> bool | None:
    """Report whether a file is as it was when its checksum was written; None if it has no checksum."""
    found = _find_checksums(file)
    return any(_hash_without(file, place).encode() == digits for place, digits in found) if found else None


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Write the hashes of files into SHA256SUMS, which `sha256sum --check` reads too."""
    with atomic_write(folder / SHA256SUMS) as part:
        part.write_text("".join(f"{_sha256(folder / name)}  {name}\n" for name in names), encoding="utf-8")


def find_changed(folder: Path) -> dict[str, bool]:
    """Compare the files that SHA256SUMS names: True for each that changed since then."""
    lines = (folder / SHA256SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    listed = (line.partition("  ") for line in lines)
    return {name: not (folder / name).is_file() or _sha256(folder / name) != hashed for hashed, _, name in listed}


def _find_checksums(file: Path) -> list[tuple[int, bytes]]:
    """List the places and the digits of checksums near the beginning and the end of a file."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        found = {match.start(1): match[1] for match in _DIGITS.finditer(opened.read(_SEARCHED_BYTES))}
        begin = opened.seek(max(0, size - _SEARCHED_BYTES))
        found |= {begin + match.start(1): match[1] for match in _DIGITS.finditer(opened.read())}
    return sorted(found.items())


def _hash_without(file: Path, place: int) -> str:
    """Hash a file with 64 zeros at a place."""
    digest = hashlib.blake2b(digest_size=32)
    with file.open("rb") as opened:
        remaining = place
        while block := opened.read(min(remaining, 2**20)):
            digest.update(block)
            remaining -= len(block)
        digest.update(64 * b"0")
        opened.seek(64, os.SEEK_CUR)
        while block := opened.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def fsync_folder(folder: Path) -> None:
    """Flush a rename to disk, where the system can open a folder."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_stamp(path: Path) -> tuple[int, int, int, int]:
    """Return size, modification time, change time and inode of a file: a file that changes gets another stamp."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


@contextlib.contextmanager
def exclusive_lock(folder: Path, *, doing: str = "filling") -> Iterator[None]:
    """Lock a folder against other writing processes; raise `StoreError` if another one holds it.

    Drafts of killed writers are removed from the folder.
    """
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(f"another process is {doing} {folder}: wait for it, or use another folder") from None
    try:
        sweep_drafts(folder)
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def explain_os_errors(folder: Path) -> Iterator[None]:
    """Turn an `OSError` into a `StoreError` that names the folder and what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{folder} keeps the files written so far, but {explain_os_error(error)}") from error


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


def check_published(file: Path, *, sha256: str, fix: str) -> None:
    """Raise unless a file of third-party weights is the published one; call it before the file is parsed."""
    if not file.is_file():
        raise ValueError(f"{file} is not a file of weights: {fix}")
    found = _sha256(file)
    if found != sha256:
        raise ValueError(f"{file} is not the published file: its SHA-256 is {found}, not {sha256}; {fix}")


def check_own_weights(file: Path | str, *, sha256: str | None = None) -> Path:
    """Return the path of weights that the user names; warn unless their SHA-256 is the published one."""
    file = Path(file)
    if not file.is_file():
        raise ValueError(f"{file} is not a file of weights: name the file itself")
    if sha256 is None or _sha256(file) != sha256:
        warnings.warn(
            f"the weights in {file} are unverified: their SHA-256 is not known to this release",
            UnverifiedWeightsWarning,
            stacklevel=3,
        )
    return file


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


# A spreadsheet takes a cell that begins with one of these for a formula, which may run commands.
FORMULA_MARKS = ("=", "+", "-", "@", "\t", "\r")


def write_table(file: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write rows as CSV, atomically; text that a spreadsheet would take for a formula gets an apostrophe in front."""
    with atomic_write(file) as part, part.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([_quote_cell(cell) for cell in row] for row in rows)


def format_table(rows: Iterable[Sequence[object]]) -> str:
    """Format rows as the CSV that `write_table` writes."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([_quote_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def choose_delimiter(heading: str) -> str:
    """Return the delimiter of a table by its first line: a comma, or semicolon or tab where it has more of them.

    Spreadsheets write semicolons where numbers have a decimal comma.
    """
    return max((",", ";", "\t"), key=heading.count)


def read_cell(text: str) -> str:
    """Return the text of a cell as it was before `write_table` wrote it."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA_MARKS) else text


def _quote_cell(cell: object) -> object:
    if not isinstance(cell, str) or not cell.startswith(FORMULA_MARKS):
        return cell
    with contextlib.suppress(ValueError):
        float(cell)
        return cell  # a negative number stays one
    return f"'{cell}"
