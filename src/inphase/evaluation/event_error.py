"""Event error: how many frames a known moment misses when it is carried from one video to another.

The measure that people feel. A key event of x is carried to y by each way of `matching` and compared with where y has
it: in frames, and as a fraction of y's length. Events are those of the labels; where there are none, the first frames
of the phases after the first, as far as each phase is one stretch of the video.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from inphase.evaluation.embedded import Embedded, NotApplicableError
from inphase.evaluation.matching import METHODS, draw_pairs, match_pairs


def event_error(
    train: Sequence[Embedded],
    test: Sequence[Embedded],
    *,
    events: Sequence[str] | None = None,
    pairs: int | None = 10_000,
    seed: int = 0,
    beta: float = 0.1,
) -> dict[str, float]:
    """Carry events between the videos of each action, in all ordered pairs or `pairs` of each drawn at random.

    `events` restricts them by name. Keys: METHOD/mean and METHOD/median in frames, METHOD/mean_fraction and
    METHOD/median_fraction of the length, over all events carried, METHOD/mean/EVENT for each event; and `carried`, how
    many there were. METHOD is nearest, dtw, contrastive or linear; those of a constant embedding are undefined.
    `train` is not used.
    """
    known = {id(item): key_events(item) for item in test}
    if events is not None:
        _require_known(events, known.values())
        known = {item: {name: at for name, at in found.items() if name in events} for item, found in known.items()}
    if not any(known.values()):
        raise NotApplicableError(f"none of {len(test)} videos has events or phases: use a collection that labels them")
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
    return _summarise(frames, fractions)


def key_events(item: Embedded) -> dict[str, int]:
    """Give the frames of a video's key events that are embedded: labelled, or else where its phases begin."""
    found = dict(item.video.events) or _phase_starts(item)
    return {name: at for name, at in found.items() if item.first <= at < item.first + len(item)}


def _phase_starts(item: Embedded) -> dict[str, int]:
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


def _summarise(frames: Mapping[tuple[str, str], list[float]], fractions: Mapping[str, list[float]]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for method in METHODS:
        errors = [error for (found, _), listed in frames.items() if found == method for error in listed]
        for unit, listed in (("", errors), ("_fraction", fractions.get(method, []))):
            numbers[f"{method}/mean{unit}"] = float(np.mean(listed)) if listed else float("nan")
            numbers[f"{method}/median{unit}"] = float(np.median(listed)) if listed else float("nan")
    numbers["carried"] = float(len(fractions.get("linear", [])))
    return numbers | {f"{method}/mean/{name}": float(np.mean(errors)) for (method, name), errors in frames.items()}
