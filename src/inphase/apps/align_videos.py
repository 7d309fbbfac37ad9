"""Align videos of the same action: one is the reference and keeps its clock, the others follow it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.align.consensus import agree_on_reference, align_pairwise
from inphase.align.matching import PairCost, align_with_itself, match
from inphase.align.path import Alignment, smooth_time_map
from inphase.apps.alignment_files import (
    OUTPUTS,
    Output,
    Seconds,
    add_certainty,
    make_curves,
    make_pair,
    make_time_map,
    make_track,
)
from inphase.apps.labels import Event, Labels, label_track, labels_of
from inphase.apps.sessions import cut_sessions
from inphase.apps.verdict import TOLERANCE_SECONDS, Verdict, describe_doubts, equalize_tempo, judge
from inphase.media.recording import (
    NamedVideo,
    find_reference,
    open_usable,
    require_inside,
    require_reference,
)
from inphase.models.embed_videos import Model, add_poses, embed_usable
from inphase.models.embedding import Embedding, rate_of
from inphase.models.encoder import ModalityChoice
from inphase.models.joint_encoder import add_motion_energy
from inphase.playback import Pair, Playback
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.progress import Progress, Summary, describe_left_out, ignore_progress
from inphase.storage.cache import open_cache
from inphase.storage.files import refuse_overwrite, require_folder

# The viewer and aligned.mp4 show the reference and the first of the others; for more videos there are corpora.
MAX_SHOWN, MAX_VIDEOS = 9, 100


@dataclass(frozen=True)
class VideoStyle:
    """The style of aligned.mp4.

    - `slow`    slow-motion factor
    - `height`  of each video in pixels; None: 720 for upright videos, 360 for others
    - `joints`  whether joints are drawn on the videos that have them
    - `freeze`  whether the video stands still for a second at each key position
    - `max_mb`  the largest size of the file in megabytes; None: as large as a good quality needs
    """

    slow: float = 1.0
    height: int | None = None
    joints: bool = False
    freeze: bool = False
    max_mb: float | None = None

    def __post_init__(self) -> None:
        """Raise if a value is out of range."""
        if not 0 < self.slow < math.inf:
            raise ValueError(f"slow must be above 0, got {self.slow:g}")
        if self.height is not None and self.height < 2:
            raise ValueError(f"height must be at least 2 pixels, got {self.height}")
        if self.max_mb is not None and not 0 < self.max_mb < math.inf:
            raise ValueError(f"max_mb must be above 0, got {self.max_mb:g}")


@dataclass(frozen=True, eq=False)
class Aligned:
    """Videos aligned with a reference, ready to be written.

    `alignments` and the columns of `seconds` [R, K] have the order of `recordings`; row r belongs to second `clock[r]`
    of recording number `reference`. `why` is a sentence on which modality was used and why. `labels` are those of the
    reference, `style` is the look of aligned.mp4. `left_out` maps the paths of unusable videos to the reasons.
    """

    recordings: tuple[NamedVideo, ...]
    embeddings: tuple[Embedding, ...]
    synchronization: "Synchronization"
    why: str
    cost: PairCost = "contrastive"
    labels: Labels = field(default_factory=Labels)
    style: VideoStyle = field(default_factory=VideoStyle)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def alignments(self) -> tuple[Alignment, ...]:
        """Return the alignment of the reference with each recording; with itself, the identity."""
        return self.synchronization.matches

    @property
    def reference(self) -> int:
        """Return the number of the reference recording, from 0."""
        return self.synchronization.reference

    @property
    def clock(self) -> Seconds:
        """Return the seconds of the reference's frames, [R]."""
        return self.synchronization.clock

    @property
    def seconds(self) -> Seconds:
        """Return the second of each recording at each frame of the reference, [R, K]."""
        return self.synchronization.seconds

    @property
    def marks(self) -> tuple[Event, ...]:
        """Return the key positions of the reference: its events, or the starts of its segments."""
        return self.labels.events or tuple(Event(each.start, each.label) for each in self.labels.segments)

    @cached_property
    def shown(self) -> "Aligned":
        """Return the reference and the first of the others, as many as the viewer and aligned.mp4 show."""
        if len(self.recordings) <= MAX_SHOWN:
            return self
        others = [k for k in range(len(self.recordings)) if k != self.reference]
        kept = sorted([self.reference, *others[: MAX_SHOWN - 1]])
        matches, seconds = tuple(self.alignments[k] for k in kept), self.seconds[:, kept]
        part = Synchronization(kept.index(self.reference), self.clock, seconds, matches)
        recordings, embeddings = tuple(self.recordings[k] for k in kept), tuple(self.embeddings[k] for k in kept)
        return replace(self, recordings=recordings, embeddings=embeddings, synchronization=part)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Return the cost matrix and the path of the reference with each other recording."""
        return make_pairs(self.embeddings, self.synchronization, cost=self.cost)

    def write(
        self,
        folder: Path | str,
        outputs: Mapping[str, Output] | None = None,
        *,
        progress: Progress | None = None,
    ) -> list[Path]:
        """Write output files into a folder and return their paths.

        `outputs` maps a file name to the function that writes it; by default `alignment_files.OUTPUTS`: aligned.mp4,
        path.csv, alignment.csv, alignment.png and playback.json, which `inphase view` shows.
        """
        out, chosen = Path(folder), OUTPUTS if outputs is None else outputs
        require_folder(out)
        files = [out / name for name in chosen]
        refuse_overwrite([each.path for each in self.recordings], files)
        out.mkdir(parents=True, exist_ok=True)
        for file, write in zip(files, chosen.values(), strict=True):
            write(self, file, progress or ignore_progress)
        return files

    def playback(self, media: Sequence[str]) -> Playback:
        """Describe the aligned videos for the viewer; `media` are the paths of their files in its folder."""
        made = make_playback(self.recordings, media, self.embeddings, self.synchronization, pairs=self.pairs)
        tracks = add_certainty(made.tracks, self.verdicts, self.clock)
        if self.marks:
            tracks[self.reference] = label_track(tracks[self.reference], self.labels)
        return made.replace(tracks=tuple(tracks))

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdict on the alignment of the reference with each recording; with itself, an empty one."""
        x = self.embeddings[self.reference]
        return tuple(judge(x, y, found) for y, found in zip(self.embeddings, self.alignments, strict=True))

    def summary(self) -> Summary:
        """Return the part of every other recording that matches the reference, their distance, and the verdict."""
        rows = []
        for k, (each, found) in enumerate(zip(self.recordings, self.alignments, strict=True)):
            if k != self.reference:
                span = f"{self.seconds[0, k]:.2f}", f"{self.seconds[-1, k]:.2f}"
                worth = f"{found.distance:.3f}", (self.verdicts[k].judgment or "").replace("_", " ")
                rows.append((each.name, f"{each.duration:.2f}", *span, *worth))
        title = f"aligned with {self.recordings[self.reference].name}"
        columns = ("video", ">seconds", ">start", ">end", ">distance", "verdict")
        dropped = []
        for each, found in zip(self.recordings, self.alignments, strict=True):
            if found.kept is not None:
                of_reference, own = (int((~mask).sum()) for mask in found.kept)
                dropped.append(f"{each.name}: {own} frames dropped, and {of_reference} of the reference")
        notes = [self.why, *dropped, *describe_doubts(self.recordings, self.verdicts)]
        return Summary(notes, describe_left_out(self.left_out), title, columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the alignment as JSON-ready values: seconds of every video at each frame of the reference.

        `kept` marks the frames of the reference that were not dropped; null where none could be.
        """
        parts = zip(self.recordings, self.alignments, self.verdicts, self.seconds.T, strict=True)
        videos = [_describe(*each) for each in parts]
        about = {"reference": self.reference, "why": self.why, "cost": self.cost}
        return {**about, "videos": videos, "left_out": dict(self.left_out)}


def align_videos(
    videos: Sequence[Path | str],
    *,
    model: Model = None,
    modality: ModalityChoice = "auto",
    reference: str | int = "",
    subsequence: bool = False,
    session: bool = False,
    drop: float | None = None,
    smooth: float = 0.0,
    cost: PairCost = "contrastive",
    labels: Path | str | Labels | None = None,
    joints: bool = False,
    freeze: bool = False,
    slow: float = 1.0,
    height: int | None = None,
    max_mb: float | None = None,
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> Aligned:
    """Align two or more videos of the same action with a reference video; the files written show the first nine.

    `model` is a run folder, an encoder file or an `Encoder`; without one, `modality` chooses a shipped encoder: "auto"
    is both: images, and pose for each video that shows a person. Three or more videos vote on each alignment.
    `reference` is a number from 1, a name, or "medoid" for the video with the least sum of distances to the others; by
    default the first video, with `subsequence` the shortest, which is then located inside each of the others. With
    `session` the shortest is a clip of one repetition, and longer recordings are cut into their repetitions of it, each
    aligned by itself (`cut_sessions`). `drop` leaves out frames without a counterpart, at the start, the end or
    between: the share of all pairs of frames that are cheaper than dropping one, so that less drops more (`match`).
    `smooth` above 0 removes changes of speed that last less than this many seconds. `fps` is the number of frames per
    second to embed. `cache` is the folder of cached embeddings, by default `~/.cache/inphase`. `pose_estimator` is a
    name in `POSE_ESTIMATORS` or an import path "module:Class". A video that cannot be read or embedded is left out,
    unless it is the reference or fewer than two remain. `labels`, a CSV table or `Labels`, are those of the reference;
    `joints`, `freeze`, `slow`, `height` and `max_mb` are the look of aligned.mp4 (`VideoStyle`). `joints` are estimated
    also if images are embedded.
    """
    if isinstance(videos, str | Path):
        raise ValueError(f"give a list of videos to align, got one path: {videos}")
    paths = [Path(video) for video in videos]
    require_few(paths)
    _check_numbers(smooth=smooth, drop=drop)
    if session and (subsequence or reference == "medoid"):
        raise ValueError("session needs a reference that shows the action once: use neither subsequence nor medoid")
    if freeze and labels is None:
        raise ValueError("freeze needs key positions: give the labels of the reference too")
    style = VideoStyle(slow=slow, height=height, joints=joints, freeze=freeze, max_mb=max_mb)
    shared: dict[str, Any] = {"cache": open_cache(cache), "pose_estimator": pose_estimator, "progress": progress}
    wish, required = require_reference(str(reference), paths, shortest=subsequence or session)
    recordings, left_out = open_usable(paths, required=required)
    named = find_reference(wish, recordings, shortest=subsequence or session)
    if subsequence and named is not None:
        require_inside(recordings, named)
    fixed = [] if named is None else [recordings[named]]
    # Read now, so that an error in the table comes before the long work.
    given = None if named is None or labels is None else labels_of(recordings[named], labels)
    recordings, embedded = embed_usable(
        recordings, left_out, required=fixed, model=model, modality=modality, fps=fps, **shared
    )
    chosen = recordings.index(fixed[0]) if fixed else medoid(embedded.embeddings)
    if not (subsequence or session) and drop is None:
        embedded = equalize_tempo(embedded, [each.name for each in recordings], reference=chosen)
    embeddings = embedded.embeddings
    if subsequence and named is None:
        require_inside(recordings, chosen)
    if joints:
        embeddings = add_poses([each.path for each in recordings], embeddings, **shared)
    if session:
        clip = recordings[chosen]
        recordings, embeddings = cut_sessions(recordings, embeddings, left_out, clip=chosen)
        chosen = recordings.index(clip)
        require_few(recordings)
    if cost == "contrastive" and not subsequence:
        embeddings = add_motion_energy(embedded.encoder, embeddings)
    found = synchronize(embeddings, reference=chosen, cost=cost, subsequence=subsequence, drop=drop, smooth=smooth)
    return Aligned(
        tuple(recordings),
        tuple(embeddings),
        found,
        embedded.why,
        cost=cost,
        labels=given or (Labels() if labels is None else labels_of(recordings[chosen], labels)),
        style=style,
        left_out=left_out,
    )


def _describe(video: NamedVideo, found: Alignment, verdict: Verdict, seconds: NDArray[np.float64]) -> dict[str, Any]:
    """Describe an aligned video by JSON-ready values: its `seconds` at each frame of the reference, the verdict."""
    about = {"name": video.name, "path": str(video.path), "duration": video.duration, "span": video.span}
    kept = None if found.kept is None else found.kept[0].tolist()
    return {**about, "distance": found.distance, **verdict.to_dict(), "seconds": seconds.tolist(), "kept": kept}


def require_few(videos: Sequence[object]) -> None:
    """Raise if there are fewer than 2 videos to align, or more than `MAX_VIDEOS`."""
    if not 2 <= len(videos) <= MAX_VIDEOS:
        more = ": for more, use `inphase embed` and `inphase align-all`" if len(videos) > 1 else ""
        raise ValueError(f"name 2 to {MAX_VIDEOS} videos to align, got {len(videos)}{more}")


def _check_numbers(*, smooth: float, drop: float | None) -> None:
    if not 0 <= smooth < math.inf:
        raise ValueError(f"smooth must not be negative, got {smooth:g}")
    if drop is not None and not 0 < drop <= 1:
        raise ValueError(f"drop must be above 0 and at most 1, the share of pairs cheaper than a drop; got {drop:g}")


@dataclass(frozen=True, eq=False)
class Synchronization:
    """Embeddings aligned with one of them: `seconds` [R, K] of each at the seconds `clock` [R] of the `reference`.

    `matches` holds the alignment of the reference with each embedding; with itself, the identity.
    """

    reference: int
    clock: Seconds
    seconds: Seconds
    matches: tuple[Alignment, ...]


def synchronize(
    embeddings: Sequence[Embedding],
    *,
    reference: int = 0,
    cost: PairCost = "contrastive",
    subsequence: bool = False,
    drop: float | None = None,
    smooth: float = 0.0,
) -> Synchronization:
    """Align all embeddings with the reference; three or more vote on each alignment (`inphase.align.consensus`).

    Embeddings have no vote if their direct alignment with the reference, or the one agreed on, is "do not trust".

    With `subsequence` the reference is a short action that is located inside each of the others. With `drop` frames
    without a counterpart are left out and get a time between those of their neighbors (see `match`). `smooth` above 0
    is the period in seconds below which changes of speed are removed (`smooth_time_map`).
    """
    if not 0 <= reference < len(embeddings):
        raise ValueError(f"reference {reference} does not exist: there are recordings 0 to {len(embeddings) - 1}")
    clock = embeddings[reference].times
    matches = tuple(
        align_with_itself(len(clock))
        if number == reference
        else match(embeddings[reference], other, cost=cost, subsequence=subsequence, drop=drop)
        for number, other in enumerate(embeddings)
    )
    if len(embeddings) > 2 and not subsequence and drop is None and cost == "contrastive":
        near = [TOLERANCE_SECONDS * (rate_of(each.times) or 0.0) + 0.5 for each in embeddings]
        direct, maps, voters = matches, align_pairwise(embeddings), set(range(len(embeddings)))
        for _ in range(2):
            fit = [judge(embeddings[reference], *each).judgment for each in zip(embeddings, matches, strict=True)]
            voters -= {number for number, judgment in enumerate(fit) if judgment == "do_not_trust"}
            matches = agree_on_reference(direct, maps, reference=reference, near=near, voters=voters)
    columns = [found.time_map(clock, other.times) for found, other in zip(matches, embeddings, strict=True)]
    if smooth > 0:
        columns = [
            seconds if number == reference else smooth_time_map(clock, seconds, period=smooth)
            for number, seconds in enumerate(columns)
        ]
    return Synchronization(reference, clock, np.stack(columns, axis=1), matches)


def medoid(embeddings: Sequence[Embedding]) -> int:
    """Find the embedding with the least sum of distances to all others, by K (K − 1) / 2 alignments."""
    return int(align_pairwise(embeddings).distances.sum(1).argmin())


def make_pairs(
    embeddings: Sequence[Embedding], synchronization: Synchronization, *, cost: PairCost = "contrastive"
) -> tuple[Pair, ...]:
    """Describe the alignment of the reference with each other embedding."""
    reference = synchronization.reference
    return tuple(
        make_pair(
            embeddings[reference], embeddings[k], synchronization.matches[k], rows=reference, columns=k, cost=cost
        )
        for k in range(len(embeddings))
        if k != reference
    )


def make_playback(
    recordings: Sequence[NamedVideo],
    media: Sequence[str],
    embeddings: Sequence[Embedding],
    synchronization: Synchronization,
    *,
    pairs: Sequence[Pair],
) -> Playback:
    """Describe aligned recordings, whose files `media` are in the playback's folder."""
    reference = synchronization.reference
    tracks = []
    for k, (each, file, curves) in enumerate(zip(recordings, media, make_curves(embeddings), strict=True)):
        time_map = None if k == reference else make_time_map(synchronization.clock, synchronization.seconds[:, k])
        tracks.append(make_track(each, file, time_map=time_map, curves=curves, pose=embeddings[k].pose))
    title = f"aligned with {recordings[reference].name}"
    return Playback(title, tracks=tuple(tracks), pairs=tuple(pairs), reference=reference)
