import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.svm import SVC, LinearSVC

from inphase.evaluation.embedded_videos import NotApplicableError
from inphase.evaluation.scores import value_of
from inphase.evaluation.tasks.phases import (
    Features,
    Kernel,
    accuracy,
    classifier_name,
    fit_linear,
    labeled_frames,
    phase_classification,
    predict_by_votes,
    weighted_f1,
)
from inphase.storage.errors import MissingExtraError
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_phases_that_are_points_are_separated_and_swapped_ones_are_all_wrong() -> None:
    phases = np.repeat(np.arange(3), 5)
    right = [embedded(np.eye(3, dtype=np.float32)[phases], name=name, phases=phases) for name in "ab"]
    wrong = [embedded(np.eye(3, dtype=np.float32)[(phases + 1) % 3], name="c", phases=phases)]
    assert {score.value for score in phase_classification(right, right)} == {1.0}
    assert {score.value for score in phase_classification(right, wrong)} == {0.0}


def test_the_numbers_are_those_of_scikit_learn_on_the_first_videos() -> None:
    videos = noisy([*performances(12, action="jump"), *performances(12, seed=7)], noise=0.4)
    train, test = videos[::2], videos[1::2]
    scores = phase_classification(train, test, kernels=["rbf"], features=["raw"], fractions=[0.5, 1.0])
    expected = {}
    for action in ("jump", "throw"):
        known, asked = ([item for item in side if item.video.action == action] for side in (train, test))
        x, y = (np.concatenate([getattr(item, name) for item in known[:3]]) for name in ("values", "phases"))
        machine = SVC(decision_function_shape="ovo").fit(x, y)
        targets, truth = (np.concatenate([getattr(item, name) for item in asked]) for name in ("values", "phases"))
        expected[action] = machine.score(targets, truth)
    assert value_of(scores, "accuracy", setting="rbf raw 0.5", action="jump") == pytest.approx(expected["jump"])
    assert value_of(scores, "accuracy_per_action", setting="rbf raw 0.5") == pytest.approx(
        np.mean(list(expected.values()))
    )
    assert [score.label for score in scores[:2]] == ["accuracy, rbf raw 0.5", "accuracy, rbf raw 1"]


def test_a_small_scale_hides_phases_from_a_raw_radial_kernel_only_where_it_is_not_its_own() -> None:
    # The information is in a coordinate a thousand times smaller than another, which is noise.
    rng = np.random.default_rng(0)
    videos = []
    for name in range(6):
        phases = np.repeat(np.arange(3), 20)
        values = np.stack([rng.normal(size=60), 1e-3 * (phases + 0.1 * rng.normal(size=60))], 1).astype(np.float32)
        videos.append(embedded(values, name=str(name), phases=phases))
    scores = phase_classification(videos[:3], videos[3:], kernels=["rbf"], fractions=[1.0])
    assert value_of(scores, "accuracy", setting="rbf raw 1") < 0.5
    assert value_of(scores, "accuracy", setting="rbf standardized 1") > 0.9


def test_a_constant_embedding_is_undefined_not_the_largest_phase() -> None:
    videos = constant(performances(4))
    scores = phase_classification(videos[:2], videos[2:])
    assert all(np.isnan(score.value) for score in scores)


def test_progress_and_refusals() -> None:
    videos = performances(4)
    calls: list[tuple[str, int, int]] = []
    phase_classification(videos[:2], videos[2:], fractions=[1.0], progress=lambda *call: calls.append(call))
    assert calls == [("phase_classification", done, 4) for done in range(5)]  # two kernels, two features
    with pytest.raises(NotApplicableError, match="none of 0 training videos"):
        phase_classification([], videos)
    with pytest.raises(ValueError, match="kernels must be some of linear, rbf"):
        phase_classification(videos, videos, kernels=["poly"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        phase_classification(videos, videos, fractions=[10])


def clouds(
    frames: int = 400, classes: int = 5, *, dimension: int = 12, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Draw overlapping clouds, some of them rare, on the unit sphere."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(classes, dimension))
    labels = rng.choice(classes, frames, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    x = centers[labels] + 1.5 * rng.normal(size=(frames, dimension))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), 10 * labels


@pytest.mark.parametrize("scale", [0.05, 1, 20])
@pytest.mark.parametrize("classes", [2, 7])
def test_the_linear_machine_is_at_the_minimum_of_its_objective(scale: float, classes: int) -> None:
    x, labels = clouds(classes=classes)
    x = scale * x
    machine = fit_linear(x, labels)
    rows = np.concatenate([x, np.ones((len(x), 1))], 1, dtype=np.float64)
    shown = machine.classes_ if classes > 2 else machine.classes_[1:]  # scikit-learn keeps the second of two alone
    for name, coef, intercept in zip(shown, machine.coef_, machine.intercept_, strict=True):
        sign = np.where(labels == name, 1.0, -1.0)

        def gradient(weights: NDArray[np.float64], sign: NDArray[np.float64] = sign) -> NDArray[np.float64]:
            short = np.maximum(1 - sign * (rows @ weights), 0)
            return weights - 2 * rows.T @ (sign * short)

        start = np.linalg.norm(gradient(np.zeros(rows.shape[1])))
        assert np.linalg.norm(gradient(np.append(coef, intercept))) < 1e-5 * start


def test_the_order_of_the_frames_makes_no_difference() -> None:
    (x, labels), (targets, _) = clouds(2000, 20), clouds(2000, 20, seed=1)
    ours, theirs = fit_linear(x, labels), LinearSVC(dual=False, tol=1e-8, max_iter=10_000).fit(x, labels)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-4 * np.abs(theirs.coef_).max())
    assert (ours.predict(targets) == theirs.predict(targets)).all()


def test_one_class_needs_no_machine() -> None:
    x, labels = clouds()
    assert accuracy((x, 0 * labels), (x, 0 * labels), kernel="linear", features="raw") == 1


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_missing_scikit_learn_is_named_in_one_line(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)
    message = r"^Phase classification needs scikit-learn: pip install 'inphase\[eval\]'$"
    with pytest.raises(MissingExtraError, match=message):
        accuracy(clouds(), clouds(), kernel=kernel, features="raw")


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_votes_are_scikit_learns(classes: int) -> None:
    (x, labels), (targets, _) = clouds(classes=classes), clouds(classes=classes, seed=1)
    machine = SVC(decision_function_shape="ovo").fit(x, labels)
    np.testing.assert_array_equal(predict_by_votes(machine, targets), machine.predict(targets))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("features", ["raw", "standardized"])
def test_accuracy_is_scikit_learns(kernel: Kernel, features: Features) -> None:
    train, (targets, truth) = clouds(), clouds(seed=1)
    x, labels = train
    found = accuracy(train, (targets, truth), kernel=kernel, features=features)
    if features == "standardized":
        x, targets = (x - x.mean(0)) / x.std(0), (targets - x.mean(0)) / x.std(0)
    machine = (SVC() if kernel == "rbf" else LinearSVC(dual=False, max_iter=10_000)).fit(x, labels)
    assert found == pytest.approx(machine.score(targets, truth), abs=0.005)


def test_a_radial_kernel_takes_evenly_chosen_frames_where_there_are_too_many() -> None:
    (x, labels), test = clouds(), clouds(seed=1)
    few = accuracy((x, labels), test, kernel="rbf", features="raw", limit=150)
    assert few == accuracy((x[::3], labels[::3]), test, kernel="rbf", features="raw")
    assert few != accuracy((x, labels), test, kernel="rbf", features="raw")


def test_phases_of_different_actions_are_different_classes() -> None:
    names: dict[tuple[str, int], int] = {}
    videos = [*performances(2), *performances(1, action="jump")]
    values, labels = labeled_frames(videos, names)
    assert len(values) == sum(map(len, videos))
    assert len(names) == len(set(labels.tolist())) == 8
    again, _ = labeled_frames(videos[2:], names), None
    assert {name for name, number in names.items() if number in again[1]} == {("jump", phase) for phase in range(4)}


def test_f1_is_scikit_learns() -> None:
    from sklearn.metrics import f1_score

    rng = np.random.default_rng(0)
    truth, found = rng.integers(0, 4, 200), rng.integers(0, 5, 200)
    assert weighted_f1(truth, found) == pytest.approx(f1_score(truth, found, average="weighted"))
    train, test = noisy(performances(3), noise=1.0), noisy(performances(3), noise=1.0)
    scores = phase_classification(train, test, kernels=["linear"], features=["raw"], fractions=[1.0])
    setting = classifier_name("linear", "raw")
    assert 0 < value_of(scores, "f1", setting=setting) <= 1
    assert value_of(scores, "f1", setting=setting) != value_of(scores, "accuracy", setting=setting)
