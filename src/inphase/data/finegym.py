"""FineGym: gymnastics events, their sets sorted into one order, so that videos of one event can be aligned.

    root/gym<99 or 288>_categories.txt, gym…_train_element_<version>.txt, gym…_val_element.txt
    root/finegym_annotation_info_<version>.json
    root/videos/<YouTube id>.*                            whole videos, or
    root/events/<YouTube id>_E_<start>_<end>.*            events cut out of them, or
    root/subactions/…_E_<start>_<end>_A_<start>_<end>.*   the labeled clips, each from its first stage to its last

Events and clips are as mmaction2 cuts them; CARL's folder of events is `processed_videos`. Any of the four folders may
hold any of the three kinds; whole videos come first, then events.

Shao et al., "FineGym: A Hierarchical Video Dataset for Fine-grained Action Understanding", CVPR 2020.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from warnings import warn

from inphase.data.video import Problem, Video, check_split, read_json, read_text
from inphase.media.listing import find_videos
from inphase.progress import summarize

EVENTS = {"VT": "vault", "FX": "floor exercise", "BB": "balance beam", "UB": "uneven bars"}
_CATEGORY = re.compile(r"Clabel:\s*(\d+);\s*set:\s*(\d+);\s*Glabel:\s*\d+;\s*(\((VT|FX|BB|UB)\).+)")
_CLIP = re.compile(r"(?P<youtube>.{11})_(?P<event>E_\d+_\d+)_(?P<segment>A_(?P<start>\d+)_(?P<end>\d+))")


@dataclass(frozen=True)
class Category:
    """An element class: the set it belongs to and the event that set is part of."""

    label: int
    set: int
    event: str  # "vault", "floor exercise", "balance beam" or "uneven bars"
    name: str  # "(FX) switch leap with 0.5 turn"


@dataclass(frozen=True)
class Element:
    """One labeled clip of an event: a line of a split list."""

    youtube: str
    event_key: str  # E_<start>_<end>, seconds of the YouTube video
    segment_key: str  # A_<start>_<end>, seconds of the event
    start: int  # whole seconds of the event, from the name
    end: int
    category: Category
    split: str
    event_start: float = 0.0  # seconds of the YouTube video, from the annotation

    @property
    def event_id(self) -> str:
        """Return the id of the event instance that this clip was cut from."""
        return f"{self.youtube}_{self.event_key}"


def read_categories(file: Path) -> dict[int, Category]:
    """Read `Clabel:   0; set:  1; Glabel:   1; (VT) round-off, …`, one line per class."""
    lines = [line for line in _read_lines(file) if line.strip()]
    found = [_CATEGORY.fullmatch(line.strip()) for line in lines]
    wrong = [line for line, match in zip(lines, found, strict=True) if match is None]
    if wrong:
        raise ValueError(f"{file}: {summarize(map(repr, wrong))} is not a category; compare with the published file")
    parsed = (match.groups() for match in found if match)
    return {int(label): Category(int(label), int(part), EVENTS[event], name) for label, part, name, event in parsed}


def read_elements(file: Path, *, categories: Mapping[int, Category], split: str) -> list[Element]:
    """Read `<YouTube id>_E_<start>_<end>_A_<start>_<end> <label>`, one line per clip; warn of other lines."""
    elements, wrong = [], []
    for line in _read_lines(file):
        clip, _, label = line.strip().rpartition(" ")
        match = _CLIP.fullmatch(clip.strip())
        if match and label.isdecimal() and int(label) in categories:
            youtube, event, segment, start, end = match.groups()
            category = categories[int(label)]
            elements.append(Element(youtube, event, segment, int(start), int(end), category, split))
        elif line.strip():
            wrong.append(repr(line.strip()))
    if wrong:
        what = f"{len(wrong)} lines without a known clip and label: {summarize(wrong)}"
        warn(Problem(str(file), what, "use the list that belongs to the category file"), stacklevel=3)
    return elements


def prototype_order(elements: Iterable[Element]) -> dict[str, tuple[int, ...]]:
    """Derive one order of the sets of each event from training clips.

    In every event instance the clips, in the order performed, get the ranks 0 … 1 (a single clip ½). The sets of an
    event are sorted by the mean rank of their clips, equal means by set number. Only the times in the names of clips
    are needed. FineGym99 v1.0 gives floor 24 25 22 21, beam 33 32 31 34 35 and bars 43 42 41 44: dismounts (35, 44)
    last.
    """
    performed: dict[str, list[Element]] = defaultdict(list)
    for element in elements:
        performed[element.event_id].append(element)
    ranks: dict[tuple[str, int], list[float]] = defaultdict(list)
    for instance in performed.values():
        instance.sort(key=lambda element: (element.start, element.end, element.category.label))
        for position, element in enumerate(instance):
            rank = position / (len(instance) - 1) if len(instance) > 1 else 0.5
            ranks[element.category.event, element.category.set].append(rank)
    order: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for (event, part), found in ranks.items():
        order[event].append((sum(found) / len(found), part))
    return {event: tuple(part for _, part in sorted(means)) for event, means in order.items()}


def complete_order(order: Mapping[str, Sequence[int]], *, categories: Iterable[Category]) -> dict[str, dict[int, int]]:
    """Return the position of each set of an event: first those in the order, then the others by number."""
    sets: dict[str, set[int]] = defaultdict(set)
    for category in categories:
        sets[category.event].add(category.set)
    for event, named in order.items():
        unknown = [part for part in named if part not in sets.get(event, ())]
        if unknown:
            known = ", ".join(map(str, sorted(sets.get(event, ())))) or "none"
            raise ValueError(f"order of {event!r} names set {summarize(map(str, unknown))}; it has {known}")
    places = {}
    for event, parts in sets.items():
        named = list(order.get(event, ()))
        places[event] = {part: place for place, part in enumerate(named + sorted(parts - set(named)))}
    return places


def _read_lines(file: Path) -> list[str]:
    """Read the lines of a list; raise with the file to download if it is missing."""
    if not file.is_file():
        raise FileNotFoundError(f"no {file}: download it from FineGym's site")
    return read_text(file).splitlines()


SPLITS = ("train", "test")
FOLDERS = ("videos", "events", "processed_videos", "subactions")
VERSIONS = ("v1.1", "v1.0")
VAULT_STAGES = ("(VT) first stage", "(VT) second stage")

Timestamps = list[tuple[float, float]]


def load(
    root: Path | str,
    *,
    split: str,
    labels: Literal[99, 101, 288, 290] = 101,
    order: Mapping[str, Sequence[int]] | None = None,
    unit: Literal["event", "element"] = "event",
    version: str | None = None,
) -> list[Video]:
    """Parse the annotation into one video per event instance, its labeled clips joined in one order of sets.

    The official "val" list is "test" here. 101 and 290 are 99 and 288 with one label more for each of the first two
    stages of a vault, which otherwise are unlabeled (−1): the element label of a vault is that of its third stage.
    `order` maps an event ("floor exercise" …) to its sets; by default `prototype_order` of the training list, for every
    split. `unit="element"` returns the original short clips instead.
    """
    root = Path(root)
    check_split(split, of=SPLITS)
    if labels not in (99, 101, 288, 290):
        raise ValueError(f"labels must be 99, 101, 288 or 290, got {labels!r}")
    base = labels if labels in (99, 288) else labels - 2
    categories = read_categories(root / f"gym{base}_categories.txt")
    names = {label: category.name for label, category in categories.items()} | dict(enumerate(VAULT_STAGES, start=base))
    version = version or _newest(root, base=base)
    files = {"train": root / f"gym{base}_train_element_{version}.txt", "test": _evaluation_list(root, base=base)}
    train = read_elements(files["train"], categories=categories, split="train")
    chosen = train if split in ("all", "train") else []
    if split in ("all", "test"):
        chosen = chosen + read_elements(files["test"], categories=categories, split="test")
    places = complete_order(prototype_order(train) if order is None else order, categories=categories.values())
    timed = _add_times(chosen, file=root / f"finegym_annotation_info_{version}.json")
    folders = [root / name for name in FOLDERS if (root / name).is_dir()]
    paths = [path for folder in folders for path in find_videos(folder, image_folders=False)]
    found = {path.stem: path for path in reversed(paths)}
    return [
        _assemble(
            sorted(group, key=lambda item: (places[item[0].category.event][item[0].category.set], item[1][0])),
            found=found,
            absent=root / "videos" / f"{group[0][0].youtube}.mp4",
            stages=(base, base + 1) if labels != base else (-1, -1),
            names=tuple(names.get(label, "") for label in range(labels)),
            unit=unit,
        )
        for group in _group(timed, unit=unit)
    ]


def _newest(root: Path, *, base: int) -> str:
    """Find the newest version with both the annotation and the training list."""
    for version in VERSIONS:
        files = (f"finegym_annotation_info_{version}.json", f"gym{base}_train_element_{version}.txt")
        if all((root / file).is_file() for file in files):
            return version
    raise FileNotFoundError(
        f"{root} has no version of both finegym_annotation_info_<version>.json and "
        f"gym{base}_train_element_<version>.txt ({' or '.join(VERSIONS)}): download them from FineGym's site"
    )


def _evaluation_list(root: Path, *, base: int) -> Path:
    """Find the official validation list, also if it is named as a test list."""
    usual = root / f"gym{base}_val_element.txt"
    other = root / f"gym{base}_test_element.txt"
    return other if other.is_file() and not usual.is_file() else usual


def _add_times(elements: Iterable[Element], *, file: Path) -> list[tuple[Element, Timestamps]]:
    """Look up the stages of each clip in seconds of the YouTube video; warn of clips without times and omit them.

    The annotation counts times of a clip from the start of its event. Men's events have no segments at all (null).
    """
    annotation: dict[str, Any] = read_json(file)
    timed, lost = [], []
    for element in elements:
        try:
            event = annotation[element.youtube][element.event_key]
            stages, offset = event["segments"][element.segment_key]["timestamps"], event["timestamps"][0][0]
            times = [(offset + start, offset + end) for start, end in stages]
        except (KeyError, TypeError, IndexError, ValueError):
            times = []
        if 1 <= len(times) <= 3 and all(start < end for start, end in times):
            timed.append((replace(element, event_start=float(offset)), times))
        else:
            lost.append(f"{element.event_id}_{element.segment_key}")
    if lost:
        what = f"no times for {len(lost)} listed clips: {summarize(lost)}"
        warn(Problem(str(file), what, "use lists and annotation of the same version"), stacklevel=3)
    return timed


def _group(timed: Iterable[tuple[Element, Timestamps]], *, unit: str) -> list[list[tuple[Element, Timestamps]]]:
    """Group the clips by video, in the order of the lists."""
    groups: dict[tuple[str, str, str], list[tuple[Element, Timestamps]]] = defaultdict(list)
    for element, stages in timed:
        own = element.segment_key if unit == "element" else ""
        groups[element.split, element.event_id, own].append((element, stages))
    return list(groups.values())


def _assemble(
    clips: Sequence[tuple[Element, Timestamps]],
    *,
    found: Mapping[str, Path],
    absent: Path,
    stages: tuple[int, int],
    names: tuple[str, ...],
    unit: str,
) -> Video:
    """Join clips end to end and label every part in the resulting time."""
    spans: list[tuple[float, float]] = []
    paths: list[Path] = []
    intervals: list[tuple[float, float, int]] = []
    clock = 0.0
    for element, times in clips:
        path, origin = _find_file(element, times, found, absent)
        # Outside the vault a clip has one stage; if there were more, all would show the element.
        before = stages if element.category.event == "vault" else (element.category.label,) * len(times)
        phases = (*before[: len(times) - 1], element.category.label)
        for (start, end), phase in zip(times, phases, strict=True):
            spans.append((start - origin, end - origin))
            paths.append(path)
            intervals.append((clock, clock + end - start, phase))
            clock += end - start
    first = clips[0][0]
    return Video(
        # An event with clips in both lists becomes two videos, of different parts.
        id=f"{first.event_id}_{first.split}" if unit == "event" else f"{first.event_id}_{first.segment_key}",
        action=first.category.event,
        split=first.split,
        path=paths[0],
        spans=tuple(spans),
        span_paths=tuple(paths) if len(set(paths)) > 1 else (),
        intervals=tuple(intervals),
        phase_names=names,
        notes={"instance": first.event_id, "sets": " ".join(str(element.category.set) for element, _ in clips)},
    )


def _find_file(element: Element, times: Timestamps, found: Mapping[str, Path], absent: Path) -> tuple[Path, float]:
    """Find the file that shows a clip, and the second of the YouTube video at which it begins.

    The names of events and clips have whole seconds; an event was cut at its annotated second, and a clip at the
    beginning of its first stage.
    """
    if element.youtube in found:
        return found[element.youtube], 0.0
    if element.event_id in found:
        return found[element.event_id], element.event_start
    clip = f"{element.event_id}_{element.segment_key}"
    return (found[clip], times[0][0]) if clip in found else (absent, 0.0)
