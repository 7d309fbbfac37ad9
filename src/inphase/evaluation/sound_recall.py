"""Sound recall: how often what is heard finds the moment at which it is seen, and the reverse.

The second of sound around a video's event is compared with the frames of all other videos; the best ones, no two of
a video within half a second, are its answers. An answer is right where it shows the same action within ±0.5 s of the
same event. The event is the first that is labelled: on the stage the one that is heard.

Two corpora: all videos ("all"), where the sound has to tell the action as well, and those of its own action ("own"),
where it need not and chance is high: actions last a few seconds, and events lie where motion is fastest, which even a
random network may happen to point at. The reverse takes the frame of the event and searches the seconds of sound.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from inphase.evaluation.embedded import Embedded, NotApplicableError, mean
from inphase.evaluation.embedding import embed_videos
from inphase.evaluation.measure import untrained as renew
from inphase.models import Embedding, Encoder
from inphase.models.modality import embed_sound

Numbers = dict[str, float]
CHANCE = "chance/"


def sound_recall(
    test: Iterable[Embedded],
    sounds: Mapping[str, Embedding],
    *,
    ks: Sequence[int] = (1, 5),
    tolerance: float = 0.5,
    apart: float = 0.5,
) -> Numbers:
    """Measure recall at each of `ks` from sound to picture and back; `sounds` are the videos' seconds of sound, by id.

    Keys: DIRECTION/CORPUS/recall@K with DIRECTION "sound" or "picture" (what is asked with) and CORPUS "all" or "own";
    DIRECTION/all/action@1, the fraction of first answers that show the action; and the same with "chance/" in front,
    what answers drawn at random would score. O(N² D) time for N frames.
    """
    if not ks or min(ks) < 1 or not tolerance > 0 or apart < 0:
        raise ValueError(f"need every k ≥ 1, tolerance > 0 and apart ≥ 0; got {list(ks)}, {tolerance} and {apart}")
    known = [item for item in test if item.video.id in sounds and _event_frame(item) is not None]
    if len(known) < 2:
        raise NotApplicableError("no two videos have sound and an event: use a collection that labels events")
    seen = _lay_out(known, [item.embedding for item in known], tolerance=tolerance)
    heard = _lay_out(known, [sounds[item.video.id] for item in known], tolerance=tolerance)
    numbers: Numbers = {}
    for direction, asked, corpus in (("sound", heard, seen), ("picture", seen, heard)):
        for key, value in _recall(asked, corpus, ks=ks, apart=apart).items():
            chance = key.startswith(CHANCE)
            numbers[f"{CHANCE if chance else ''}{direction}/{key.removeprefix(CHANCE)}"] = value
    return numbers


def measure_sound_recall(
    encoder: Encoder,
    sound: Encoder,
    sight: FrameSource,
    *,
    untrained: int = 5,
    cache: Path | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> dict[str, Numbers]:
    """Measure two encoders beside chance and beside `untrained` pairs of them with random weights: column → numbers.

    What random weights score depends on which they are: the column "untrained" is the mean over several, "untrained
    (best)" the highest of each number. `cache` is a run folder.
    """
    tell = progress or (lambda what, fraction: None)
    patches, failed = LogMelReader(), dict[str, str]()

    def measure(what: str, eyes: Encoder, ears: Encoder, keep: Path | None) -> Numbers:
        seen = embed_videos(
            eyes,
            sight.videos,
            read=sight.read,
            frame_count=sight.frame_count,
            cache=keep,
            source=sight.source,
            progress=lambda done: tell(f"looking, {what}", done / len(sight.videos)),
        )
        heard: dict[str, Embedding] = {}
        for number, item in enumerate(seen):
            tell(f"listening, {what}", number / len(seen))
            work = partial(_listen, ears, patches, item.video)
            found = try_reading(item.video, work, failed=failed, skipped=[])
            heard |= {} if found is None else {item.video.id: found}
        return sound_recall(seen, heard)

    found = measure("this run", encoder, sound, cache)
    own = {key: value for key, value in found.items() if not key.startswith(CHANCE)}
    columns = {"this run": own, "chance": {key: found[CHANCE + key] for key in own}}
    for name, reason in failed.items():
        warn(Problem(name, f"cannot be heard ({reason})", "it is left out of every number"), stacklevel=2)
    fresh = [
        measure(f"untrained {seed}", renew(encoder, seed=seed), renew(sound, seed=seed), None)
        for seed in range(untrained)
    ]
    if fresh:
        columns["untrained"] = {key: mean(numbers[key] for numbers in fresh) for key in own}
        columns["untrained (best)"] = {key: max(numbers[key] for numbers in fresh) for key in own}
    return columns


def _listen(ears: Encoder, patches: LogMelReader, video: Video) -> Embedding:
    return embed_sound(ears, patches.sound(video))


@dataclass(frozen=True, eq=False)
class _Corpus:
    """The moments of all videos: frames, or seconds of sound."""

    values: NDArray[np.float32]  # [N, D]
    times: NDArray[np.float64]  # [N]
    owner: NDArray[np.int64]  # [N] which video
    near: NDArray[np.bool_]  # [N] within the tolerance of its video's event
    asked: NDArray[np.int64]  # [V] each video's moment nearest to its event
    actions: NDArray[np.str_]  # [V]


def _lay_out(items: Sequence[Embedded], embeddings: Sequence[Embedding], *, tolerance: float) -> _Corpus:
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
        asked=firsts + np.array(nearest),
        actions=np.array([item.video.action for item in items]),
    )


def _event_frame(item: Embedded) -> int | None:
    """Give the frame of a video's first labelled event, where it is embedded."""
    frame = next(iter(item.video.events.values()), None)
    return frame if frame is not None and item.first <= frame < item.first + len(item) else None


def _event_second(item: Embedded) -> float:
    frame = _event_frame(item)
    assert frame is not None
    return float(item.embedding.times[frame - item.first])


def _recall(asked: _Corpus, corpus: _Corpus, *, ks: Sequence[int], apart: float) -> Numbers:
    """Ask with every video's event and count the answers that are right."""
    found: dict[str, list[float]] = {}
    for video, action in enumerate(corpus.actions.tolist()):
        same = corpus.actions[corpus.owner] == action
        others = corpus.owner != video
        scores = corpus.values @ asked.values[asked.asked[video]]
        for name, allowed in (("all", others), ("own", others & same)):
            if not (allowed & same).any():
                continue  # the only video of its action has no right answer
            right = (corpus.near & same)[allowed]
            answers = _best(scores[allowed], corpus.owner[allowed], corpus.times[allowed], top=max(ks), apart=apart)
            for k in ks:
                found.setdefault(f"{name}/recall@{k}", []).append(float(right[answers[:k]].any()))
                chance = chance_of_one(total=len(right), right=int(right.sum()), drawn=k)
                found.setdefault(f"{CHANCE}{name}/recall@{k}", []).append(chance)
            if name == "all":
                found.setdefault("all/action@1", []).append(float(same[allowed][answers[0]]))
                found.setdefault(f"{CHANCE}all/action@1", []).append(float(same[allowed].mean()))
    if not found:
        raise NotApplicableError("no action has two videos with sound and an event: there is nothing to retrieve")
    return {key: mean(values) for key, values in found.items()}


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
    """Give the chance that one or more of `drawn` moments of `total` are among the `right` ones."""
    drawn = min(drawn, total)
    return 1 - comb(total - right, drawn) / comb(total, drawn)
