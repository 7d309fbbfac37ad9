"""Bring recordings in step: one is the reference and keeps its clock, the others follow it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.apps.matching import Match, PairCost, match
from inphase.apps.track import Recording, make_curves, make_pair, make_time_map, make_track
from inphase.apps.warp import steady
from inphase.media.render import render
from inphase.models.embed import Embedding
from inphase.playback import Playback


@dataclass(frozen=True, eq=False)
class Synchrony:
    """K recordings in step: `seconds` [R, K] of each at the seconds `clock` [R] of the one called `reference`.

    `matches` holds, for each recording, how the reference goes with it; the reference goes with itself.
    """

    reference: int
    clock: NDArray[np.float64]
    seconds: NDArray[np.float64]
    matches: tuple[Match, ...]


def synchronise(
    embeddings: Sequence[Embedding],
    *,
    reference: int = 0,
    cost: PairCost = "contrastive",
    subsequence: bool = False,
    smooth: float = 0.0,
) -> Synchrony:
    """Align all recordings with the reference.

    With `subsequence` the reference is a short action that is looked for inside each of the others. `smooth` above 0
    is the period, in seconds, below which changes of speed are taken for noise (`inphase.apps.warp`).
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
        columns.append(steady(clock, found.seconds, period=smooth) if follows else found.seconds)
        matches.append(found)
    return Synchrony(reference, clock, np.stack(columns, axis=1), tuple(matches))


def itself(recording: Embedding) -> Match:
    """Match a recording with itself."""
    frames = np.arange(len(recording))
    return Match(np.stack([frames, frames], axis=1), recording.times, 0.0)


def medoid(embeddings: Sequence[Embedding], *, cost: PairCost = "contrastive") -> int:
    """Choose the recording that goes best with all others: the least sum of distances. K (K − 1) / 2 alignments."""
    distances = np.zeros((len(embeddings), len(embeddings)))
    for i in range(len(embeddings)):
        for j in range(i):
            distances[i, j] = distances[j, i] = match(embeddings[i], embeddings[j], cost=cost).distance
    return int(distances.sum(1).argmin())


def make_playback(
    recordings: Sequence[Recording],
    media: Sequence[str],
    embeddings: Sequence[Embedding],
    synchrony: Synchrony,
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
    recordings: Sequence[Recording],
    synchrony: Synchrony,
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
