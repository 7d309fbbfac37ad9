"""Find every repetition of an action in a recording: of the action in a clip, or of any motion that repeats.

The template is one cycle of the action, whose end is joined to its start. From frame to frame the phase stays,
advances, or, at a cost, leaves the cycle where the recording shows something else: such a frame is dropped, by the
second state of Drop-DTW (`inphase.align.drop_dtw`). This is subsequence DTW with drops for any number of repetitions at
once, and it follows changes of tempo. The template is then the mean of all frames of equal
phase, and both steps are repeated (a barycenter). Without a clip, the window that resembles its successor most is the
first template, for every period that is tried; the period whose template explains the motion best wins. Two cycles in
one template explain slightly more than one: the cost grows as (n / (n − 1))^`FEW_CYCLES` where only n cycles are found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inphase.align.numba.path_numba import track_template
from inphase.apps.align_videos import make_pairs, make_playback, synchronize
from inphase.apps.alignment_files import add_video_file, make_curves, make_track
from inphase.media.recording import NamedVideo, open_recording, open_recordings
from inphase.media.render import write_mp4
from inphase.media.sampling import choose, shown_at
from inphase.models.embed_videos import Model, embed_videos
from inphase.models.embedding import Embedding
from inphase.models.encoder import ModalityChoice
from inphase.playback import Phase, Playback, write_playback
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.progress import Progress, Summary, ignore_progress
from inphase.storage.cache import open_cache
from inphase.storage.files import refuse_overwrite, require_folder, write_table

# Recordings that last longer are embedded at fewer frames per second, unless `fps` is given: an hour takes 150 MB.
LONG_SECONDS, LONG_FPS = 600.0, 10.0
# Chosen on every other video of two data sets (benchmarks/repetitions.py): principal components; the cost of a step in
# phase that is a bin too short or too long; the cost of a frame outside, as a share of its energy and a constant; the
# cost of leaving, in cycles; the width of the moving average that is removed, in cycles.
COMPONENTS, PACE, REST_ENERGY, REST, SWITCH, DRIFT = 16, 0.1, 1.0, 0.1, 0.2, 2.0
FEW_CYCLES = 1.5
# The same where the template is a clip: rounds, and the cost of a frame outside in the first of them.
LIKE_ROUNDS, LIKE_REST = 3, 2.0
# The shortest period within this of the best score is taken.
SCORE_TOLERANCE = 0.05
# Periods that are tried, in seconds; each is this much longer than the one before.
MIN_PERIOD, MAX_PERIOD, PERIOD_STEP = 0.2, 20.0, 1.25
# Seconds of a part in which a period is searched for.
WINDOW_SECONDS = 60.0
# A repetition that the recording or another action cuts short counts if this share of its cycle is there.
MIN_SHARE = 0.6
# Share of a cycle around the phase of the first frame in which the boundary is moved to the stillest phase.
STILL_RANGE = 0.1
# Repetitions that explain less of the motion than this are left out.
MIN_SCORE = 0.2
# Mean squared distance of unit vectors from their mean below which nothing moves.
MIN_MOTION = 1e-5
MAX_IN_STEP = 8
COLUMNS = ("start", "end", "score")

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Repetition:
    """A repetition from `start` to `end` in seconds; `score` is the share of its motion that the template explains."""

    start: float
    end: float
    score: float


@dataclass(frozen=True, eq=False)
class Repetitions:
    """The repetitions of an action in a recording, in order of time; `why` is a sentence on the modality."""

    session: NamedVideo
    embedding: Embedding
    spans: tuple[Repetition, ...]
    why: str

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write repetitions.csv, a clip of each in clips/, and two playbacks: the session, and clips in step."""
        out, report = Path(folder), progress or ignore_progress
        require_folder(out)
        clips = out / "clips"
        digits = max(2, len(str(len(self.spans))))
        files = [clips / f"{k:0{digits}}.mp4" for k in range(1, len(self.spans) + 1)]
        table = out / "repetitions.csv"
        refuse_overwrite([self.session.path], [table, *files])
        clips.mkdir(parents=True, exist_ok=True)
        rows = [(f"{each.start:.3f}", f"{each.end:.3f}", f"{each.score:.3f}") for each in self.spans]
        write_table(table, [COLUMNS, *rows])
        write_clips(self.session, self.spans, files, progress=report)
        playbacks = [write_playback(out, self.playback(add_video_file(out, self.session, progress=report)))]
        if len(files) > 1:
            playbacks.append(self._write_in_step(out / "in_step", files[:MAX_IN_STEP]))
        return [table, *files, *playbacks]

    def playback(self, media: str) -> Playback:
        """Describe the session with its repetitions as phases; `media` is its file in the playback's folder."""
        (curves,) = make_curves([self.embedding])
        track = make_track(self.session, media, curves=curves, pose=self.embedding.pose)
        phases = tuple(
            Phase(each.start, each.end, str(k), min(1.0, max(0.0, each.score)))
            for k, each in enumerate(self.spans, start=1)
        )
        return Playback(f"repetitions in {self.session.name}", tracks=(track.replace(phases=phases),))

    def _write_in_step(self, folder: Path, files: Sequence[Path]) -> Path:
        """Write a playback of repetitions that are aligned with the first."""
        folder.mkdir(exist_ok=True)
        parts = [cut_embedding(self.embedding, each) for each in self.spans[: len(files)]]
        clips = open_recordings(files)
        synchronization = synchronize(parts)
        media = [add_video_file(folder, each) for each in clips]
        pairs = make_pairs(parts, synchronization)
        return write_playback(folder, make_playback(clips, media, parts, synchronization, pairs=pairs))

    def summary(self) -> Summary:
        """Return a table of the repetitions."""
        rows = [
            (str(k), f"{each.start:.2f}", f"{each.end:.2f}", f"{each.end - each.start:.2f}", f"{each.score:.2f}")
            for k, each in enumerate(self.spans, start=1)
        ]
        found = f"{len(rows)} repetitions in {self.session.name}"
        return Summary([self.why], [], found, (">number", ">start", ">end", ">seconds", ">score"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the repetitions as JSON-ready values."""
        return {
            "session": str(self.session.path),
            "duration": self.session.properties.duration,
            "why": self.why,
            "repetitions": [{"start": each.start, "end": each.end, "score": each.score} for each in self.spans],
        }


def find_repetitions(
    session: Path | str,
    *,
    like: Path | str | None = None,
    min_score: float = MIN_SCORE,
    model: Model = None,
    modality: ModalityChoice = "image",
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> Repetitions:
    """Find every repetition of an action in a recording: that of the clip `like`, or any motion that repeats.

    A repetition begins where the clip begins; without a clip, at the phase with which the repetitions begin. Those
    with a score below `min_score` are left out. `fps` is 10 for recordings of more than ten minutes, unless given.
    `model`, `modality`, `cache` and `pose_estimator` mean the same as for `align_videos`.
    """
    videos = open_recordings([session] if like is None else [session, like])
    if fps is None and videos[0].properties.duration > LONG_SECONDS:
        fps = LONG_FPS
    embedded = embed_videos(
        [each.path for each in videos],
        model=model,
        modality=modality,
        fps=fps,
        cache=open_cache(cache),
        pose_estimator=pose_estimator,
        progress=progress,
    )
    whole, *clip = embedded.embeddings
    spans = find_spans(whole, clip[0] if clip else None, min_score=min_score)
    if not spans:
        advice = "lower min_score" if like is None else "check that the clip shows the same action, or lower min_score"
        raise ValueError(f"{session}: no action is repeated ({advice}, now {min_score:g})")
    return Repetitions(videos[0], whole, tuple(spans), embedded.why)


def find_spans(session: Embedding, like: Embedding | None = None, *, min_score: float = MIN_SCORE) -> list[Repetition]:
    """Find the repetitions in an embedded recording: of the clip `like`, or of any motion that repeats."""
    if len(session) < 4:
        raise ValueError(f"{len(session)} frames are too few for repetitions: give a longer recording, or more fps")
    basis, mean = principal_basis(session.values)
    x = (session.values - mean) @ basis
    fps = (len(session) - 1) / (session.times[-1] - session.times[0])
    if (x**2).sum(1).mean() < MIN_MOTION:
        return []
    if like is None:
        fitted = search_period(x, fps=fps)
        track = track_phase(x, fitted, rounds=2)
        zero = choose_boundary(x, track)
    else:
        # The clip at the session's frame rate, around its own mean: the session's drift is removed, too.
        ticks = np.arange(like.times[0], like.times[-1] + 0.5 / fps, 1 / fps)
        values = np.stack([np.interp(ticks, like.times, each) for each in (like.values @ basis).T], axis=1)
        if not 4 <= len(values) <= len(x):
            raise ValueError(f"the clip has {len(values)} frames and the session {len(x)}: give a shorter clip")
        track, zero = track_phase(x, values - values.mean(0), rounds=LIKE_ROUNDS, first_rest=LIKE_REST), 0
    return [each for each in cut_cycles(session.times, track, zero) if each.score >= min_score]


def principal_basis(values: NDArray[np.float32], *, number: int = COMPONENTS) -> tuple[Values, Values]:
    """Find the first principal components [D, number] of vectors [T, D], and their mean [D]."""
    mean = values.mean(0, dtype=np.float64)
    covariance = values.T.astype(np.float32) @ values / len(values) - np.outer(mean, mean)
    size = len(mean)
    _, vectors = np.linalg.eigh(covariance)
    return np.ascontiguousarray(vectors[:, max(0, size - number) :][:, ::-1], np.float64), mean


@dataclass(frozen=True, eq=False)
class PhaseTrack:
    """The bin of a cyclic `template` [K, D] that each frame matches, `bins` [T]; K where none does.

    `energy` and `residual` [T] are the squared lengths of the frames and of their differences from the template,
    `cost` the mean cost of a frame.
    """

    bins: NDArray[np.int64]
    template: Values
    energy: Values
    residual: Values
    cost: float

    @property
    def stretches(self) -> list[tuple[int, Values]]:
        """List the first frame of every stretch inside the template, and the phases of its frames in cycles."""
        size = len(self.template)
        inside = np.flatnonzero(self.bins < size)
        parts = np.split(inside, np.flatnonzero(np.diff(inside) > 1) + 1) if len(inside) else []
        steps = [np.concatenate([self.bins[part[:1]], np.diff(self.bins[part]) % size]) for part in parts]
        return [(int(part[0]), np.cumsum(step) / size) for part, step in zip(parts, steps, strict=True)]

    @property
    def cycles(self) -> float:
        """Count the cycles, with a fraction."""
        return sum(float(phases[-1] - phases[0]) + 1 / len(self.template) for _, phases in self.stretches)

    @property
    def score(self) -> float:
        """Rate how well the template explains the motion: 1 at best; fewer than 1.5 cycles are no repetition."""
        count = self.cycles
        return 1 - self.cost * (count / (count - 1)) ** FEW_CYCLES if count >= 1.5 else -np.inf


def remove_drift(x: Values, width: int) -> Values:
    """Subtract the moving average over `width` frames from vectors [T, D]."""
    sums = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    width = min(width, len(x))
    first = np.clip(np.arange(len(x)) - width // 2, 0, len(x))
    last = np.clip(np.arange(len(x)) - width // 2 + width, 0, len(x))
    return np.asarray(x - (sums[last] - sums[first]) / (last - first)[:, None])


def track_phase(x: Values, template: Values, *, rounds: int, first_rest: float = REST_ENERGY) -> PhaseTrack:
    """Match frames [T, D] with a cyclic template [K, D], which becomes the mean of its frames `rounds` times.

    `first_rest` replaces `REST_ENERGY` in the first round: one clip explains less than a mean.
    """
    size = len(template)
    y = remove_drift(x, round(DRIFT * size))
    template = template.copy()
    scale = max(float((template**2).sum(1).mean()), 1e-12)
    for round_number in range(rounds + 1):
        unit = np.sqrt(scale)
        energy = (y**2).sum(1) / scale
        bins, total = track_template(
            y / unit,
            template / unit,
            (REST_ENERGY if round_number else first_rest) * energy + REST,
            pace=PACE,
            switch=SWITCH * size,
        )
        inside = bins < size
        if round_number == rounds or not inside.any():
            break
        sums, counts = np.zeros_like(template), np.zeros(size)
        np.add.at(sums, bins[inside], y[inside])
        np.add.at(counts, bins[inside], 1)
        # Neighboring bins count half.
        sums, counts = (each + (np.roll(each, 1, 0) + np.roll(each, -1, 0)) / 2 for each in (sums, counts))
        template = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], template)
        scale = max(float((y[inside] ** 2).sum(1).mean()), 1e-12)
    residual = energy.copy()
    residual[inside] = ((y[inside] - template[bins[inside]]) ** 2).sum(1) / scale
    return PhaseTrack(bins, template, energy, residual, total / len(x))


def search_period(x: Values, *, fps: float) -> Values:
    """Find one cycle [K, D] of the action that repeats in frames [T, D]: that of the best part and period."""
    length = max(8, min(len(x), round(WINDOW_SECONDS * fps)))
    starts = range(0, max(1, len(x) - length // 2), length)
    best = [_search_part(x[start : start + length], fps=fps) for start in starts]
    return max(best, key=lambda track: track.score).template


def _search_part(x: Values, *, fps: float) -> PhaseTrack:
    """Track every period in a part; return the shortest of the periods that score about best."""
    tracks: list[PhaseTrack] = []
    period = max(5.0, MIN_PERIOD * fps)
    while period <= min(0.55 * len(x), MAX_PERIOD * fps) or not tracks:
        tracks.append(track_phase(x, _first_template(x, round(period)), rounds=5))
        period *= PERIOD_STEP
    best = max(track.score for track in tracks)
    return next(track for track in tracks if track.score >= best - SCORE_TOLERANCE)


def _first_template(x: Values, size: int) -> Values:
    """Take the window of `size` frames that is followed by the most similar one, averaged with it."""
    y = remove_drift(x, round(DRIFT * size))
    sums = np.concatenate([[0.0], np.cumsum(((y[size:] - y[:-size]) ** 2).sum(1))])
    if len(sums) <= size:
        start = max(0, (len(y) - size) // 2)
        return y[start : start + size]
    start = int((sums[size:] - sums[:-size]).argmin())
    return np.asarray((y[start : start + size] + y[start + size : start + 2 * size]) / 2)


def choose_boundary(x: Values, track: PhaseTrack) -> int:
    """Choose the bin at which repetitions begin: near that of the first frame, the one with the least motion."""
    size = len(track.template)
    if not track.stretches:
        return 0
    first = int(track.bins[max(track.stretches, key=lambda each: each[1][-1] - each[1][0])[0]])
    inside = np.flatnonzero(track.bins[1:] < size) + 1
    motion, counts = np.zeros(size), np.zeros(size)
    np.add.at(motion, track.bins[inside], ((x[inside] - x[inside - 1]) ** 2).sum(1))
    np.add.at(counts, track.bins[inside], 1)
    distance = np.abs((np.arange(size)[:, None] - np.arange(size) + size / 2) % size - size / 2)
    near = np.exp(-0.5 * (distance / max(1, size / 16)) ** 2)
    motion = (near @ motion) / np.maximum(near @ counts, 1e-9)
    return int(np.where(distance[first] <= STILL_RANGE * size, motion, np.inf).argmin())


def cut_cycles(times: Values, track: PhaseTrack, zero: int) -> list[Repetition]:
    """Cut a tracked recording wherever the phase passes the bin `zero`."""
    size, found = len(track.template), []
    for first, phases in track.stretches:
        own = phases - zero / size
        whole = np.arange(np.ceil(own[0] - (1 - MIN_SHARE)), np.floor(own[-1] + 1 / size + 1 - MIN_SHARE) + 1)
        # Where the phase rests at the boundary, the middle of the rest; beyond the stretch, its end.
        reached = np.searchsorted(own, whole - 1e-9), np.searchsorted(own, whole + 1e-9, side="right") - 1
        frames = np.clip((reached[0] + np.maximum(*reached)) / 2, 0, len(own) - 1) + first
        for start, end in pairwise(frames):
            part = slice(int(start), int(end) + 1)
            score = 1 - track.residual[part].sum() / max(float(track.energy[part].sum()), 1e-9)
            begin, stop = np.interp([start, end], np.arange(len(times)), times).tolist()
            if stop > begin:
                found.append(Repetition(begin, stop, float(score)))
    return found


def cut_embedding(embedding: Embedding, span: Repetition) -> Embedding:
    """Cut out the frames of a repetition; its clock starts at 0."""
    first, last = np.searchsorted(embedding.times, [span.start - 1e-9, span.end])
    last = max(last, first + 2)
    return Embedding(embedding.values[first:last], embedding.times[first:last] - span.start, embedding.modality)


def write_clips(session: NamedVideo, spans: Sequence[Repetition], files: Sequence[Path], *, progress: Progress) -> None:
    """Encode the part of each repetition, without sound, frame by frame."""
    recording = open_recording(session.path)
    for number, (span, file) in enumerate(zip(spans, files, strict=True)):
        progress("writing clips", number, len(files))
        fps = session.properties.fps
        ticks = span.start + np.arange(max(2, round((span.end - span.start) * fps))) / fps
        shown = shown_at(recording.times, ticks)
        wanted = choose(recording.times, indices=np.unique(shown))
        images = ((time, image) for time, image in recording.images(wanted))
        repeats = {float(recording.times[k]): int((shown == k).sum()) for k in np.unique(shown)}
        write_mp4(file, (image for time, image in images for _ in range(repeats.get(float(time), 1))), fps=fps)
    progress("writing clips", len(files), len(files))
