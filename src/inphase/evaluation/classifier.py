"""Fit support vector machines on frozen embeddings and measure how many test frames they classify correctly.

    linear   scikit-learn's LinearSVC: one against the rest, squared hinge, C = 1, the intercept regularized
    rbf      scikit-learn's SVC with its defaults: C = 1, gamma "scale", one against one; used by TCC's code

Both come with the extra `eval`. The fit time of SVC grows with the square of the number of frames: above `LIMIT` frames
it is fitted on evenly spaced ones.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inphase.evaluation.embedded import Embedded
from inphase.storage.errors import MissingExtraError

Kernel = Literal["linear", "rbf"]
Features = Literal["raw", "standardised"]
Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]

KERNELS: tuple[Kernel, ...] = ("linear", "rbf")
FEATURES: tuple[Features, ...] = ("raw", "standardised")
LIMIT = 20_000
CELLS = 2**23  # entries of the kernel matrix in memory at a time


def accuracy(
    train: tuple[Vectors, Labels],
    test: tuple[Vectors, Labels],
    *,
    kernel: Kernel,
    features: Features,
    limit: int = LIMIT,
) -> float:
    """Fit a classifier on the frames of `train` and return the fraction of `test` frames it classifies correctly."""
    (x, labels), (targets, truth) = train, test
    if features == "standardised":
        centre, scale = x.mean(0), x.std(0)
        scale = np.where(scale > 0, scale, 1)
        x, targets = (x - centre) / scale, (targets - centre) / scale
    if (labels == labels[0]).all():
        found = np.full(len(truth), labels[0])
    elif kernel == "linear":
        found = fit_linear(x, labels).predict(targets)
    else:
        every = -(-len(x) // limit)
        found = _fit_and_predict(x[::every], labels[::every], targets)
    return float((found == truth).mean())


def labelled_frames(videos: Sequence[Embedded], names: dict[tuple[str, int], int]) -> tuple[Vectors, Labels]:
    """Gather the labelled frames of videos: vectors [N, D] and a class number for each action and phase [N].

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
    size = max(1, CELLS // max(1, len(machine.support_vectors_)))
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
