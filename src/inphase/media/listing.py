"""Find the videos in folders, patterns and tables, and estimate how long they take: one set of rules for all commands.

A video is a file with one of `VIDEO_SUFFIXES`, a link to one even if it is broken, or a folder that holds images and
neither videos nor folders. Names are sorted in each folder. Hidden files and folders are skipped; links to folders are
followed unless they lead back to a folder on the way.

    CORPUS/<action>/…/<video>     the first folder is the action; in a flat folder, the folder's name
    CORPUS.csv                    columns path and action; a relative path starts at the table's folder

The seconds that a command takes for a frame are measured whenever it runs, and kept in `rates.json` in the cache.
"""

import contextlib
import csv
import glob
import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from inphase.media.recording import USUAL_FPS, usual_fps
from inphase.storage.cache import default_cache_folder
from inphase.storage.errors import MediaError
from inphase.storage.files import atomic_write, choose_delimiter

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


def videos_in(places: Sequence[Path], *, as_named: bool = False) -> list[Path]:
    """List video files: those given, and those found in the folders and by the patterns (`*`, `?`, `[`) given.

    Each file is listed once. Raise if there is none at a place. With `as_named`, a file that is named is listed as
    often as that, even if it does not exist.
    """
    listed, known = list[Path](), set[Path]()
    for place in places:
        named = not place.is_dir() and (place.exists() or not glob.has_magic(str(place)))
        if named and not (as_named or place.exists()):
            raise ValueError(f"{place} does not exist: name a folder of videos or a video file")
        if named:
            found = [place]
        elif place.is_dir():
            found = list(find_videos(place, image_folders=False))
        else:
            matches = (Path(name) for name in sorted(glob.glob(str(place), recursive=True)))
            found = [each for each in matches if each.is_file() and each.suffix.lower() in VIDEO_SUFFIXES]
        if not found:
            raise ValueError(f"there is no video in {place}: name a folder of videos, a pattern or a video file")
        for file in found:
            if file.resolve() not in known or (as_named and named):
                known.add(file.resolve())
                listed.append(file)
    return listed


# Seconds before the first frame, for a frame, and for one of a video that was embedded before; until they are measured.
RATES: dict[str, tuple[float, float, float]] = {"fit_folder": (240.0, 0.06, 0.0)}
USUAL_RATES = (4.0, 0.06, 0.01)
MAX_KNOWN = 4000


@dataclass(frozen=True)
class Workload:
    """The frames of the videos that a command embeds, and about how many seconds it takes.

    `frames` maps a video, as a text that changes with the file and the `settings`, to its number of frames; `known` are
    those embedded before. `missing` places have no video.
    """

    command: str
    frames: dict[str, int]
    known: frozenset[str]
    rates: tuple[float, float, float]
    file: Path
    missing: int = 0

    @property
    def seconds(self) -> float:
        """Estimate the duration."""
        start, fresh, again = self.rates
        return start + fresh * self._count(new=True) + again * self._count(new=False)

    def __str__(self) -> str:
        """Return a line for the user."""
        new = self._count(new=True)
        duration = f"about {describe_seconds(self.seconds)}"
        count = f"{len(self.frames):,} video{'s' * (len(self.frames) != 1)}, {sum(self.frames.values()):,} frames"
        return f"{count}, {duration}" if new else f"{count}, embedded before: {duration}"

    def _count(self, *, new: bool) -> int:
        return sum(number for video, number in self.frames.items() if (video not in self.known) == new)

    def record(self, seconds: float) -> None:
        """Keep how long the command took, and the videos; nothing is kept where the cache cannot be written."""
        start, fresh, again = self.rates
        new, old = self._count(new=True), self._count(new=False)
        if new:  # copies of videos embedded before count as new and take no time: the rate falls by half at most
            fresh = max((seconds - start - again * old) / new, fresh / 2)
        elif old:
            again = max(0.0, seconds - start) / old
        kept = _read_rates(self.file)
        kept.rates[self.command] = (start, fresh, again)
        kept.known[:] = [*(each for each in kept.known if each not in self.frames), *self.frames][-MAX_KNOWN:]
        with contextlib.suppress(OSError, MediaError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.file) as part:
                part.write_bytes(msgspec.json.encode(kept))


class KeptRates(msgspec.Struct):
    """The content of rates.json."""

    rates: dict[str, tuple[float, float, float]] = {}
    known: list[str] = []


def _read_rates(file: Path) -> KeptRates:
    try:
        return msgspec.json.decode(file.read_bytes(), type=KeptRates)
    except (OSError, msgspec.MsgspecError):
        return KeptRates()


def estimate_work(
    command: str,
    places: Sequence[Path],
    *,
    fps: float | None = None,
    model: object = None,
    modality: str = "",
    cache: Path | None = None,
    **_: object,
) -> Workload:
    """Estimate how long a command takes to embed the videos at some places; the options are those of the command.

    Headers are read, and nothing is decoded: a place without videos, or a file without a header, counts nothing. The
    rates are kept in `cache`, by default the user's cache folder.
    """
    file = (cache or default_cache_folder()) / "rates.json"
    kept = _read_rates(file)
    videos, frames, missing = list[Path](), dict[str, int](), 0
    for place in places:
        try:
            videos += videos_in([place])
        except (ValueError, OSError):  # the command reports it
            missing += 1
    for video in videos:
        with contextlib.suppress(ValueError, OSError, MediaError):
            found = video.stat()  # a hard link to the file, as in a playback, changes its other times
            stamp = f"{video.resolve()} {found.st_size} {found.st_mtime_ns} {fps} {model} {modality}"
            frames[hashlib.blake2b(stamp.encode(), digest_size=8).hexdigest()] = _count_frames(video, fps)
    rates = kept.rates.get(command) or RATES.get(command, USUAL_RATES)
    return Workload(command, frames, frozenset(kept.known), rates, file, missing)


def _count_frames(path: Path, fps: float | None) -> int:
    """Count the frames to embed by the header of a file."""
    from inphase.media.decode import open_container, video_stream

    with open_container(path) as container:
        stream = video_stream(container, path)
        length = stream.duration * stream.time_base if stream.duration and stream.time_base else None
        seconds = float(length if length is not None else (container.duration or 0) / 1e6)
        native = float(stream.average_rate or 0) or USUAL_FPS
        rate = min(native, fps or usual_fps(native) or native)
        return round(seconds * rate) if rate < native or not stream.frames else stream.frames


def describe_seconds(seconds: float) -> str:
    """Round a duration: 7 s, 40 s, 3 min, 2 h."""
    if seconds < 90:
        return f"{max(1, round(seconds)) if seconds < 10 else 5 * round(seconds / 5)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


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


def count_images(path: Path | None) -> int | None:
    """Count the images in a folder of frames; None for anything else."""
    if path is None or not path.is_dir():
        return None
    return sum(entry.suffix.lower() in IMAGE_SUFFIXES for entry in path.iterdir())


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
        delimiter = choose_delimiter(opened.readline())
        opened.seek(0)
        rows = csv.DictReader(opened, delimiter=delimiter)
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
