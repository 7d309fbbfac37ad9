"""Check a data set: its contents, missing or broken files, and how to fix them."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from inphase.data.video import Problem, Video, find_present
from inphase.media.listing import count_images
from inphase.progress import Progress, Summary, stage_progress, summarize

# Actions with a line of their own in the printed table.
MAX_LISTED_ACTIONS = 30
FindingKind = Literal["missing", "broken", "remark"]


@dataclass(frozen=True)
class Finding:
    """A fault or a remark about a data set, and its fix."""

    kind: FindingKind
    what: str
    fix: str


@dataclass(frozen=True)
class DataReport:
    """The contents of a data set by action and split, and its faults."""

    name: str
    root: Path | None
    videos: Counter[tuple[str, str]]  # (action, split) → videos
    frames: Counter[str]  # action → frames, as counted or annotated
    labels: Counter[str]  # kind of label → videos that have it
    opened: bool  # whether files were opened, not only listed
    findings: tuple[Finding, ...]

    @property
    def whole(self) -> bool:
        """Return whether nothing is missing or broken."""
        return all(finding.kind == "remark" for finding in self.findings)

    @property
    def actions(self) -> list[str]:
        """List the actions by name."""
        return sorted({action for action, _ in self.videos})

    def summary(self) -> Summary:
        """Return the counts, the kinds of labels, and the findings with their fixes."""
        columns, rows = self.count_table(max_actions=MAX_LISTED_ACTIONS)
        title = f"{self.name} · {self.root or 'drawn'}"
        labels = f"labels: {', '.join(f'{kind} ({n:,})' for kind, n in self.labels.items()) or 'none'}"
        found = Summary([f"Nothing is missing or broken.{'' if self.opened else ' No file was opened.'}"])
        if self.findings:
            faults = [(each.kind, each.what, each.fix) for each in self.findings]
            found = Summary((), (), "findings", ("", "finding", "fix"), faults)
        headings = (columns[0], *(f">{name}" for name in columns[1:]))
        return Summary((), (), title, headings, rows, then=[Summary([labels]), found])

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and the findings as JSON-ready values."""
        videos: dict[str, dict[str, int]] = {action: {} for action in self.actions}
        for (action, split), number in self.videos.items():
            videos[action][split] = number
        return {
            "name": self.name,
            "root": None if self.root is None else str(self.root),
            "videos": videos,
            "frames": dict(self.frames),
            "labels": dict(self.labels),
            "opened": self.opened,
            "whole": self.whole,
            "findings": [vars(each) for each in self.findings],
        }

    def count_table(self, *, max_actions: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Tabulate videos and frames by action and split: the headings, and the rows with the totals last."""
        splits = [split for split in ("train", "val", "test") if any(split == found for _, found in self.videos)]
        rows = []
        for action in self.actions:
            counts = [self.videos[action, split] for split in splits]
            rows.append((action, *(f"{count:,}" for count in (*counts, sum(counts))), _count(self.frames[action])))
        if len(rows) > max_actions:
            rows[max_actions:] = [(f"and {len(rows) - max_actions} more", *[""] * (len(splits) + 2))]
        totals = [sum(number for (_, found), number in self.videos.items() if found == split) for split in splits]
        name = f"{len(self.actions)} action{'s' * (len(self.actions) != 1)}"
        counts = [*totals, self.videos.total()]
        rows.append((name, *(f"{count:,}" for count in counts), _count(self.frames.total())))
        return ("action", *splits, "videos", "frames"), rows


def _count(number: int) -> str:
    return f"{number:,}" if number else "?"


def check(
    load: Callable[..., list[Video]],
    root: Path | str | None = None,
    *,
    name: str,
    frame_count: Callable[[Video], int] | None = None,
    progress: Progress | None = None,
) -> DataReport:
    """Load a data set and check every video; with `frame_count`, open or render each as well."""
    folder = None if root is None else Path(root)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        videos = load(folder, split="all")
    findings = []
    for entry in caught:
        if isinstance(entry.message, Problem):
            kind: FindingKind = "remark" if entry.message.harmless else "broken"
            findings.append(Finding(kind, f"{entry.message.where}: {entry.message.what}", entry.message.fix))
        else:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    if not videos and not findings:
        findings.append(Finding("missing", "no video", "check that this is the right folder"))
    here, absent = find_present(videos)
    if absent:
        files = dict.fromkeys(_below(video.path, root=folder) for video in absent)
        what = f"absent files ({len(files):,}) of {len(absent):,} videos: {summarize(files)}"
        findings.append(Finding("missing", what, "download or copy them; until then they are skipped"))
    counted: dict[str, int] = {}
    report = stage_progress(progress, f"examining {name}")
    faults = list[tuple[FindingKind, str, str, str]]()
    for number, video in enumerate(here, start=1):
        faults += _examine(video, frame_count=frame_count, counted=counted)
        report(number, len(here))
    findings += _gather(faults)
    findings += _compare(videos)
    frames: Counter[str] = Counter()
    for video in videos:
        frames[video.action] += counted.get(video.id, video.length or 0)
    return DataReport(
        name=name,
        root=folder,
        videos=Counter((video.action, video.split) for video in videos),
        frames=frames,
        labels=Counter(kind for video in videos for kind in video.label_kinds),
        opened=frame_count is not None,
        findings=tuple(findings),
    )


def _examine(
    video: Video, *, frame_count: Callable[[Video], int] | None, counted: dict[str, int]
) -> Iterator[tuple[FindingKind, str, str, str]]:
    """Yield each fault of one video: kind, fault, fix and video id; add its frames to `counted`."""
    images = count_images(video.path)
    if video.path is not None and video.path.is_file() and video.path.stat().st_size == 0:
        yield "broken", "empty files", "download or copy them again", video.id
    elif video.path is not None and images == 0:
        yield "broken", "folders without images", "extract the frames again", video.id
    elif images is not None and video.length not in (None, images):
        yield "broken", "folders whose number of images is not as annotated", "extract the frames again", video.id
    elif frame_count is not None and (video.path is not None or video.render is not None):
        try:
            counted[video.id] = frame_count(video)
        except Exception as error:
            # Without its path the reason is the same for many files.
            reason = str(error).replace(str(video.path), "").strip(" :")
            yield "broken", f"files that cannot be opened ({reason})", "see the reason", video.id
        else:
            if not video.spans and video.length not in (None, counted[video.id]):
                yield (
                    "broken",
                    "files whose number of frames is not as annotated",
                    "get the annotated version",
                    video.id,
                )
    rows = {"phases": video.phases, "keypoints": video.keypoints, "visibility": video.visibility, "boxes": video.boxes}
    for name, array in rows.items():
        if array is not None and video.length is not None and len(array) != video.length:
            yield "broken", f"{name} that are not one per frame", "get the labels of this version", video.id
    if video.keypoints is not None and not np.isfinite(video.keypoints).all():
        yield "broken", "keypoints that are not numbers", "leave these videos out", video.id
    if video.boxes is not None and (video.boxes[:, 2:] <= video.boxes[:, :2]).any():
        yield "remark", "some boxes without an area", "use the box of a neighboring frame", video.id
    if "repaired" in video.notes:
        yield "remark", "labels repaired while loading", "nothing: see the video's notes", video.id


def _compare(videos: Iterable[Video]) -> Iterator[Finding]:
    """Yield faults between videos: a duplicate id, a performance in two splits, an action with a single video."""
    ids: Counter[str] = Counter()
    splits: dict[str, set[str]] = defaultdict(set)
    sizes: Counter[tuple[str, str]] = Counter()
    for video in videos:
        ids[video.id] += 1
        splits[video.notes.get("instance", video.id)].add(video.split)
        sizes[video.action, video.split] += 1
    twice = [name for name, number in ids.items() if number > 1]
    shared = [name for name, found in splits.items() if len(found) > 1]
    lonely = [action for (action, split), number in sizes.items() if split == "train" and number == 1]
    if twice:
        yield Finding("broken", f"ids that are not unique ({len(twice):,}): {summarize(twice)}", "remove one of each")
    if shared:
        what = f"performances in more than one split ({len(shared):,}): {summarize(shared)}"
        yield Finding("remark", what, "nothing where the official split is so; it may flatter results")
    if lonely:
        what = f"actions with a single training video ({len(lonely):,}): {summarize(lonely)}"
        yield Finding("remark", what, "add videos of them: alignment needs two")


def _gather(faults: Iterable[tuple[FindingKind, str, str, str]]) -> Iterator[Finding]:
    """Yield one finding for each fault, with its videos."""
    found: dict[tuple[FindingKind, str, str], list[str]] = defaultdict(list)
    for kind, what, fix, name in faults:
        found[kind, what, fix].append(name)
    for (kind, what, fix), names in found.items():
        yield Finding(kind, f"{what} ({len(names):,}): {summarize(names)}", fix)


def _below(path: Path | None, *, root: Path | None) -> str:
    """Return the path of a file relative to the folder of the data set, if it is inside."""
    return str(path.relative_to(root)) if path is not None and root and path.is_relative_to(root) else str(path)
