"""Errors and warnings about files, by names a caller can catch."""

from importlib import import_module
from typing import Any


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


def import_extra(module: str, *, extra: str) -> Any:
    """Import an optional dependency; where it is missing, raise an error that names the extra to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{module} is not installed: pip install 'inphase[{extra}]'") from error
