"""`inphase search`: moments like a moment, or videos like a video, among many."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inphase.cli.looking import CacheFolder, Model, Rate, look_at_corpus, view_command
from inphase.storage.files import require_folder


def search(
    query: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="QUERY", help="a video file")],
    *,
    within: Annotated[
        tuple[Path, ...],
        tyro.conf.arg(
            name="in", metavar="FOLDER", help="folders of videos, video files, or one store of `inphase embed`"
        ),
    ],
    at: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None,
    top: int = 10,
    subsequence: bool = False,
    action: str | None = None,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("out/search"),
    model: Model = None,
    rate: Rate = None,
    cache: CacheFolder = None,
) -> None:
    """Find the moments most like one of a video, or without --at the videos that align best with it.

    Args:
        query: the video to ask with.
        within: where to look.
        at: the second of the query whose like is looked for.
        top: how many to find.
        subsequence: the query is a short action that may be found inside longer videos; without --at only.
        action: look among videos of this action alone; in a store only.
        out: where to write a playback with the results.
        model: what to see videos with.
        rate: frames a second to look at.
        cache: where to keep what was seen.
    """
    if top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    require_folder(out)
    if subsequence and at is not None:
        raise ValueError("--subsequence looks for a whole query inside videos, --at for one moment of it: drop either")
    if len(within) == 1 and (within[0] / "store.json").is_file():
        from inphase.cli.store_search import search_store

        if rate is not None:
            raise ValueError("a store was embedded at its own rate, and the query is seen at that: drop --rate")
        search_store(
            query, within[0], at=at, top=top, subsequence=subsequence, action=action, out=out, model=model, cache=cache
        )
        return
    if action is not None:
        raise ValueError("--action chooses among the videos of a store: make one with `inphase embed`")
    from inphase.apps.search import (
        make_moments_playback,
        make_videos_playback,
        moment_of,
        nearest_moments,
        nearest_recordings,
        show_moment,
    )
    from inphase.apps.tracks import open_recordings
    from inphase.playback import write_playback

    paths = [path for path in corpus_files(within) if path.resolve() != query.resolve()]
    if not paths:
        raise ValueError(f"there is no video to search in {', '.join(map(str, within))} beside the query: name others")
    (asked,) = open_recordings([query])
    seen, corpus = look_at_corpus(query, paths, model=model, cache=cache, rate=rate)
    found = {each.name: each for each in open_recordings(list(corpus))}
    embeddings = dict(zip(found, corpus.values(), strict=True))
    if at is None:
        title = f"videos that go with {asked.name}"
        hits = nearest_recordings(seen, embeddings, top=top, subsequence=subsequence)
        playback = make_videos_playback(out, title, (asked, seen), hits, found, embeddings)
        rows = [(hit.name, f"{hit.seconds[0]:.2f} – {hit.seconds[-1]:.2f}", hit.score) for hit in hits]
    else:
        title = f"moments like {asked.name} at {at:g} s"
        moments = nearest_moments(moment_of(seen, at), embeddings, top=top)
        playback = make_moments_playback(out, title, show_moment(out, asked, at), moments, found)
        rows = [(hit.name, f"{hit.second:.2f}", hit.score) for hit in moments]
    write_playback(out, playback)
    console = Console()
    console.print(summary(title, rows))
    console.print(view_command(out), soft_wrap=True)


def summary(title: str, rows: Sequence[tuple[str, str, float]]) -> Table:
    """Tabulate what was found, best first."""
    table = Table(title=escape(title), title_justify="left")
    for heading in ("", "video", "seconds", "alike"):
        table.add_column(heading, justify="left" if heading == "video" else "right", overflow="fold")
    for place, (name, seconds, score) in enumerate(rows, start=1):
        table.add_row(str(place), escape(name), seconds, f"{score:.3f}")
    return table


def corpus_files(places: Sequence[Path]) -> list[Path]:
    """List the videos named, and those below the folders named, each once."""
    from inphase.media.listing import VIDEO_SUFFIXES

    files: dict[Path, Path] = {}
    for place in places:
        if not place.exists():
            raise ValueError(f"{place} does not exist: name a folder of videos or a video file")
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in inside:
            hidden = any(part.startswith(".") for part in file.relative_to(place).parts)
            if file.is_file() and not hidden and (not place.is_dir() or file.suffix.lower() in VIDEO_SUFFIXES):
                files.setdefault(file.resolve(), file)
    return list(files.values())
