"""Sound recall: how often a second of sound retrieves the moment of its event in other videos, and the reverse.

The query is the second of sound around a video's event, compared with the frames of all other videos; the best ones, no
two of a video within half a second, are retrieved. A retrieved frame is correct if it shows the same action within
±0.5 s of the same event. The event is the first labeled one: on the stage, the one that makes the sound.

Two corpora: the videos of all actions, where the sound has to identify the action as well, and those of the same
action, where chance is high: actions last a few seconds, and events lie where motion is fastest, which even a random
network may detect. The reverse direction queries with the frame of the event and searches the seconds of sound.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb
from pathlib import Path
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from inphase.data.audio_visual import LogMelReader
from inphase.data.batches import try_reading
from inphase.data.frame_source import FrameSource
from inphase.data.video import Problem, Video
from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError, embed_videos
from inphase.evaluation.embedded_videos import untrained as build_untrained
from inphase.evaluation.scores import Score, mean, select
from inphase.models import Embedding, Encoder
from inphase.models.audio_encoder import embed_sound
from inphase.progress import Progress, ignore_progress

CHANCE = "chance"
DIRECTIONS = ("sound to video", "video to sound")
CORPORA = ("all actions", "same action")


def sound_recall(
    test: Iterable[EmbeddedVideo],
    sounds: Mapping[str, Embedding],
    *,
    ks: Sequence[int] = (1, 5),
    tolerance: float = 0.5,
    apart: float = 0.5,
) -> list[Score]:
    """Measure recall at each of `ks` from sound to video and back; `sounds` holds the seconds of sound by video id.

    Metrics, by direction and corpus (setting, as "sound to video, all actions"): `recall@K`; `action@1`, the fraction
    of first results that show the action. The control "chance" is the expected score of random results. O(N² D) time
    for N frames.
    """
    if not ks or min(ks) < 1 or not tolerance > 0 or apart < 0:
        raise ValueError(f"need every k ≥ 1, tolerance > 0 and apart ≥ 0; got {list(ks)}, {tolerance} and {apart}")
    known = [item for item in test if item.video.id in sounds and _event_frame(item) is not None]
    if len(known) < 2:
        raise NotApplicableError("no two videos have sound and an event: use a data set that labels events")
    frames = _lay_out(known, [item.embedding for item in known], tolerance=tolerance)
    seconds = _lay_out(known, [sounds[item.video.id] for item in known], tolerance=tolerance)
    scores: list[Score] = []
    for direction, queries, corpus in zip(DIRECTIONS, (seconds, frames), (frames, seconds), strict=True):
        scores += _recall(queries, corpus, direction=direction, ks=ks, apart=apart)
    return [*select(scores, control=None), *select(scores, control=CHANCE)]


def measure_sound_recall(
    encoder: Encoder,
    audio_encoder: Encoder,
    source: FrameSource,
    *,
    untrained: int = 5,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> list[Score]:
    """Score two encoders beside chance and beside `untrained` pairs of encoders with random weights.

    Random weights differ in what they score: the control "untrained" is the mean over several pairs, "untrained (best)"
    the highest of each score. `cache` is a run folder.
    """
    report = progress or ignore_progress
    log_mel, failed = LogMelReader(), dict[str, str]()

    def measure(name: str, video_encoder: Encoder, sound_encoder: Encoder, cache: Path | None) -> list[Score]:
        embedded = embed_videos(
            video_encoder,
            source.videos,
            read=source.read,
            frame_count=source.frame_count,
            cache=cache,
            source=source.source,
            progress=report,
            stage=f"embedding video, {name}",
        )
        sounds: dict[str, Embedding] = {}
        for done, item in enumerate(embedded):
            report(f"embedding sound, {name}", done, len(embedded))
            work = partial(_embed_sound_of, sound_encoder, log_mel, item.video)
            found = try_reading(item.video, work, failed=failed, skipped=[])
            sounds |= {} if found is None else {item.video.id: found}
        report(f"embedding sound, {name}", len(embedded), len(embedded))
        return sound_recall(embedded, sounds)

    scores = measure("this run", encoder, audio_encoder, cache)
    for name, reason in failed.items():
        warn(Problem(name, f"its sound cannot be read ({reason})", "it is left out of every score"), stacklevel=2)
    fresh = [
        measure(
            f"untrained {seed}", build_untrained(encoder, seed=seed), build_untrained(audio_encoder, seed=seed), None
        )
        for seed in range(untrained)
    ]
    columns = [select(found, control=None) for found in fresh]
    for control, combine in (("untrained", mean), ("untrained (best)", max)):
        for rows in zip(*columns, strict=True):
            scores.append(replace(rows[0], control=control, value=combine(score.value for score in rows)))
    return scores


def _embed_sound_of(encoder: Encoder, log_mel: LogMelReader, video: Video) -> Embedding:
    return embed_sound(encoder, log_mel.sound(video))


@dataclass(frozen=True, eq=False)
class _Corpus:
    """The moments of all videos: frames, or seconds of sound."""

    values: NDArray[np.float32]  # [N, D]
    times: NDArray[np.float64]  # [N]
    owner: NDArray[np.int64]  # [N] which video
    near: NDArray[np.bool_]  # [N] within the tolerance of its video's event
    events: NDArray[np.int64]  # [V] each video's moment nearest to its event
    actions: NDArray[np.str_]  # [V]


def _lay_out(items: Sequence[EmbeddedVideo], embeddings: Sequence[Embedding], *, tolerance: float) -> _Corpus:
    events = np.array([_event_second(item) for item in items])
    owner = np.repeat(np.arange(len(items)), [len(embedding) for embedding in embeddings])
    times = np.concatenate([embedding.times for embedding in embeddings])
    firsts = np.cumsum([0, *(len(embedding) for embedding in embeddings)])[:-1]
    nearest = [
        int(np.abs(embedding.times - event).argmin()) for embedding, event in zip(embeddings, events, strict=True)
    ]
    return _Corpus(
        values=np.concatenate([embedding.values for embedding in embeddings]),
        times=times,
        owner=owner,
        near=np.abs(times - events[owner]) <= tolerance + 1e-9,
        events=firsts + np.array(nearest),
        actions=np.array([item.video.action for item in items]),
    )


def _event_frame(item: EmbeddedVideo) -> int | None:
    """Return the frame of a video's first labeled event; None if it is not embedded."""
    frame = next(iter(item.video.events.values()), None)
    return frame if frame is not None and item.first <= frame < item.first + len(item) else None


def _event_second(item: EmbeddedVideo) -> float:
    frame = _event_frame(item)
    assert frame is not None
    return float(item.embedding.times[frame - item.first])


def _recall(queries: _Corpus, corpus: _Corpus, *, direction: str, ks: Sequence[int], apart: float) -> list[Score]:
    """Query with every video's event and count the correct results, beside those expected by chance."""
    found: dict[tuple[str, str, str | None], list[float]] = {}
    for video, action in enumerate(corpus.actions.tolist()):
        same = corpus.actions[corpus.owner] == action
        others = corpus.owner != video
        similarity = corpus.values @ queries.values[queries.events[video]]
        for name, allowed in zip(CORPORA, (others, others & same), strict=True):
            if not (allowed & same).any():
                continue  # the only video of its action has no correct result
            setting, right = f"{direction}, {name}", (corpus.near & same)[allowed]
            results = _best(similarity[allowed], corpus.owner[allowed], corpus.times[allowed], top=max(ks), apart=apart)
            for k in ks:
                chance = chance_of_one(total=len(right), right=int(right.sum()), drawn=k)
                found.setdefault((f"recall@{k}", setting, None), []).append(float(right[results[:k]].any()))
                found.setdefault((f"recall@{k}", setting, CHANCE), []).append(chance)
            if name == CORPORA[0]:
                found.setdefault(("action@1", setting, None), []).append(float(same[allowed][results[0]]))
                found.setdefault(("action@1", setting, CHANCE), []).append(float(same[allowed].mean()))
    if not found:
        raise NotApplicableError("no action has two videos with sound and an event: nothing can be retrieved")
    return [
        Score("sound_recall", metric, mean(values), setting=setting, control=control)
        for (metric, setting, control), values in found.items()
    ]


def _best(
    scores: NDArray[np.float32],
    owner: NDArray[np.int64],
    times: NDArray[np.float64],
    *,
    top: int,
    apart: float,
) -> list[int]:
    """Choose the best moments greedily, no two of a video less than `apart` seconds from each other."""
    left = scores.astype(np.float64)
    chosen: list[int] = []
    while len(chosen) < top and np.isfinite(left.max()):
        best = int(left.argmax())
        chosen.append(best)
        left[(owner == owner[best]) & (np.abs(times - times[best]) < apart)] = -np.inf
        left[best] = -np.inf
    return chosen


def chance_of_one(*, total: int, right: int, drawn: int) -> float:
    """Return the probability that one or more of `drawn` random moments of `total` are among the `right` ones."""
    drawn = min(drawn, total)
    return 1 - comb(total - right, drawn) / comb(total, drawn)
