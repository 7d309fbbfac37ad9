import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from inphase.evaluation.embedded_videos import NotApplicableError
from inphase.evaluation.scores import value_of
from inphase.evaluation.tasks.phases import phase_progression
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_time_that_is_a_coordinate_is_read_off_and_noise_is_not() -> None:
    rng = np.random.default_rng(0)
    phases = np.repeat(np.arange(3), 10)
    times = (np.arange(30) / 30).astype(np.float32)
    right = [embedded(np.stack([times, 1 - times], 1), name=name, phases=phases) for name in "ab"]
    assert value_of(phase_progression(right, right), "r2") == pytest.approx(1)
    wrong = [embedded(rng.normal(size=(30, 2)).astype(np.float32), name=name, phases=phases) for name in "abcd"]
    assert value_of(phase_progression(wrong[:2], wrong[2:]), "r2") < 0.2


def test_the_numbers_are_those_of_scikit_learn() -> None:
    videos = noisy([*performances(6), *performances(4, action="jump", seed=4)])
    train, test = videos[::2], videos[1::2]
    means = []
    for action in ("throw", "jump"):
        found = []
        for phase in range(3):
            sides = []
            for side in (train, test):
                chosen = [item for item in side if item.video.action == action]
                ends = [max(np.flatnonzero(item.phases == phase)) for item in chosen]
                y = [(np.arange(len(item)) - end) / len(item) for item, end in zip(chosen, ends, strict=True)]
                sides.append((np.concatenate([item.values for item in chosen]), np.concatenate(y)))
            found.append(LinearRegression().fit(*sides[0]).score(*sides[1]))
        means.append(np.mean(found))
    scores = phase_progression(train, test)
    assert value_of(scores, "r2", action="throw") == pytest.approx(means[0], abs=1e-5)
    assert value_of(scores, "r2") == pytest.approx(np.mean(means), abs=1e-5)


def test_a_constant_embedding_is_undefined_and_missing_phases_not_applicable() -> None:
    videos = performances(4)
    assert np.isnan(value_of(phase_progression(constant(videos[:2]), constant(videos[2:])), "r2"))
    with pytest.raises(NotApplicableError, match="training videos has phases"):
        phase_progression([], videos)
    single = [embedded(item.values, phases=np.zeros(len(item), np.int64)) for item in videos]
    with pytest.raises(NotApplicableError, match="two phases"):
        phase_progression(single, single)
