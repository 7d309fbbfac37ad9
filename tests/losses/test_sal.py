"""SaL: which triplets it draws, what its head makes of them, and that it learns."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from inphase.losses.sal import SaL
from tests.losses.groups import (
    aligned_group,
    assert_descends,
    assert_padding_is_silent,
    make_group,
    random_group,
    shuffled,
)


def test_triplets_are_in_order_where_they_say_so() -> None:
    torch.manual_seed(0)
    criterion = SaL(triplets=200)
    ways = set()
    for _ in range(6):
        videos, steps, labels = criterion.choose(torch.tensor([20, 4, 5]))
        assert set(videos.tolist()) == {0, 2}  # four frames are too few
        assert labels.sum().item() == 300
        assert (steps < torch.tensor([20, 4, 5])[videos][:, None]).all()
        assert (steps >= 0).all()
        first, middle, last = steps.T
        between = ((first < middle) & (middle < last)) | ((first > middle) & (middle > last))
        assert torch.equal(between, labels == 0)
        backwards = first > last
        assert backwards.all() or not backwards.any()
        ways |= {(bool(backwards[0]), bool(m > max(f, w))) for f, m, w in steps[labels == 1].tolist()}
        of_five = {tuple(sorted(triple)) for triple in steps[videos == 2].tolist()}
        assert of_five == {(1, 2, 3), (0, 1, 3), (1, 3, 4)}
    assert ways == {(True, True), (True, False), (False, True), (False, False)}


def test_the_share_of_shuffled_is_exact() -> None:
    assert SaL().choose(torch.tensor([20, 20]))[2].sum().item() == 12  # ¾ of 2 · 8
    assert SaL(fraction=0.5, triplets=3).choose(torch.tensor([5]))[2].sum().item() == 1  # ⌊1.5⌋


class Order(nn.Module):
    """Score three numbers by whether they rise or fall throughout: logits (2, 0) or (0, 1)."""

    def forward(self, values: Tensor) -> Tensor:
        rises = (values[:, 1] - values[:, 0]) * (values[:, 2] - values[:, 1]) > 0
        return torch.where(rises[:, None], torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0]))


def test_loss_by_hand() -> None:
    criterion = SaL(dimension=1)
    criterion.head = nn.Sequential(Order())
    group = make_group([torch.arange(20.0)[:, None], torch.arange(20.0)[:, None] ** 2])
    # 4 of 16 in order, each −log softmax(2, 0)[0]; 12 shuffled, each −log softmax(0, 1)[1].
    expected = (4 * math.log(1 + math.exp(-2)) + 12 * math.log(1 + math.exp(-1))) / 16
    terms = criterion(group)
    assert terms["loss"].item() == pytest.approx(expected)
    assert terms["accuracy"].item() == 1


def test_the_head_is_the_published_one() -> None:
    shapes = [tuple(p.shape) for p in SaL().parameters()]
    assert shapes == [(128, 384), (128,), (64, 128), (64,), (2, 64), (2,)]


def test_ordered_sequences_are_preferred_once_it_has_learned() -> None:
    group = aligned_group(d=4)
    torch.manual_seed(0)
    criterion = SaL(dimension=4, triplets=64)
    assert_descends(criterion, group, steps=150)
    with torch.no_grad():
        good = criterion(group)
        bad = criterion(shuffled(group))
    assert good["accuracy"] > 0.9
    assert good["loss"] < bad["loss"]


def test_gradient_and_padding() -> None:
    assert_padding_is_silent(SaL(dimension=4), [6, 9, 3])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"triplets": 0}, "triplets must be a whole number from 1 to 10,000, got 0"),
        ({"fraction": 2}, "need 0 ≤ fraction ≤ 1, got 2"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SaL(**setting)


def test_what_it_cannot_score_is_refused() -> None:
    with pytest.raises(ValueError, match=r"five frames at least, got \[4, 3\]"):
        SaL(dimension=4)(random_group([4, 3]))
    with pytest.raises(ValueError, match="embeddings of dimension 128, got 4"):
        SaL()(random_group([6, 6]))
