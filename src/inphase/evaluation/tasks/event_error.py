"""Event error: by how many frames a key event is missed after its transfer from one video to another.

The error that a viewer notices. A key event of x is transferred to y by each method of `frame_matching` and compared
with the event of y: in frames, and as a fraction of y's length. Videos without labeled events use the first frame of
every phase but the first, if the phase is one contiguous part of the video.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError
from inphase.evaluation.frame_matching import METHODS, draw_pairs, match_pairs
from inphase.evaluation.scores import Score


def event_error(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    events: Sequence[str] | None = None,
    pairs: int | None = 10_000,
    seed: int = 0,
    beta: float = 0.1,
) -> list[Score]:
    """Transfer events between the videos of each action, in all ordered pairs or a random sample of `pairs`.

    `events` restricts them by name. Metrics, by method (setting): `mean` and `median` in frames, `mean_fraction` and
    `median_fraction` of the length, over all transferred events; `mean` for each event; and `transferred`, the number
    of transferred events. Scores of a constant embedding are undefined, except those of "linear". `train` is not used.
    """
    known = {id(item): key_events(item) for item in test}
    if events is not None:
        _require_known(events, known.values())
        known = {item: {name: at for name, at in found.items() if name in events} for item, found in known.items()}
    if not any(known.values()):
        raise NotApplicableError(f"none of {len(test)} videos has events or phases: use a data set that labels them")
    frames: dict[tuple[str, str], list[float]] = defaultdict(list)
    fractions: dict[str, list[float]] = defaultdict(list)
    for match in match_pairs(draw_pairs(test, pairs=pairs, seed=seed), beta=beta):
        truth = known[id(match.y)]
        for name, at in known[id(match.x)].items():
            if name in truth:
                for method, found in match.frames.items():
                    error = abs(float(found[at - match.x.first]) - truth[name])
                    frames[method, name].append(error)
                    fractions[method].append(error / match.y.length)
    return _summarize(frames, fractions)


def key_events(item: EmbeddedVideo) -> dict[str, int]:
    """Return the frames of a video's key events that are embedded: the labeled ones, or else the starts of phases."""
    found = dict(item.video.events) or _phase_starts(item)
    return {name: at for name, at in found.items() if item.first <= at < item.first + len(item)}


def _phase_starts(item: EmbeddedVideo) -> dict[str, int]:
    phases = item.phases
    starts = np.flatnonzero(np.diff(phases)) + 1
    runs = [int(phases[0]), *phases[starts].tolist()] if len(phases) else []
    names = item.video.phase_names
    return {
        names[phase] if phase < len(names) else f"phase {phase}": item.first + at
        for phase, at in zip(runs[1:], starts.tolist(), strict=True)
        if phase >= 0 and runs.count(phase) == 1
    }


def _require_known(events: Sequence[str], known: Iterable[Mapping[str, int]]) -> None:
    names = {name for found in known for name in found}
    absent = [name for name in events if name not in names]
    if absent:
        raise ValueError(f"no video has an event {', '.join(absent)}; there are {', '.join(sorted(names)) or 'none'}")


def _summarize(frames: Mapping[tuple[str, str], list[float]], fractions: Mapping[str, list[float]]) -> list[Score]:
    score = partial(Score, "event_error")
    scores = []
    for method in METHODS:
        errors = [error for (found, _), listed in frames.items() if found == method for error in listed]
        for unit, listed in (("", errors), ("_fraction", fractions.get(method, []))):
            for statistic, average in (("mean", np.mean), ("median", np.median)):
                value = float(average(listed)) if listed else float("nan")
                scores.append(score(f"{statistic}{unit}", value, setting=method))
    scores.append(score("transferred", float(len(fractions.get("linear", [])))))
    return scores + [
        score("mean", float(np.mean(errors)), setting=method, event=event) for (method, event), errors in frames.items()
    ]
