"""A steady warp: the smooth map of time nearest to an alignment, which neither stands still nor jumps.

An alignment g(tₖ) is a staircase: frames are matched with frames. The steady map f minimises

    (1/T) Σₖ (f(tₖ) − g(tₖ))² Δₖ  +  (τ/2π)⁴ (1/T) ∫ f″(t)² dt
    subject to    v/b ≤ f′(t) ≤ v·b,    f(0) = g(0),    f(T) = g(T)

where T is the duration, v = (g(T) − g(0))/T the average speed and b bounds how far speeds depart from it. Without the
constraints f is a smoothing spline, which halves wiggles of period τ and follows slower ones; as τ grows, f becomes the
straight line of constant speed. f is piecewise linear and its unknowns are the speeds of the pieces, so that the bounds
are those of the variables; the end is held by its weight. That is a bounded linear least squares, which is convex.
"""
# MERGED: Bring recordings in step: one is the reference and keeps its clock, the others follow it.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.apps.matching import PairCost, PairMatch, match
from inphase.apps.tracks import NamedVideo, make_curves, make_pair, make_time_map, make_track
from inphase.media.render import render
from inphase.models.embedding import Embedding
from inphase.playback import Playback

# The speed may be so many times the average, and so many times less.
BOUND = 8.0
# Pieces for each τ, and at most.
FINENESS, PIECES = 8, 300
# How much more the end weighs than all else.
HOLD = 1e3

Seconds = NDArray[np.float64]


def smooth_time_map(clock: Seconds, seconds: Seconds, *, period: float, bound: float = BOUND) -> Seconds:
    """Smooth a map from `clock` [M] to `seconds` [M], neither ever decreasing; wiggles shorter than `period` vanish.

    Time: that of a bounded least squares of at most 300 unknowns, about a second.
    """
    from scipy.optimize import lsq_linear

    if not period > 0 or not bound > 1:
        raise ValueError(f"smoothing needs a period above 0 seconds and a bound above 1, got {period=} and {bound=}")
    total = clock[-1] - clock[0]
    if len(clock) < 3 or seconds[-1] <= seconds[0]:
        return seconds
    pieces = int(np.clip(np.ceil(FINENESS * total / period), 2, min(PIECES, len(clock) - 1)))
    width, travel = total / pieces, seconds[-1] - seconds[0]
    # f(t) = f(0) + Σ speed · (how much of the piece lies before t)
    before = np.clip(clock[:, None] - clock[0] - width * np.arange(pieces), 0, width)
    weight = np.sqrt(np.gradient(clock) / total)[:, None]
    bend = np.diff(np.eye(pieces), axis=0) * np.sqrt((period / (2 * np.pi)) ** 4 / (width * total))
    rows = np.concatenate([weight * before, bend, np.full((1, pieces), HOLD * width)])
    aims = np.concatenate([weight[:, 0] * (seconds - seconds[0]), np.zeros(len(bend)), [HOLD * travel]])
    # As many rows as unknowns say the same.
    rotation, triangle = np.linalg.qr(rows)
    speed = travel / total
    speeds = lsq_linear(triangle, rotation.T @ aims, bounds=(speed / bound, speed * bound)).x
    way = before @ speeds
    return np.asarray(seconds[0] + way * (travel / way[-1]))


@dataclass(frozen=True, eq=False)
class Synchronization:
    """K recordings in step: `seconds` [R, K] of each at the seconds `clock` [R] of the one called `reference`.

    `matches` holds, for each recording, how the reference goes with it; the reference goes with itself.
    """

    reference: int
    clock: NDArray[np.float64]
    seconds: NDArray[np.float64]
    matches: tuple[PairMatch, ...]


def synchronize(
    embeddings: Sequence[Embedding],
    *,
    reference: int = 0,
    cost: PairCost = "contrastive",
    subsequence: bool = False,
    smooth: float = 0.0,
) -> Synchronization:
    """Align all recordings with the reference.

    With `subsequence` the reference is a short action that is looked for inside each of the others. `smooth` above 0
    is the period, in seconds, below which changes of speed are taken for noise (`inphase.apps.align_videos`).
    """
    if not 0 <= reference < len(embeddings):
        raise ValueError(f"reference {reference} does not exist: there are recordings 0 to {len(embeddings) - 1}")
    clock = embeddings[reference].times
    matches, columns = [], []
    for number, other in enumerate(embeddings):
        if number == reference:
            found = itself(other)
        else:
            found = match(embeddings[reference], other, cost=cost, subsequence=subsequence)
        follows = number != reference and smooth > 0
        columns.append(smooth_time_map(clock, found.seconds, period=smooth) if follows else found.seconds)
        matches.append(found)
    return Synchronization(reference, clock, np.stack(columns, axis=1), tuple(matches))


def itself(recording: Embedding) -> PairMatch:
    """Match a recording with itself."""
    frames = np.arange(len(recording))
    return PairMatch(np.stack([frames, frames], axis=1), recording.times, 0.0)


def medoid(embeddings: Sequence[Embedding], *, cost: PairCost = "contrastive") -> int:
    """Choose the recording that goes best with all others: the least sum of distances. K (K − 1) / 2 alignments."""
    distances = np.zeros((len(embeddings), len(embeddings)))
    for i in range(len(embeddings)):
        for j in range(i):
            distances[i, j] = distances[j, i] = match(embeddings[i], embeddings[j], cost=cost).distance
    return int(distances.sum(1).argmin())


def make_playback(
    recordings: Sequence[NamedVideo],
    media: Sequence[str],
    embeddings: Sequence[Embedding],
    synchrony: Synchronization,
    *,
    cost: PairCost = "contrastive",
) -> Playback:
    """Describe recordings in step, whose files `media` lie in the playback's folder."""
    reference = synchrony.reference
    tracks, pairs = [], []
    for k, (each, file, curves) in enumerate(zip(recordings, media, make_curves(embeddings), strict=True)):
        time_map = None if k == reference else make_time_map(synchrony.clock, synchrony.seconds[:, k])
        tracks.append(make_track(each, file, time_map=time_map, curves=curves))
        if k != reference:
            found = synchrony.matches[k]
            pairs.append(make_pair(embeddings[reference], embeddings[k], found, rows=reference, columns=k, cost=cost))
    title = f"{recordings[reference].name} and what is in step with it"
    return Playback(title, tracks=tuple(tracks), pairs=tuple(pairs), reference=reference)


def render_aligned(
    path: Path,
    recordings: Sequence[NamedVideo],
    synchrony: Synchronization,
    *,
    slow: float = 1.0,
    height: int = 360,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write recordings side by side on the clock of the reference, whose sound is kept; more than three in a grid."""
    reference = recordings[synchrony.reference]
    render(
        path,
        [each.path for each in recordings],
        clock=synchrony.clock,
        seconds=synchrony.seconds,
        layout="row" if len(recordings) <= 3 else "grid",
        height=height,
        labels=[each.name for each in recordings],
        rate=min(reference.properties.rate, 60.0),
        slow=slow,
        sound=reference.path if reference.properties.has_sound else None,
        sound_of=synchrony.reference,
        progress=progress,
    )
