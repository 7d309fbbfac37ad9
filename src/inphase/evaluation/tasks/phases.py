"""Tasks on labeled phases: phase classification, phase progression and frame retrieval.

Phase classification: how well a support vector machine on frozen embeddings predicts the phase of a frame.

The classifier is fitted on the labeled frames of the first n % of each action's training videos and scored on every
labeled frame of the test videos: the fraction it classifies correctly. Once over all actions, whose phases are
different classes, and once for each action alone, averaged over actions. On raw embeddings, as in papers, and on
standardized ones: a radial kernel cannot distinguish a small scale from a collapse.

    linear   scikit-learn's LinearSVC: one against the rest, squared hinge, C = 1, the intercept regularized
    rbf      scikit-learn's SVC with its defaults: C = 1, gamma "scale", one against one; used by TCC's code

Both come with the extra `eval`. The fit time of SVC grows with the square of the number of frames: above `LIMIT` frames
it is fitted on evenly spaced ones.

Phase progression: how well a linear regression on the embedding predicts the time since each key event (R²).

For each phase but the last, y_t = (t − t_i)/T where t_i is the last frame of phase i and T the length of the video, as
in TCC. One linear regression for each, fitted on the training videos of the action, scored by R² on the pooled frames
of its test videos; mean over events, then over actions. Videos that lack a phase are left out of its regression.

Frame retrieval: the fraction of the nearest frames in other videos of the action with the same phase (AP@K of CARL).

Each frame retrieves its K nearest among the frames of all other videos of its action; the fraction of them that has its
phase is averaged over the frames of a video, then over videos, then over actions. Frames without a label neither query
nor are retrieved. AE2's mAP@K counts ranks, too: the mean of the precision at each rank that is right; 0 without any.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from math import ceil
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError, all_constant, by_action, with_phases
from inphase.evaluation.scores import Score, mean
from inphase.progress import Progress, ignore_progress
from inphase.storage.errors import MissingExtraError

Kernel = Literal["linear", "rbf"]
Features = Literal["raw", "standardized"]
Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]
Groups = dict[str, list[EmbeddedVideo]]  # by action

KERNELS: tuple[Kernel, ...] = ("linear", "rbf")
FEATURES: tuple[Features, ...] = ("raw", "standardized")
LIMIT = 20_000
KERNEL_CELLS = 2**23  # entries of the kernel matrix in memory at a time


def phase_classification(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    kernels: Sequence[Kernel] = KERNELS,
    features: Sequence[Features] = FEATURES,
    fractions: Sequence[float] = (0.1, 0.5, 1.0),
    per_action: bool = True,
    limit: int = LIMIT,
    progress: Progress | None = None,
) -> list[Score]:
    """Classify frames by phase. A radial kernel is fitted on at most `limit` frames, evenly spaced.

    Metrics, by classifier (setting, see `classifier_name`): `accuracy` and `f1` of one classifier for all actions, and
    by action, of a classifier for that action alone; `accuracy_per_action` and `f1_per_action`, the means of the
    latter. F1 is the mean over phases, weighted by their frames, as in AE2. Undefined if all embeddings are one vector.
    """
    _check(kernels, features, fractions)
    examples = by_action(with_phases(train, role="training"))
    asked = by_action(with_phases(test, role="test"))
    scopes: dict[str | None, tuple[Groups, Groups]] = {None: (examples, asked)}
    if per_action and len(asked) > 1:
        scopes |= {name: ({name: examples[name]}, {name: asked[name]}) for name in asked if name in examples}
    jobs = list(product(scopes, kernels, features, fractions))
    report = progress or ignore_progress
    scores: list[Score] = []
    for done, (action, kernel, kind, fraction) in enumerate(jobs):
        setting = classifier_name(kernel, kind, fraction)
        report("phase_classification", done, len(jobs))
        values = _classify(scopes[action], kernel, kind, fraction, limit=limit)
        for metric, value in values.items():
            scores.append(Score("phase_classification", metric, value, setting=setting, action=action))
    report("phase_classification", len(jobs), len(jobs))
    scores.sort(key=lambda score: score.metric)  # accuracy before F1
    together = [score for score in scores if score.action is None]
    alone = [score for score in scores if score.action is not None]
    means = []
    for metric, name in dict.fromkeys((score.metric, score.setting) for score in alone):
        value = mean(score.value for score in alone if (score.metric, score.setting) == (metric, name))
        means.append(Score("phase_classification", f"{metric}_per_action", value, setting=name))
    return [*together, *means, *alone]


def classifier_name(kernel: str, features: str, fraction: float = 1.0) -> str:
    """Name a classifier by its kernel, its features and the fraction of labeled videos, as "linear raw 0.5"."""
    return f"{kernel} {features} {fraction:g}"


def _classify(
    scope: tuple[Groups, Groups],
    kernel: Kernel,
    kind: Features,
    fraction: float,
    *,
    limit: int,
) -> dict[str, float]:
    """Fit on the first `fraction` of each action's training videos, and score on all test videos."""
    examples, asked = scope
    chosen = [item for videos in examples.values() for item in videos[: ceil(fraction * len(videos))]]
    test = [item for videos in asked.values() for item in videos]
    if all_constant(chosen) or all_constant(test):
        return {"accuracy": float("nan"), "f1": float("nan")}
    names: dict[tuple[str, int], int] = {}
    known, unknown = labeled_frames(chosen, names), labeled_frames(test, names)
    found = classify(known, unknown[0], kernel=kernel, features=kind, limit=limit)
    return {"accuracy": float((found == unknown[1]).mean()), "f1": weighted_f1(unknown[1], found)}


def _check(kernels: Sequence[str], features: Sequence[str], fractions: Sequence[float]) -> None:
    """Raise if an option of the classifiers is unknown or out of range."""
    for name, given, known in (("kernels", kernels, KERNELS), ("features", features, FEATURES)):
        if not given or not set(given) <= set(known):
            raise ValueError(f"{name} must be some of {', '.join(known)}, got {list(given)}")
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
        raise ValueError(f"fractions of labeled videos must be above 0 and at most 1, got {list(fractions)}")


def weighted_f1(truth: Labels, found: Labels) -> float:
    """Average over classes, weighted by their frames: 2 · correct / (frames of the class + frames found as it)."""
    classes, counts = np.unique(truth, return_counts=True)
    correct = np.array([((truth == each) & (found == each)).sum() for each in classes])
    named = np.array([(found == each).sum() for each in classes])
    return float((counts * 2 * correct / (counts + named)).sum() / len(truth))


def accuracy(
    train: tuple[Vectors, Labels],
    test: tuple[Vectors, Labels],
    *,
    kernel: Kernel,
    features: Features,
    limit: int = LIMIT,
) -> float:
    """Fit a classifier on the frames of `train` and return the fraction of `test` frames it classifies correctly."""
    found = classify(train, test[0], kernel=kernel, features=features, limit=limit)
    return float((found == test[1]).mean())


def classify(
    train: tuple[Vectors, Labels], targets: Vectors, *, kernel: Kernel, features: Features, limit: int = LIMIT
) -> Labels:
    """Fit a classifier on the frames of `train` and predict the classes of `targets` [N, D], [N]."""
    x, labels = train
    if features == "standardized":
        center, scale = x.mean(0), x.std(0)
        scale = np.where(scale > 0, scale, 1)
        x, targets = (x - center) / scale, (targets - center) / scale
    if (labels == labels[0]).all():
        return np.full(len(targets), labels[0])
    if kernel == "linear":
        return np.asarray(fit_linear(x, labels).predict(targets))
    every = -(-len(x) // limit)
    return _fit_and_predict(x[::every], labels[::every], targets)


def labeled_frames(videos: Sequence[EmbeddedVideo], names: dict[tuple[str, int], int]) -> tuple[Vectors, Labels]:
    """Gather the labeled frames of videos: vectors [N, D] and a class number for each action and phase [N].

    Phases of different actions are different classes. `names` maps (action, phase) to its class number; new pairs are
    added to it.
    """
    values, labels = [], []
    for item in videos:
        kept = item.phases >= 0
        phases, index = np.unique(item.phases[kept], return_inverse=True)
        numbers = [names.setdefault((item.video.action, phase), len(names)) for phase in phases.tolist()]
        values.append(item.values[kept])
        labels.append(np.array(numbers, np.int64)[index])
    return np.concatenate(values), np.concatenate(labels)


def fit_linear(x: NDArray[Any], labels: Labels) -> Any:
    """Fit a LinearSVC to x [N, D] and labels [N].

    The primal problem converges on raw and standardized embeddings alike; the dual does not. liblinear visits frames
    class by class: with frames sorted by class it reads memory in order and is three times as fast. At this tolerance
    predictions are those of the exact minimum; at scikit-learn's own, 1e-4, single frames still change class.
    """
    order = np.argsort(labels, kind="stable")
    return _svm().LinearSVC(dual=False, tol=1e-6, max_iter=10_000).fit(x[order], labels[order])


def _fit_and_predict(x: Vectors, labels: Labels, targets: Vectors) -> Labels:
    machine = _svm().SVC(kernel="rbf", C=1.0, gamma="scale", decision_function_shape="ovo", cache_size=500)
    machine.fit(x.astype(np.float64), labels)
    size = max(1, KERNEL_CELLS // max(1, len(machine.support_vectors_)))
    parts = [predict_by_votes(machine, targets[begin : begin + size]) for begin in range(0, len(targets), size)]
    return np.concatenate(parts)


def predict_by_votes(machine: Any, targets: NDArray[Any]) -> Labels:
    """Predict as a fitted SVC with a radial kernel does, by matrix products: five times as fast as its own loop.

    The decision between classes i < j is Σ over i's support vectors of a_{j−1} k + Σ over j's of a_i k + b.
    """
    count = len(machine.classes_)
    sign = -1 if count == 2 else 1  # scikit-learn flips the signs for two classes
    sums = []  # for each class's support vectors: [N, K − 1]
    begin = 0
    squares = np.square(targets, dtype=np.float64).sum(1)[:, None]
    for number in machine.n_support_.tolist():
        vectors = machine.support_vectors_[begin : begin + number]
        gaps = squares + np.square(vectors).sum(1) - 2 * targets.astype(np.float64) @ vectors.T
        kernel = np.exp(-machine._gamma * np.maximum(gaps, 0))
        sums.append(sign * kernel @ machine.dual_coef_[:, begin : begin + number].T)
        begin += number
    votes = np.zeros((len(targets), count), np.int64)
    for (i, j), bias in zip(_pairs(count), machine.intercept_, strict=True):
        wins = sums[i][:, j - 1] + sums[j][:, i] + sign * bias > 0
        votes[:, i] += wins
        votes[:, j] += ~wins
    return np.asarray(machine.classes_[votes.argmax(1)])


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(count) for j in range(i + 1, count))


def _svm() -> ModuleType:
    """Import sklearn.svm, or name the extra that installs it."""
    try:
        return import_module("sklearn.svm")
    except ImportError as error:
        raise MissingExtraError("Phase classification needs scikit-learn: pip install 'inphase[eval]'") from error


def phase_progression(train: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo]) -> list[Score]:
    """Regress the time since each key event linearly on the embedding.

    Metric: `r2`, by action. Undefined if all embeddings of an action are one vector.
    """
    examples = by_action(with_phases(train, role="training"))
    found: dict[str, float] = {}
    for action, videos in by_action(with_phases(test, role="test")).items():
        score = _score(examples[action], videos) if action in examples else None
        if score is not None:
            found[action] = score
    if not found:
        raise NotApplicableError("no action has two phases in both training and test videos")
    over_actions = Score("phase_progression", "r2", mean(found.values()))
    return [
        over_actions,
        *(Score("phase_progression", "r2", score, action=action) for action, score in found.items()),
    ]


def _score(train: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo]) -> float | None:
    """Average R² over the key events of one action; None without any."""
    last = max(int(item.phases.max()) for item in (*train, *test))
    if all_constant(train) or all_constant(test):
        return float("nan")
    scores = []
    for phase in range(last):
        fit, score = _examples(train, phase), _examples(test, phase)
        if fit is not None and score is not None:
            scores.append(_r2(*fit, *score))
    return mean(scores) if scores else None


def _examples(videos: Sequence[EmbeddedVideo], phase: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Gather the frames of the videos that have a phase, and their time since its last frame."""
    found = [item for item in videos if (item.phases == phase).any()]
    if not found:
        return None
    times = [(item.frames - (item.first + np.flatnonzero(item.phases == phase)[-1])) / item.length for item in found]
    return np.concatenate([item.values for item in found]).astype(np.float64), np.concatenate(times)


def _r2(
    x: NDArray[np.float64], y: NDArray[np.float64], test_x: NDArray[np.float64], test_y: NDArray[np.float64]
) -> float:
    center, level = x.mean(0), y.mean()
    weights, *_ = np.linalg.lstsq(x - center, y - level, rcond=None)
    rest = test_y - ((test_x - center) @ weights + level)
    return float(1 - np.square(rest).sum() / np.square(test_y - test_y.mean()).sum())


RETRIEVAL_CELLS = 2**24  # similarities in memory at a time


def frame_retrieval(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    ks: Sequence[int] = (5, 10, 15),
    stride: int = 1,
    device: torch.device | str = "cpu",
) -> list[Score]:
    """Measure precision at each of `ks`, of every `stride`-th frame among all frames of the other videos.

    Metrics: `ap@K` and `map@K`, by action. Undefined if all embeddings are one vector. O(N² D) time for the N frames of
    an action. `train` is not used.
    """
    if stride < 1 or not ks or min(ks) < 1:
        raise ValueError(f"need stride ≥ 1 and every k ≥ 1, got {stride} and {list(ks)}")
    groups = {
        action: videos
        for action, videos in by_action(with_phases(test, role="test")).items()
        if sum(int((item.phases >= 0).sum()) for item in videos) > max(ks) and len(videos) > 1
    }
    if not groups:
        raise NotApplicableError(f"no action has two labeled videos and more than {max(ks)} frames to retrieve")
    found = {action: _precisions(videos, ks=ks, stride=stride, device=device) for action, videos in groups.items()}
    score = partial(Score, "frame_retrieval")
    names = [f"{kind}@{k}" for kind in ("ap", "map") for k in ks]
    over_actions = [score(name, mean(row[n] for row in found.values())) for n, name in enumerate(names)]
    return over_actions + [
        score(name, row[n], action=action) for action, row in found.items() for n, name in enumerate(names)
    ]


def _precisions(
    videos: Sequence[EmbeddedVideo], *, ks: Sequence[int], stride: int, device: torch.device | str
) -> list[float]:
    if all_constant(videos):
        return [float("nan")] * 2 * len(ks)
    labeled = [item.phases >= 0 for item in videos]
    values = _tensor([item.values[kept] for item, kept in zip(videos, labeled, strict=True)], device)
    phases = _tensor([item.phases[kept] for item, kept in zip(videos, labeled, strict=True)], device)
    owner = torch.repeat_interleave(torch.tensor([int(kept.sum()) for kept in labeled])).to(device)
    means = []
    for video in range(len(videos)):
        mine = torch.nonzero(owner == video)[::stride, 0]
        hits = torch.cat(list(_hits(mine, video, values, phases, owner, most=max(ks))))
        hits = hits.double()
        # The precision at each rank, counted at ranks that are right.
        ranked = hits * hits.cumsum(1) / torch.arange(1, hits.shape[1] + 1, device=hits.device)
        plain = [hits[:, :k].mean() for k in ks]
        by_rank = [(ranked[:, :k].sum(1) / hits[:, :k].sum(1).clamp_min(1)).mean() for k in ks]
        means.append([float(value) for value in (*plain, *by_rank)])
    return [float(column) for column in np.mean(means, axis=0)]


def _hits(mine: Tensor, video: int, values: Tensor, phases: Tensor, owner: Tensor, *, most: int) -> Iterator[Tensor]:
    """Yield, for a batch of a video's frames at a time, whether each of the nearest has the same phase, [Q, K]."""
    others = owner != video
    candidates, labels = values[others], phases[others]
    for part in torch.split(mine, max(1, RETRIEVAL_CELLS // max(1, len(candidates)))):
        # ‖x‖² is the same for all candidates.
        gaps = candidates.square().sum(1) - 2 * values[part] @ candidates.T
        nearest = gaps.topk(min(most, len(candidates)), largest=False).indices
        yield labels[nearest] == phases[part][:, None]


def _tensor(parts: Sequence[np.ndarray], device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(device)
