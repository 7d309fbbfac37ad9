"""`inphase retrieve`: the frames that go with a sound, or the sounds that go with a frame."""

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.heard import Collection, Corpus, Files
from inphase.cli.looking import CacheFolder, Rate, bars, task_of, view_command
from inphase.cli.search import summary
from inphase.data import DATASETS
from inphase.storage.files import require_folder

if TYPE_CHECKING:
    from inphase.apps.retrieve_sound import Asked
    from inphase.apps.search import MomentHit
    from inphase.playback import PlaybackMoment

SOUND = "sound.safetensors"
Query = Annotated[str | None, tyro.conf.arg(metavar="QUERY")]


def retrieve(
    *,
    within: Annotated[
        tuple[str, ...],
        tyro.conf.arg(name="in", metavar="FOLDER", help="folders of videos, video files, or the name of a collection"),
    ],
    model: Annotated[Path, tyro.conf.arg(metavar="RUN", help="the folder of a run that sees and hears")],
    sound: Query = None,
    picture: Query = None,
    at: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None,
    top: int = 5,
    split: str = "test",
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("out/retrieve"),
    rate: Rate = None,
    cache: CacheFolder = None,
) -> None:
    """Find the frames that go with a second of sound, or the seconds of sound that go with a frame.

    Args:
        within: where to look.
        model: its encoder.safetensors sees, its sound.safetensors hears.
        sound: a file whose sound is asked with, about --at or else its loudest moment; of a collection, a video's id.
        picture: a video whose frame --at is asked with.
        at: the second of the query.
        top: how many to find.
        split: which videos of a collection.
        out: where to write a playback with the results.
        rate: frames a second to look at in files.
        cache: where to keep what was seen of files.
    """
    query = sound if sound is not None else picture
    if query is None or (sound is not None and picture is not None):
        raise ValueError("ask with either --sound QUERY or --picture QUERY")
    if picture is not None and at is None:
        raise ValueError("a picture is a moment: say which with --at SECONDS")
    if top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    require_folder(out)
    if not (model / SOUND).is_file():
        raise ValueError(f"{model} holds no {SOUND}: name the folder of a run whose recipe has a table [sound]")
    from inphase.apps.retrieve_sound import show_found
    from inphase.playback import write_playback

    with ExitStack() as stack:
        corpus: Corpus
        if len(within) == 1 and within[0] in DATASETS and not Path(within[0]).exists():
            draft = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            corpus = Collection(within[0], query, split=split, model=model, draft=draft)
        else:
            corpus = Files(list(map(Path, within)), Path(query), model=model, cache=cache, rate=rate)
        find = _find_pictures if sound is not None else _find_sounds
        asked, hits = find(corpus, model=model, at=at, top=top)
        what = "frames that go with the sound" if sound is not None else "sounds that go with the picture"
        title = f"{what} of {corpus.query} at {asked.second:.2f} s"
        show = partial(_show, corpus, out)
        question = show(corpus.query, asked.second)
        answers = [show(hit.name, hit.second, score=hit.score) for hit in hits]
        write_playback(out, show_found(title, question, answers))
    console = Console()
    console.print(summary(title, [(hit.name, f"{hit.second:.2f}", hit.score) for hit in hits]))
    console.print(view_command(out), soft_wrap=True)


def _show(corpus: Corpus, out: Path, name: str, second: float, *, score: float | None = None) -> "PlaybackMoment":
    """Bring a moment of a recording into the folder of the playback."""
    from inphase.apps.retrieve_sound import show_second

    return show_second(out, corpus.file(name), name, second, score=score, about=corpus.about(name))


def _find_pictures(corpus: Corpus, *, model: Path, at: float | None, top: int) -> "tuple[Asked, list[MomentHit]]":
    """Ask all other recordings' frames with a second of the query's sound."""
    from inphase.apps.retrieve_sound import ask_with_sound, find_pictures
    from inphase.models import load_encoder

    asked = ask_with_sound(load_encoder(model / SOUND), corpus.sound(corpus.query), at=at)
    others = [name for name in corpus.names if name != corpus.query]
    return asked, find_pictures(asked, corpus.embeddings(others), top=top)


def _find_sounds(corpus: Corpus, *, model: Path, at: float | None, top: int) -> "tuple[Asked, list[MomentHit]]":
    """Ask all other recordings' seconds of sound with a frame of the query."""
    from inphase.apps.retrieve_sound import ask_with_picture, find_sounds, hear_each
    from inphase.models import load_encoder

    assert at is not None
    asked = ask_with_picture(corpus.embeddings([corpus.query])[corpus.query], at=at)
    others = {name: partial(corpus.sound, name) for name in corpus.names if name != corpus.query}
    with bars() as bar:
        heard, failed = hear_each(
            load_encoder(model / SOUND), others, progress=task_of(bar, f"listening to {len(others)} videos")
        )
    for name, reason in failed.items():
        Console(stderr=True).print(f"[yellow]left out: {escape(name)}: {escape(reason)}[/yellow]")
    if not heard:
        raise ValueError(f"none of {len(others)} videos can be heard: name others, with sound")
    return asked, find_sounds(asked, heard, top=top)
