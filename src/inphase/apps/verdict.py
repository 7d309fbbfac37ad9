"""A verdict on an alignment: the probability that each moment is within a tenth of a second, and one for the whole.

Any two videos have a cheapest path, whatever they show. These numbers measure whether to trust it, each for the
whole cost and for the cost of each modality:

    ratio     the mean cost along the path over the mean of all costs; near 1 where matched frames are like any others
    rank      the mean share of a row and a column that is cheaper than the cell on the path
    reversal  how much dearer the best path is if one video is played backwards; negative where that fits better
    nearest   the share of frames whose nearest frame, in the other video, is within 0.2 s of the path
    motion    the cosine of the changes of matched frames over 0.4 s to either side

and for the whole the posterior mass of soft-DTW within 0.1 s of the path, how far the modalities' own paths disagree,
how straight the path is, the ratio of the durations and, where both videos have a pose, how alike postures and motions
of the joints are along the path (`compare_motion`). A logistic regression turns them into the probability that the
videos show the same action and half of its events are within 0.1 s; a second one, with local numbers such as how much
either video moves, into that of each moment. Both were fitted on right pairs and wrong ones of several domains
(`python -m benchmarks.verdict`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.cost import BETA, find_period
from inphase.align.matching import match, pair_cost
from inphase.align.path import Alignment, shortest_path, soft_posterior
from inphase.apps.sessions import describe_period
from inphase.media.recording import NamedVideo
from inphase.models.embed_videos import EmbeddedVideos, change_density
from inphase.models.embedding import Embedding, rate_of
from inphase.models.joint_encoder import PARTS
from inphase.playback.document import Judgment
from inphase.pose.body import compare_motion
from inphase.pose.pose import Pose
from inphase.progress import summarize
from inphase.storage.settings import read_toml

Numbers = NDArray[np.float64]
# The numbers of a cost, and those of the whole alignment and of a moment.
COST_NUMBERS = ("ratio", "rank", "reversal", "nearest", "motion")
WHOLE_NUMBERS = (
    *("mass", "disagreement", "duration"),
    *("gap_median", "gap_near", "gap_high", "from_pose", "from_image", "from_nearer"),
    *("diagonal", "stall", "off_linear", "tempo_spread", "tempo_change", "flat", "steep"),
)
MOMENT_NUMBERS = ("mass", "rank", "ratio", "disagreement", "speed", "motion", "whole")
MOTION = MOMENT_NUMBERS.index("motion")
# By the modalities that both videos support: the weights of the two regressions, the constant first, and the
# probability below which an alignment is not to be trusted. `benchmarks.verdict` writes them (docs/lab/verdict.md).
FITTED = read_toml(Path(__file__).with_suffix(".toml"))
# Probabilities from which an alignment is good, and below which a moment is to be checked.
GOOD, UNSURE = 0.7, 0.5
# Bound on the logarithm of the odds of the whole: the best alignments hide moments that went wrong, too.
MAX_SCORE = 3.0
# Error up to which a moment is right, reach of the nearest frames and of the motion, in seconds; the posterior's γ.
TOLERANCE_SECONDS, NEAREST_SECONDS, MOTION_SECONDS, TEMPERATURE = 0.1, 0.2, 0.4, 5.0
# The middles of the shoulders and of the hips from the joints at 1, 2, 7 and 8 of `JOINTS13`.
TORSO = np.array([[0.5, 0], [0.5, 0], [0, 0.5], [0, 0.5]])
# Longer pairs are judged on every second frame, every third, ….
MAX_CELLS = 1_000_000
# Thresholds of the cost ratio and of the nearest frames beyond which a reason is given.
MIN_ODD_RATIO, MIN_NEAREST = 0.5, 0.4
# Tempos between which a video is embedded again at that of the reference; those between which it may be slow motion.
MIN_TEMPO, MAX_TEMPO, SLOW_MOTION, MAX_SLOW_MOTION = 1.7, 8.0, 2.5, 40.0
# How a recording of several repetitions is cut, on the command line and in Python.
SESSION_OPTION = "--session, or session=True in Python"
# Stretches to check: the shortest one to name, the least motion in it, and how many a sentence names at most.
MIN_STRETCH_SECONDS, MIN_MOTION, MAX_NAMED = 0.2, 0.3, 4


@dataclass(frozen=True, eq=False)
class Verdict:
    """A judgment of an alignment, the probability that it is right, and the reasons against it, in sentences.

    `moments` [M] are the probabilities that the frames of the first video are within a tenth of a second of their
    place, `stretches` the seconds of that video to check.
    """

    judgment: Judgment | None = None
    probability: float | None = None
    reasons: tuple[str, ...] = ()
    moments: Numbers = field(default_factory=lambda: np.empty(0))
    stretches: tuple[tuple[float, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; null without a verdict."""
        return {
            "verdict": self.judgment,
            "probability": self.probability,
            "reasons": list(self.reasons),
            "moments": [round(each, 3) for each in self.moments.tolist()],
            "check": [list(each) for each in self.stretches],
        }


@dataclass(frozen=True, eq=False)
class Evidence:
    """The numbers that a verdict rests on: of the whole alignment [F], and of each frame of x [M, G] without the whole.

    `kind` names the modalities that both videos support, `cost` the numbers of the whole cost by name. `periods` are
    those of x and y in seconds, None where the motion does not repeat, `tempo` is how many seconds of y pass in a
    second of x, `upside_down` whether one of the two people is upside down.
    """

    kind: str
    whole: Numbers
    moments: Numbers
    cost: dict[str, float]
    disagreement: float
    periods: tuple[float | None, float | None]
    tempo: float
    upside_down: bool = False


def judge(x: Embedding, y: Embedding, alignment: Alignment) -> Verdict:
    """Judge the alignment of two whole videos; the verdict is empty without a cost matrix.

    Time: that of a few alignments.
    """
    m, n = alignment.shape
    whole = len(alignment.path) > 0 and alignment.path[[0, -1]].tolist() == [[0, 0], [m - 1, n - 1]]
    if alignment.cost_matrix is None or not whole:
        return Verdict()
    evidence = gather(x, y, alignment) if min(m, n) > 2 else None
    if evidence is None:
        reason = "Nothing moves in one of the videos." if min(m, n) > 2 else "One video has fewer than three frames."
        return Verdict("do_not_trust", 0.0, (reason,), np.zeros(m))
    return decide(x, evidence, FITTED[evidence.kind])


def decide(x: Embedding, evidence: Evidence, weights: Mapping[str, Any]) -> Verdict:
    """Turn the numbers of an alignment of x into a verdict, by weights like those of `FITTED`."""
    whole, local, doubtful = np.array(weights["whole"]), np.array(weights["moment"]), weights["doubtful"]
    score = float(np.clip(whole[0] + evidence.whole @ whole[1:], -MAX_SCORE, MAX_SCORE))
    probability = _logistic(score)
    rows = np.column_stack([evidence.moments, np.full(len(evidence.moments), score)])
    odds = local[0] + rows @ local[1:]
    # Slow moments are hard to place even in a good alignment: what is to be checked is improbable at full speed, too.
    at_speed = odds - rows[:, MOTION] * local[1:][MOTION]
    times, step = np.arange(len(x)), -(-len(x) // len(odds))
    moments, doubts = (np.interp(times, np.arange(len(odds)) * step, _logistic(each)) for each in (odds, at_speed))
    stretches = tuple(_stretches(x, doubts))
    refused = probability < doubtful or evidence.upside_down
    judgment: Judgment = "do_not_trust" if refused else "check"
    repeats = list(_describe_repeats(evidence))
    if probability >= GOOD and not stretches and not repeats and not refused:
        judgment = "good"
    reasons = [*(_reasons(evidence) if refused or probability < GOOD else ()), *repeats]
    if stretches and judgment == "check":
        reasons.append(_name_stretches(stretches))
    return Verdict(judgment, float(probability), tuple(reasons), moments, stretches)


def gather(x: Embedding, y: Embedding, alignment: Alignment) -> Evidence | None:
    """Take the numbers of an alignment that holds its cost matrix; None where one video supports no modality."""
    step = math.ceil(math.sqrt(alignment.shape[0] * alignment.shape[1] / MAX_CELLS))
    cost = np.ascontiguousarray(np.asarray(alignment.cost_matrix, np.float64)[::step, ::step])
    path = np.unique(alignment.path // step, axis=0)
    rates = [rate / step for rate in (rate_of(x.times) or 1.0, rate_of(y.times) or 1.0)]
    routes = _routes(x, y)
    if not routes:
        return None
    frames = _frame_map(path, len(cost))
    sides = [torch.cat(parts, dim=1)[::step] for parts in zip(*(each for _, each in routes.values()), strict=True)]
    numbers, maps = [_cost_numbers(cost, sides, path, frames, rates)], []
    for beta, parts in routes.values() if len(routes) > 1 else ():
        part = np.ascontiguousarray(pair_cost(*parts, beta=beta).double().numpy()[::step, ::step])
        numbers.append(_cost_numbers(part, [each[::step] for each in parts], path, frames, rates))
        maps.append(_frame_map(shortest_path(torch.from_numpy(part)).path, len(cost)))
    gap = np.minimum(np.abs(maps[0] - maps[1]) / rates[1], 1.0) if maps else np.zeros(len(cost))
    weights = soft_posterior(cost, gamma=TEMPERATURE)
    near = np.abs(np.arange(cost.shape[1]) - frames[:, None]) <= TOLERANCE_SECONDS * rates[1] + 0.5
    mass = (weights * near).sum(1) / np.maximum(weights.sum(1), 1e-12)
    lasting = [length / rate for length, rate in zip(cost.shape, rates, strict=True)]
    whole = [mass.mean(), gap.mean(), abs(math.log(lasting[0] / lasting[1])), *_gap_numbers(maps, frames, rates[1])]
    whole += _path_numbers(path, frames, rates)
    kind, upright = "_".join(routes), list[bool]()
    if "pose" in routes and x.pose is not None and y.pose is not None:
        kind, reach = f"{kind}_joints", round(NEAREST_SECONDS * rates[0])
        joints = [_joints_at(side.pose, side.times[::step]) for side in (x, y) if side.pose is not None]
        whole += compare_motion(joints[0], joints[1], path, frames=frames, reach=reach).tolist()
        upright = [bool((np.diff(points[:, [1, 2, 7, 8], 1] @ TORSO) > 0).mean() > 0.5) for points, _ in joints]
    i = path[:, 0]
    count = np.maximum(np.bincount(i, minlength=len(cost)), 1)
    ranks = np.bincount(i, _ranks(cost, path), len(cost)) / count
    ratios = np.bincount(i, cost[tuple(path.T)], len(cost)) / count / max(float(cost.mean()), 1e-12)
    thin = [Embedding(part.numpy(), each.times[::step]) for part, each in zip(sides, (x, y), strict=True)]
    # Of the video that moves more: beside a part that jitters, the rest of a video seems to stand still.
    motions = [_local_motion(side, rate) for side, rate in zip(thin, rates, strict=True)]
    motion = np.maximum(motions[0], np.interp(frames, np.arange(cost.shape[1]), motions[1]))
    speeds = np.clip(_speeds(frames, rates, max(1, round(TOLERANCE_SECONDS * rates[0]))), 0.1, 10.0)
    local = np.column_stack([mass, ranks, ratios, gap, np.abs(np.log(speeds)), np.log(motion)])
    return Evidence(
        kind,
        np.concatenate([*numbers, whole]),
        local,
        dict(zip(COST_NUMBERS, numbers[0], strict=True)),
        float(gap.mean()),
        periods=(find_period(x.values, rate=rates[0] * step), find_period(y.values, rate=rates[1] * step)),
        upside_down=len(set(upright)) > 1,
        tempo=measure_tempo(thin[0], frames, rates),
    )


def measure_tempo(x: Embedding, frames: Numbers, rates: Sequence[float]) -> float:
    """Take the seconds of y that pass in a second of x, over the half of x that moves most, weighted by its motion.

    `frames` [M] are those of y that go with the frames of x; `rates` are the frames per second of both.
    """
    reach = max(1, round(TOLERANCE_SECONDS * rates[0]))
    motion = _change(x, reach)
    moving = motion >= np.median(motion)
    weights = motion[moving] + 1e-9
    return float(np.average(_speeds(frames, rates, reach)[moving], weights=weights))


def equalize_tempo(embedded: EmbeddedVideos, names: Sequence[str], *, reference: int) -> EmbeddedVideos:
    """Embed videos of people again that run much slower or faster than the reference, as in slow motion.

    Of a slow one every second frame is embedded, every third, …; frames of a fast one are interpolated. Frames then
    follow each other as fast as in the reference, and so do those of their context (docs/lab/verdict.md).
    """
    embeddings, x, found = list(embedded.embeddings), embedded.embeddings[reference], list[str]()
    for k, y in enumerate(embeddings):
        if k == reference or x.pose is None or y.pose is None or min(len(x), len(y)) < 3:
            continue
        rates = (rate_of(x.times) or 1.0, rate_of(y.times) or 1.0)
        tempo = measure_tempo(x, match(x, y, keep_cost=False).frame_map(), rates)
        slower = max(tempo, 1 / max(tempo, 1e-6))
        if MIN_TEMPO <= slower <= MAX_TEMPO:
            embeddings[k] = change_density(embedded.encoder, y, 1 / slower if tempo > 1 else slower)
            found.append(f"{names[k]} runs {slower:.1f} times {'slower' if tempo > 1 else 'faster'}")
    if not found:
        return embedded
    why = f"{embedded.why} {summarize(found)} than {names[reference]}: they are compared at equal tempo."
    return replace(embedded, embeddings=embeddings, why=why)


def _routes(x: Embedding, y: Embedding) -> dict[str, tuple[float, list[torch.Tensor]]]:
    """Split embeddings into the modalities that both support: the temperature, and the unit vectors of both sides."""
    routes = x.routes or ((x.values.shape[1], BETA),)
    names = (x.modality,) if x.modality in PARTS else PARTS[: len(routes)]
    found, begin = {}, 0
    for name, (width, beta) in zip(names, routes, strict=False):
        sides = [torch.from_numpy(side.values[:, begin : begin + width]) for side in (x, y)]
        begin += width
        if all(bool(side.any()) for side in sides):
            found[name] = beta, [torch.nn.functional.normalize(side, dim=1) for side in sides]
    return found


def _cost_numbers(
    cost: Numbers, sides: Sequence[torch.Tensor], path: NDArray[np.int64], frames: Numbers, rates: Sequence[float]
) -> Numbers:
    """Take the numbers of a cost [M, N] along a path: `COST_NUMBERS`."""
    m, n = cost.shape
    mean = max(float(cost.mean()), 1e-12)
    ratio = float(cost[tuple(path.T)].mean()) / mean
    best = shortest_path(torch.from_numpy(cost))
    backwards = shortest_path(torch.from_numpy(np.ascontiguousarray(cost[:, ::-1])))
    reversal = (backwards.cost / len(backwards.path) - best.cost / len(best.path)) / mean
    rows = np.interp(np.arange(n), frames + 1e-9 * np.arange(m), np.arange(m))
    nearest = np.mean(np.abs(cost.argmin(1) - frames) <= NEAREST_SECONDS * rates[1]) / 2
    nearest += np.mean(np.abs(cost.argmin(0) - rows) <= NEAREST_SECONDS * rates[0]) / 2
    return np.array([ratio, _ranks(cost, path).mean(), reversal, nearest, _motion(sides, frames, rates[0])])


def _gap_numbers(maps: Sequence[Numbers], frames: Numbers, rate: float) -> list[float]:
    """Take how far the paths of two modalities lie from each other, and from the path of both, in seconds."""
    if not maps:
        return [0.0] * 6
    gaps = np.abs(maps[0] - maps[1]) / rate
    apart = [float(np.minimum(np.abs(each - frames) / rate, 1.0).mean()) for each in maps]
    typical, high = min(float(np.median(gaps)), 1.0), min(float(np.quantile(gaps, 0.9)), 2.0)
    return [typical, float((gaps <= TOLERANCE_SECONDS).mean()), high, *apart, min(apart)]


def _path_numbers(path: NDArray[np.int64], frames: Numbers, rates: Sequence[float]) -> list[float]:
    """Take how straight a path is: its diagonal steps, its longest stop, and how its speed changes."""
    m, n = path[-1] + 1
    diagonal = np.diff(path, axis=0).sum(1) == 2
    stops = np.diff(np.flatnonzero(np.concatenate([[True], diagonal, [True]]))) - 1
    speeds = _speeds(frames, rates, max(1, round(0.25 * rates[0])))
    logs = np.log(np.clip(speeds, 0.1, 10.0))
    off = float(np.abs(frames - np.linspace(0, n - 1, m)).mean()) / n
    spread = [float(logs.std()), float(np.abs(logs).mean()), float((speeds < 0.25).mean()), float((speeds > 4).mean())]
    return [float(diagonal.mean()), float(stops.max(initial=0)) / min(m, n), off, *spread]


def _joints_at(pose: Pose, times: Numbers) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Take the joints of the pose at the frames nearest to some seconds."""
    nearest = np.abs(pose.times[:, None] - times).argmin(0)
    points, visible = pose.joints13()
    return points[nearest], visible[nearest]


def _ranks(cost: Numbers, path: NDArray[np.int64]) -> Numbers:
    """Take the share of each path cell's row and column that is cheaper, [L]."""
    i, j = path.T
    on_path = cost[i, j]
    return np.asarray(((cost[i] < on_path[:, None]).mean(1) + (cost[:, j] < on_path).mean(0)) / 2)


def _motion(sides: Sequence[torch.Tensor], frames: Numbers, rate: float) -> float:
    """Take the cosine of all changes of x and of the frames of y matched with it."""
    x, y = (side.numpy() for side in sides)
    matched = y[np.rint(frames).astype(int)]
    reach = min(max(1, round(MOTION_SECONDS * rate)), (len(x) - 1) // 2)
    changes = [side[2 * reach :] - side[: -2 * reach] for side in (x, matched)]
    lengths = math.sqrt(float(np.square(changes[0]).sum() * np.square(changes[1]).sum()))
    return float((changes[0] * changes[1]).sum()) / max(lengths, 1e-12)


def _frame_map(path: NDArray[np.int64], length: int) -> Numbers:
    return Alignment(path, 0.0, (length, int(path[:, 1].max()) + 1)).frame_map()


def _speeds(frames: Numbers, rates: Sequence[float], reach: int) -> Numbers:
    """Take the seconds of y that pass in a second of x, within `reach` frames of each frame of x, [M]."""
    places = np.arange(len(frames))
    before, after = np.maximum(places - reach, 0), np.minimum(places + reach, len(frames) - 1)
    return np.asarray((frames[after] - frames[before]) / np.maximum(after - before, 1) * rates[0] / rates[1])


def _change(x: Embedding, reach: int) -> Numbers:
    """Take how far the vectors change within `reach` frames of each frame, [M]."""
    places = np.arange(len(x))
    change = x.values[np.minimum(places + reach, len(x) - 1)] - x.values[np.maximum(places - reach, 0)]
    return np.asarray(np.linalg.norm(change, axis=1), np.float64)


def _local_motion(x: Embedding, rate: float) -> Numbers:
    """Take the change around each frame over that of fast ones, at least .02: still moments are hard to place."""
    change = _change(x, max(1, round(TOLERANCE_SECONDS * rate)))
    return np.maximum(change / max(float(np.quantile(change, 0.9)), 1e-9), 0.02)


def _logistic(score: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(score, -30, 30)))


def _stretches(x: Embedding, moments: Numbers) -> Iterator[tuple[float, float]]:
    """Find the stretches of improbable moments in which x moves: first and last second of each."""
    rate = rate_of(x.times) or 1.0
    moving = _change(x, max(1, round(TOLERANCE_SECONDS * rate)))
    doubtful = (moments < UNSURE) & (moving >= MIN_MOTION * np.quantile(moving, 0.9))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], doubtful.astype(int), [0]])))
    for begin, end in edges.reshape(-1, 2).tolist():
        if (end - begin) / rate >= MIN_STRETCH_SECONDS:
            yield round(float(x.times[begin]), 2), round(float(x.times[end - 1]), 2)


def _name_stretches(stretches: Sequence[tuple[float, float]]) -> str:
    named = ", ".join(f"{start:.1f} to {end:.1f} s" for start, end in stretches[:MAX_NAMED])
    more = f" and {len(stretches) - MAX_NAMED} more" if len(stretches) > MAX_NAMED else ""
    return f"Check these moments of the reference: {named}{more}."


def _reasons(evidence: Evidence) -> Iterator[str]:
    """Yield the reasons to doubt an alignment as a whole."""
    cost = evidence.cost
    if evidence.upside_down:
        yield "One of the two people is upside down."
    if cost["reversal"] < 0:
        yield "One video fits the other better if it is played backwards."
    if evidence.disagreement > 0.25:
        yield f"Body pose and images disagree by {evidence.disagreement:.1f} s on average."
    yield from _describe_tempo(evidence)
    if cost["ratio"] > MIN_ODD_RATIO:
        yield f"Matched frames are hardly more alike than others: their cost is {cost['ratio']:.0%} of the average."
    elif cost["nearest"] < MIN_NEAREST:
        yield f"Only {cost['nearest']:.0%} of the frames are matched near the frame that is most like them."


def _describe_tempo(evidence: Evidence) -> Iterator[str]:
    slower = max(evidence.tempo, 1 / max(evidence.tempo, 1e-6))
    if SLOW_MOTION <= slower <= MAX_SLOW_MOTION:
        which = "The video" if evidence.tempo > 1 else "The reference"
        cause = f"it may be slow motion, or a session of several repetitions ({SESSION_OPTION})"
        yield f"{which} runs {slower:.1f} times slower than the other: {cause}."


def _describe_repeats(evidence: Evidence) -> Iterator[str]:
    x, y = evidence.periods
    if x is not None and y is not None:
        yield describe_period(y)
    elif x is not None or y is not None:
        which, period = ("The reference", x) if y is None else ("The video", y)
        yield f"{which} shows the action again every {period:.1f} s: cut it into repetitions ({SESSION_OPTION})."


def describe_doubts(videos: Sequence[NamedVideo], verdicts: Sequence[Verdict]) -> list[str]:
    """Describe the reasons against each alignment, a line for each video that has some."""
    return [f"{v.name}: {' '.join(found.reasons)}" for v, found in zip(videos, verdicts, strict=True) if found.reasons]
