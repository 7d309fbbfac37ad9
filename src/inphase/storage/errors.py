"""Errors and warnings about files, by names a caller can catch."""


class MediaError(Exception):
    """A file cannot be used; the message names the file and what to do about it."""


class NoPersonError(MediaError):
    """A recording shows no person whose pose can be estimated; the message names the file."""


class StoreError(MediaError):
    """A store cannot be read or written; the message names it and what to do about it."""


class DamagedMediaWarning(UserWarning):
    """A file is damaged: the rest was decoded, and the message counts what was lost."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message says how to install it."""
