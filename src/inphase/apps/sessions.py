"""Find every repetition of an action in a recording: of the action in a clip, or of any motion that repeats.

The template is one cycle of the action, whose end is joined to its start. From frame to frame the phase stays,
advances, or, at a cost, leaves the cycle where the recording shows something else: such a frame is dropped, by the
second state of Drop-DTW (`inphase.align.drop_dtw`). This is subsequence DTW with drops for any number of repetitions at
once, and it follows changes of tempo. The template is then the mean of all frames of equal phase, and both steps
are repeated (a barycenter). Without a clip, the window that resembles its successor most is the
first template, for every period that is tried; the period whose template explains the motion best wins. Two cycles in
one template explain slightly more than one: the cost grows as (n / (n − 1))^`FEW_CYCLES` where only n cycles are found.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from inphase.align.numba.path_numba import track_template
from inphase.media.recording import NamedVideo, require_two_usable
from inphase.models.embedding import Embedding, unit_rows
from inphase.models.joint_encoder import has_route

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
# A recording is a session if it lasts at least this many times as long as the clip beside it.
MIN_SESSION = 1.5

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Repetition:
    """A repetition from `start` to `end` in seconds; `score` is the share of its motion that the template explains."""

    start: float
    end: float
    score: float


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


def cut_sessions(
    videos: Sequence[NamedVideo],
    embeddings: Sequence[Embedding],
    left_out: dict[str, str],
    *,
    clip: int = 0,
    whole: Collection[int] = (),
) -> tuple[list[NamedVideo], list[Embedding]]:
    """Replace every session by its repetitions of the action in video number `clip`: session#1, session#2, ….

    A session is a recording that lasts at least `MIN_SESSION` times as long as the clip; others are kept, and so are
    the numbers in `whole`. Repetitions keep the clock of their recording: their times are in seconds of the file.
    A session without a repetition is recorded in `left_out`.
    """
    shortest = MIN_SESSION * videos[clip].duration
    sessions = {k for k, each in enumerate(videos) if each.duration >= shortest and k not in (clip, *whole)}
    if not sessions:
        raise ValueError(
            f"no session: no recording lasts {MIN_SESSION:g} times as long as the clip {videos[clip].path}"
        )
    kept, parts = list[NamedVideo](), list[Embedding]()
    for number, (video, embedding) in enumerate(zip(videos, embeddings, strict=True)):
        if number not in sessions:
            kept.append(video)
            parts.append(embedding)
            continue
        spans = find_spans(*shared_part(embedding, embeddings[clip]))
        if not spans:
            left_out[str(video.path)] = f"{video.path}: the action of {videos[clip].path} is not found in it"
        for repetition, each in enumerate(spans, start=1):
            kept.append(replace(video, name=f"{video.name}#{repetition}", span=(each.start, each.end)))
            parts.append(embedding.part(each.start, each.end))
    require_two_usable(kept, left_out)
    return kept, parts


def shared_part(session: Embedding, clip: Embedding) -> tuple[Embedding, Embedding]:
    """Take the columns by which repetitions are found: pose where both show a person, otherwise images.

    Another person in another place looks different and moves alike (docs/lab/repetitions.md).
    """
    shared = [has_route(session, k) and has_route(clip, k) for k in range(len(session.routes))]
    if not any(shared):
        return session, clip
    wanted = [k == 0 if shared[0] else has for k, has in enumerate(shared)]
    columns = np.repeat(wanted, [route.width for route in session.routes])
    pairs = zip([each.values[:, columns] for each in (session, clip)], (session, clip), strict=True)
    first, second = (Embedding(unit_rows(values), each.times) for values, each in pairs)
    return first, second


def describe_period(period: float) -> str:
    """Describe what an action that repeats means for the alignment of its videos."""
    return f"The action repeats every {period:.1f} s: the videos may be off by a repetition."


def cut_embedding(embedding: Embedding, span: Repetition) -> Embedding:
    """Cut out the frames of a repetition; its clock starts at 0, like that of its clip."""
    part = embedding.part(span.start, span.end)
    pose = None if part.pose is None else replace(part.pose, times=part.pose.times - span.start)
    return replace(part, times=part.times - span.start, pose=pose)
