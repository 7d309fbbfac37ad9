"""Find the moments nearest to a moment of a video, or the videos that align best with it, among many."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from inphase.align.matching import align_with_itself, match
from inphase.align.path import Alignment
from inphase.apps.align_videos import Synchronization, make_pairs, make_playback
from inphase.apps.alignment_files import add_video_file
from inphase.media.frames import read_clip
from inphase.media.listing import videos_in
from inphase.media.recording import NamedVideo, names_of, open_named, open_recordings
from inphase.models.embed_videos import Model, embed_each, embed_videos
from inphase.models.embedding import Embedding, rate_of
from inphase.models.encoder import ModalityChoice
from inphase.playback import Playback, PlaybackMoment, Result, write_playback
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.progress import Progress, Summary, describe_left_out, ignore_progress
from inphase.storage.cache import open_cache
from inphase.storage.files import atomic_write, require_folder

# Minimum distance of two hits in one recording, in seconds.
MIN_GAP_SECONDS = 0.5
# Seconds around a moment that are compared, half before it and half after it (docs/lab/search.md); a candidate must
# lie far enough inside its recording for this share of them.
WINDOW_SECONDS, MIN_OVERLAP = 1.0, 0.7
# Tempos at which the context is laid over a recording, and what each doubling or halving takes off its score, in
# standard deviations of the cosines.
TEMPOS, TEMPO_PENALTY = (0.5, 2**-0.5, 1.0, 2**0.5, 2.0), 0.5
# Height of a thumbnail in pixels.
THUMBNAIL_HEIGHT = 180
# Hits that the viewer plays synchronized with the query.
MAX_ALIGNED_HITS = 8


@dataclass(frozen=True)
class MomentHit:
    """A moment of a recording: `second`, and the mean cosine similarity `score` of its context, −1 to 1."""

    name: str
    second: float
    score: float


@dataclass(frozen=True, eq=False)
class VideoHit:
    """A recording and the query's `alignment` with it; `score` is 1 − its distance, 1 at best.

    `seconds` [M] are those of the recording at the frames of the query.
    """

    name: str
    alignment: Alignment
    seconds: NDArray[np.float64]
    score: float


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The hits of a search, best first: `moments` where a second `at` of the query was given, otherwise `videos`.

    `files` gives the path and the display name of every hit whose file exists, `embeddings` those of the videos found.
    `left_out` gives the reason for every video that was not searched or cannot be shown; `method` is a sentence on how
    the corpus was searched.
    """

    query: NamedVideo
    embedding: Embedding
    at: float | None
    moments: tuple[MomentHit, ...]
    videos: tuple[VideoHit, ...]
    files: Mapping[str, tuple[Path, str]]
    embeddings: Mapping[str, Embedding]
    method: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Describe the search in a line."""
        name = self.query.name
        return f"videos that align with {name}" if self.at is None else f"moments like {name} at {self.at:g} s"

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write a playback with a thumbnail of every hit, the best videos synchronized; return its path."""
        out, report = Path(folder), progress or ignore_progress
        require_folder(out)
        out.mkdir(parents=True, exist_ok=True)
        videos = [hit for hit in self.videos if hit.name in self.files]
        moments = [hit for hit in self.moments if hit.name in self.files]
        recordings = {}
        found = dict.fromkeys(hit.name for hit in (videos if self.at is None else moments))
        for number, key in enumerate(found, start=1):
            path, name = self.files[key]
            recordings[key] = open_named(path, name)
            report("writing results", number, len(found))
        if self.at is None:
            return [write_playback(out, self._videos_playback(out, videos, recordings))]
        shown = [show_moment(out, recordings[hit.name], hit.second, score=hit.score) for hit in moments]
        query = show_moment(out, self.query, self.at)
        return [write_playback(out, Playback(self.title, results=(Result(query, tuple(shown)),)))]

    def summary(self) -> Summary:
        """Return the hits, best first."""
        rows = [(hit.name, f"{hit.seconds[0]:.2f} – {hit.seconds[-1]:.2f}", hit.score) for hit in self.videos]
        rows += [(hit.name, f"{hit.second:.2f}", hit.score) for hit in self.moments]
        return summarize_hits(self.title, rows, lines=[self.method], left_out=self.left_out)

    def to_dict(self) -> dict[str, Any]:
        """Return the query and the hits as JSON-ready values, times in seconds."""
        hits: list[dict[str, Any]] = [
            {"name": hit.name, "start": float(hit.seconds[0]), "end": float(hit.seconds[-1]), "score": hit.score}
            for hit in self.videos
        ]
        hits += [{"name": hit.name, "second": hit.second, "score": hit.score} for hit in self.moments]
        for hit in hits:
            hit["path"] = str(self.files[hit["name"]][0]) if hit["name"] in self.files else None
        return {"query": str(self.query.path), "at": self.at, "hits": hits, "left_out": dict(self.left_out)}

    def _videos_playback(self, out: Path, hits: list[VideoHit], recordings: Mapping[str, NamedVideo]) -> Playback:
        """Describe the videos found, the best of them synchronized with the query."""
        shown = []
        for hit in hits:
            start, end = float(hit.seconds[0]), float(hit.seconds[-1])
            shown.append(show_moment(out, recordings[hit.name], start, score=hit.score, duration=end - start))
        best = hits[:MAX_ALIGNED_HITS]
        clock = self.embedding.times
        alignments = (align_with_itself(len(clock)), *(hit.alignment for hit in best))
        seconds = np.stack([clock, *(hit.seconds for hit in best)], axis=1)
        synchronization = Synchronization(0, clock, seconds, alignments)
        tracks = [self.query, *(recordings[hit.name] for hit in best)]
        media = [add_video_file(out, each) for each in tracks]
        aligned = [self.embedding, *(self.embeddings[hit.name] for hit in best)]
        pairs = make_pairs(aligned, synchronization)
        playback = make_playback(tracks, media, aligned, synchronization, pairs=pairs)
        query = show_moment(out, self.query, 0.0, duration=self.query.properties.duration)
        return Playback(
            self.title, tracks=playback.tracks, pairs=playback.pairs, results=(Result(query, tuple(shown)),)
        )


def search_files(
    query: Path | str,
    corpus: Sequence[Path],
    *,
    at: float | None = None,
    window: float = WINDOW_SECONDS,
    top: int = 10,
    subsequence: bool = False,
    model: Model = None,
    modality: ModalityChoice = "auto",
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> SearchResult:
    """Search video files and folders of them; `inphase.search` documents the options."""
    require_question(at=at, window=window, top=top, subsequence=subsequence)
    paths = list_corpus(corpus, Path(query))
    (asked,) = open_recordings([query])
    shared: dict[str, Any] = {
        "fps": fps,
        "cache": open_cache(cache),
        "pose_estimator": pose_estimator,
        "progress": progress,
    }
    embedded = embed_videos([asked.path], model=model, modality=modality, **shared)
    others, failed = embed_each(paths, encoder=embedded.encoder, **shared)
    embeddings = dict(zip(names_of(list(others)), others.values(), strict=True))
    files = {name: (path, name) for name, path in zip(embeddings, others, strict=True)}
    embedding = embedded.embeddings[0]
    moments, videos = [], []
    if at is None:
        videos = nearest_recordings(embedding, embeddings, top=top, subsequence=subsequence, progress=progress)
    else:
        moments = nearest_moments(context_of(embedding, at, window=window), embeddings, top=top)
    return SearchResult(
        asked,
        embedding,
        at,
        tuple(moments),
        tuple(videos),
        files,
        embeddings,
        method=embedded.why,
        left_out={str(path): reason for path, reason in failed.items()},
    )


def summarize_hits(
    title: str, hits: Sequence[tuple[str, str, float]], *, lines: Sequence[str] = (), left_out: Mapping[str, str]
) -> Summary:
    """Summarize hits: name, seconds and score, best first."""
    rows = [(str(rank), name, seconds, f"{score:.3f}") for rank, (name, seconds, score) in enumerate(hits, start=1)]
    return Summary(lines, describe_left_out(left_out), title, (">", "video", ">seconds", ">score"), rows)


def require_question(*, at: float | None, window: float, top: int, subsequence: bool) -> None:
    """Raise if the options of a search contradict each other."""
    if not 0 <= window < math.inf:
        raise ValueError(f"window must be 0 seconds or more, got {window:g}")
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if subsequence and at is not None:
        raise ValueError("subsequence searches for the whole query, at for one of its moments: give only one of them")


def list_corpus(places: Sequence[Path], query: Path) -> list[Path]:
    """List video files and the videos in folders, each once, without the query."""
    files = [file for file in videos_in(places) if file.resolve() != query.resolve()]
    if not files:
        raise ValueError(
            f"no video to search in {', '.join(map(str, places))} beside the query: name other files or folders"
        )
    return files


@dataclass(frozen=True, eq=False)
class MomentContext:
    """A moment and the frames around it: `vectors` [W, D], `offsets` [W] in seconds from the moment."""

    vectors: NDArray[np.float32]
    offsets: NDArray[np.float64]


def context_of(query: Embedding, second: float, *, window: float = WINDOW_SECONDS) -> MomentContext:
    """Return the frames within half a window of a second; with a window of 0 the nearest frame alone."""
    moment_of(query, second)
    middle = int(np.abs(query.times - second).argmin())
    offsets = query.times - query.times[middle]
    near = np.abs(offsets) <= window / 2 + 1e-6
    return MomentContext(query.values[near], offsets[near])


def score_moments(moment: NDArray[np.float32] | MomentContext, embedding: Embedding) -> NDArray[np.float32]:
    """Compare a moment [D], or one in its context, with every frame of a recording: mean cosines [T].

    The context is laid over the recording at several tempos, of which the best counts; tempos other than the query's
    cost a little. A context that is stretched freely, by DTW, ranks worse (docs/lab/search.md). Frames beyond the ends
    of the recording do not count; −inf where too much of the context lies there.
    """
    if not isinstance(moment, MomentContext):
        return np.asarray(embedding.values @ moment)
    cosines = moment.vectors @ embedding.values.T  # [W, T]
    offsets = moment.offsets * (rate_of(embedding.times) or 1.0)
    tempos = TEMPOS if len(offsets) > 1 else (1.0,)
    penalty = TEMPO_PENALTY * float(cosines.std())
    scores = [_lay_over(cosines, offsets * tempo) - penalty * abs(np.log2(tempo)) for tempo in tempos]
    return np.asarray(np.max(scores, axis=0), np.float32)


def _lay_over(cosines: NDArray[np.float32], offsets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average cosines [W, T] over a context whose frames lie at `offsets` [W] from each of T places."""
    length = cosines.shape[1]
    places = np.arange(length) + np.rint(offsets).astype(np.int64)[:, None]
    inside = (places >= 0) & (places < length)
    found = np.take_along_axis(cosines, np.clip(places, 0, length - 1), axis=1)
    overlap = inside.mean(0)
    scores = (found * inside).sum(0) / np.maximum(inside.sum(0), 1)
    return np.where(overlap >= MIN_OVERLAP * overlap.max(), scores, -np.inf)


def moment_of(query: Embedding, second: float) -> NDArray[np.float32]:
    """Return the embedding [D] of the frame nearest to a second."""
    step = float(np.median(np.diff(query.times))) if len(query) > 1 else 0.0
    if not query.times[0] - step <= second <= query.times[-1] + step + 1e-6:
        raise ValueError(f"second {second:g} lies outside the query, which runs to {query.times[-1] + step:.2f} s")
    return np.asarray(query.values[np.abs(query.times - second).argmin()])


def nearest_moments(
    moment: NDArray[np.float32] | MomentContext,
    corpus: Mapping[str, Embedding],
    *,
    top: int = 10,
    apart: float = MIN_GAP_SECONDS,
) -> list[MomentHit]:
    """Find the moments of a corpus nearest to one, best first, no two of a recording within `apart` seconds.

    O(frames · D · W) for a context of W frames: one pass over all frames.
    A store searches an index instead (`inphase.corpus.store_search`).
    """
    candidates = []
    for name, embedding in corpus.items():
        scores = score_moments(moment, embedding)
        candidates += choose_apart(name, embedding.times, scores, top=top, apart=apart)
    return sorted(candidates, key=lambda hit: -hit.score)[:top]


def choose_apart(
    name: str, times: NDArray[np.float64], scores: NDArray[np.float32], *, top: int, apart: float = MIN_GAP_SECONDS
) -> list[MomentHit]:
    """Choose the best moments of one recording greedily, each at least `apart` seconds from those chosen before."""
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
    progress: Progress | None = None,
) -> list[VideoHit]:
    """Find the recordings that align best with a query, by the mean distance along the alignment, best first.

    The mean does not grow with length. With `subsequence` the query may be a part of a longer recording.
    """
    report = progress or ignore_progress
    found: list[VideoHit] = []
    for number, (name, embedding) in enumerate(corpus.items(), start=1):
        matched = match(query, embedding, subsequence=subsequence)
        hit = VideoHit(name, matched, matched.time_map(query.times, embedding.times), 1 - matched.distance)
        found = sorted([*found, hit], key=lambda each: -each.score)[:top]
        report(f"aligning {len(corpus)} videos", number, len(corpus))
    return found


def show_moment(
    folder: Path, recording: NamedVideo, second: float, *, score: float | None = None, duration: float = 1.0
) -> PlaybackMoment:
    """Add a recording to a playback's folder, with a thumbnail of the middle of the moment."""
    media = add_video_file(folder, recording)
    properties = recording.properties
    middle = min(second + (duration / 2 if duration > 1 else 0.0), properties.duration - 0.5 / properties.fps)
    size = (THUMBNAIL_HEIGHT, max(1, round(THUMBNAIL_HEIGHT * properties.size[1] / properties.size[0])))
    image = read_clip(recording.path, seconds=[max(middle, 0.0)], size=size).frames[0]
    thumbnail = f"{Path(media).stem}-{middle:.2f}.jpg"
    with atomic_write(folder / thumbnail) as part:
        Image.fromarray(image).save(part, quality=85)
    return PlaybackMoment(
        recording.name,
        second,
        score=score,
        media=media,
        thumbnail=thumbnail,
        duration=max(duration, 1 / properties.fps),
    )
