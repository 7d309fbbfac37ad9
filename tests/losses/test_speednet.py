"""SpeedNet: the clips it asks for, its score by hand, and that it learns."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from inphase.losses.loss import Sequences
from inphase.losses.speednet import SpeedNet
from tests.losses.groups import assert_descends, assert_padding_is_silent, curve, make_group, random_group


def test_clips_run_at_their_speeds_from_one_start() -> None:
    rng = np.random.default_rng(0)
    starts = set()
    for _ in range(50):
        normal, fast = SpeedNet().frames(100, count=20, rng=rng).reshape(2, 20)
        assert normal[0] == fast[0]
        assert fast[-1] < 100
        assert 19 - 1 <= normal[-1] - normal[0] <= 1.2 * 19 + 1
        assert 1.7 * 19 - 1 <= fast[-1] - fast[0] <= 2.2 * 19 + 1
        assert set(np.diff(normal)) <= {1, 2}
        assert set(np.diff(fast)) <= {1, 2, 3}
        starts.add(int(normal[0]))
    assert len(starts) > 20
    exact = SpeedNet(normal=(1, 1), fast=(2, 2)).frames(39, count=20, rng=rng).reshape(2, 20)
    assert exact.tolist() == [list(range(20)), list(range(0, 39, 2))]


@pytest.mark.parametrize("total", [1, 2, 5, 30, 41])
def test_short_videos_are_slowed_down(total: int) -> None:
    normal, fast = SpeedNet().frames(total, count=20, rng=np.random.default_rng(0)).reshape(2, 20)
    assert normal.min() >= 0
    assert fast.max() == total - 1 or total > 39
    assert fast.max() < total
    assert normal.max() <= fast.max()


def by_hand(values: list[float]) -> float:
    """Score a clip of numbers by differences: |v_t − v_(t−1)| averaged over time, less 1.5."""
    steps = [abs(b - a) for a, b in pairwise(values)]
    return sum(steps) / len(steps) - 1.5


def set_to_differences(criterion: SpeedNet) -> None:
    with torch.no_grad():
        criterion.motion.weight.copy_(torch.tensor([[[-1.0, 1.0]], [[1.0, -1.0]]]))
        nn.init.zeros_(criterion.motion.bias)  # type: ignore[arg-type]
        nn.init.ones_(criterion.score.weight)
        nn.init.constant_(criterion.score.bias, -1.5)


def test_score_by_hand() -> None:
    criterion = SpeedNet(dimension=1, hidden=2, width=2).double()
    set_to_differences(criterion)
    clips = [[0.0, 1.0, 3.0, 0.0, 2.0, 4.0], [5.0, 4.0, 0.0, 3.0]]
    scores = [(by_hand(clip[: len(clip) // 2]), by_hand(clip[len(clip) // 2 :])) for clip in clips]
    assert scores == [(0.0, 0.5), (-0.5, 1.5)]
    expected = np.mean([(math.log(1 + math.exp(n)) + math.log(1 + math.exp(-f))) / 2 for n, f in scores])
    group = make_group([torch.tensor(clip, dtype=torch.float64)[:, None] for clip in clips], filling=math.nan)
    terms = criterion(group)
    assert terms["loss"].item() == pytest.approx(expected)
    assert terms["accuracy"].item() == 1


def film(criterion: SpeedNet, *, videos: int = 12, swapped: bool = False) -> Sequences:
    rng = np.random.default_rng(0)
    clips = [torch.from_numpy(criterion.frames(100, count=10, rng=rng)) for _ in range(videos)]
    if swapped:
        clips = [clip.roll(10) for clip in clips]
    return make_group([curve(clip / 100) for clip in clips], frames=clips)


def test_it_learns_and_then_prefers_the_right_speeds() -> None:
    torch.manual_seed(0)
    criterion = SpeedNet(dimension=16)
    assert_descends(criterion, film(criterion), steps=120, rate=0.02)
    with torch.no_grad():
        good, bad = criterion(film(criterion)), criterion(film(criterion, swapped=True))
    assert good["accuracy"] > 0.9
    assert good["loss"] < bad["loss"]


def test_gradient_and_padding() -> None:
    assert_padding_is_silent(SpeedNet(dimension=4), [8, 10, 6])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"fast": (1.1, 2.0)}, "fast ones above normal ones"),
        ({"stride": 0}, "speeds must be positive"),
        ({"width": 1}, "width must be a whole number from 2"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpeedNet(**setting)


def test_what_it_cannot_score_is_refused() -> None:
    with pytest.raises(ValueError, match="a clip needs 3 frames for the head, got 2"):
        SpeedNet(dimension=4)(random_group([8, 4]))
    with pytest.raises(ValueError, match="embeddings of dimension 128, got 4"):
        SpeedNet()(random_group([8, 8]))
