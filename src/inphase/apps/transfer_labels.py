"""Transfer labels from one recording, or several, to others through their alignments, with a confidence each.

Soft-DTW gives every monotone path π the probability e^(−cost(π)/γ) / Z (Cuturi and Blondel, 2017), and so every moment
of the labeled recording a distribution over the frames of the other, p(j | i). A label is placed at its median, which
has the least expected error; the cheapest path alone is one of many that cost hardly more.

The confidence of an event is the probability that it is within a tenth of a second of the true moment: the one that the
verdict on the alignment gives this moment (`inphase.apps.verdict`). A segment has the mean over its frames.

With more than one target or labeled recording, the recordings vote (`inphase.align.consensus`): a label is placed at
the median over the direct path from each labeled recording and the paths through the recordings nearest to the target.
The confidence is then the share of the paths that agree, where the verdict's probability stands in for one of them
(docs/lab/transfer.md). A path agrees on an event if it ends within a tenth of a second of it, and on a frame of a
segment if its own segment covers that frame. The verdict is on the first labeled recording.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.align.consensus import NEIGHBORS, agree, align_from, consensus_alignment, medians_of, posterior
from inphase.align.matching import align_with_itself, match
from inphase.align.path import Alignment
from inphase.apps.align_videos import Synchronization, make_pairs, make_playback
from inphase.apps.alignment_files import add_certainty, add_video_file
from inphase.apps.labels import (
    COMBINED,
    SECONDS_ROUNDING,
    Event,
    Labels,
    Segment,
    describe_unshared,
    label_track,
    labels_of,
    name_tables,
    number_labels,
    tabulate,
)
from inphase.apps.sessions import cut_sessions
from inphase.apps.verdict import TOLERANCE_SECONDS, Verdict, describe_doubts, equalize_tempo, judge
from inphase.media.listing import videos_in
from inphase.media.recording import NamedVideo, open_recording, open_usable
from inphase.models.embed_videos import Model, embed_usable
from inphase.models.embedding import Embedding
from inphase.models.encoder import ModalityChoice
from inphase.models.joint_encoder import add_motion_energy
from inphase.playback import write_playback
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.progress import Progress, Summary, describe_left_out, ignore_progress
from inphase.storage.cache import open_cache
from inphase.storage.files import refuse_overwrite, require_folder, write_table

# Temperature, in units of the contrastive cost, at which labels are placed (docs/lab/transfer.md).
PLACING_TEMPERATURE = 2.0
LabelTable = Path | str | Labels
Votes = Callable[[int, int, NDArray[np.float64]], NDArray[np.float64]]
Span = tuple[float, float]
COMBINED_COLUMNS = (
    *("video", "file", "start", "end", "verdict"),
    *("labels", "mean_confidence", "least_confident", "reason"),
)
SUMMARY_COLUMNS = ("video", "verdict", ">labels", ">mean confidence", "least confident")
# The viewer shows nine tracks: the labeled video and the first targets.
MAX_SHOWN_TARGETS = 8


@dataclass(frozen=True, eq=False)
class Labeled:
    """Videos with the labels transferred to them.

    `transferred` and `times` [T] of the frames have the order of `targets`; `labels` are those given for `source`, the
    first of the labeled videos; `tables` the files that labels were read from, which are not overwritten. `embeddings`
    and `synchronization` are of the source and the first eight targets. `left_out` maps the paths of targets that could
    not be used to the reasons. `verdicts` on the alignments of the source have the order of `targets`.
    """

    source: NamedVideo
    labels: Labels
    tables: tuple[Path, ...]
    targets: tuple[NamedVideo, ...]
    transferred: tuple[Labels, ...]
    times: tuple[NDArray[np.float64], ...]
    embeddings: tuple[Embedding, ...]
    synchronization: Synchronization
    why: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write a CSV table for every target, transferred.csv for all, and a playback of eight; return their paths."""
        out, report = Path(folder), progress or ignore_progress
        require_folder(out)
        tables = name_tables(out, [each.name for each in self.targets])
        refuse_overwrite(self.tables, tables)
        out.mkdir(parents=True, exist_ok=True)
        for file, times, labels in zip(tables, self.times, self.transferred, strict=True):
            write_table(file, tabulate(labels, times=times))
        combined = out / f"{COMBINED}.csv"
        parts = zip(self.targets, self.verdicts, self._rows(), strict=True)
        rows = [(*of.row, found.judgment or "", *row[2:], " ".join(found.reasons)) for of, found, row in parts]
        rows += [(Path(path).stem, path, *[""] * 6, reason) for path, reason in self.left_out.items()]
        write_table(combined, [COMBINED_COLUMNS, *rows])
        shown = [self.source, *self.targets[:MAX_SHOWN_TARGETS]]
        media = [add_video_file(out, each, progress=report) for each in shown]
        both = self.embeddings, self.synchronization
        playback = make_playback(shown, media, *both, pairs=make_pairs(*both))
        judged = add_certainty(playback.tracks, (Verdict(), *self.verdicts[:MAX_SHOWN_TARGETS]), both[1].clock)
        tracks = tuple(map(label_track, judged, (self.labels, *self.transferred)))  # as many as are shown
        playback = playback.replace(tracks=tracks, title=f"labels transferred from {self.source.name}")
        return [*tables, combined, write_playback(out, playback)]

    def summary(self) -> Summary:
        """Return for every target its name, verdict, number of labels, mean confidence and least confident label."""
        notes = [self.why, *describe_doubts(self.targets, self.verdicts)]
        return Summary(notes, describe_left_out(self.left_out), "labels transferred", SUMMARY_COLUMNS, self._rows())

    def _rows(self) -> list[tuple[str, ...]]:
        rows = list[tuple[str, ...]]()
        for video, found, verdict in zip(self.targets, self.transferred, self.verdicts, strict=True):
            pairs = found.confidences
            number = f"{len(found)}" if len(found) >= len(self.labels) else f"{len(found)} of {len(self.labels)}"
            mean = f"{sum(confidence for _, confidence in pairs) / len(pairs):.2f}" if pairs else ""
            least = "{} {:.2f}".format(*min(pairs, key=lambda pair: pair[1])) if pairs else ""
            rows.append((video.name, (verdict.judgment or "").replace("_", " "), number, mean, least))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return all labels as JSON-ready values, times in seconds."""
        videos = [
            {"name": each.name, "path": str(each.path), "span": each.span, **verdict.to_dict(), **labels.to_dict()}
            for each, labels, verdict in zip(self.targets, self.transferred, self.verdicts, strict=True)
        ]
        source = {"source": {"path": str(self.source.path), **self.labels.to_dict()}, "why": self.why}
        return {**source, "videos": videos, "left_out": dict(self.left_out)}


def transfer_labels(
    source: Path | str,
    labels: LabelTable,
    targets: Sequence[Path | str],
    *,
    references: Sequence[tuple[Path | str, LabelTable]] = (),
    neighbors: int = NEIGHBORS,
    session: bool = False,
    model: Model = None,
    modality: ModalityChoice = "auto",
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> Labeled:
    """Transfer the labels of a video to other videos of the same action, with a confidence each.

    `labels` is a CSV table (`inphase.apps.labels` describes it) or `Labels`; `references` are further labeled videos,
    each with its labels, which are matched by name. `targets` are video files and folders of them. With several targets
    or labeled videos, the `neighbors` videos nearest to a target vote on it; 0: direct paths alone. `session` cuts
    targets that are longer than `source` into their repetitions, each a target of its own. `model`, `modality`,
    `fps`, `cache` and `pose_estimator` mean the same as for `align_videos`. A segment that would have no length in a
    target is left out, and so is a target that cannot be read or embedded, unless none remains.
    """
    if neighbors < 0:
        raise ValueError(f"neighbors must not be negative, got {neighbors}")
    labeled = [(Path(source), labels), *((Path(video), table) for video, table in references)]
    known = {path.resolve() for path, _ in labeled}
    goals = [path for path in videos_in([Path(each) for each in targets]) if path.resolve() not in known]
    if not goals:
        raise ValueError("no video to transfer labels to: name at least one target")
    count = len(labeled)
    recordings, left_out = open_usable([*(path for path, _ in labeled), *goals], required=range(count))
    given = [labels_of(each, table) for (_, table), each in zip(labeled, recordings, strict=False)]
    if any(each.events for each in given) and any(each.segments and not each.events for each in given):
        raise ValueError("some labeled videos have moments and others segments: give tables of one kind")
    recordings, embedded = embed_usable(
        recordings,
        left_out,
        required=recordings[:count],
        model=model,
        modality=modality,
        fps=fps,
        cache=open_cache(cache),
        pose_estimator=pose_estimator,
        progress=progress,
    )
    embedded = embedded if session else equalize_tempo(embedded, [each.name for each in recordings], reference=0)
    embeddings = embedded.embeddings
    if session:
        recordings, embeddings = cut_sessions(recordings, embeddings, left_out, whole=range(count))
    embeddings = add_motion_energy(embedded.encoder, embeddings)
    if len(recordings) == count:
        raise ValueError(f"none of {len(goals)} targets can be used: {'; '.join(left_out.values())}")
    times = [open_recording(each.path).times for each in recordings]
    ends, report = [each.end for each in recordings[count:]], progress or ignore_progress
    alignments, transferred, verdicts = _carry(given, embeddings, ends=ends, neighbors=neighbors, progress=report)
    x, others = embeddings[0], embeddings[count:]
    shown = [x, *others[:MAX_SHOWN_TARGETS]]
    columns = [x.times, *(each.time_map(x.times, y.times) for each, y in zip(alignments[1:], shown[1:], strict=True))]
    return Labeled(
        recordings[0],
        given[0],
        tuple(Path(table) for _, table in labeled if not isinstance(table, Labels)),
        tuple(recordings[count:]),
        tuple(transferred),
        tuple(times[count:]),
        tuple(shown),
        Synchronization(0, x.times, np.stack(columns, axis=1), tuple(alignments)),
        " ".join([embedded.why, *describe_unshared(given, [each.name for each in recordings])]),
        left_out,
        tuple(verdicts),
    )


def _carry(
    given: Sequence[Labels],
    embeddings: Sequence[Embedding],
    *,
    ends: Sequence[float],
    neighbors: int,
    progress: Progress,
) -> tuple[list[Alignment], list[Labels], list[Verdict]]:
    """Transfer the labels of the first embeddings to the others; also align and judge the targets that are shown."""
    count, x, known = len(given), embeddings[0], embeddings[: len(given)]  # a copy of a labeled video has no vote
    stage = f"aligning {len(embeddings)} videos"
    alignments, verdicts = [align_with_itself(len(x))], list[Verdict]()
    for y in embeddings[count:]:
        found = match(x, y)
        verdicts.append(judge(x, y, found))
        alignments += [found] if len(alignments) <= MAX_SHOWN_TARGETS else []
    if len(embeddings) == 2:
        progress(stage, 1, 1)
        y = embeddings[1]
        carried = carry_labels(given[0], x, y, y_end=ends[0], alignment=alignments[1], verdict=verdicts[0])
        return alignments, [carried], verdicts
    trusted = [count + k for k, verdict in enumerate(verdicts) if verdict.judgment != "do_not_trust"]
    trusted = [k for k in trusted if not any(np.array_equal(embeddings[k].values, each.values) for each in known)]
    maps = align_from(embeddings, range(count), progress=partial(progress, stage))
    votes_of = partial(maps.votes, neighbors=neighbors, voters={*range(count), *trusted})
    places = range(count, len(embeddings))
    transferred = [
        carry_by_votes(given, embeddings, votes_of, target=place, y_end=end, verdict=verdict)
        for place, end, verdict in zip(places, ends, verdicts, strict=True)
    ]
    frames = np.arange(len(x), dtype=np.float64)
    agreed = [
        consensus_alignment(found, agree(votes_of(0, place, frames)))
        for place, found in zip(places, alignments[1:], strict=False)
    ]
    return [alignments[0], *agreed], transferred, verdicts


def carry_by_votes(
    given: Sequence[Labels],
    embeddings: Sequence[Embedding],
    votes_of: Votes,
    *,
    target: int,
    y_end: float,
    verdict: Verdict | None = None,
) -> Labels:
    """Transfer the labels of the first embeddings to number `target`, which ends at second `y_end`, by consensus.

    `votes_of` is `PairwiseMaps.votes`, with its options; `verdict` is on the alignment of the first with the target.

    Labels of the same name belong together, the first of a recording with the first of another and so on.
    """
    y = embeddings[target]

    def votes_on(second: float, source: int) -> list[float]:
        x = embeddings[source]
        forced = _place_of_end(x, y, second, y_end=y_end)
        if forced is not None:
            return [forced]
        frame = np.interp([second], x.times, np.arange(len(x), dtype=np.float64))
        frames = votes_of(source, target, frame)[:, 0]
        return [float(each) for each in np.interp(frames, np.arange(len(y), dtype=np.float64), y.times)]

    events, spans = defaultdict[tuple[str, int], list[float]](list), defaultdict[tuple[str, int], list[Span]](list)
    for source, labels in enumerate(given):
        for key, event in number_labels(labels.events):
            events[key] += votes_on(event.second, source)
        for key, segment in number_labels(labels.segments):
            ends = votes_on(segment.start, source), votes_on(segment.end, source)
            longest = max(map(len, ends))
            spans[key] += zip(*(np.resize(end, longest).tolist() for end in ends), strict=True)
    first, moments = embeddings[0].times, np.empty(0) if verdict is None else verdict.moments
    sure = {key: _at(first, moments, event.second) for key, event in number_labels(given[0].events)}
    forced = {
        key
        for key, event in number_labels(given[0].events)
        if _place_of_end(embeddings[0], y, event.second, y_end=y_end) is not None
    }
    whole = {key: _over(first, moments, each.start, each.end) for key, each in number_labels(given[0].segments)}
    placed = [
        Event(
            float(np.median(votes)),
            key[0],
            None if key in forced else _weigh(_share_near(y.times, votes), len(votes), sure.get(key)),
        )
        for key, votes in events.items()
    ]
    segments = []
    for key, both in spans.items():
        start, end = (float(np.median([vote[side] for vote in both])) for side in (0, 1))
        if start < end:
            inside = np.mean([(y.times >= a - SECONDS_ROUNDING) & (y.times < b) for a, b in both], axis=0)
            share = _over(y.times, inside, start, end) or 0.0
            segments.append(Segment(start, end, key[0], _weigh(share, len(both), whole.get(key))))
    segments.sort(key=lambda each: each.start)
    return Labels(tuple(segments), tuple(sorted(placed, key=lambda each: each.second)))


def _share_near(times: NDArray[np.float64], votes: Sequence[float]) -> float:
    """Return the share of votes within `TOLERANCE_SECONDS` of their median, and half a frame beyond."""
    half = float(np.median(np.diff(times))) / 2 if len(times) > 1 else 0.0
    return float(np.mean(np.abs(np.array(votes) - np.median(votes)) <= TOLERANCE_SECONDS + half))


def carry_labels(
    labels: Labels,
    x: Embedding,
    y: Embedding,
    *,
    y_end: float,
    alignment: Alignment | None = None,
    verdict: Verdict | None = None,
) -> Labels:
    """Transfer the labels of x to y, which ends at second `y_end`, with a confidence each.

    `alignment` is that of x with y, `verdict` the one on it; each is computed if None. A segment that would have no
    length in y is left out. Events at the ends of x, which are placed at the ends of y, have no confidence.
    """
    found = match(x, y) if alignment is None else alignment
    moments = (judge(x, y, found) if verdict is None else verdict).moments
    seconds = [each.second for each in labels.events]
    for each in labels.segments:
        seconds += [each.start, each.end]
    located = locate_moments(x, y, np.array(seconds), alignment=found)
    forced = [_place_of_end(x, y, second, y_end=y_end) for second in seconds]
    places = [place if end is None else end for place, end in zip(located.tolist(), forced, strict=True)]
    events = [
        Event(place, each.label, _at(x.times, moments, each.second) if end is None else None)
        for each, place, end in zip(labels.events, places, forced, strict=False)
    ]
    spans = zip(places[len(events) :: 2], places[len(events) + 1 :: 2], strict=True)
    segments = [
        Segment(begin, end, each.label, _over(x.times, moments, each.start, each.end))
        for each, (begin, end) in zip(labels.segments, spans, strict=True)
        if begin < end
    ]
    return Labels(tuple(segments), tuple(events))


def locate_moments(
    x: Embedding, y: Embedding, seconds: NDArray[np.float64], *, alignment: Alignment
) -> NDArray[np.float64]:
    """Locate moments of x, at `seconds` [E], in y, in seconds [E]. O(MN) time and memory, up to `MAX_CELLS`."""
    inside = np.clip(seconds, x.times[0], x.times[-1])
    after = np.minimum(np.searchsorted(x.times, inside), len(x) - 1)
    before = np.maximum(after - 1, 0)
    gap = x.times[after] - x.times[before]
    # weight of the frame after
    share = np.where(gap > 0, (inside - x.times[before]) / np.where(gap > 0, gap, 1), 1.0)
    frames, rows = np.unique(np.concatenate([before, after]), return_inverse=True)
    first, second = np.split(rows, 2)
    medians = medians_of(y.times, posterior(x, y, frames, alignment=alignment, gamma=PLACING_TEMPERATURE))
    return np.asarray(medians[first] * (1 - share) + medians[second] * share)


def _at(times: NDArray[np.float64], values: NDArray[np.float64], second: float) -> float | None:
    """Interpolate values [N] of the frames at a second; None without values."""
    return float(np.interp(second, times, values)) if len(values) else None


def _over(times: NDArray[np.float64], values: NDArray[np.float64], start: float, end: float) -> float | None:
    """Average values [N] over the frames of a span, or the nearest one if it has none; None without values."""
    if not len(values):
        return None
    inside = (times >= start - SECONDS_ROUNDING) & (times < end - SECONDS_ROUNDING)
    inside[np.abs(times - start).argmin()] |= not inside.any()
    return float(np.clip(values[inside].mean(), 0, 1))


def _place_of_end(x: Embedding, y: Embedding, second: float, *, y_end: float) -> float | None:
    """Return the end of y at which a label at an end of x is placed; None for other labels."""
    if second < x.times[0] + SECONDS_ROUNDING:
        return float(y.times[0])
    return y_end if second > x.times[-1] + SECONDS_ROUNDING else None


def _weigh(share: float, votes: int, probability: float | None) -> float | None:
    """Put the probability of the verdict in place of one of the votes; one vote alone says nothing."""
    if probability is None:
        return share if votes > 1 else None
    return ((votes - 1) * share + probability) / votes
