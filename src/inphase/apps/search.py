"""Find in many recordings the moments most like a moment, or the recordings that go best with a whole one."""
# MERGED: What was found, as a playback: thumbnails, the files to play, and recordings in step with the query.

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from inphase.align.matching import match
from inphase.align.path import Alignment, align_with_itself
from inphase.apps.align_videos import Synchronization, make_pairs, make_playback
from inphase.apps.tracks import NamedVideo, add_video_file
from inphase.media.frames import read_clip
from inphase.models.embedding import Embedding
from inphase.playback import Playback, PlaybackMoment, Result
from inphase.storage.files import atomic_write

# Two moments of one recording closer than this are one.
APART = 0.5


@dataclass(frozen=True)
class MomentHit:
    """A moment that was found: `name` the recording, `second` of it, `score` from −1 to 1, larger is more alike."""

    name: str
    second: float
    score: float


@dataclass(frozen=True, eq=False)
class VideoHit:
    """A recording that was found: the query's `alignment` with it, and `score` = 1 − its distance, 1 at best.

    `seconds` [M] of the recording go with the frames of the query.
    """

    name: str
    alignment: Alignment
    seconds: NDArray[np.float64]
    score: float


def moment_of(query: Embedding, second: float) -> NDArray[np.float32]:
    """Give the vector [D] of the frame shown nearest to a second."""
    step = float(np.median(np.diff(query.times))) if len(query) > 1 else 0.0
    if not query.times[0] - step <= second <= query.times[-1] + step + 1e-6:
        raise ValueError(f"second {second:g} lies outside the query, which runs to {query.times[-1] + step:.2f} s")
    return np.asarray(query.values[np.abs(query.times - second).argmin()])


def nearest_moments(
    moment: NDArray[np.float32], corpus: Mapping[str, Embedding], *, top: int = 10, apart: float = APART
) -> list[MomentHit]:
    """Find the moments of a corpus most like one [D], best first, no two of a recording within `apart` seconds.

    O(frames · D): a pass over all of them. A larger corpus wants an index that proposes candidates; `spread` then
    chooses among these.
    """
    candidates = []
    for name, seen in corpus.items():
        scores = seen.values @ moment
        candidates += spread(name, seen.times, scores, top=top, apart=apart)
    return sorted(candidates, key=lambda hit: -hit.score)[:top]


def spread(
    name: str, times: NDArray[np.float64], scores: NDArray[np.float32], *, top: int, apart: float = APART
) -> list[MomentHit]:
    """Choose the best moments of one recording greedily, each at least `apart` seconds from those before."""
    left = np.array(scores, np.float64)
    hits: list[MomentHit] = []
    while len(hits) < top and np.isfinite(best := left.max()):
        second = float(times[left.argmax()])
        hits.append(MomentHit(name, second, float(best)))
        left[np.abs(times - second) < apart] = -np.inf
        left[times == second] = -np.inf
    return hits


def nearest_recordings(
    query: Embedding,
    corpus: Mapping[str, Embedding],
    *,
    top: int = 10,
    subsequence: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[VideoHit]:
    """Find the recordings a query goes with best, by the mean distance along the alignment, best first.

    The mean does not grow with length. With `subsequence` the query may be found inside a longer recording.
    """
    found: list[VideoHit] = []
    for number, (name, seen) in enumerate(corpus.items(), start=1):
        matched = match(query.values, seen.values, subsequence=subsequence)
        hit = VideoHit(name, matched, matched.time_map(query.times, seen.times), 1 - matched.distance)
        found = sorted([*found, hit], key=lambda each: -each.score)[:top]
        if progress is not None:
            progress(number, len(corpus))
    return found


# Height of a thumbnail in pixels, and how many recordings are shown in step with the query.
HEIGHT, IN_STEP = 180, 8


def make_moments_playback(
    folder: Path, title: str, asked: PlaybackMoment, hits: Sequence[MomentHit], recordings: Mapping[str, NamedVideo]
) -> Playback:
    """Show moments that were found."""
    shown = [show_moment(folder, recordings[hit.name], hit.second, score=hit.score) for hit in hits]
    return Playback(title, results=(Result(asked, tuple(shown)),))


def make_videos_playback(
    folder: Path,
    title: str,
    query: tuple[NamedVideo, Embedding],
    hits: Sequence[VideoHit],
    recordings: Mapping[str, NamedVideo],
    embeddings: Mapping[str, Embedding],
) -> Playback:
    """Show recordings that were found, the best of them in step with the query."""
    asked, seen = query
    shown = [
        show_moment(
            folder,
            recordings[hit.name],
            float(hit.seconds[0]),
            score=hit.score,
            duration=float(hit.seconds[-1] - hit.seconds[0]),
        )
        for hit in hits
    ]
    best = hits[:IN_STEP]
    alignments = (align_with_itself(len(seen)), *(hit.alignment for hit in best))
    seconds = np.stack([seen.times, *(hit.seconds for hit in best)], axis=1)
    synchrony = Synchronization(0, seen.times, seconds, alignments)
    tracks = [asked, *(recordings[hit.name] for hit in best)]
    media = [add_video_file(folder, each) for each in tracks]
    aligned = [seen, *(embeddings[hit.name] for hit in best)]
    in_step = make_playback(tracks, media, aligned, synchrony, pairs=make_pairs(aligned, synchrony))
    result = Result(show_moment(folder, asked, 0.0, duration=asked.properties.duration), tuple(shown))
    return Playback(title, tracks=in_step.tracks, pairs=in_step.pairs, results=(result,))


def show_moment(
    folder: Path, recording: NamedVideo, second: float, *, score: float | None = None, duration: float = 1.0
) -> PlaybackMoment:
    """Bring a recording into a playback's folder, with a thumbnail of the middle of what is to be seen."""
    media = add_video_file(folder, recording)
    known = recording.properties
    middle = min(second + (duration / 2 if duration > 1 else 0.0), known.duration - 0.5 / known.rate)
    size = (HEIGHT, max(1, round(HEIGHT * known.size[1] / known.size[0])))
    picture = read_clip(recording.path, seconds=[max(middle, 0.0)], size=size).frames[0]
    thumbnail = f"{Path(media).stem}-{middle:.2f}.jpg"
    with atomic_write(folder / thumbnail) as part:
        Image.fromarray(picture).save(part, quality=85)
    return PlaybackMoment(
        recording.name,
        second,
        score=score,
        media=media,
        thumbnail=thumbnail,
        duration=max(duration, 1 / known.rate),
    )
