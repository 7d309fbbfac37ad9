import numpy as np
import pytest
from sklearn.svm import SVC

from inphase.evaluation.embedded import NotApplicableError
from inphase.evaluation.phase_classification import phase_classification
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_phases_that_are_points_are_told_apart_and_swapped_ones_are_all_wrong() -> None:
    phases = np.repeat(np.arange(3), 5)
    right = [embedded(np.eye(3, dtype=np.float32)[phases], name=name, phases=phases) for name in "ab"]
    wrong = [embedded(np.eye(3, dtype=np.float32)[(phases + 1) % 3], name="c", phases=phases)]
    assert set(phase_classification(right, right).values()) == {1.0}
    assert set(phase_classification(right, wrong).values()) == {0.0}


def test_the_numbers_are_those_of_scikit_learn_on_the_first_videos() -> None:
    videos = noisy([*performances(12, action="jump"), *performances(12, seed=7)], noise=0.4)
    train, test = videos[::2], videos[1::2]
    numbers = phase_classification(train, test, kernels=["rbf"], features=["raw"], fractions=[0.5, 1.0])
    scores = {}
    for action in ("jump", "throw"):
        known, asked = ([item for item in side if item.video.action == action] for side in (train, test))
        x, y = (np.concatenate([getattr(item, name) for item in known[:3]]) for name in ("values", "phases"))
        machine = SVC(decision_function_shape="ovo").fit(x, y)
        targets, truth = (np.concatenate([getattr(item, name) for item in asked]) for name in ("values", "phases"))
        scores[action] = machine.score(targets, truth)
    assert numbers["rbf/raw/0.5/jump"] == pytest.approx(scores["jump"])
    assert numbers["rbf/raw/0.5/per_action"] == pytest.approx(np.mean(list(scores.values())))
    assert list(numbers)[:2] == ["rbf/raw/0.5", "rbf/raw/1"]


def test_a_small_scale_hides_phases_from_a_raw_radial_kernel_only_where_it_is_not_its_own() -> None:
    # The information is in a coordinate a thousand times smaller than another, which is noise.
    rng = np.random.default_rng(0)
    videos = []
    for name in range(6):
        phases = np.repeat(np.arange(3), 20)
        values = np.stack([rng.normal(size=60), 1e-3 * (phases + 0.1 * rng.normal(size=60))], 1).astype(np.float32)
        videos.append(embedded(values, name=str(name), phases=phases))
    numbers = phase_classification(videos[:3], videos[3:], kernels=["rbf"], fractions=[1.0])
    assert numbers["rbf/raw/1"] < 0.5
    assert numbers["rbf/standardised/1"] > 0.9


def test_a_constant_embedding_is_undefined_not_the_largest_phase() -> None:
    videos = constant(performances(4))
    numbers = phase_classification(videos[:2], videos[2:])
    assert all(np.isnan(number) for number in numbers.values())


def test_progress_and_refusals() -> None:
    videos = performances(4)
    heard: list[tuple[str, float]] = []
    phase_classification(videos[:2], videos[2:], fractions=[1.0], progress=lambda *told: heard.append(told))
    assert [fraction for _, fraction in heard] == sorted(fraction for _, fraction in heard)
    assert heard[-1] == ("", 1.0)
    assert "rbf/standardised/1" in [what for what, _ in heard]
    with pytest.raises(NotApplicableError, match="none of 0 training videos"):
        phase_classification([], videos)
    with pytest.raises(ValueError, match="kernels must be some of linear, rbf"):
        phase_classification(videos, videos, kernels=["poly"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        phase_classification(videos, videos, fractions=[10])
