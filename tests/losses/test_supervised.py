"""The supervised bound: both losses by hand, and that it learns."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from inphase.losses.loss import Sequences
from inphase.losses.supervised import Supervised
from tests.losses.groups import aligned_group, assert_descends, make_group, random_group, shuffled

NAN = float("nan")


def identity(kind: Any, *, unit: bool = True) -> Supervised:
    criterion = Supervised(kind=kind, outputs=2, dimension=2, unit=unit).double()
    with torch.no_grad():
        criterion.head.weight.copy_(torch.eye(2))
        criterion.head.bias.zero_()
    return criterion


def two_frames(**known: Any) -> Sequences:
    values = torch.tensor([[3.0, 0.0], [0.0, 2.0], [1.0, 0.0]], dtype=torch.float64)
    return make_group([values, values[:1]], filling=NAN, **known)


def test_phase_by_hand() -> None:
    group = two_frames(labels=torch.tensor([[0, 0, -1], [1, 1, 1]]))
    # Unit vectors are the logits: (1, 0) for 0, (0, 1) for 0; the third is unknown; (1, 0) for 1; the rest is padding.
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    terms = identity("phase")(group)
    assert terms["loss"].item() == pytest.approx((right + wrong + wrong) / 3)
    assert terms["accuracy"].item() == pytest.approx(1 / 3)
    raw = identity("phase", unit=False)(group)["loss"].item()
    assert raw == pytest.approx(
        (math.log(1 + math.exp(-3)) + math.log(1 + math.exp(2)) + math.log(1 + math.exp(3))) / 3
    )


def test_progress_by_hand() -> None:
    progress = torch.tensor([[[0.5, 0.0], [NAN, 0.5], [NAN, NAN]], [[1.0, 1.0], [9.0, 9.0], [9.0, 9.0]]])
    terms = identity("progress")(two_frames(progress=progress))
    # Off by ½ and 0, then ½ of one event, then 0 and 1.
    assert terms["loss"].item() == pytest.approx((0.25 + 0 + 0.25 + 0 + 1) / 5)
    assert terms["error"].item() == pytest.approx((0.5 + 0 + 0.5 + 0 + 1) / 5)


def labeled(group: Sequences) -> Sequences:
    moments = group.positions
    return replace(group, labels=(moments * 4).long(), progress=moments[:, :, None] - torch.tensor([0.3, 0.6]))


@pytest.mark.parametrize(("kind", "outputs"), [("phase", 4), ("progress", 2)])
def test_it_learns_and_then_prefers_frames_in_their_place(kind: Any, outputs: int) -> None:
    torch.manual_seed(0)
    criterion = Supervised(kind=kind, outputs=outputs, dimension=16)
    group = labeled(aligned_group())
    assert_descends(criterion, group, rate=0.05)
    with torch.no_grad():
        assert criterion(group)["loss"] < criterion(labeled(shuffled(group)))["loss"]


@pytest.mark.parametrize("kind", ["phase", "progress"])
def test_gradient_and_padding(kind: Any) -> None:
    gradients: list[torch.Tensor] = []
    criterion = Supervised(kind=kind, outputs=2, dimension=4).double()
    for filling in (0.0, NAN):
        group = random_group([5, 3], filling=filling)
        group.values.requires_grad_()
        known = replace(group, labels=torch.ones(2, 5).long(), progress=torch.ones(2, 5, 2))
        gradients += torch.autograd.grad(criterion(known)["loss"], [group.values, *criterion.parameters()])
    half = len(gradients) // 2
    torch.testing.assert_close(gradients[:half], gradients[half:])
    assert gradients[0].isfinite().all()
    assert gradients[0].any()
    assert not gradients[0][1, 3:].any()


def test_nothing_known_costs_nothing() -> None:
    group = replace(random_group([3, 3], d=2), labels=torch.full((2, 3), -1))
    assert identity("phase")(group)["loss"].item() == 0


def test_what_is_missing_is_named() -> None:
    group = random_group([3, 3], d=2)
    with pytest.raises(ValueError, match="learns from labels, and these sequences have none"):
        identity("phase")(group)
    with pytest.raises(ValueError, match="learns from event times, and these sequences have none"):
        identity("progress")(group)
    with pytest.raises(ValueError, match="the head predicts 2 events, the sequences have 3"):
        identity("progress")(replace(group, progress=torch.ones(2, 3, 3)))
    with pytest.raises(ValueError, match="embeddings of dimension 128, got 2"):
        Supervised()(group)
    with pytest.raises(ValueError, match="outputs must be a whole number from 1 to 65,536, got 0"):
        Supervised(outputs=0)
