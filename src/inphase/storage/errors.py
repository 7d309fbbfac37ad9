"""What goes wrong with files of pictures and sound, under names a caller can catch."""


class MediaError(Exception):
    """A file gives nothing to work with; the message names the file and what to do about it."""


class NoPersonError(MediaError):
    """A file shows nobody whose pose could be read; the message names the file."""


class StoreError(MediaError):
    """A frame store cannot be written or read; the message says which and what to do about it."""


class DamagedMediaWarning(UserWarning):
    """A file is damaged: what could be decoded was, and the message counts what was lost."""


class MissingExtraError(ImportError):
    """An optional part of the installation is not there; the message says how to get it."""
