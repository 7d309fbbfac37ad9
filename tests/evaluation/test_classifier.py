import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.svm import SVC, LinearSVC

from inphase.evaluation import linear_svm
from inphase.evaluation.classifier import Features, Kernel, accuracy, labelled_frames, predict_by_votes
from inphase.evaluation.linear_svm import fit_linear_svm
from tests.evaluation.embeddings import performances


def clouds(
    frames: int = 400, classes: int = 5, *, dimension: int = 12, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Draw overlapping clouds, some of them rare, on the unit sphere."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, dimension))
    labels = rng.choice(classes, frames, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    x = centres[labels] + 1.5 * rng.normal(size=(frames, dimension))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), 10 * labels


@pytest.mark.parametrize("scale", [0.05, 1, 20])
@pytest.mark.parametrize("classes", [2, 7])
def test_the_linear_machine_is_scikit_learns(scale: float, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_svm, "BLOCK", 500)
    x, labels = clouds(classes=classes)
    ours = fit_linear_svm(scale * x, labels, tolerance=1e-8)
    theirs = LinearSVC(dual=False, tol=1e-10, max_iter=10_000).fit(scale * x, labels)
    weights = np.vstack([theirs.coef_.T, theirs.intercept_[None]])
    if classes == 2:  # scikit-learn keeps the second class alone
        np.testing.assert_allclose(ours.weights[:, :1], -weights, rtol=0, atol=1e-4 * np.abs(weights).max())
    else:
        np.testing.assert_allclose(ours.weights, weights, rtol=0, atol=1e-4 * np.abs(weights).max())
    targets, _ = clouds(classes=classes, seed=1)
    assert (ours.predict(scale * targets) == theirs.predict(scale * targets)).mean() > 0.995


def test_at_its_usual_tolerance_predictions_agree() -> None:
    (x, labels), (targets, _) = clouds(2000, 20), clouds(2000, 20, seed=1)
    heard: list[float] = []
    ours = fit_linear_svm(x, labels, progress=heard.append).predict(targets)
    assert (ours == LinearSVC(dual=False).fit(x, labels).predict(targets)).mean() > 0.995
    assert heard == sorted(heard)
    assert heard[-1] == 1


def test_one_class_is_no_problem_to_solve() -> None:
    x, labels = clouds()
    with pytest.raises(ValueError, match="needs two classes"):
        fit_linear_svm(x, 0 * labels)
    assert accuracy((x, 0 * labels), (x, 0 * labels), kernel="linear", features="raw") == 1


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_votes_are_scikit_learns(classes: int) -> None:
    (x, labels), (targets, _) = clouds(classes=classes), clouds(classes=classes, seed=1)
    machine = SVC(decision_function_shape="ovo").fit(x, labels)
    np.testing.assert_array_equal(predict_by_votes(machine, targets), machine.predict(targets))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("features", ["raw", "standardised"])
def test_accuracy_is_scikit_learns(kernel: Kernel, features: Features) -> None:
    train, (targets, truth) = clouds(), clouds(seed=1)
    x, labels = train
    found = accuracy(train, (targets, truth), kernel=kernel, features=features)
    if features == "standardised":
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
    values, labels = labelled_frames(videos, names)
    assert len(values) == sum(map(len, videos))
    assert len(names) == len(set(labels.tolist())) == 8
    again, _ = labelled_frames(videos[2:], names), None
    assert {name for name, number in names.items() if number in again[1]} == {("jump", phase) for phase in range(4)}
