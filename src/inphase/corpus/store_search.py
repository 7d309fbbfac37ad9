"""Search files, folders or a store of embeddings. In a store, an index proposes and exact comparison decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as memoize
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.apps.search import (
    MIN_GAP_SECONDS,
    WINDOW_SECONDS,
    MomentContext,
    MomentHit,
    SearchResult,
    VideoHit,
    context_of,
    nearest_moments,
    nearest_recordings,
    require_question,
    search_files,
)
from inphase.corpus.embedding_store import CatalogEntry, EmbeddingStore, is_store
from inphase.corpus.shards import ShardMergedError, read_times
from inphase.corpus.vector_index import Candidate, Index
from inphase.media.recording import names_of, open_recordings
from inphase.models import Encoder, load_encoder
from inphase.models.embed_videos import Model, embed_video
from inphase.models.embedding import Embedding
from inphase.models.encoder import ModalityChoice
from inphase.models.weights import fingerprint
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.progress import Progress, ignore_progress, stage_progress
from inphase.storage.cache import Cache, default_cache_folder

# A search for videos: frames of the query that vote, neighbors of each, and videos aligned for every one returned.
QUERY_FRAMES, NEIGHBORS_PER_FRAME, ALIGNED_PER_HIT = 16, 64, 4
# A store that `embed` fills at the same time is opened again this often before the search fails.
MAX_REOPENED = 5


def search(
    query: Path | str,
    corpus: Path | str | Sequence[Path | str],
    *,
    at: float | None = None,
    window: float = WINDOW_SECONDS,
    top: int = 10,
    subsequence: bool = False,
    action: str | None = None,
    model: Model = None,
    modality: ModalityChoice = "auto",
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> SearchResult:
    """Find the moments nearest to second `at` of a video, or without `at` the videos that align best with it.

    `corpus` is a store of `embed_corpus`, or video files and folders of them. A moment is compared in its context: the
    frames of `window` seconds around it; 0 compares one frame. With `subsequence` the query is a short
    action that may be a part of longer videos. `action` chooses among the videos of a store. A store is searched with
    its own encoder and fps; otherwise `model`, `modality`, `fps`, `cache` and `pose_estimator` mean the same as
    for `align_videos`.
    """
    places = [Path(corpus)] if isinstance(corpus, str | Path) else [Path(place) for place in corpus]
    if len(places) == 1 and is_store(places[0]):
        if fps is not None:
            raise ValueError("the query is embedded at the fps of the store: omit fps")
        for remaining in reversed(range(MAX_REOPENED + 1)):
            try:
                return _search_store(
                    Path(query),
                    places[0],
                    at=at,
                    window=window,
                    top=top,
                    subsequence=subsequence,
                    action=action,
                    model=model,
                    cache=cache,
                    pose_estimator=pose_estimator,
                    progress=progress or ignore_progress,
                )
            except ShardMergedError:
                if not remaining:
                    raise
    if action is not None:
        raise ValueError("action selects videos of a store only: make one with `inphase embed`")
    return search_files(
        query,
        places,
        at=at,
        window=window,
        top=top,
        subsequence=subsequence,
        model=model,
        modality=modality,
        fps=fps,
        cache=cache,
        pose_estimator=pose_estimator,
        progress=progress,
    )


def _search_store(
    query: Path,
    folder: Path,
    *,
    at: float | None,
    window: float,
    top: int,
    subsequence: bool,
    action: str | None,
    model: Model,
    cache: Path | None,
    pose_estimator: str,
    progress: Progress,
) -> SearchResult:
    """Search a store with the encoder that filled it."""
    require_question(at=at, window=window, top=top, subsequence=subsequence)
    with EmbeddingStore(folder) as store:
        store.require_action(action)
        encoder, fps = _open_encoder(store, model)
        (asked,) = open_recordings([query])
        kept = Cache(cache or default_cache_folder())
        embedding = embed_video(encoder, query, cache=kept, fps=fps, pose_estimator=pose_estimator, progress=progress)
        index = Index(store, progress=stage_progress(progress, "indexing shards"))
        hits: list[MomentHit] = []
        videos: list[VideoHit] = []
        embeddings: dict[str, Embedding] = {}
        if at is None:
            videos, found = find_videos(
                store, index, embedding, top=top, action=action, subsequence=subsequence, file=query.resolve()
            )
            entries = [found[hit.name][0] for hit in videos]
            embeddings = {entry.id: found[entry.id][1] for entry in entries}
        else:
            context = context_of(embedding, at, window=window)
            moments = find_moments(store, index, context, top=top, action=action, file=query.resolve())
            entries = [hit.entry for hit in moments]
            hits = [MomentHit(hit.entry.id, hit.second, hit.score) for hit in moments]
    paths = {entry.id: Path(entry.path) for entry in entries if Path(entry.path).is_file()}
    files = dict(zip(paths, zip(paths.values(), names_of(list(paths.values())), strict=True), strict=True))
    absent = {entry.id: "not shown: its file is not here" for entry in entries if entry.id not in files}
    method = f"{folder}: {index.method}"
    return SearchResult(asked, embedding, at, tuple(hits), tuple(videos), files, embeddings, method, absent)


def _open_encoder(store: EmbeddingStore, model: Model) -> tuple[Encoder, float | None]:
    """Load the encoder that filled a store, and its fps; raise if another model is given."""
    name = store.model()
    encoder, fps = load_encoder(store.encoder_file(name)), store.fps(name)
    if model is not None:
        given = model if isinstance(model, Encoder) else load_encoder(model)
        if fingerprint(given) != fingerprint(encoder):
            raise ValueError(f"{store.folder} was filled by another model than {model}: omit the model, or embed again")
    return encoder, fps


@dataclass(frozen=True)
class FoundMoment:
    """A moment of a video in a store: its second, and its cosine similarity to the query, −1 to 1."""

    entry: CatalogEntry
    second: float
    score: float


def find_moments(
    store: EmbeddingStore,
    index: Index,
    moment: NDArray[np.float32] | MomentContext,
    *,
    top: int = 10,
    action: str | None = None,
    apart: float = MIN_GAP_SECONDS,
    file: Path | None = None,
) -> list[FoundMoment]:
    """Find the moments nearest to one [D], or to one in its context, best first, no two within `apart` seconds.

    The frames of a context vote for videos, as those of a query do in `find_videos`; the context is then compared with
    all frames of the videos with the most votes. The moment's own `file`, as `Path.resolve` returns it, is excluded.
    """
    store.require_action(action)
    if isinstance(moment, MomentContext) and len(moment.vectors) > 1:
        proposed = propose(store, index, moment.vectors, top=top, action=action, file=file)
        entries = {entry.id: entry for entry, _ in proposed.values()}
        near = nearest_moments(moment, {id: found for id, (_, found) in proposed.items()}, top=top, apart=apart)
        return [FoundMoment(entries[hit.name], hit.second, hit.score) for hit in near]
    vector = moment.vectors[0] if isinstance(moment, MomentContext) else moment

    @memoize
    def times(entry: CatalogEntry) -> NDArray[np.float64]:
        return read_times(store.file(entry.shard), entry.row)

    k = 8 * top
    while True:
        (candidates,) = index.nearest(vector[None], k=k, action=action)
        chosen: list[FoundMoment] = []
        for each in candidates:
            if Path(each.entry.path) == file:
                continue
            second = float(times(each.entry)[each.frame])
            close = (kept for kept in chosen if kept.entry.id == each.entry.id and abs(kept.second - second) < apart)
            if next(close, None) is None:
                chosen.append(FoundMoment(each.entry, second, each.score))
        if len(chosen) >= top or len(candidates) < k:
            return chosen[:top]
        k *= 4


def find_videos(
    store: EmbeddingStore,
    index: Index,
    query: Embedding,
    *,
    top: int = 10,
    action: str | None = None,
    subsequence: bool = False,
    file: Path | None = None,
) -> tuple[list[VideoHit], dict[str, tuple[CatalogEntry, Embedding]]]:
    """Find the videos that align best with a query; return them, and the entries and embeddings of all aligned videos.

    Frames of the query vote for videos by their similarity to the nearest frame of each; the videos with the most votes
    are aligned. The query's own `file` is excluded.
    """
    store.require_action(action)
    aligned = propose(store, index, query.values, top=top, action=action, file=file)
    corpus = {id: embedding for id, (_, embedding) in aligned.items()}
    return nearest_recordings(query, corpus, top=top, subsequence=subsequence), aligned


def propose(
    store: EmbeddingStore,
    index: Index,
    frames: NDArray[np.float32],
    *,
    top: int,
    action: str | None,
    file: Path | None,
) -> dict[str, tuple[CatalogEntry, Embedding]]:
    """Read the videos for which the frames [T, D] of a query vote most, without its own `file`."""
    asking = frames[np.unique(np.linspace(0, len(frames) - 1, QUERY_FRAMES).astype(int))]
    voted = vote(index.nearest(asking, k=NEIGHBORS_PER_FRAME * max(1, top // 4), action=action))
    proposed = [entry for entry in voted if Path(entry.path) != file][: max(32, ALIGNED_PER_HIT * top)]
    proposed.sort(key=lambda entry: (entry.shard, entry.row))
    rows = zip(proposed, store.read(proposed), strict=True)
    return {entry.id: (entry, row.embedding) for entry, row in rows if row.embedding is not None}


def vote(found: Sequence[Sequence[Candidate]]) -> list[CatalogEntry]:
    """Order videos by the summed similarity of their nearest frames to the query's; a video not found gains nothing."""
    scores: dict[CatalogEntry, float] = {}
    for of_query in found:
        worst = of_query[-1].score if of_query else 0.0
        best: dict[CatalogEntry, float] = {}
        for each in of_query:
            best.setdefault(each.entry, each.score - worst)
        for entry, gain in best.items():
            scores[entry] = scores.get(entry, 0.0) + gain
    return sorted(scores, key=lambda entry: -scores[entry])
