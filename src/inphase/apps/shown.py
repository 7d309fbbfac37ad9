"""What was found, as a playback: thumbnails, the files to play, and recordings in step with the query."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from inphase.apps.retrieval import Found, Hit
from inphase.apps.sync import Synchrony, itself, make_playback
from inphase.apps.track import Recording, bring
from inphase.media.atomic import atomic_write
from inphase.media.frames import read_clip
from inphase.models.embed import Embedding
from inphase.playback import Moment, Playback, Result

# Height of a thumbnail in pixels, and how many recordings are shown in step with the query.
HEIGHT, IN_STEP = 180, 8


def moments_found(
    folder: Path, title: str, asked: Moment, hits: Sequence[Hit], recordings: Mapping[str, Recording]
) -> Playback:
    """Show moments that were found."""
    shown = [show_moment(folder, recordings[hit.name], hit.second, score=hit.score) for hit in hits]
    return Playback(title, results=(Result(asked, tuple(shown)),))


def recordings_found(
    folder: Path,
    title: str,
    query: tuple[Recording, Embedding],
    hits: Sequence[Found],
    recordings: Mapping[str, Recording],
    embeddings: Mapping[str, Embedding],
) -> Playback:
    """Show recordings that were found, the best of them in step with the query."""
    asked, seen = query
    shown = [
        show_moment(
            folder,
            recordings[hit.name],
            float(hit.match.seconds[0]),
            score=hit.score,
            duration=float(hit.match.seconds[-1] - hit.match.seconds[0]),
        )
        for hit in hits
    ]
    best = hits[:IN_STEP]
    matches = (itself(seen), *(hit.match for hit in best))
    synchrony = Synchrony(0, seen.times, np.stack([found.seconds for found in matches], axis=1), matches)
    tracks = [asked, *(recordings[hit.name] for hit in best)]
    media = [bring(folder, each) for each in tracks]
    in_step = make_playback(tracks, media, [seen, *(embeddings[hit.name] for hit in best)], synchrony)
    result = Result(show_moment(folder, asked, 0.0, duration=asked.properties.duration), tuple(shown))
    return Playback(title, tracks=in_step.tracks, pairs=in_step.pairs, results=(result,))


def show_moment(
    folder: Path, recording: Recording, second: float, *, score: float | None = None, duration: float = 1.0
) -> Moment:
    """Bring a recording into a playback's folder, with a thumbnail of the middle of what is to be seen."""
    media = bring(folder, recording)
    known = recording.properties
    middle = min(second + (duration / 2 if duration > 1 else 0.0), known.duration - 0.5 / known.rate)
    size = (HEIGHT, max(1, round(HEIGHT * known.size[1] / known.size[0])))
    picture = read_clip(recording.path, seconds=[max(middle, 0.0)], size=size).frames[0]
    thumbnail = f"{Path(media).stem}-{middle:.2f}.jpg"
    with atomic_write(folder / thumbnail) as part:
        Image.fromarray(picture).save(part, quality=85)
    return Moment(
        recording.name,
        second,
        score=score,
        media=media,
        thumbnail=thumbnail,
        duration=max(duration, 1 / known.rate),
    )
