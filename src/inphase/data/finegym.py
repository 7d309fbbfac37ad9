"""FineGym: gymnastics events whose sets are put into one order, so that videos of one event can be aligned.

    root/finegym_annotation_info_v1.1.json                    or v1.0
    root/gym99_categories.txt, root/gym288_categories.txt
    root/gym99_train_element_v1.1.txt, gym99_val_element.txt  and the same for gym288
    root/videos/<YouTube id>.mp4                              any usual ending

The official lists split *clips*, not events: some events have clips in both, and each split shows only its own.

Shao et al., "FineGym: A Hierarchical Video Dataset", CVPR 2020; re-organised as in GTA's supplement.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from warnings import warn

from inphase.data.finegym_lists import Element, complete_order, prototype_order, read_categories, read_elements
from inphase.data.folder import VIDEOS
from inphase.data.text import read_json
from inphase.data.video import Problem, Video, check_split, summarise

SPLITS = ("train", "test")
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
    """Parse the annotation into one video per event instance, its labelled clips laid end to end in one order of sets.

    The official "val" list is "test" here. 101 and 290 are 99 and 288 with a label each for the first two stages of a
    vault, which otherwise stay unlabelled (−1): a vault's element label belongs to its third stage alone. `order` maps
    an event ("floor exercise" …) to its sets; by default `prototype_order` of the training list, for every split.
    `unit="element"` gives the original short clips instead.
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
    found = {path.stem: path for path in sorted((root / "videos").glob("*")) if path.suffix.lower() in VIDEOS}
    return [
        _assemble(
            sorted(group, key=lambda item: (places[item[0].category.event][item[0].category.set], item[1][0])),
            path=found.get(group[0][0].youtube, root / "videos" / f"{group[0][0].youtube}.mp4"),
            stages=(base, base + 1) if labels != base else (-1, -1),
            names=tuple(names.get(label, "") for label in range(labels)),
            unit=unit,
        )
        for group in _group(timed, unit=unit)
    ]


def _newest(root: Path, *, base: int) -> str:
    """Find the newest version of which both the annotation and the training list are there."""
    for version in VERSIONS:
        files = (f"finegym_annotation_info_{version}.json", f"gym{base}_train_element_{version}.txt")
        if all((root / file).is_file() for file in files):
            return version
    raise FileNotFoundError(
        f"{root} holds no version of both finegym_annotation_info_<version>.json and "
        f"gym{base}_train_element_<version>.txt ({' or '.join(VERSIONS)}): download them from FineGym's site"
    )


def _evaluation_list(root: Path, *, base: int) -> Path:
    """Find the official validation list, also under the name of a test list."""
    usual = root / f"gym{base}_val_element.txt"
    other = root / f"gym{base}_test_element.txt"
    return other if other.is_file() and not usual.is_file() else usual


def _add_times(elements: Iterable[Element], *, file: Path) -> list[tuple[Element, Timestamps]]:
    """Look up each clip's stages in seconds of the YouTube video; clips without are reported and left out.

    The annotation counts a clip's times from the start of its event. Men's events have no segments at all (null).
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
            timed.append((element, times))
        else:
            lost.append(f"{element.event_id}_{element.segment_key}")
    if lost:
        what = f"no times for {len(lost)} listed clips: {summarise(lost)}"
        warn(Problem(str(file), what, "use lists and annotation of the same version"), stacklevel=3)
    return timed


def _group(timed: Iterable[tuple[Element, Timestamps]], *, unit: str) -> list[list[tuple[Element, Timestamps]]]:
    """Put the clips of one video together, in the order of the lists."""
    groups: dict[tuple[str, str, str], list[tuple[Element, Timestamps]]] = defaultdict(list)
    for element, stages in timed:
        own = element.segment_key if unit == "element" else ""
        groups[element.split, element.event_id, own].append((element, stages))
    return list(groups.values())


def _assemble(
    clips: Sequence[tuple[Element, Timestamps]],
    *,
    path: Path,
    stages: tuple[int, int],
    names: tuple[str, ...],
    unit: str,
) -> Video:
    """Lay clips end to end and label every stretch on the clock that results."""
    spans: list[tuple[float, float]] = []
    intervals: list[tuple[float, float, int]] = []
    clock = 0.0
    for element, times in clips:
        # Outside the vault a clip has one stage; were there more, they would all show the element.
        before = stages if element.category.event == "vault" else (element.category.label,) * len(times)
        phases = (*before[: len(times) - 1], element.category.label)
        for (start, end), phase in zip(times, phases, strict=True):
            spans.append((start, end))
            intervals.append((clock, clock + end - start, phase))
            clock += end - start
    first = clips[0][0]
    return Video(
        # An event with clips in both lists is two videos: they show different stretches.
        id=f"{first.event_id}_{first.split}" if unit == "event" else f"{first.event_id}_{first.segment_key}",
        action=first.category.event,
        split=first.split,
        path=path,
        spans=tuple(spans),
        intervals=tuple(intervals),
        phase_names=names,
        notes={"instance": first.event_id, "sets": " ".join(str(element.category.set) for element, _ in clips)},
    )
