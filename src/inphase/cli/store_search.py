"""`inphase search` in a store of `inphase embed`."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from inphase.cli.looking import bars, task_of, view_command
from inphase.cli.search import summary

if TYPE_CHECKING:
    from inphase.apps.search import VideoHit
    from inphase.corpus.embedding_store import EmbeddingStore, Fact
    from inphase.corpus.store_search import FoundMoment
    from inphase.models import Embedding, Encoder


def search_store(
    query: Path,
    folder: Path,
    *,
    at: float | None,
    top: int,
    subsequence: bool,
    action: str | None,
    out: Path,
    model: Path | None,
    cache: Path | None,
) -> None:
    """Find moments or videos in a store, with the encoder that filled it."""
    from inphase.apps.search import moment_of
    from inphase.corpus.embedding_store import EmbeddingStore
    from inphase.corpus.store_search import find_moments, find_videos
    from inphase.corpus.vector_index import Index
    from inphase.models.embed_videos import embed_video
    from inphase.storage.cache import Cache, default_cache_folder

    with EmbeddingStore(folder) as store:
        store.require_action(action)
        encoder, rate = _encoder_of(store, model)
        with bars() as bar:
            tell = task_of(bar, f"looking at {query.name}")
            seen = embed_video(encoder, query, cache=Cache(cache or default_cache_folder()), rate=rate, progress=tell)
            index = Index(store, progress=task_of(bar, "indexing shards"))
        console = Console()
        console.print(f"{escape(str(folder))}: {index.method}", soft_wrap=True)
        if at is None:
            title = f"videos that go with {query.stem}"
            found, embeddings = find_videos(
                store, index, seen, top=top, action=action, subsequence=subsequence, file=query.resolve()
            )
            rows = [(hit.name, f"{hit.seconds[0]:.2f} – {hit.seconds[-1]:.2f}", hit.score) for hit in found]
            console.print(summary(title, rows))
            _show_videos(out, title, query, seen, found, embeddings)
        else:
            title = f"moments like {query.stem} at {at:g} s"
            moments = find_moments(store, index, moment_of(seen, at), top=top, action=action, file=query.resolve())
            rows = [(hit.fact.id, f"{hit.second:.2f}", hit.score) for hit in moments]
            console.print(summary(title, rows))
            _show_moments(out, title, query, at, moments)


def _encoder_of(store: "EmbeddingStore", model: Path | None) -> "tuple[Encoder, float | None]":
    """Load the encoder that filled a store, and the rate it looked at; refuse another one."""
    from inphase.models import load_encoder
    from inphase.models.weights import fingerprint

    name = store.model()
    encoder, rate = load_encoder(store.encoder_file(name)), store.rate(name)
    if model is not None and fingerprint(load_encoder(model)) != fingerprint(encoder):
        raise ValueError(f"{store.folder} was filled by another model than {model}: leave --model out, or embed anew")
    return encoder, rate


def _show_moments(out: Path, title: str, query: Path, at: float, moments: "list[FoundMoment]") -> None:
    """Write a playback of moments; their files may have gone since they were embedded."""
    from inphase.apps.search import MomentHit, make_moments_playback, show_moment
    from inphase.apps.tracks import open_recordings
    from inphase.playback import write_playback

    here = _present([hit.fact for hit in moments])
    (asked,) = open_recordings([query])
    recordings = dict(zip(here, open_recordings(list(here.values())), strict=True))
    hits = [MomentHit(hit.fact.id, hit.second, hit.score) for hit in moments if hit.fact.id in here]
    write_playback(out, make_moments_playback(out, title, show_moment(out, asked, at), hits, recordings))
    Console().print(view_command(out), soft_wrap=True)


def _show_videos(
    out: Path,
    title: str,
    query: Path,
    seen: "Embedding",
    found: "list[VideoHit]",
    embeddings: "dict[str, tuple[Fact, Embedding]]",
) -> None:
    """Write a playback of videos in step with the query."""
    from inphase.apps.search import make_videos_playback
    from inphase.apps.tracks import open_recordings
    from inphase.playback import write_playback

    here = _present([embeddings[hit.name][0] for hit in found])
    (asked,) = open_recordings([query])
    recordings = dict(zip(here, open_recordings(list(here.values())), strict=True))
    hits = [hit for hit in found if hit.name in here]
    values = {id: embeddings[id][1] for id in here}
    write_playback(out, make_videos_playback(out, title, (asked, seen), hits, recordings, values))
    Console().print(view_command(out), soft_wrap=True)


def _present(facts: "list[Fact]") -> dict[str, Path]:
    """Give the files of what was found that are still there; say which are not."""
    here = {fact.id: Path(fact.path) for fact in facts if Path(fact.path).is_file()}
    absent = sorted({fact.id for fact in facts} - here.keys())
    if absent:
        said = f"not shown, since they are no video files here: {', '.join(absent)}"
        Console(stderr=True).print(f"[yellow]{escape(said)}[/yellow]", soft_wrap=True)
    return here
