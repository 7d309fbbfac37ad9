from itertools import permutations

import numpy as np
import pytest
import torch

from inphase.align import dtw
from inphase.align.path import shortest_path
from inphase.evaluation.tasks import matching_errors
from inphase.evaluation.tasks.matching_errors import draw_pairs, match_pairs
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_every_ordered_pair_of_an_action_is_drawn_once() -> None:
    test = [*performances(3, action="jump"), *performances(4)]
    pairs = draw_pairs(test, pairs=None)
    expected = [(x.video.id, y.video.id) for x, y in permutations(test, 2) if x.video.action == y.video.action]
    assert sorted((x.video.id, y.video.id) for x, y in pairs) == sorted(expected)


def test_a_sample_of_pairs_is_seeded_and_holds_none_twice() -> None:
    test = performances(6)
    first, again, other = (draw_pairs(test, pairs=10, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert len({(x.video.id, y.video.id) for x, y in first}) == 10
    with pytest.raises(ValueError, match="at least 1"):
        draw_pairs(test, pairs=0)


def test_matches_are_those_of_one_pair_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching_errors, "CELLS", 3000)  # several batches, each padded
    test = noisy(performances(4), noise=0.4)
    for match in match_pairs(draw_pairs(test, pairs=None)):
        x, y = torch.from_numpy(match.x.values), torch.from_numpy(match.y.values)
        np.testing.assert_array_equal(match.frames["nearest"], torch.cdist(x, y).argmin(1).numpy())
        seconds = np.arange(len(x), dtype=np.float64), np.arange(len(y), dtype=np.float64)
        np.testing.assert_array_equal(match.frames["dtw"], dtw(x, y).time_map(*seconds))
        logits = (x @ y.T).double() / 0.1
        symmetric = -logits.log_softmax(1) - logits.log_softmax(0)
        path = shortest_path(symmetric).frame_map()
        assert np.abs(match.frames["contrastive"] - path).mean() < 0.02
        np.testing.assert_allclose(match.frames["linear"], np.arange(len(x)) * len(y) / len(x))


def test_a_row_gets_the_middle_of_what_the_path_meets() -> None:
    cost = np.ones((3, 4), np.float32)
    cost[0, 0] = cost[1, 1] = cost[1, 2] = cost[2, 3] = 0
    assert shortest_path(torch.from_numpy(cost)).frame_map().tolist() == [0, 1.5, 3]


def test_matches_count_the_frames_of_the_video_not_the_rows() -> None:
    values = np.eye(4, dtype=np.float32)
    x, y = embedded(values, first=3, length=10), embedded(values, name="b", first=5, length=20)
    (match,) = match_pairs([(x, y)])
    assert match.frames["nearest"].tolist() == [5, 6, 7, 8]
    assert match.frames["dtw"].tolist() == [5, 6, 7, 8]
    assert match.frames["linear"].tolist() == [6, 8, 10, 12]


def test_a_constant_embedding_is_not_matched_but_stretched() -> None:
    test = [*performances(2), *constant(performances(1, seed=5))]
    for match in match_pairs(draw_pairs(test, pairs=None)):
        looked = test[2] not in (match.x, match.y)
        assert set(match.frames) == ({"nearest", "dtw", "contrastive", "linear"} if looked else {"linear"})
