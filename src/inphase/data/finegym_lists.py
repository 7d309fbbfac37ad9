"""FineGym's category and split lists, and the one order of sets they imply."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from warnings import warn

from inphase.data.text import read_text
from inphase.data.video import Problem, summarise

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
    """One labelled clip of an event, as a line of a split list names it."""

    youtube: str
    event_key: str  # E_<start>_<end>, seconds of the YouTube video
    segment_key: str  # A_<start>_<end>, seconds of the event
    start: int  # whole seconds of the event, from the name
    end: int
    category: Category
    split: str

    @property
    def event_id(self) -> str:
        """Name the event instance this clip was cut from."""
        return f"{self.youtube}_{self.event_key}"


def read_categories(file: Path) -> dict[int, Category]:
    """Read `Clabel:   0; set:  1; Glabel:   1; (VT) round-off, …`, a line a class."""
    lines = [line for line in _read_lines(file) if line.strip()]
    found = [_CATEGORY.fullmatch(line.strip()) for line in lines]
    wrong = [line for line, match in zip(lines, found, strict=True) if match is None]
    if wrong:
        raise ValueError(f"{file}: {summarise(map(repr, wrong))} is no category; compare with the published file")
    parsed = (match.groups() for match in found if match)
    return {int(label): Category(int(label), int(part), EVENTS[event], name) for label, part, name, event in parsed}


def read_elements(file: Path, *, categories: Mapping[int, Category], split: str) -> list[Element]:
    """Read `<YouTube id>_E_<start>_<end>_A_<start>_<end> <label>`, a line a clip; others are reported and left out."""
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
        what = f"{len(wrong)} lines without a known clip and label: {summarise(wrong)}"
        warn(Problem(str(file), what, "take the list that belongs to the category file"), stacklevel=3)
    return elements


def prototype_order(elements: Iterable[Element]) -> dict[str, tuple[int, ...]]:
    """Derive for each event the one order in which its sets shall appear, from training clips.

    In every event instance the clips, in the order performed, get the ranks 0 … 1 (a lone clip ½). An event's sets are
    sorted by the mean rank of their clips, equal means by set number. It needs no times beyond those in the clips'
    names. FineGym99 v1.0 gives floor 24 25 22 21, beam 33 32 31 34 35 and bars 43 42 41 44: dismounts (35, 44) last.
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
    """Give each event's sets their places: those the order names, then any others by number."""
    sets: dict[str, set[int]] = defaultdict(set)
    for category in categories:
        sets[category.event].add(category.set)
    for event, named in order.items():
        unknown = [part for part in named if part not in sets.get(event, ())]
        if unknown:
            known = ", ".join(map(str, sorted(sets.get(event, ())))) or "none"
            raise ValueError(f"order of {event!r} names set {summarise(map(str, unknown))}; it has {known}")
    places = {}
    for event, parts in sets.items():
        named = list(order.get(event, ()))
        places[event] = {part: place for place, part in enumerate(named + sorted(parts - set(named)))}
    return places


def _read_lines(file: Path) -> list[str]:
    """Read a list's lines, or say which file to download."""
    if not file.is_file():
        raise FileNotFoundError(f"no {file}: download it from FineGym's site")
    return read_text(file).splitlines()
