"""Classifiers of frames on frozen embeddings: what they are trained on, and how.

    linear   one against the rest, squared hinge, C = 1: the objective of scikit-learn's LinearSVC, see `linear_svm`
    rbf      scikit-learn's SVC as it comes, C = 1, gamma "scale", one against one: what TCC's code uses

SVC takes time that grows with the square of the frames: of more than `LIMIT` every so-many-th is used.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inphase.evaluation.embedded import Embedded
from inphase.evaluation.linear_svm import fit_linear_svm

Kernel = Literal["linear", "rbf"]
Features = Literal["raw", "standardised"]
Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]

KERNELS: tuple[Kernel, ...] = ("linear", "rbf")
FEATURES: tuple[Features, ...] = ("raw", "standardised")
LIMIT = 20_000
CELLS = 2**23  # of a kernel matrix held at a time


def accuracy(
    train: tuple[Vectors, Labels],
    test: tuple[Vectors, Labels],
    *,
    kernel: Kernel,
    features: Features,
    limit: int = LIMIT,
    progress: Callable[[float], None] | None = None,
) -> float:
    """Fit the frames of `train` and give the fraction of those of `test` that are classified rightly."""
    (x, labels), (targets, truth) = train, test
    if features == "standardised":
        centre, scale = x.mean(0), x.std(0)
        scale = np.where(scale > 0, scale, 1)
        x, targets = (x - centre) / scale, (targets - centre) / scale
    if (labels == labels[0]).all():
        found = np.full(len(truth), labels[0])
    elif kernel == "linear":
        found = fit_linear_svm(x, labels, progress=progress).predict(targets)
    else:
        every = -(-len(x) // limit)
        found = _fit_and_predict(x[::every], labels[::every], targets)
    return float((found == truth).mean())


def labelled_frames(videos: Sequence[Embedded], names: dict[tuple[str, int], int]) -> tuple[Vectors, Labels]:
    """Gather the labelled frames of videos: vectors [N, D], and a number for each action and phase [N].

    Phases of different actions are different classes. `names` gives the numbers, and learns new ones.
    """
    values, labels = [], []
    for item in videos:
        kept = item.phases >= 0
        phases, index = np.unique(item.phases[kept], return_inverse=True)
        numbers = [names.setdefault((item.video.action, phase), len(names)) for phase in phases.tolist()]
        values.append(item.values[kept])
        labels.append(np.array(numbers, np.int64)[index])
    return np.concatenate(values), np.concatenate(labels)


def _fit_and_predict(x: Vectors, labels: Labels, targets: Vectors) -> Labels:
    from sklearn.svm import SVC

    machine = SVC(kernel="rbf", C=1.0, gamma="scale", decision_function_shape="ovo", cache_size=500)
    machine.fit(x.astype(np.float64), labels)
    size = max(1, CELLS // max(1, len(machine.support_vectors_)))
    parts = [predict_by_votes(machine, targets[begin : begin + size]) for begin in range(0, len(targets), size)]
    return np.concatenate(parts)


def predict_by_votes(machine: Any, targets: NDArray[Any]) -> Labels:
    """Predict as a fitted SVC with a radial kernel does, by products of matrices: its own loop is many times slower.

    The decision between classes i < j is Σ over i's support vectors of a_{j−1} k + Σ over j's of a_i k + b.
    """
    count = len(machine.classes_)
    sign = -1 if count == 2 else 1  # scikit-learn turns the signs round where there are two classes
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
