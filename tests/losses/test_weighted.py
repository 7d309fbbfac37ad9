"""Weighted sums: which frames the methods share, and that each sees its own."""

from typing import Any

import numpy as np
import pytest
import torch

from inphase.losses import GTA, LAV, TCC, TCN, SpeedNet
from inphase.losses.loss import Weighted
from tests.losses.groups import (
    aligned_group,
    assert_descends,
    assert_padding_is_silent,
    make_group,
    random_group,
    shuffled,
)

SMALL: dict[str, Any] = {"settings": {"sal": {"dimension": 4}}}


def test_the_published_sum_shares_the_anchors() -> None:
    frames = Weighted().frames(100, count=20, rng=np.random.default_rng(0))
    anchors, positives = frames.reshape(2, 20)
    assert (np.diff(anchors) > 0).all()
    assert ((anchors - positives)[anchors >= 5] <= 5).all()
    assert Weighted().weights == {"tcc": 0.33, "sal": 0.33, "tcn": 0.34}


def test_plain_methods_share_all_frames_and_clips_are_added() -> None:
    rng = np.random.default_rng(0)
    assert Weighted(weights={"gta": 1, "lav": 1, "tcc": 1}).frames(100, count=20, rng=rng).shape == (20,)
    four = Weighted(weights={"speednet": 1, "gta": 1, "tcn": 1}).frames(200, count=20, rng=rng).reshape(4, 20)
    plain, normal, fast, positives = four
    assert (np.diff(plain) > 0).all()
    assert normal[0] == fast[0]
    assert ((plain - positives)[plain >= 5] > 0).all()
    assert Weighted(weights={"speednet": 1}).frames(100, count=20, rng=rng).shape == (40,)


@pytest.mark.parametrize("lengths", [[16, 16, 16], [24, 8, 16]])
def test_each_method_sees_its_own_blocks(lengths: list[int]) -> None:
    group = random_group(lengths)
    speednet: dict[str, Any] = {"dimension": 4, "width": 2}
    both = Weighted(
        weights={"gta": 0.5, "speednet": 2.0, "tcn": 3.0, "lav": 0.25},
        settings={"speednet": speednet, "gta": {"gamma": 0.2}},
    ).double()
    blocks = [
        [group.values[k, size // 4 * b : size // 4 * (b + 1)] for b in range(4)] for k, size in enumerate(lengths)
    ]
    numbers = [
        [group.frames[k, size // 4 * b : size // 4 * (b + 1)] for b in range(4)] for k, size in enumerate(lengths)
    ]

    def view(*chosen: int) -> Any:
        return make_group([torch.cat([part[b] for b in chosen]) for part in blocks],
                          frames=[torch.cat([part[b] for b in chosen]) for part in numbers],
                          totals=group.totals)  # fmt: skip

    alone = SpeedNet(**speednet).double()
    alone.load_state_dict(both.parts["speednet"].state_dict())
    expected = {
        "gta": GTA(gamma=0.2)(view(0)),
        "speednet": alone(view(1, 2)),
        "tcn": TCN()(view(0, 3)),
        "lav": LAV()(view(0)),
    }
    terms = both(group)
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value["loss"])
    torch.testing.assert_close(terms["gta.cycle"], expected["gta"]["cycle"])
    weights = {"gta": 0.5, "speednet": 2.0, "tcn": 3.0, "lav": 0.25}
    by_hand = sum(weight * expected[name]["loss"].item() for name, weight in weights.items())
    assert terms["loss"].item() == pytest.approx(by_hand)


def test_two_numbers_added() -> None:
    group = random_group([6, 6])
    expected = 0.3 * TCC(kind="mse")(group)["loss"].item() + 0.7 * LAV()(group)["loss"].item()
    both = Weighted(weights={"tcc": 0.3, "lav": 0.7}, settings={"tcc": {"kind": "mse"}})
    assert both(group)["loss"].item() == pytest.approx(expected)


def test_aligned_sequences_are_preferred() -> None:
    both = Weighted(weights={"gta": 1.0, "lav": 1.0})
    assert both(aligned_group())["loss"] < both(shuffled(aligned_group()))["loss"]


def test_padding_and_heads() -> None:
    assert_padding_is_silent(Weighted(**SMALL), [12, 10, 14])
    torch.manual_seed(0)
    both = Weighted(weights={"sal": 1.0}, settings={"sal": {"dimension": 4, "triplets": 64}})
    assert_descends(both, aligned_group(d=4), steps=150)
    assert len(list(both.parameters())) == 6


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"weights": {"gat": 1.0}}, "weights must name some of d3tw, gta, .*; got gat"),
        ({"weights": {"weighted": 1.0}}, "got weighted"),
        ({"weights": {}}, "got nothing"),
        ({"weights": {"gta": -1.0}}, "the weight of gta must be positive and finite, got -1"),
        ({"settings": {"gta": {}}}, "settings are given for gta, which are not in weights"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Weighted(**setting)
