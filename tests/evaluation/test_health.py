import numpy as np
import pytest

from inphase.evaluation.health import health
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_orthogonal_frames_fill_their_space() -> None:
    values = np.concatenate([np.eye(8, dtype=np.float32), -np.eye(8, dtype=np.float32)])
    numbers = health([], [embedded(values)])
    assert numbers["mean_cosine"] == pytest.approx(-1 / 15)
    assert numbers["variance"] == pytest.approx(1)
    assert numbers["effective_rank"] == pytest.approx(8)
    assert numbers["within_videos"] == pytest.approx(1)


def test_a_line_has_rank_one_and_a_point_for_each_video_no_variance_within() -> None:
    pole = np.tile(np.array([1, 0, 0], np.float32), (5, 1))
    numbers = health([], [embedded(pole), embedded(-pole, name="b")])
    assert numbers["effective_rank"] == pytest.approx(1)
    assert numbers["within_videos"] == pytest.approx(0)


def test_a_constant_embedding_has_no_rank() -> None:
    numbers = health([], constant(performances(2)))
    assert numbers["mean_cosine"] == pytest.approx(1)
    assert numbers["variance"] == pytest.approx(0)
    assert np.isnan(numbers["effective_rank"])
    assert np.isnan(numbers["within_videos"])


def test_the_numbers_are_those_of_their_definitions() -> None:
    test = noisy(performances(3), noise=0.5)
    values = np.concatenate([item.values for item in test]).astype(np.float64)
    cosines = values @ values.T
    off = cosines[~np.eye(len(values), dtype=bool)]
    singular = np.linalg.svd(values - values.mean(0), compute_uv=False)
    share = singular / singular.sum()
    numbers = health([], test)
    assert numbers["mean_cosine"] == pytest.approx(off.mean())
    assert numbers["variance"] == pytest.approx(values.var(0).sum())
    assert numbers["effective_rank"] == pytest.approx(np.exp(-(share * np.log(share)).sum()))
    within = sum(np.square(item.values - item.values.mean(0)).sum() for item in test)
    assert numbers["within_videos"] == pytest.approx(within / (values.var(0).sum() * len(values)), rel=1e-5)
