"""Errors of matched frames: alignment error, event error and cycle error, over pairs of videos.

Frames of pairs of videos are matched in four ways, many pairs at once:

    nearest      the frame with the highest cosine
    dtw          the cheapest monotone path through 1 − cos
    contrastive  the cheapest monotone path through the contrastive cost, x to y plus y to x
    linear       frame · length / length, independent of the embedding: both videos played at full length

and, where asked for, in a fifth:

    consensus    the median of the contrastive path and those through other videos of the action

A frame that a path matches with several frames gets the middle of them, as in `Alignment.time_map`.

Alignment error: the difference in canonical time of matched frames, where the true canonical time is known.

Each frame of x is matched with y; the error is the difference of the two frames' canonical time, a fraction of the
action. Mean over the frames of a pair, then over the pairs of an action, then over actions.

Event error: by how many frames a key event is missed after its transfer from one video to another.

The error that a viewer notices. A key event of x is transferred to y by each method and compared
with the event of y: in frames, and as a fraction of y's length. Videos without labeled events use the first frame of
every phase but the first, if the phase is one contiguous part of the video.

The enclosed area (Fakhfour et al., 2023) takes the whole path: the area between it and the straight lines from the
common start through the events to the common end, in a square of side 1.

Cycle error: how often and how far a frame misses itself after its nearest neighbor's nearest neighbor.

A frame of x goes to the nearest frame of y, and that to its nearest of x. Needs no labels; an error of 0 means that
neighbors are mutual, not that they are correct.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.consensus import PairwiseMaps, align_pairwise
from inphase.align.cost import BETA, cosine_cost
from inphase.align.matching import batch_pairs, match_many
from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError, by_action, require_two
from inphase.evaluation.scores import Score, mean

METHODS = ("nearest", "dtw", "contrastive", "consensus", "linear")
CELLS = 2**21  # entries of the padded cost matrices in memory at a time

Pair = tuple[EmbeddedVideo, EmbeddedVideo]


@dataclass(frozen=True, eq=False)
class FrameMatches:
    """The frame number of y that each method matches with each row of x, [M] float64.

    If either embedding is constant, every match would be arbitrary: only "linear" is present.
    """

    x: EmbeddedVideo
    y: EmbeddedVideo
    frames: dict[str, NDArray[np.float64]]


def draw_pairs(test: Sequence[EmbeddedVideo], *, pairs: int | None, seed: int = 0) -> list[Pair]:
    """List all ordered pairs of different videos of each action, or `pairs` of each drawn without replacement."""
    if pairs is not None and pairs < 1:
        raise ValueError(f"pairs must be at least 1, or None for all, got {pairs}")
    found = []
    for number, videos in enumerate(require_two(test).values()):
        count = len(videos)
        total = count * (count - 1)
        chosen = np.arange(total)
        if pairs is not None and pairs < total:
            chosen = np.sort(np.random.default_rng([seed, number]).choice(total, pairs, replace=False))
        for code in chosen.tolist():
            i, j = divmod(code, count - 1)
            found.append((videos[i], videos[j + (j >= i)]))
    return found


def match_pairs(pairs: Sequence[Pair], *, beta: float = BETA) -> Iterator[FrameMatches]:
    """Match the frames of every pair, in the order given."""
    for batch in batch_pairs(pairs, CELLS):
        defined = [pair for pair in batch if not is_undefined(pair)]
        found = _match(defined, beta=beta) if defined else {}
        place = iter(range(len(defined)))
        for x, y in batch:
            frames: dict[str, NDArray[np.float64]] = {}
            if not is_undefined((x, y)):
                at = next(place)
                frames = {name: y.first + rows[at] for name, rows in found.items()}
            frames["linear"] = x.frames.astype(np.float64) * (y.length / x.length)
            yield FrameMatches(x, y, frames)


def vote_on_pairs(
    matches: Iterable[FrameMatches], test: Sequence[EmbeddedVideo], *, neighbors: int
) -> Iterator[FrameMatches]:
    """Add the method "consensus" to matches: `neighbors` videos of the action vote, without the use of their labels."""
    known: dict[str, tuple[dict[int, int], PairwiseMaps]] = {}
    for match in matches:
        if not is_undefined((match.x, match.y)):
            action = match.x.video.action
            if action not in known:
                videos = [item for item in by_action(test)[action] if not item.is_constant]
                numbers = {id(item): number for number, item in enumerate(videos)}
                known[action] = numbers, align_pairwise([item.embedding for item in videos])
            numbers, maps = known[action]
            rows = np.arange(len(match.x), dtype=np.float64)
            votes = maps.votes(numbers[id(match.x)], numbers[id(match.y)], rows, neighbors=neighbors)
            match.frames["consensus"] = match.y.first + np.median(votes, axis=0)
        yield match


def is_undefined(pair: Pair) -> bool:
    """Return whether an embedding of a pair is constant, so that no match is better than another."""
    return pair[0].is_constant or pair[1].is_constant


def similarities(pairs: Sequence[Pair]) -> Iterator[tuple[EmbeddedVideo, NDArray[np.float32]]]:
    """Yield x and the cosines of all frames of x with all frames of y, [M, N], for every pair."""
    for batch in batch_pairs(pairs, CELLS):
        for (x, _), cost in zip(batch, _cut(cosine_cost(*_stacked(batch)), batch), strict=True):
            yield x, 1 - cost


def _match(pairs: Sequence[Pair], *, beta: float) -> dict[str, list[NDArray[np.float64]]]:
    """Match by the methods that use embeddings: the row of y for each row of x."""
    values = [(x.embedding, y.embedding) for x, y in pairs]
    # `batch_pairs` has split the pairs: the batch is aligned whole, and the nearest frames need its cost matrices.
    cosine = list(match_many(values, cost="cosine", keep_cost=True, max_cells=sys.maxsize, batch_cells=sys.maxsize))
    contrastive = match_many(values, beta=beta, max_cells=sys.maxsize, batch_cells=sys.maxsize)
    return {
        "nearest": [
            found.cost_matrix.argmin(1).astype(np.float64) for found in cosine if found.cost_matrix is not None
        ],
        "dtw": [found.frame_map() for found in cosine],
        "contrastive": [found.frame_map() for found in contrastive],
    }


def _stacked(pairs: Sequence[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad both sides of all pairs to the longest: [P, M, D] and [P, N, D]."""
    x, y = (
        torch.nn.utils.rnn.pad_sequence([torch.from_numpy(pair[side].values) for pair in pairs], batch_first=True)
        for side in (0, 1)
    )
    return x, y


def _cut(costs: torch.Tensor, pairs: Sequence[Pair]) -> list[NDArray[np.float32]]:
    """Remove the padding from the costs [P, M, N] of a batch."""
    return [cost[: len(a), : len(b)] for cost, (a, b) in zip(costs.numpy(), pairs, strict=True)]


def alignment_error(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    pairs: int | None = 10_000,
    seed: int = 0,
    beta: float = BETA,
) -> list[Score]:
    """Compare the canonical time of matched frames, in all ordered pairs of each action or a random sample of `pairs`.

    Metric: `error`, by method (setting) and action. `train` is not used.
    """
    timed = [item for item in test if item.progress is not None]
    if not timed:
        raise NotApplicableError(f"none of {len(test)} videos has a known canonical time: use the stage")
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for match in match_pairs(draw_pairs(timed, pairs=pairs, seed=seed), beta=beta):
        for method in match.frames:
            errors[method, match.x.video.action].append(_error(match, method))
    score = partial(Score, "alignment_error", "error")
    over_actions = [
        score(mean(float(np.mean(found)) for (name, _), found in errors.items() if name == method), setting=method)
        for method in METHODS
    ]
    return over_actions + [
        score(float(np.mean(found)), setting=method, action=action) for (method, action), found in errors.items()
    ]


def _error(match: FrameMatches, method: str) -> float:
    """Interpolate the canonical time of y between frames; frames beyond its ends get that of the ends."""
    assert match.x.progress is not None
    assert match.y.progress is not None
    there = np.interp(match.frames[method], match.y.frames, match.y.progress)
    return float(np.abs(match.x.progress - there).mean())


def event_error(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    events: Sequence[str] | None = None,
    pairs: int | None = 10_000,
    neighbors: int = 0,
    seed: int = 0,
    beta: float = BETA,
) -> list[Score]:
    """Transfer events between the videos of each action, in all ordered pairs or a random sample of `pairs`.

    `events` restricts them by name. Metrics, by method (setting): `mean` and `median` in frames, `mean_fraction` and
    `median_fraction` of the length, over all transferred events; `mean` for each event; `area`, the mean enclosed area
    over pairs; and `transferred`, the number of transferred events. Scores of a constant embedding are undefined,
    except those of "linear". `train` is not used.
    """
    known = {id(item): key_events(item) for item in test}
    if events is not None:
        _require_known(events, known.values())
        known = {item: {name: at for name, at in found.items() if name in events} for item, found in known.items()}
    if not any(known.values()):
        raise NotApplicableError(f"none of {len(test)} videos has events or phases: use a data set that labels them")
    frames: dict[tuple[str, str], list[float]] = defaultdict(list)
    fractions: dict[str, list[float]] = defaultdict(list)
    areas: dict[str, list[float]] = defaultdict(list)
    matches = match_pairs(draw_pairs(test, pairs=pairs, seed=seed), beta=beta)
    for match in vote_on_pairs(matches, test, neighbors=neighbors) if neighbors else matches:
        truth = known[id(match.y)]
        line = _lines_through(match, known[id(match.x)], truth)
        if line is not None:
            for method, found in match.frames.items():
                areas[method].append(float(np.abs(found - line).mean()) / match.y.length)
        for name, at in known[id(match.x)].items():
            if name in truth:
                for method, found in match.frames.items():
                    error = abs(float(found[at - match.x.first]) - truth[name])
                    frames[method, name].append(error)
                    fractions[method].append(error / match.y.length)
    area = partial(Score, "event_error", "area")
    shared = [area(mean(areas[method]) if areas[method] else float("nan"), setting=method) for method in METHODS]
    return [*shared, *_summarize(frames, fractions)]


def _lines_through(
    match: FrameMatches, x_events: Mapping[str, int], y_events: Mapping[str, int]
) -> NDArray[np.float64] | None:
    """Interpolate the frame of y of each row of x between common events; None if they come in another order."""
    shared = sorted((at, y_events[name]) for name, at in x_events.items() if name in y_events)
    points = np.array([(0, 0), *shared, (match.x.length - 1, match.y.length - 1)], np.float64)
    if not shared or (np.diff(points, axis=0) < 0).any():
        return None
    return np.interp(match.x.frames, points[:, 0], points[:, 1])


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


def cycle_error(
    train: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo], *, pairs: int | None = 10_000, seed: int = 0
) -> list[Score]:
    """Match frames there and back, in all ordered pairs of each action or a random sample of `pairs`.

    Metrics: `missed`, the fraction of frames that do not return to themselves; `frames` and `fraction` (of the length),
    the mean distance between a frame and its return. Mean over the frames of a pair, then over pairs, then over
    actions. Pairs with a constant embedding are left out; without any other pair all scores are undefined. `train` is
    not used.
    """
    chosen = draw_pairs(test, pairs=pairs, seed=seed)
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for x, cosines in similarities([pair for pair in chosen if not is_undefined(pair)]):
        back = cosines.argmax(0)[cosines.argmax(1)]
        gaps = np.abs(back - np.arange(len(x)))
        found[x.video.action].append((float((gaps > 0).mean()), float(gaps.mean()), float(gaps.mean()) / x.length))
    means = [np.mean(rows, axis=0) for rows in found.values()]
    return [
        Score("cycle_error", metric, mean(float(row[column]) for row in means))
        for column, metric in enumerate(("missed", "frames", "fraction"))
    ]
