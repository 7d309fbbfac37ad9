"""Find every repetition of an action in a recording, and write each as a clip (`inphase.apps.sessions` finds them)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np

from inphase.apps.align_videos import make_pairs, make_playback, synchronize
from inphase.apps.alignment_files import add_video_file, make_curves, make_track
from inphase.apps.sessions import MIN_SCORE, Repetition, cut_embedding, find_spans
from inphase.media.listing import videos_in
from inphase.media.recording import NamedVideo, open_recording, open_recordings
from inphase.media.render import write_mp4
from inphase.media.sampling import choose, shown_at
from inphase.models.embed_videos import Model, embed_videos
from inphase.models.embedding import Embedding
from inphase.models.encoder import ModalityChoice
from inphase.playback import Phase, Playback, write_playback
from inphase.pose.estimator import DEFAULT_ESTIMATOR
from inphase.progress import Progress, Summary, ignore_progress
from inphase.storage.cache import open_cache
from inphase.storage.errors import MediaError
from inphase.storage.files import refuse_overwrite, require_folder, write_table

# Recordings that last longer are embedded at fewer frames per second, unless `fps` is given: an hour takes 150 MB.
LONG_SECONDS, LONG_FPS = 600.0, 10.0
MAX_IN_STEP = 8
COLUMNS = ("start", "end", "score")


@dataclass(frozen=True, eq=False)
class Repetitions:
    """The repetitions of an action in a recording, in order of time; `why` is a sentence on the modality."""

    session: NamedVideo
    embedding: Embedding
    spans: tuple[Repetition, ...]
    why: str

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write repetitions.csv, a clip of each in clips/, and two playbacks: the session, and clips in step."""
        out, report = Path(folder), progress or ignore_progress
        require_folder(out)
        clips = out / "clips"
        digits = max(2, len(str(len(self.spans))))
        files = [clips / f"{k:0{digits}}.mp4" for k in range(1, len(self.spans) + 1)]
        table = out / "repetitions.csv"
        refuse_overwrite([self.session.path], [table, *files])
        clips.mkdir(parents=True, exist_ok=True)
        rows = [(f"{each.start:.3f}", f"{each.end:.3f}", f"{each.score:.3f}") for each in self.spans]
        write_table(table, [COLUMNS, *rows])
        write_clips(self.session, self.spans, files, progress=report)
        playbacks = [write_playback(out, self.playback(add_video_file(out, self.session, progress=report)))]
        if len(files) > 1:
            playbacks.append(self._write_in_step(out / "in_step", files[:MAX_IN_STEP]))
        return [table, *files, *playbacks]

    def playback(self, media: str) -> Playback:
        """Describe the session with its repetitions as phases; `media` is its file in the playback's folder."""
        (curves,) = make_curves([self.embedding])
        track = make_track(self.session, media, curves=curves, pose=self.embedding.pose)
        phases = tuple(
            Phase(each.start, each.end, str(k), min(1.0, max(0.0, each.score)))
            for k, each in enumerate(self.spans, start=1)
        )
        return Playback(f"repetitions in {self.session.name}", tracks=(track.replace(phases=phases),))

    def _write_in_step(self, folder: Path, files: Sequence[Path]) -> Path:
        """Write a playback of repetitions that are aligned with the first."""
        folder.mkdir(exist_ok=True)
        parts = [cut_embedding(self.embedding, each) for each in self.spans[: len(files)]]
        clips = open_recordings(files)
        synchronization = synchronize(parts)
        media = [add_video_file(folder, each) for each in clips]
        pairs = make_pairs(parts, synchronization)
        return write_playback(folder, make_playback(clips, media, parts, synchronization, pairs=pairs))

    def summary(self) -> Summary:
        """Return a table of the repetitions."""
        rows = [
            (str(k), f"{each.start:.2f}", f"{each.end:.2f}", f"{each.end - each.start:.2f}", f"{each.score:.2f}")
            for k, each in enumerate(self.spans, start=1)
        ]
        found = f"{len(rows)} repetitions in {self.session.name}"
        return Summary([self.why], [], found, (">number", ">start", ">end", ">seconds", ">score"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the repetitions as JSON-ready values."""
        return {
            "session": str(self.session.path),
            "duration": self.session.properties.duration,
            "why": self.why,
            "repetitions": [{"start": each.start, "end": each.end, "score": each.score} for each in self.spans],
        }


def find_repetitions(
    session: Path | str,
    *,
    like: Path | str | None = None,
    min_score: float = MIN_SCORE,
    model: Model = None,
    modality: ModalityChoice = "image",
    fps: float | None = None,
    cache: Path | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> Repetitions:
    """Find every repetition of an action in a recording: that of the clip `like`, or any motion that repeats.

    A repetition begins where the clip begins; without a clip, at the phase with which the repetitions begin. Those
    with a score below `min_score` are left out. `fps` is 10 for recordings of more than ten minutes, unless given.
    `model`, `modality`, `cache` and `pose_estimator` mean the same as for `align_videos`.
    """
    videos = open_recordings([session] if like is None else [session, like])
    if fps is None and videos[0].properties.duration > LONG_SECONDS:
        fps = LONG_FPS
    embedded = embed_videos(
        [each.path for each in videos],
        model=model,
        modality=modality,
        fps=fps,
        cache=open_cache(cache),
        pose_estimator=pose_estimator,
        progress=progress,
    )
    whole, *clip = embedded.embeddings
    spans = find_spans(whole, clip[0] if clip else None, min_score=min_score)
    if not spans:
        advice = "lower min_score" if like is None else "check that the clip shows the same action, or lower min_score"
        raise ValueError(f"{session}: no action is repeated ({advice}, now {min_score:g})")
    return Repetitions(videos[0], whole, tuple(spans), embedded.why)


def list_repetitions(
    place: Path, *, cache: Path | None = None, progress: Progress | None = None
) -> Iterator[tuple[str, str, str]]:
    """List the repetitions in a session, or in every video of a folder: path below the folder, start, end in seconds.

    A video of a folder that cannot be read, or in which no action repeats, is skipped with a warning.
    """
    root = place if place.is_dir() else place.parent
    for path in videos_in([place]):
        try:
            found = find_repetitions(path, cache=cache, progress=progress)
        except (ValueError, MediaError) as error:
            if not place.is_dir():
                raise
            warn(f"left out: {error}", stacklevel=2)
            continue
        for each in found.spans:
            yield path.relative_to(root).as_posix(), f"{each.start:.3f}", f"{each.end:.3f}"


def write_clips(session: NamedVideo, spans: Sequence[Repetition], files: Sequence[Path], *, progress: Progress) -> None:
    """Encode the part of each repetition, without sound, frame by frame."""
    recording = open_recording(session.path)
    for number, (span, file) in enumerate(zip(spans, files, strict=True)):
        progress("writing clips", number, len(files))
        fps = session.properties.fps
        ticks = span.start + np.arange(max(2, round((span.end - span.start) * fps))) / fps
        shown = shown_at(recording.times, ticks)
        wanted = choose(recording.times, indices=np.unique(shown))
        images = ((time, image) for time, image in recording.images(wanted))
        repeats = {float(recording.times[k]): int((shown == k).sum()) for k in np.unique(shown)}
        write_mp4(file, (image for time, image in images for _ in range(repeats.get(float(time), 1))), fps=fps)
    progress("writing clips", len(files), len(files))
