"""Walk through a corpus without holding it: a folder of any depth, or a table that names files anywhere.

    CORPUS/<action>/…/<video>     an action is a folder; flat videos are of one action, the folder's name
    CORPUS.csv                    columns path and action; a relative path is below the table's folder

A video is a file or a folder of pictures. Memory: a few names, whatever the number of videos.
"""

import csv
import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".wmv", ".flv", ".3gp", ".ts"}
)
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})


@dataclass(frozen=True)
class ListedVideo:
    """A video of a corpus: its name in the store, where it lies, and what it shows."""

    id: str
    path: str
    action: str


def list_videos(corpus: Path) -> Iterator[ListedVideo]:
    """Yield every video of a corpus, in the order the file system or the table has them."""
    if corpus.is_dir():
        return _list_folder(corpus)
    if corpus.suffix.lower() == ".csv" and corpus.is_file():
        return _list_table(corpus)
    raise ValueError(f"{corpus} is neither a folder of videos nor a .csv table with the columns path and action")


def _list_folder(corpus: Path) -> Iterator[ListedVideo]:
    root = corpus.resolve()
    for path in _walk(str(root)):
        below = Path(path).relative_to(root)
        action = below.parts[0] if len(below.parts) > 1 else root.name
        yield ListedVideo(_text(f"{root.name}/{below.as_posix()}"), path, _text(action))


def _walk(folder: str) -> Iterator[str]:
    """Yield the videos below a folder; links to folders are not followed, since they may lead back."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if _holds_pictures(entry.path):
                    yield entry.path
                else:
                    yield from _walk(entry.path)
            elif Path(entry.name).suffix.lower() in VIDEO_SUFFIXES:
                yield entry.path


def _holds_pictures(folder: str) -> bool:
    """Recognise a video whose frames are files: pictures, and neither videos nor folders beside them."""
    found = False
    with os.scandir(folder) as entries:
        for entry in entries:
            suffix = Path(entry.name).suffix.lower()
            if suffix in VIDEO_SUFFIXES or entry.is_dir(follow_symlinks=False):
                return False
            found = found or (suffix in IMAGE_SUFFIXES and not entry.name.startswith("."))
    return found


def _list_table(file: Path) -> Iterator[ListedVideo]:
    with file.open(encoding="utf-8-sig", newline="") as opened:
        rows = csv.DictReader(opened)
        if not {"path", "action"} <= set(rows.fieldnames or ()):
            raise ValueError(f"{file} needs the columns path and action; its first line is {rows.fieldnames}")
        for row in rows:
            if not row["path"] or row["action"] is None:
                raise ValueError(f"{file}, line {rows.line_num}: a line names a path and an action, this is {row}")
            path = file.resolve().parent / row["path"]
            yield ListedVideo(_text(f"{file.stem}/{row['path']}"), str(path), _text(row["action"]))


def _text(name: str) -> str:
    """Write a name in one form of Unicode; bytes that are no text are spelled out."""
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "backslashreplace"))
