"""Retrieve frames by a second of sound, or seconds of sound by a frame, with two encoders of one embedding space."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from inphase.apps.search import MomentHit, list_corpus, moment_of, nearest_moments, show_moment, summarize_hits
from inphase.data import DATASETS
from inphase.data.audio_visual import read_video_sound
from inphase.data.frame_source import open_frame_source
from inphase.data.stage_videos import write_recording
from inphase.data.video import find_present
from inphase.media.audio import Sound, read_sound
from inphase.media.recording import names_of, open_named
from inphase.models import Embedding, Encoder, load_encoder
from inphase.models.audio_encoder import WINDOW_SECONDS, embed_sound, embed_sound_at
from inphase.models.embed_videos import embed_each
from inphase.playback import Playback, PlaybackMoment, Result, add_media, write_playback
from inphase.playback.part import AUDIO_TYPES
from inphase.progress import Progress, Summary, ignore_progress, summarize
from inphase.runs import Run
from inphase.storage.cache import open_cache
from inphase.storage.errors import MediaError
from inphase.storage.files import require_folder, scratch_folder

# Seconds over which the energy of a sound is summed to find its loudest moment.
ENERGY_STEP = 0.05
# Height and width of drawn videos that are written to be shown, in pixels.
DRAWN_SIZE = 256


@dataclass(frozen=True, eq=False)
class QueryMoment:
    """A second of a recording and its embedding [D], of the sound or of the frame there."""

    second: float
    vector: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RetrievedSound:
    """The moments of a corpus nearest to a moment of a query, best first.

    `kind` is the modality of the query: "sound" retrieves frames, "image" retrieves seconds of sound. `left_out` gives
    the reason for every recording that could not be embedded.
    """

    kind: str
    corpus: "SoundCorpus"
    query: QueryMoment
    hits: tuple[MomentHit, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Describe the query in a line."""
        found = "frames that match the sound" if self.kind == "sound" else "sounds that match the image"
        return f"{found} of {self.corpus.query} at {self.query.second:.2f} s"

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write a playback that shows and plays the query and every hit; return its path."""
        out, report = Path(folder), progress or ignore_progress
        require_folder(out)
        out.mkdir(parents=True, exist_ok=True)
        with scratch_folder(out) as draft:

            def show(name: str, second: float, score: float | None = None) -> PlaybackMoment:
                file = self.corpus.file(name, draft)
                return show_second(out, file, name, second, score=score, note=self.corpus.action(name))

            shown = [show(self.corpus.query, self.query.second)]
            for hit in self.hits:
                shown.append(show(hit.name, hit.second, hit.score))
                report("writing results", len(shown), 1 + len(self.hits))
            return [write_playback(out, Playback(self.title, results=(Result(shown[0], tuple(shown[1:])),)))]

    def summary(self) -> Summary:
        """Return the hits, best first."""
        hits = [(hit.name, f"{hit.second:.2f}", hit.score) for hit in self.hits]
        return summarize_hits(self.title, hits, left_out=self.left_out)

    def to_dict(self) -> dict[str, Any]:
        """Return the query and the hits as JSON-ready values."""
        return {
            "query": {"name": self.corpus.query, "second": self.query.second, "kind": self.kind},
            "hits": [{"name": hit.name, "second": hit.second, "score": hit.score} for hit in self.hits],
            "left_out": dict(self.left_out),
        }


def retrieve_sound(
    corpus: str | Path | Sequence[Path | str],
    *,
    model: Path | str,
    sound: str | Path | None = None,
    image: str | Path | None = None,
    at: float | None = None,
    top: int = 5,
    split: str = "test",
    fps: float | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> RetrievedSound:
    """Find the frames that match a second of `sound`, or the seconds of sound that match a frame of `image`.

    The query, `sound` or `image`, is a file, or the id of a video where `corpus` is the name of a data set; otherwise
    the corpus is video files and folders of them. `at` is the second of the query, by default the loudest of a sound.
    `model` is a run folder with an audio encoder. `split` chooses videos of a data set; `fps`
    and `cache` apply to files.
    """
    if (sound is None) == (image is None):
        raise ValueError("give one query: either sound or image")
    if image is not None and at is None:
        raise ValueError("an image query needs the second of its frame: give its second, at")
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    run = Path(model)
    encoder = Run(run).audio_encoder()
    places = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    query = str(sound if sound is not None else image)
    source: SoundCorpus
    if len(places) == 1 and str(places[0]) in DATASETS and not Path(places[0]).exists():
        source = DatasetSplit(str(places[0]), query, split=split, model=run, progress=progress)
    else:
        files = [Path(place) for place in places]
        source = SoundFiles(files, Path(query), model=run, fps=fps, cache=cache, progress=progress)
    others = [name for name in source.names if name != source.query]
    if sound is not None:
        asked = query_by_sound(encoder, source.sound(source.query), at=at)
        embeddings, left_out = source.embeddings(others)
        return RetrievedSound("sound", source, asked, tuple(find_frames(asked, embeddings, top=top)), left_out)
    assert at is not None
    asked = query_by_image(source.embeddings([source.query])[0][source.query], at=at)
    sounds = {name: partial(source.sound, name) for name in others}
    embeddings, left_out = embed_sounds(encoder, sounds, progress=progress)
    if not embeddings:
        raise ValueError(f"none of {len(others)} videos has a sound that can be read: name others")
    return RetrievedSound("image", source, asked, tuple(find_sounds(asked, embeddings, top=top)), left_out)


def query_by_sound(encoder: Encoder, sound: Sound, *, at: float | None = None) -> QueryMoment:
    """Embed the second of sound around second `at`, by default around the loudest moment."""
    second = loudest_second(sound) if at is None else at
    begin, end = sound.start, sound.start + len(sound) / sound.rate
    if not begin - 1e-6 <= second <= end + 1e-6:
        raise ValueError(f"second {second:g} lies outside the sound, which runs from {begin:.2f} to {end:.2f} s")
    # A window past an end would be partly silent, unlike every window of the training data.
    middle = float(
        np.clip(second, min(begin + WINDOW_SECONDS / 2, end), max(end - WINDOW_SECONDS / 2, begin + WINDOW_SECONDS / 2))
    )
    return QueryMoment(second, embed_sound_at(encoder, sound, middle))


def query_by_image(embedding: Embedding, *, at: float) -> QueryMoment:
    """Take the embedding of the frame nearest to second `at`."""
    return QueryMoment(at, moment_of(embedding, at))


def loudest_second(sound: Sound) -> float:
    """Find the second with the most energy."""
    size = max(1, round(ENERGY_STEP * sound.rate))
    whole = sound.samples[: len(sound) // size * size].astype(np.float64).reshape(-1, size)
    if not len(whole) or not whole.any():
        raise MediaError("the query is silent or shorter than 0.05 s: choose another, or give its second as `at`")
    return sound.start + (int(np.square(whole).sum(1).argmax()) + 0.5) * size / sound.rate


def find_frames(query: QueryMoment, embeddings: Mapping[str, Embedding], *, top: int = 5) -> list[MomentHit]:
    """Find the frames nearest to a query, best first, no two of a recording within half a second."""
    return nearest_moments(query.vector, embeddings, top=top)


def find_sounds(query: QueryMoment, embeddings: Mapping[str, Embedding], *, top: int = 5) -> list[MomentHit]:
    """Find the seconds of sound nearest to a query, best first; a hit's second is the middle of its sound."""
    return nearest_moments(query.vector, embeddings, top=top, apart=WINDOW_SECONDS)


def embed_sounds(
    encoder: Encoder, sounds: Mapping[str, Callable[[], Sound]], *, progress: Progress | None = None
) -> tuple[dict[str, Embedding], dict[str, str]]:
    """Embed the sound of many recordings; return for every one without sound the reason."""
    report = progress or ignore_progress
    embeddings, failed = {}, {}
    for number, (name, read) in enumerate(sounds.items(), start=1):
        try:
            embeddings[name] = embed_sound(encoder, read())
        except MediaError as error:
            failed[name] = str(error)
        report(f"embedding {len(sounds)} sounds", number, len(sounds))
    return embeddings, failed


def show_second(
    folder: Path, path: Path, name: str, second: float, *, score: float | None = None, note: str = ""
) -> PlaybackMoment:
    """Describe the second around a moment for the viewer, with a thumbnail; a file without images plays its sound."""
    try:
        recording = open_named(path, name)
    except MediaError:
        playable = path.suffix.lower() in AUDIO_TYPES
        media, thumbnail = add_media(folder, path) if playable else None, None
    else:
        shown = show_moment(folder, recording, second)
        media, thumbnail = shown.media, shown.thumbnail
    begin = max(0.0, second - WINDOW_SECONDS / 2)
    notes = [note, *([f"the second around {second:.2f} s"] if thumbnail else [])]
    return PlaybackMoment(
        name,
        begin,
        score=score,
        media=media,
        thumbnail=thumbnail,
        duration=WINDOW_SECONDS,
        note=", ".join(filter(None, notes)),
    )


class SoundCorpus(Protocol):
    """Recordings with images and sound, each by its name; `query` is the name of one of them."""

    names: list[str]
    query: str

    def embeddings(self, names: Sequence[str]) -> tuple[dict[str, Embedding], dict[str, str]]:
        """Embed the frames of recordings; return for every unreadable one the reason."""

    def sound(self, name: str) -> Sound:
        """Read the sound of a recording."""

    def file(self, name: str, draft: Path) -> Path:
        """Return the file of a recording; a drawn one is written into the folder `draft`."""

    def action(self, name: str) -> str:
        """Return the action a recording shows, where it is known."""


class SoundFiles:
    """Video files and the videos in folders, with the query beside them."""

    def __init__(
        self,
        places: Sequence[Path],
        query: Path,
        *,
        model: Path,
        fps: float | None,
        cache: Path | None,
        progress: Progress | None,
    ) -> None:
        """List the files."""
        paths = [query, *list_corpus(places, query)]
        self._paths = dict(zip(names_of(paths), paths, strict=True))
        self._embed = partial(
            embed_each, encoder=load_encoder(model), fps=fps, cache=open_cache(cache), progress=progress
        )
        self.names = list(self._paths)
        self.query = self.names[0]

    def embeddings(self, names: Sequence[str]) -> tuple[dict[str, Embedding], dict[str, str]]:
        """Embed files."""
        paths = {self._paths[name]: name for name in names}
        embedded, failed = self._embed(list(paths))
        return {paths[path]: each for path, each in embedded.items()}, {
            paths[path]: why for path, why in failed.items()
        }

    def sound(self, name: str) -> Sound:
        """Read the sound of a file."""
        return read_sound(self._paths[name])

    def file(self, name: str, draft: Path) -> Path:
        """Return a file."""
        return self._paths[name]

    def action(self, name: str) -> str:
        """Return nothing: the action of a file is not known."""
        return ""


class DatasetSplit:
    """The videos of a split of a data set that have sound, embedded as the run's evaluation embeds them."""

    def __init__(self, name: str, query: str, *, split: str, model: Path, progress: Progress | None) -> None:
        """List the videos with the options of the run's recipe."""
        from inphase.evaluation.evaluate import choose_data

        self._encoder, self._model, self._progress = load_encoder(model), model, progress or ignore_progress
        self._choice = choose_data(model, name=name, root=None, store=None)
        # Poses do not depend on the size of a drawing, which is chosen for people to see.
        size = self._encoder.image_size[0] if self._encoder.image_size else DRAWN_SIZE
        listed, _ = find_present(self._choice.load(split, size=size))
        self._videos = {video.id: video for video in listed if video.sound is not None or video.synthesize is not None}
        self.names = list(self._videos)
        named = [v.id for v in listed if query == v.id or (v.path and Path(query).resolve() == v.path.resolve())]
        if not named:
            raise ValueError(f"no video {query} among {summarize(video.id for video in listed)}: name one by its id")
        self.query = named[0]

    def embeddings(self, names: Sequence[str]) -> tuple[dict[str, Embedding], dict[str, str]]:
        """Embed videos, or read their embeddings from the run folder."""
        from inphase.evaluation import embed_videos

        chosen = [self._videos[name] for name in names]
        source = open_frame_source(self._encoder, chosen, store=self._choice.store, name=str(self._choice))
        embedded = embed_videos(
            self._encoder,
            source.videos,
            read=source.read,
            frame_count=source.frame_count,
            cache=self._model,
            source=source.source,
            progress=self._progress,
            stage=f"embedding {len(chosen)} video{'s' * (len(chosen) != 1)}",
        )
        return {item.video.id: item.embedding for item in embedded}, {}

    def sound(self, name: str) -> Sound:
        """Decode or synthesize the sound of a video."""
        return read_video_sound(self._videos[name])

    def file(self, name: str, draft: Path) -> Path:
        """Return the file of a video; a drawn one is written first."""
        video = self._videos[name]
        if video.path is not None:
            return video.path
        path = draft / f"{video.id}.mp4"
        if not path.exists():
            write_recording(path, video)
        return path

    def action(self, name: str) -> str:
        """Return the action of a video."""
        return self._videos[name].action
