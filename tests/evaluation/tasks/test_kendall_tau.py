from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import kendalltau

from inphase.evaluation.embedded_videos import NotApplicableError, controls
from inphase.evaluation.neighbors_numba import _on_device, tau_b
from inphase.evaluation.scores import value_of
from inphase.evaluation.tasks.unlabeled import SETTINGS, Distance, kendall_tau, pairwise_tau
from inphase.media.sampling import Context
from inphase.models import Embedding
from tests.evaluation.embeddings import constant, curve, embedded, noisy, performances


def literal(videos: list[NDArray[np.float32]], *, distance: str = "sqeuclidean") -> NDArray[np.float64]:
    """Do it as the released script does: a loop over pairs."""
    found = []
    for x, y in permutations(videos, 2):
        nearest = cdist(x, y, distance).argmin(1)
        with np.errstate(all="ignore"):
            found.append(kendalltau(np.arange(len(x)), nearest).correlation if len(x) > 1 else np.nan)
    return np.array(found)


def test_a_perfect_embedding_scores_one_and_a_reversed_one_minus_one() -> None:
    videos = performances(2)
    scores = kendall_tau([], videos, stride=1)
    assert value_of(scores, "tau") > 0.97
    same = [videos[0], replace(videos[0], video=replace(videos[0].video, id="again"))]
    assert value_of(kendall_tau([], same, stride=1), "tau") == 1
    back = replace(same[1], embedding=Embedding(same[1].values[::-1].copy(), same[1].embedding.times))
    assert value_of(kendall_tau([], [same[0], back], stride=1), "tau") == -1


def test_a_constant_embedding_is_undefined() -> None:
    scores = kendall_tau([], constant(performances(3)))
    assert np.isnan(value_of(scores, "tau"))
    assert np.isnan(value_of(scores, "tau", action="throw"))
    assert value_of(scores, "undefined_pairs") == 1


@pytest.mark.parametrize("distance", ["squared_euclidean", "cosine"])
def test_the_numbers_are_those_of_a_loop_over_scipy(distance: Distance) -> None:
    rng = np.random.default_rng(0)
    # Unequal lengths, one of a single frame, lengths other than 1, frames that repeat, and a constant video.
    videos = [rng.normal(size=(size, 5)).astype(np.float32) for size in (1, 2, 13, 30, 31)]
    videos += [np.repeat(video, 3, axis=0) for video in videos[2:]]
    videos += [np.tile(videos[0], (7, 1)), videos[3]]
    expected = literal(videos, distance={"squared_euclidean": "sqeuclidean"}.get(distance, distance))
    np.testing.assert_allclose(pairwise_tau(videos, distance=distance), expected, rtol=0, atol=1e-12, equal_nan=True)


@given(st.integers(0, 10_000))
def test_ties_are_broken_as_in_a_loop(seed: int) -> None:
    # A grid of few points: most frames have several nearest neighbors, exactly as far.
    rng = np.random.default_rng(seed)
    videos = [rng.integers(0, 3, (rng.integers(2, 12), 2)).astype(np.float32) for _ in range(4)]
    np.testing.assert_allclose(pairwise_tau(videos), literal(videos), rtol=0, atol=1e-12, equal_nan=True)


def test_a_tiny_spread_far_from_the_origin_loses_no_neighbor() -> None:
    rng = np.random.default_rng(0)
    videos = [(np.array([0.6, 0.8, 0]) + 1e-5 * rng.normal(size=(40, 3))).astype(np.float32) for _ in range(4)]
    np.testing.assert_allclose(pairwise_tau(videos), literal(videos), rtol=0, atol=1e-12)


def test_other_devices_find_the_same_neighbors(device: torch.device) -> None:
    videos = [item.values for item in noisy(performances(4))]
    videos.append(np.repeat(videos[0], 2, axis=0))
    np.testing.assert_array_equal(pairwise_tau(videos, device=device), pairwise_tau(videos))
    # What runs there, run here.
    pool = torch.from_numpy(np.concatenate(videos).astype(np.float64))
    sizes = [len(video) for video in videos]
    taus = np.stack([tau_b(found, np.array(sizes)) for found in _on_device(pool - pool.mean(0), sizes)])
    np.testing.assert_array_equal(taus[~np.eye(len(videos), dtype=bool)], pairwise_tau(videos))


def test_strides_are_those_of_the_published_configurations() -> None:
    strides = {name: setting["stride"] for name, setting in SETTINGS.items()}
    assert strides == {"released": 5, "tcc": 5, "tcc_pouring": 2, "carl": 2, "carl_pouring": 5, "every_frame": 1}


def test_the_mean_is_over_actions_whatever_their_size() -> None:
    test = noisy([*performances(2, action="jump"), *performances(5, action="throw", seed=1)], noise=0.4)
    scores = kendall_tau([], test, setting="carl")
    expected = {
        action: literal([item.values[::2] for item in test if item.video.action == action]).mean()
        for action in ("jump", "throw")
    }
    assert value_of(scores, "tau", action="jump") == pytest.approx(expected["jump"], abs=1e-12)
    assert value_of(scores, "tau") == pytest.approx((expected["jump"] + expected["throw"]) / 2, abs=1e-12)


def test_frames_with_a_whole_context_are_sought_among_all_frames() -> None:
    videos = [replace(item, context=Context((-6, 0, 4))) for item in noisy(performances(3))]
    expected = []
    for x, y in permutations(videos, 2):
        nearest = cdist(x.values[::2], y.values[::2]).argmin(1)[~x.clamped[::2]]
        expected.append(kendalltau(np.arange(len(nearest)), nearest).correlation)
    scores = kendall_tau([], videos, stride=2)
    assert value_of(scores, "tau_unclamped_queries") == pytest.approx(np.mean(expected), abs=1e-12)
    assert value_of(scores, "tau_unclamped_queries") != pytest.approx(value_of(scores, "tau_unclamped"), abs=1e-3)


def test_clamped_frames_are_left_out_of_nc() -> None:
    context = Context((-10, 0))
    rng = np.random.default_rng(0)
    test = []
    for name in "abc":
        values = rng.normal(size=(40, 3)).astype(np.float32)
        values[:10] = 0  # where the context is clamped there is order, elsewhere noise
        values[:10, 0] = 10 + np.arange(10)
        test.append(embedded(values, name=name, context=context))
    scores = kendall_tau([], test, stride=1)
    assert value_of(scores, "tau_unclamped") == pytest.approx(
        literal([item.values[10:] for item in test]).mean(), abs=1e-12
    )
    assert value_of(scores, "tau") > value_of(scores, "tau_unclamped") + 0.2


def test_position_alone_scores_nearly_one_and_clamping_something() -> None:
    test = [embedded(curve(np.zeros(size)), name=str(size), context=Context((-15, 0))) for size in (60, 75, 90, 100)]
    position, clamping = (value_of(kendall_tau([], found), "tau") for found in controls(test).values())
    assert position > 0.98
    assert 0.3 < clamping < 0.9
    alone = [replace(item, context=Context((0,))) for item in test]
    assert np.isnan(value_of(kendall_tau([], controls(alone)["clamped only"]), "tau"))


def test_wrong_options_and_lonely_videos_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one of released, tcc"):
        kendall_tau([], performances(2), setting="best")
    with pytest.raises(ValueError, match="stride ≥ 1"):
        kendall_tau([], performances(2), stride=0)
    with pytest.raises(NotApplicableError, match="no action has two videos among 1"):
        kendall_tau([], performances(1))
