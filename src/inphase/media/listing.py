"""Find the videos in folders and tables: one set of rules for every command.

A video is a file with one of `VIDEO_SUFFIXES`, a link to one even if it is broken, or a folder that holds images and
neither videos nor folders. Names are sorted in each folder. Hidden files and folders are skipped; links to folders are
followed unless they lead back to a folder on the way.

    CORPUS/<action>/…/<video>     the first folder is the action; in a flat folder, the folder's name
    CORPUS.csv                    columns path and action; a relative path starts at the table's folder
"""

import csv
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".wmv", ".flv", ".3gp", ".ts"}
)
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})

Skipped = Literal["loop", "unreadable", "too deep", "not a video"]
OnSkip = Callable[[Path, Skipped], None]


@dataclass(frozen=True)
class ListedVideo:
    """A video of a corpus: its id in a store, its path and its action."""

    id: str
    path: str
    action: str


def find_videos(
    folder: Path, *, image_folders: bool = True, max_depth: int | None = None, on_skip: OnSkip | None = None
) -> Iterator[Path]:
    """Yield the videos in a folder and its subfolders, down to `max_depth` levels (1: the folder itself).

    `on_skip` is called with everything else and the reason; without it, an unreadable folder raises. Memory: the names
    of one folder per level.
    """
    return _walk(folder, (folder.resolve(),), image_folders=image_folders, max_depth=max_depth, on_skip=on_skip)


def videos_in(places: Sequence[Path]) -> list[Path]:
    """List video files: those given, and those found in the folders given, each once."""
    files: dict[Path, Path] = {}
    for place in places:
        if not place.exists():
            raise ValueError(f"{place} does not exist: name a folder of videos or a video file")
        for file in find_videos(place, image_folders=False) if place.is_dir() else [place]:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def list_videos(corpus: Path) -> Iterator[ListedVideo]:
    """Yield every video of a corpus: of a folder sorted by name, of a table in its order."""
    if corpus.is_dir():
        return _list_folder(corpus)
    if corpus.suffix.lower() == ".csv" and corpus.is_file():
        return _list_table(corpus)
    raise ValueError(f"{corpus} is neither a folder of videos nor a .csv table with the columns path and action")


def _walk(
    folder: Path,
    parents: tuple[Path, ...],
    *,
    image_folders: bool,
    max_depth: int | None,
    on_skip: OnSkip | None,
) -> Iterator[Path]:
    """Yield the videos in a folder; `parents` are the real paths of the folders on the way, itself included."""

    def skip(path: Path, reason: Skipped) -> None:
        if on_skip is not None:
            on_skip(path, reason)

    try:
        entries = _entries(folder)
    except PermissionError:
        if on_skip is None:
            raise
        skip(folder, "unreadable")
        return
    for entry in entries:
        path = folder / entry.name
        if not entry.is_dir():
            if path.suffix.lower() in VIDEO_SUFFIXES:
                yield path
            else:
                skip(path, "not a video")
            continue
        real = path.resolve()
        if any(parent.is_relative_to(real) for parent in parents):
            skip(path, "loop")
        elif image_folders and _holds_images(path):
            yield path
        elif max_depth is not None and len(parents) >= max_depth:
            skip(path, "too deep")
        else:
            inside = (*parents, real)
            yield from _walk(path, inside, image_folders=image_folders, max_depth=max_depth, on_skip=on_skip)


def _holds_images(folder: Path) -> bool:
    """Report whether a folder is a video whose frames are image files."""
    try:
        entries = _entries(folder)
    except PermissionError:
        return False
    if any(entry.is_dir() for entry in entries):
        return False
    suffixes = {Path(entry.name).suffix.lower() for entry in entries}
    return bool(suffixes & IMAGE_SUFFIXES) and not suffixes & VIDEO_SUFFIXES


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _list_folder(corpus: Path) -> Iterator[ListedVideo]:
    root = corpus.resolve()
    for path in find_videos(root):
        below = path.relative_to(root)
        action = below.parts[0] if len(below.parts) > 1 else root.name
        yield ListedVideo(normalize_name(f"{root.name}/{below.as_posix()}"), str(path), normalize_name(action))


def _list_table(file: Path) -> Iterator[ListedVideo]:
    with file.open(encoding="utf-8-sig", newline="") as opened:
        rows = csv.DictReader(opened)
        if not {"path", "action"} <= set(rows.fieldnames or ()):
            raise ValueError(f"{file} needs the columns path and action; its first line is {rows.fieldnames}")
        for row in rows:
            if not row["path"] or row["action"] is None:
                raise ValueError(f"{file}, line {rows.line_num}: a line names a path and an action, this is {row}")
            path = file.resolve().parent / row["path"]
            id = normalize_name(f"{file.stem}/{row['path']}")
            yield ListedVideo(id, str(path), normalize_name(row["action"]))


def normalize_name(name: str) -> str:
    """Return a name in Unicode's NFC form; bytes that are not UTF-8 are escaped."""
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "backslashreplace"))
