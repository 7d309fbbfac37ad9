import numpy as np
import pytest

from inphase.evaluation.scores import value_of
from inphase.evaluation.tasks.matching_errors import cycle_error
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_frames_return_to_themselves_where_neighbors_are_mutual() -> None:
    values = np.eye(5, dtype=np.float32)
    test = [embedded(values), embedded(values[::-1].copy(), name="b")]
    found = {score.metric: score.value for score in cycle_error([], test)}
    assert found == {"missed": 0, "frames": 0, "fraction": 0}


def test_a_known_miss() -> None:
    x = np.eye(4, dtype=np.float32)
    y = x[:3].copy()
    y[0, 3] = 0.5  # the fourth goes there, and returns to the first
    scores = cycle_error([], [embedded(x), embedded(y, name="b")])
    assert value_of(scores, "missed") == pytest.approx((1 / 4 + 0) / 2)
    assert value_of(scores, "frames") == pytest.approx((3 / 4 + 0) / 2)
    assert value_of(scores, "fraction") == pytest.approx((3 / 16 + 0) / 2)


def test_the_numbers_are_those_of_a_literal_loop() -> None:
    test = noisy(performances(4), noise=0.6)
    missed, gaps = [], []
    for x in test:
        for y in test:
            if x is not y:
                there = [int(np.square(y.values - row).sum(1).argmin()) for row in x.values]
                back = [int(np.square(x.values - y.values[j]).sum(1).argmin()) for j in there]
                missed.append(np.mean([i != k for i, k in enumerate(back)]))
                gaps.append(np.mean([abs(i - k) for i, k in enumerate(back)]))
    scores = cycle_error([], test)
    assert value_of(scores, "missed") == pytest.approx(np.mean(missed))
    assert value_of(scores, "frames") == pytest.approx(np.mean(gaps))


def test_a_constant_embedding_is_undefined() -> None:
    assert all(np.isnan(score.value) for score in cycle_error([], constant(performances(3))))
