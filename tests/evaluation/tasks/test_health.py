import numpy as np
import pytest

from inphase.evaluation.scores import value_of
from inphase.evaluation.tasks.unlabeled import health
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_orthogonal_frames_fill_their_space() -> None:
    values = np.concatenate([np.eye(8, dtype=np.float32), -np.eye(8, dtype=np.float32)])
    scores = health([], [embedded(values)])
    assert value_of(scores, "mean_cosine") == pytest.approx(-1 / 15)
    assert value_of(scores, "variance") == pytest.approx(1)
    assert value_of(scores, "effective_rank") == pytest.approx(8)
    assert value_of(scores, "within_videos") == pytest.approx(1)


def test_a_line_has_rank_one_and_a_point_for_each_video_no_variance_within() -> None:
    pole = np.tile(np.array([1, 0, 0], np.float32), (5, 1))
    scores = health([], [embedded(pole), embedded(-pole, name="b")])
    assert value_of(scores, "effective_rank") == pytest.approx(1)
    assert value_of(scores, "within_videos") == pytest.approx(0)


def test_a_constant_embedding_has_no_rank() -> None:
    scores = health([], constant(performances(2)))
    assert value_of(scores, "mean_cosine") == pytest.approx(1)
    assert value_of(scores, "variance") == pytest.approx(0)
    assert np.isnan(value_of(scores, "effective_rank"))
    assert np.isnan(value_of(scores, "within_videos"))


def test_the_numbers_are_those_of_their_definitions() -> None:
    test = noisy(performances(3), noise=0.5)
    values = np.concatenate([item.values for item in test]).astype(np.float64)
    cosines = values @ values.T
    off = cosines[~np.eye(len(values), dtype=bool)]
    singular = np.linalg.svd(values - values.mean(0), compute_uv=False)
    share = singular / singular.sum()
    scores = health([], test)
    assert value_of(scores, "mean_cosine") == pytest.approx(off.mean())
    assert value_of(scores, "variance") == pytest.approx(values.var(0).sum())
    assert value_of(scores, "effective_rank") == pytest.approx(np.exp(-(share * np.log(share)).sum()))
    within = sum(np.square(item.values - item.values.mean(0)).sum() for item in test)
    assert value_of(scores, "within_videos") == pytest.approx(within / (values.var(0).sum() * len(values)), rel=1e-5)
