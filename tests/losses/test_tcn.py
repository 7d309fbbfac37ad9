"""TCN against scalars, and the frames it asks for."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.losses.tcn import TCN
from tests.losses.groups import assert_padding_is_silent, curve, make_group, random_group

kinds = pytest.mark.parametrize("kind", ["n-pairs", "triplet"])


def by_hand(a: list[list[float]], p: list[list[float]]) -> float:
    def dot(u: list[float], v: list[float]) -> float:
        return sum(x * y for x, y in zip(u, v, strict=True))

    # TCC's released code: the softmax of an earlier frame runs over the later ones, which are drawn.
    entropy = [
        math.log(sum(math.exp(dot(earlier, later)) for later in a)) - dot(earlier, a[i]) for i, earlier in enumerate(p)
    ]
    size = sum(dot(u, u) + dot(v, v) for u, v in zip(a, p, strict=True)) / len(a)
    return sum(entropy) / len(a) + 0.25 * 0.002 * size


def test_n_pairs_by_hand() -> None:
    a, p = [[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [0.0, 1.0]]
    # p·a is [[1, 2], [0, 2]], ‖a‖² are 1 and 4, ‖p‖² are 2 and 1.
    expected = (math.log(1 + math.exp(1)) + math.log(1 + math.exp(-2))) / 2 + 0.25 * 0.002 * (2.5 + 1.5)
    terms = TCN()(make_group([torch.tensor(a + p, dtype=torch.float64)]))
    assert terms["loss"].item() == pytest.approx(expected) == pytest.approx(by_hand(a, p))
    assert terms["size"].item() == pytest.approx(4)


def test_videos_of_unequal_length_are_averaged() -> None:
    group = random_group([8, 4, 2], d=3)
    parts = [group.values[k, :size].tolist() for k, size in enumerate((8, 4, 2))]
    expected = np.mean([by_hand(part[: len(part) // 2], part[len(part) // 2 :]) for part in parts])
    assert TCN()(group)["loss"].item() == pytest.approx(expected)


def test_triplets_by_hand() -> None:
    # Anchors 0, 1 and 3 at frames 0, 20 and 28; positives 0.5 before each. Frames 20 and 28 are too close to compare.
    values = torch.tensor([0.0, 1.0, 3.0, -0.5, 0.5, 2.5], dtype=torch.float64)[:, None]
    group = make_group([values], frames=[torch.tensor([0, 20, 28, 0, 18, 22])], totals=torch.tensor([30]))
    # 0.25 + 2 − {1, 9, 1, 9} of (0, 20), (0, 28), (20, 0), (28, 0), not below 0
    assert TCN(kind="triplet", margin=2.0)(group)["loss"].item() == pytest.approx((1.25 + 0 + 1.25 + 0) / 4)


def test_no_negative_costs_nothing() -> None:
    assert TCN(kind="triplet")(random_group([4, 4]))["loss"].item() == 0


def test_frames_are_anchors_and_what_comes_before_them() -> None:
    rng = np.random.default_rng(0)
    offsets = set()
    for _ in range(50):
        anchors, positives = TCN().frames(90, count=20, rng=rng).reshape(2, 20)
        assert (np.diff(anchors) > 0).all()
        assert (positives >= 0).all()
        offsets |= set((anchors - positives)[anchors >= 5])
    assert offsets == {1, 2, 3, 4, 5}
    assert TCN().frames(3, count=5, rng=rng).shape == (10,)


def film(anchors: Tensor, positives: Tensor) -> Any:
    frames = torch.cat([anchors, positives])
    return make_group([4 * curve(frames / 100)] * 2, frames=[frames] * 2, totals=torch.tensor([100, 100]))


@kinds
def test_neighbors_are_preferred(kind: Any) -> None:
    anchors = torch.arange(4, 100, 5)
    good = TCN(kind=kind)(film(anchors, anchors - 2))
    bad = TCN(kind=kind)(film(anchors, (anchors + 40) % 100))
    assert good["loss"] < bad["loss"]


@kinds
def test_gradient_and_padding(kind: Any) -> None:
    criterion = TCN(kind=kind, window=1, margin=30.0)
    assert_padding_is_silent(criterion, [8, 6, 10])
    values = random_group([8, 8]).values.requires_grad_()

    def loss(values: Tensor) -> Tensor:
        return criterion(make_group([values[0], values[1, :6]]))["loss"]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, values)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"kind": "pairs"}, "kind must be one of 'n-pairs', 'triplet'; got 'pairs'"),
        ({"window": 0}, "window must be at least one frame, got 0"),
        ({"tau": 0}, "tau must be positive and finite, got 0"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TCN(**setting)


def test_an_odd_number_of_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="multiples of 2"):
        TCN()(random_group([4, 3]))
