"""Errors and warnings about files, by names a caller can catch."""

import errno
from importlib import import_module
from typing import Any

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class MediaError(Exception):
    """A file cannot be used; the message names the file and what to do about it."""


class NoPersonError(MediaError):
    """A recording shows no person whose pose can be estimated; the message names the file."""


class StoreError(MediaError):
    """A store cannot be read or written; the message names it and what to do about it."""


class DamagedMediaWarning(UserWarning):
    """A file is damaged: the rest was decoded, and the message counts the losses."""


class UnverifiedWeightsWarning(UserWarning):
    """Weights come from a file of your own, whose SHA-256 is not that of the published file."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message gives the command that installs it."""


def describe_error(path: object, error: Exception) -> str:
    """Describe in one line an error that the library did not expect while it read a file."""
    reason = " ".join(str(error).split())[:500]
    return f"{path} cannot be read ({type(error).__name__}: {reason}): convert it, for example to H.264 in an .mp4 file"


def is_disk_full(error: OSError) -> bool:
    """Report whether an error means that no more can be written: no room, no quota, or a limit of file sizes."""
    return error.errno in _DISK_FULL


# Windows replaces and removes no file that a program has open, such as a player of a video.
WINDOWS_DENIED, WINDOWS_SHARING = 5, 32


def explain_os_error(error: OSError) -> str:
    """Describe why a write failed and what to do about it."""
    if is_disk_full(error):
        return "the disk is full; make room, then run this again"
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "a file is where a folder is to be made; name another folder"
    if getattr(error, "winerror", None) in (WINDOWS_DENIED, WINDOWS_SHARING):
        return "another program has the file open, or the folder is protected; close it, then run this again"
    return f"{error.strerror or error}; check the folder and your rights to it, then run this again"


def describe_os_error(error: OSError) -> str:
    """Describe an error of the system for the user: its files, the reason and what to do."""
    if error.errno is None:
        return str(error)
    # A failed copy has two names: the file and its destination.
    named = [str(name) for name in (error.filename, error.filename2) if name is not None]
    if isinstance(error, FileNotFoundError) and len(named) == 1:
        return f"{named[0]} does not exist: check the path"
    reason = explain_os_error(error)
    return f"{' → '.join(named)}: {reason}" if named else reason


def import_extra(module: str, *, extra: str) -> Any:
    """Import an optional dependency; where it is missing, raise an error that names the extra to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{module} is not installed: pip install 'inphase[{extra}]'") from error
