"""Your own videos: the only label they need is which of them show the same action.

    root/<action>/<video>     one sub-folder per action; or
    root/<video>              one flat folder of one action
    root/phases.csv           optional: video, start, end (seconds), phase (a number or a name)
    root/splits.csv           optional: video, split (train, val or test)

A video is a file or a folder of numbered images. In the CSV files it is named by its path below `root`, with its
suffix: `serve/my first.mp4`.

Sessions, recordings of several repetitions, are cut by a table of video, start and end (seconds), whose lines are
videos of their own: `session#1`, `session#2`, …, or `session.mp4#1` beside a `session.mov`.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from warnings import warn

from inphase.data.video import SPLITS, Problem, Video, check_split, read_table
from inphase.media.listing import VIDEO_SUFFIXES, Skipped, find_videos
from inphase.progress import summarize

_TABLES = ("phases.csv", "splits.csv")


def load(root: Path | str, *, split: str, val: float = 0.1, test: float = 0.2, repetitions: str = "") -> list[Video]:
    """List the videos below `root` with their labels; with `repetitions`, a table, the parts of videos that it names.

    Without `splits.csv` the split of a video depends on a hash of its name, in the fractions `val` and `test`: adding
    or removing other videos does not change it.
    """
    root = Path(root)
    check_split(split)
    if not root.is_dir():
        raise FileNotFoundError(f"no folder {root}: check the spelling")
    ignored: Counter[str] = Counter()
    parts = read_repetitions(Path(repetitions)) if repetitions else {}
    found = {name: (root / name, _action(root, Path(name))) for name in parts} or dict(_find(root, ignored=ignored))
    if not found:
        raise FileNotFoundError(
            f"no videos in {root} ({_count(ignored) or 'it is empty'}): put {', '.join(sorted(VIDEO_SUFFIXES))} files "
            "there, "
            "or one sub-folder of them per action"
        )
    if ignored:
        what = f"{_count(ignored)} ignored"
        warn(Problem(str(root), what, "convert them if they are videos", harmless=True), stacklevel=2)
    given = read_splits(root, names=found)
    timed, names = read_phases(root, names=found)
    stems = Counter(PurePosixPath(name).with_suffix("") for name in parts)
    videos = []
    for name, (path, action) in found.items():
        stem = PurePosixPath(name).with_suffix("")
        part_name = name if stems[stem] > 1 else str(stem)
        whole = Video(name, action, "", path=path, phase_names=names, sound=path if path.is_file() else None)
        whole = replace(whole, intervals=tuple(timed.get(name, ())))
        numbered = enumerate(parts.get(name, ()), start=1)
        for each in [_cut(whole, f"{part_name}#{number}", *span) for number, span in numbered] or [whole]:
            belongs = given.get(name) or split_by_name(each.id, val=val, test=test)
            if split in ("all", belongs):
                videos.append(replace(each, split=belongs))
    return videos


def _cut(video: Video, name: str, start: float, end: float) -> Video:
    """Return a part of a video, without sound, as a video of its own."""
    inside = [(max(a, start) - start, min(b, end) - start, phase) for a, b, phase in video.intervals]
    intervals = tuple((a, b, phase) for a, b, phase in inside if a < b)
    return replace(video, id=name, spans=((start, end),), intervals=intervals, sound=None)


def read_repetitions(file: Path) -> dict[str, list[tuple[float, float]]]:
    """Read the table that cuts sessions: the seconds of every repetition, by the path of the video below the folder."""
    parts: dict[str, list[tuple[float, float]]] = {}
    for row in read_table(file, columns=("video", "start", "end")):
        start, end = _interval(file, row["video"], row)
        parts.setdefault(unicodedata.normalize("NFC", row["video"]), []).append((start, end))
    return parts


def _find(root: Path, *, ignored: Counter[str]) -> Iterator[tuple[str, tuple[Path, str]]]:
    """Yield name, path and action of every video one or two levels down; count the suffixes of all other files."""

    def on_skip(path: Path, reason: Skipped) -> None:
        if reason == "unreadable":
            warn(Problem(str(path), "permission denied", "change its permissions"), stacklevel=2)
        elif path.parent != root or path.name not in _TABLES:
            kinds = {"loop": "link to the folder itself", "too deep": "folder"}
            ignored[kinds.get(reason) or path.suffix.lower() or "no suffix"] += 1

    for path in find_videos(root, max_depth=2, on_skip=on_skip):
        below = path.relative_to(root)
        # File systems differ in the Unicode form of é.
        yield unicodedata.normalize("NFC", below.as_posix()), (path, _action(root, below))


def _action(root: Path, below: Path) -> str:
    """Name the action of a video by its path below the folder."""
    return unicodedata.normalize("NFC", below.parts[0]) if len(below.parts) > 1 else root.resolve().name


def _count(ignored: Counter[str]) -> str:
    """List the numbers of files by suffix."""
    return ", ".join(f"{number} {ending}" for ending, number in sorted(ignored.items()))


def split_by_name(name: str, *, val: float, test: float) -> str:
    """Choose the split of a video by a hash of its name."""
    # A file name that is not UTF-8 contains lone surrogates.
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
    fraction = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if fraction < test else "val" if fraction < test + val else "train"


def split_people(people: list[str], *, val: float, test: float, seed: int = 0) -> dict[str, str]:
    """Choose the split of every person by a hash, up to the fractions of the videos; at least one is held out of two.

    `people` names the person of each video.
    """
    clips = Counter(people)
    order = sorted(clips, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode(errors="surrogatepass")).digest())
    found = dict.fromkeys(order, "train")
    for name, fraction in (("test", test), ("val", val)):
        room = round(fraction * clips.total())
        for person in order:
            if found[person] == "train" and clips[person] <= room:
                found[person], room = name, room - clips[person]
        free = [person for person in order if found[person] == "train"]
        if fraction > 0 and name not in found.values() and len(free) > 1:
            found[min(free, key=lambda person: clips[person])] = name
    return found


def read_splits(root: Path, *, names: Mapping[str, object]) -> dict[str, str]:
    """Read splits.csv, if it exists; it must then name every video."""
    rows = read_video_table(root / "splits.csv", columns=("video", "split"), names=names)
    wrong = [f"{name}: {row['split']!r}" for name, row in rows if row["split"] not in SPLITS]
    if wrong:
        raise ValueError(f"{root / 'splits.csv'}: {summarize(wrong)}; a split is one of {', '.join(SPLITS)}")
    given = {name: row["split"] for name, row in rows}
    left = [name for name in names if name not in given]
    if rows and left:
        raise ValueError(f"{root / 'splits.csv'} does not name {summarize(left)}: add a line for each")
    return given


def read_phases(
    root: Path, *, names: Mapping[str, object]
) -> tuple[dict[str, list[tuple[float, float, int]]], tuple[str, ...]]:
    """Read phases.csv, if it exists: the intervals of every video, and the names of phases that are not numbers.

    Named phases are numbered in the order of their first line in the table.
    """
    rows = read_video_table(root / "phases.csv", columns=("video", "start", "end", "phase"), names=names)
    numbered = all(row["phase"].isdecimal() for _, row in rows)
    order = {name: number for number, name in enumerate(dict.fromkeys(row["phase"] for _, row in rows))}
    timed: dict[str, list[tuple[float, float, int]]] = {}
    for name, row in rows:
        start, end = _interval(root / "phases.csv", name, row)
        timed.setdefault(name, []).append((start, end, int(row["phase"]) if numbered else order[row["phase"]]))
    return {name: sorted(found) for name, found in timed.items()}, () if numbered else tuple(order)


def _interval(file: Path, name: str, row: Mapping[str, str]) -> tuple[float, float]:
    """Read the start and the end of a line, in seconds."""
    try:
        start, end = float(row["start"]), float(row["end"])
    except ValueError as error:
        raise ValueError(f"{file}, {name}: {error}; start and end are seconds") from None
    if not 0 <= start < end:
        raise ValueError(f"{file}, {name}: from {start} to {end} is not an interval; start must be before end")
    return start, end


def read_video_table(
    file: Path, *, columns: tuple[str, ...], names: Mapping[str, object]
) -> list[tuple[str, dict[str, str]]]:
    """Read a CSV file of labels, if it exists; warn of lines about unknown videos and omit them."""
    if not file.is_file():
        return []
    named = [
        (unicodedata.normalize("NFC", row["video"]), {column: row[column].strip() for column in columns})
        for row in read_table(file, columns=columns)
    ]
    unknown = [name for name, _ in named if name not in names]
    if unknown:
        what = f"{summarize(dict.fromkeys(unknown))} not among the videos"
        warn(Problem(str(file), what, "write the path of each video below the folder, with its suffix"), stacklevel=4)
    return [(name, row) for name, row in named if name in names]
