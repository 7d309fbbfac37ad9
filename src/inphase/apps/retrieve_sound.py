"""Find what is seen by what is heard, and the reverse, with two encoders of one space."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.apps.search import MomentHit, moment_of, nearest_moments, show_moment
from inphase.apps.tracks import NamedVideo
from inphase.media.audio import Sound
from inphase.media.probe import probe
from inphase.models import Embedding, Encoder
from inphase.models.embed_videos import SECOND, embed_sound, embed_sound_at
from inphase.playback import Playback, PlaybackMoment, Result, add_media
from inphase.playback.part import AUDIO_TYPES as PLAYABLE
from inphase.storage.errors import MediaError

# Seconds are judged by their energy in steps of this.
STEP = 0.05


@dataclass(frozen=True, eq=False)
class Asked:
    """What is asked with: a moment of a recording, heard or seen, as a vector [D]."""

    second: float
    vector: NDArray[np.float32]


def ask_with_sound(encoder: Encoder, sound: Sound, *, at: float | None = None) -> Asked:
    """Ask with the second of sound around second `at`; without it, around the loudest moment."""
    second = loudest(sound) if at is None else at
    begin, end = sound.start, sound.start + len(sound) / sound.rate
    if not begin - 1e-6 <= second <= end + 1e-6:
        raise ValueError(f"second {second:g} lies outside the sound, which runs from {begin:.2f} to {end:.2f} s")
    # A second that reaches past an end would be part silence, which no second the encoder was trained on is.
    middle = float(np.clip(second, min(begin + SECOND / 2, end), max(end - SECOND / 2, begin + SECOND / 2)))
    return Asked(second, embed_sound_at(encoder, sound, middle))


def ask_with_picture(seen: Embedding, *, at: float) -> Asked:
    """Ask with the frame of an embedded recording shown nearest to second `at`."""
    return Asked(at, moment_of(seen, at))


def loudest(sound: Sound) -> float:
    """Find the second at which a sound carries most energy."""
    size = max(1, round(STEP * sound.rate))
    whole = sound.samples[: len(sound) // size * size].astype(np.float64).reshape(-1, size)
    if not len(whole) or not whole.any():
        raise MediaError("the query is silent or shorter than a moment: name one that is heard, or say --at SECONDS")
    return sound.start + (int(np.square(whole).sum(1).argmax()) + 0.5) * size / sound.rate


def find_pictures(asked: Asked, seen: Mapping[str, Embedding], *, top: int = 5) -> list[MomentHit]:
    """Find the frames of a corpus most like a sound, best first, no two of a recording within half a second."""
    return nearest_moments(asked.vector, seen, top=top)


def find_sounds(asked: Asked, heard: Mapping[str, Embedding], *, top: int = 5) -> list[MomentHit]:
    """Find the seconds of sound of a corpus most like a picture, best first; a hit's second is their middle."""
    return nearest_moments(asked.vector, heard, top=top, apart=SECOND)


def hear_each(
    encoder: Encoder, sounds: Mapping[str, Callable[[], Sound]], *, progress: Callable[[int, int], None] | None = None
) -> tuple[dict[str, Embedding], dict[str, str]]:
    """Listen to those of many recordings that have sound, and say of each other one why not."""
    heard, failed = {}, {}
    for number, (name, hear) in enumerate(sounds.items(), start=1):
        try:
            heard[name] = embed_sound(encoder, hear())
        except MediaError as error:
            failed[name] = str(error)
        if progress is not None:
            progress(number, len(sounds))
    return heard, failed


def show_found(title: str, question: PlaybackMoment, answers: Sequence[PlaybackMoment]) -> Playback:
    """Show what was found: thumbnails, and players of the second around each moment."""
    return Playback(title, results=(Result(question, tuple(answers)),))


def show_second(
    folder: Path, path: Path, name: str, second: float, *, score: float | None = None, about: str = ""
) -> PlaybackMoment:
    """Show a moment of a file in the middle of the second that is played; of one without pictures its sound alone."""
    try:
        recording = NamedVideo(path, name, probe(path))
    except MediaError:
        playable = path.suffix.lower() in PLAYABLE
        media, thumbnail = add_media(folder, path) if playable else None, None
    else:
        shown = show_moment(folder, recording, second)
        media, thumbnail = shown.media, shown.thumbnail
    begin = max(0.0, second - SECOND / 2)
    notes = [about, *([f"at {second:.2f} s"] if thumbnail else [])]
    return PlaybackMoment(
        name, begin, score=score, media=media, thumbnail=thumbnail, duration=SECOND, note=", ".join(filter(None, notes))
    )
