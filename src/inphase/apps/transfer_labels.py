"""Transfer labels from one recording to others through their alignments, with a confidence each.

Soft-DTW gives every monotone path π the probability e^(−cost(π)/γ) / Z (Cuturi and Blondel, 2017), and so every moment
of the labeled recording a distribution over the frames of the other, p(j | i). A label is placed at its median, which
has the least expected error; the cheapest path alone is one of many that cost hardly more.

Two things make a label doubtful: paths disagree on its place, or the frames they match are dissimilar. The confidence
of an event is the probability of its lying within a tenth of a second of its place, at a higher temperature, times the
mean cosine of the frames matched there. The confidence of a segment is the mean over its frames of the probability of
belonging to it times the cosine: with F the distribution functions of its two ends, a frame belongs to it with
probability F_start(j) − F_end(j), since no path runs backwards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.matching import MAX_CELLS, align_with_itself, match, pair_cost
from inphase.align.path import Alignment, expected_path
from inphase.apps.align_videos import Synchronization, make_pairs, make_playback
from inphase.apps.labels import SECONDS_ROUNDING, Event, Labels, Segment, label_track, read_labels, tabulate
from inphase.apps.tracks import add_video_file
from inphase.media.recording import NamedVideo, open_recording, open_usable
from inphase.models.embed_videos import Model, embed_usable
from inphase.models.embedding import Embedding
from inphase.models.encoder import ModalityChoice
from inphase.playback import write_playback
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.progress import Progress, Summary, describe_left_out, ignore_progress
from inphase.storage.cache import open_cache
from inphase.storage.files import refuse_overwrite, require_folder, write_table

# Temperatures, in units of the contrastive cost, at which labels are placed and their confidence is taken
# (docs/lab/transfer.md).
PLACING_TEMPERATURE, CONFIDENCE_TEMPERATURE = 2.0, 5.0
# An event counts as right if its error is at most this many seconds.
TOLERANCE_SECONDS = 0.1
# The viewer shows nine tracks: the labeled video and the first targets.
MAX_SHOWN_TARGETS = 8


@dataclass(frozen=True, eq=False)
class Labeled:
    """Videos with the labels transferred to them.

    `transferred` and `times` [T] of the frames have the order of `targets`; `labels` are those given for `source`,
    read from `table` if not None. `embeddings` and `synchronization` are of the source and the first eight targets.
    `left_out` maps the paths of targets that could not be used to the reasons.
    """

    source: NamedVideo
    labels: Labels
    table: Path | None
    targets: tuple[NamedVideo, ...]
    transferred: tuple[Labels, ...]
    times: tuple[NDArray[np.float64], ...]
    embeddings: tuple[Embedding, ...]
    synchronization: Synchronization
    why: str
    left_out: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write a CSV table for every target, and a playback of the first eight; return their paths."""
        out, report = Path(folder), progress or ignore_progress
        require_folder(out)
        tables = name_tables(out, [each.name for each in self.targets])
        refuse_overwrite([] if self.table is None else [self.table], tables)
        out.mkdir(parents=True, exist_ok=True)
        for file, times, labels in zip(tables, self.times, self.transferred, strict=True):
            write_table(file, tabulate(labels, times=times))
        shown = [self.source, *self.targets[:MAX_SHOWN_TARGETS]]
        media = [add_video_file(out, each, progress=report) for each in shown]
        pairs = make_pairs(self.embeddings, self.synchronization)
        playback = make_playback(shown, media, self.embeddings, self.synchronization, pairs=pairs)
        labels_shown = [self.labels, *self.transferred[:MAX_SHOWN_TARGETS]]
        tracks = tuple(label_track(*pair) for pair in zip(playback.tracks, labels_shown, strict=True))
        playback = playback.replace(tracks=tracks, title=f"labels transferred from {self.source.name}")
        return [*tables, write_playback(out, playback)]

    def summary(self) -> Summary:
        """Return for every target its name, number of labels, mean confidence and least confident label."""
        rows = []
        for video, found in zip(self.targets, self.transferred, strict=True):
            pairs = found.confidences
            number = f"{len(found)}" if len(found) == len(self.labels) else f"{len(found)} of {len(self.labels)}"
            mean = f"{sum(confidence for _, confidence in pairs) / len(pairs):.2f}" if pairs else ""
            least = "{} {:.2f}".format(*min(pairs, key=lambda pair: pair[1])) if pairs else ""
            rows.append((video.name, number, mean, least))
        columns = ("video", ">labels", ">mean confidence", "least confident")
        return Summary([self.why], describe_left_out(self.left_out), "labels transferred", columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all labels as JSON-ready values, times in seconds."""
        videos = [
            {"name": each.name, "path": str(each.path), **labels.to_dict()}
            for each, labels in zip(self.targets, self.transferred, strict=True)
        ]
        source = {"path": str(self.source.path), **self.labels.to_dict()}
        return {"source": source, "why": self.why, "videos": videos, "left_out": dict(self.left_out)}


def transfer_labels(
    source: Path | str,
    labels: Path | str | Labels,
    targets: Sequence[Path | str],
    *,
    model: Model = None,
    modality: ModalityChoice = "auto",
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> Labeled:
    """Transfer the labels of a video to other videos of the same action, with a confidence each.

    `labels` is a CSV table (`inphase.apps.labels` describes it) or `Labels`. `model`, `modality`, `fps`, `cache` and
    `pose_estimator` mean the same as for `align_videos`. A segment that has no room in a target is left out.
    A target that cannot be read or embedded is left out, unless none remains.
    """
    if not targets:
        raise ValueError("there is no video to transfer labels to: name at least one target")
    recordings, left_out = open_usable([Path(source), *map(Path, targets)], required=[0])
    table = None if isinstance(labels, Labels) else Path(labels)
    clock, end = open_recording(recordings[0].path).times, recordings[0].properties.duration
    given = labels if isinstance(labels, Labels) else read_labels(Path(labels), times=clock, end=end)
    recordings, embedded = embed_usable(
        recordings,
        left_out,
        required=recordings[:1],
        model=model,
        modality=modality,
        fps=fps,
        cache=open_cache(cache),
        pose_estimator=pose_estimator,
        progress=progress,
    )
    times = [open_recording(each.path).times for each in recordings]
    ends = [each.properties.duration for each in recordings]
    report = progress or ignore_progress
    x, others = embedded.embeddings[0], embedded.embeddings[1:]
    alignments, transferred = [align_with_itself(len(x))], []
    for number, (y, end) in enumerate(zip(others, ends[1:], strict=True), start=1):
        alignment = match(x.values, y.values)
        transferred.append(carry_labels(given, x, y, y_end=end, alignment=alignment))
        if number <= MAX_SHOWN_TARGETS:
            alignments.append(alignment)
        report(f"aligning {len(others)} videos", number, len(others))
    shown = embedded.embeddings[: 1 + MAX_SHOWN_TARGETS]
    columns = [x.times, *(each.time_map(x.times, y.times) for each, y in zip(alignments[1:], shown[1:], strict=True))]
    synchronization = Synchronization(0, x.times, np.stack(columns, axis=1), tuple(alignments))
    return Labeled(
        recordings[0],
        given,
        table,
        tuple(recordings[1:]),
        tuple(transferred),
        tuple(times[1:]),
        tuple(shown),
        synchronization,
        embedded.why,
        left_out,
    )


def name_tables(out: Path, names: Sequence[str]) -> list[Path]:
    """Name a table for each video; slashes become underscores, and equal names get a number."""
    stems: list[str] = []
    for name in names:
        stem = name.replace("/", "_").lstrip(".") or "video"
        free = (f"{stem}{number}" for number in ("", *(f"_{n}" for n in range(2, len(names) + 2))))
        stems.append(next(each for each in free if each not in stems))
    return [out / f"{stem}.csv" for stem in stems]


@dataclass(frozen=True, eq=False)
class LocatedMoments:
    """E moments of one recording located in another of N frames.

    `seconds` [E]; `mass` [E, N] the probability of each frame; `likeness` [N] the cosine of each frame and the frames
    matched with it, 0 where that is negative.
    """

    seconds: NDArray[np.float64]
    mass: NDArray[np.float64]
    likeness: NDArray[np.float64]


def carry_labels(
    labels: Labels, x: Embedding, y: Embedding, *, y_end: float, alignment: Alignment | None = None
) -> Labels:
    """Transfer the labels of x to y, which ends at second `y_end`, with a confidence each.

    `alignment` is that of x with y, computed here if None. A segment that has no room in y is left out.
    """
    seconds = [each.second for each in labels.events]
    for each in labels.segments:
        seconds += [each.start, each.end]
    located = locate_moments(x, y, np.array(seconds), alignment=alignment)
    # A label at the start of x is placed at the start of y; likewise after the last frame.
    starts = np.array(seconds) < x.times[0] + SECONDS_ROUNDING
    ends = np.array(seconds) > x.times[-1] + SECONDS_ROUNDING
    places = np.where(starts, y.times[0], np.where(ends, y_end, located.seconds)).tolist()
    count = len(labels.events)
    events = [
        Event(place, each.label, confidence_near(y.times, place, mass, located.likeness))
        for each, place, mass in zip(labels.events, places[:count], located.mass[:count], strict=True)
    ]
    segments = []
    for k, segment in enumerate(labels.segments):
        begin, stop = count + 2 * k, count + 2 * k + 1
        if places[begin] < places[stop]:
            after = np.zeros_like(located.mass[stop]) if ends[stop] else located.mass[stop]
            belongs = (np.cumsum(located.mass[begin]) - np.cumsum(after)) * located.likeness
            confidence = _mean_inside(y.times, (places[begin], places[stop]), belongs)
            segments.append(Segment(places[begin], places[stop], segment.label, confidence))
    return Labels(tuple(segments), tuple(events))


def locate_moments(
    x: Embedding, y: Embedding, seconds: NDArray[np.float64], *, alignment: Alignment | None = None
) -> LocatedMoments:
    """Locate moments of x, at `seconds` [E], in y. O(MN) time and memory, up to `MAX_CELLS`."""
    inside = np.clip(seconds, x.times[0], x.times[-1])
    after = np.minimum(np.searchsorted(x.times, inside), len(x) - 1)
    before = np.maximum(after - 1, 0)
    gap = x.times[after] - x.times[before]
    # weight of the frame after
    share = np.where(gap > 0, (inside - x.times[before]) / np.where(gap > 0, gap, 1), 1.0)[:, None]
    frames, rows = np.unique(np.concatenate([before, after]), return_inverse=True)
    first, second = np.split(rows, 2)
    found = match(x.values, y.values) if alignment is None else alignment
    placing, doubting = (
        posterior(x, y, frames, alignment=found, gamma=gamma) for gamma in (PLACING_TEMPERATURE, CONFIDENCE_TEMPERATURE)
    )
    medians = medians_of(y.times, placing)[:, None]
    places = medians[first] * (1 - share) + medians[second] * share
    mass = doubting[first] * (1 - share) + doubting[second] * share
    return LocatedMoments(places[:, 0], mass, likeness_of(x, y, found.path))


def posterior(
    x: Embedding,
    y: Embedding,
    frames: NDArray[np.int64],
    *,
    alignment: Alignment,
    gamma: float,
    max_cells: int = MAX_CELLS,
) -> NDArray[np.float64]:
    """Compute for some frames [E] of x the probability of every frame of y to match: [E, N], rows sum to 1.

    For recordings too long for one table, only the surroundings of each frame are used: between two points of the
    cheapest path, half of √max_cells steps before and after.
    """
    a, b = torch.from_numpy(x.values), torch.from_numpy(y.values)
    path, kept = alignment.path, alignment.cost_matrix
    if len(x) * len(y) <= max_cells:
        cost = pair_cost(a, b) if kept is None else torch.from_numpy(kept)
        weights = expected_path(cost[None], kind="soft", gamma=gamma)[0].double().numpy()[frames]
        return np.asarray(weights / weights.sum(1, keepdims=True))
    reach = math.isqrt(max_cells) // 2
    mass = np.zeros((len(frames), len(y)))
    for row, frame in zip(mass, frames.tolist(), strict=True):
        middle = int(np.searchsorted(path[:, 0], frame))
        (i, j), (k, n) = path[max(0, middle - reach)], path[min(len(path) - 1, middle + reach)]
        block = pair_cost(a[i : k + 1], b[j : n + 1])
        weights = expected_path(block[None], kind="soft", gamma=gamma)[0, frame - i].double().numpy()
        row[j : n + 1] = weights / weights.sum()
    return np.asarray(mass)


def medians_of(times: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the median second of each row's mass [E, N]; a frame's mass is spread evenly around its time."""
    if len(times) == 1:
        return np.full(len(mass), times[0])
    middles = (times[1:] + times[:-1]) / 2
    edges = np.concatenate([[2 * times[0] - middles[0]], middles, [2 * times[-1] - middles[-1]]])
    reached = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(mass, axis=1)], axis=1)
    found = np.array([np.interp(0.5, row, edges) for row in reached / reached[:, -1:]])
    return np.asarray(np.clip(found, times[0], times[-1]))


def likeness_of(x: Embedding, y: Embedding, path: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average for every frame of y its cosines with the frames of x it is matched with, [N]."""
    i, j = path.T
    cosines = np.einsum("ld,ld->l", x.values[i], y.values[j], dtype=np.float64)
    return np.clip(np.bincount(j, cosines, len(y)) / np.maximum(np.bincount(j, minlength=len(y)), 1), 0, 1)


def confidence_near(
    times: NDArray[np.float64], place: float, mass: NDArray[np.float64], likeness: NDArray[np.float64]
) -> float:
    """Multiply the mass within `TOLERANCE_SECONDS` of a place, and half a frame beyond, by the mean likeness there."""
    half = float(np.median(np.diff(times))) / 2 if len(times) > 1 else 0.0
    near = np.abs(times - place) <= TOLERANCE_SECONDS + half
    near[np.abs(times - place).argmin()] = True
    return float(np.clip(mass[near].sum() * likeness[near].mean(), 0, 1))


def _mean_inside(times: NDArray[np.float64], span: tuple[float, float], values: NDArray[np.float64]) -> float:
    """Average values [N] over the frames of a span; over the nearest frame where it is shorter than one."""
    inside = (times >= span[0] - SECONDS_ROUNDING) & (times < span[1] - SECONDS_ROUNDING)
    inside[np.abs(times - span[0]).argmin()] |= not inside.any()
    return float(np.clip(values[inside].mean(), 0, 1))
