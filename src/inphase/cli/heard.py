"""Recordings that are both seen and heard: files, or the videos of a collection."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from inphase.cli.looking import bars, look_at_others, task_of
from inphase.cli.search import corpus_files
from inphase.data.video import Video, present, summarise

if TYPE_CHECKING:
    from inphase.media.audio import Sound
    from inphase.models import Embedding

SHOWN = 256  # pixels


class Corpus(Protocol):
    """What can be asked of recordings, each by its name."""

    @property
    def names(self) -> list[str]:
        """Name them all, the query among them."""

    @property
    def query(self) -> str:
        """Name the one that is asked with."""

    def embeddings(self, names: Sequence[str]) -> "dict[str, Embedding]":
        """Embed the frames of those that can be seen."""

    def sound(self, name: str) -> "Sound":
        """Give the sound of one."""

    def file(self, name: str) -> Path:
        """Give the file of one, that is shown and played."""

    def about(self, name: str) -> str:
        """Say what is known of one beside its name."""


class Files:
    """The videos below some folders, and the query beside them."""

    def __init__(
        self, places: Sequence[Path], query: Path, *, model: Path, cache: Path | None, rate: float | None
    ) -> None:
        """Find the files."""
        from inphase.apps.tracks import names_of

        others = [path for path in corpus_files(places) if path.resolve() != query.resolve()]
        if not others:
            where = ", ".join(map(str, places))
            raise ValueError(f"there is no video to search in {where} beside the query: name others")
        paths = [query, *others]
        self._paths = dict(zip(names_of(paths), paths, strict=True))
        self._model, self._cache, self._rate = model, cache, rate
        self.names = list(self._paths)
        self.query = self.names[0]

    def embeddings(self, names: Sequence[str]) -> "dict[str, Embedding]":
        """Look at files; those that cannot be seen are named and left out."""
        from inphase.models import load_encoder

        paths = {self._paths[name]: name for name in names}
        seen = look_at_others(list(paths), encoder=load_encoder(self._model), cache=self._cache, rate=self._rate)
        return {paths[path]: embedding for path, embedding in seen.items()}

    def sound(self, name: str) -> "Sound":
        """Read the sound of a file."""
        from inphase.media.audio import read_sound

        return read_sound(self._paths[name])

    def file(self, name: str) -> Path:
        """Give a file."""
        return self._paths[name]

    def about(self, name: str) -> str:
        """Say nothing: a file is its name."""
        return ""


class Collection:
    """The videos of a split of a collection, seen as the run's evaluation sees them."""

    def __init__(self, name: str, query: str, *, split: str, model: Path, draft: Path) -> None:
        """Load the list, as the run's recipe says; what has no file is written below `draft` when it is shown."""
        from inphase.evaluation.choice import choose_data
        from inphase.models import load_encoder

        self._encoder, self._model, self._draft = load_encoder(model), model, draft
        self._choice = choose_data(model, name=name, root=None, store=None)
        # Poses are the same at any size: these are drawn for people to look at.
        size = self._encoder.shape[0] if self._encoder.modality == "image" else SHOWN
        listed, _ = present(self._choice.load(split, size=size))
        self._videos = {video.id: video for video in listed if video.sound is not None or video.hear is not None}
        self.names, self.query = list(self._videos), _find(query, listed)

    def embeddings(self, names: Sequence[str]) -> "dict[str, Embedding]":
        """Embed videos, or find them embedded in the run folder."""
        from inphase.data.frame_source import open_frame_source
        from inphase.evaluation import embed_videos

        chosen = [self._videos[name] for name in names]
        sight = open_frame_source(self._encoder, chosen, store=self._choice.store, name=str(self._choice))
        with bars() as bar:
            tell = task_of(bar, f"looking at {len(chosen)} videos")
            embedded = embed_videos(
                self._encoder,
                sight.videos,
                read=sight.read,
                frame_count=sight.frame_count,
                cache=self._model,
                source=sight.source,
                progress=lambda done: tell(done, len(chosen)),
            )
        return {item.video.id: item.embedding for item in embedded}

    def sound(self, name: str) -> "Sound":
        """Decode or make the sound of a video."""
        from inphase.data.audio_visual import read_video_sound

        return read_video_sound(self._videos[name])

    def file(self, name: str) -> Path:
        """Give the file of a video; one that is drawn is written first."""
        from inphase.data.stage_videos import write_recording

        video = self._videos[name]
        if video.path is not None:
            return video.path
        path = self._draft / f"{video.id}.mp4"
        if not path.exists():
            write_recording(path, video)
        return path

    def about(self, name: str) -> str:
        """Say which action a video shows."""
        return self._videos[name].action


def _find(query: str, videos: Iterable[Video]) -> str:
    """Find the video a query names by its id or its file."""
    listed = list(videos)
    for video in listed:
        if query == video.id or (video.path is not None and Path(query).resolve() == video.path.resolve()):
            return video.id
    raise ValueError(f"no video {query} among {summarise(video.id for video in listed)}: name one by its id")
