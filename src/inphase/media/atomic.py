"""Files that appear once they are whole."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from inphase.media.errors import MediaError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a place to write to, of the same ending, which becomes `path` at the end; whatever fails leaves nothing."""
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise MediaError(f"{path} cannot be written: {explain(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def explain(error: OSError) -> str:
    """Say what the disk refuses and what to do about it."""
    if error.errno in _FULL:
        return "the disk is full; make room, then run this again"
    return f"{error.strerror or error}; check the folder and your rights to it, then run this again"
