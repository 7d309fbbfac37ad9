"""SCL against a double loop over the frames of two views."""

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.losses.scl import SCL
from tests.losses.groups import assert_padding_is_silent, curve, make_group


def test_two_frames_in_numbers() -> None:
    # Views at frames 0 and 4 of unit vectors at right angles: the logits are 10 on the diagonal and 0 elsewhere. With
    # σ² = 8 the target of a frame is softmax(0, −1) = (0.7311, 0.2689).
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    group = make_group([torch.cat([x, x])], frames=[torch.tensor([0, 4, 0, 4])])
    share = 1 / (1 + np.exp(-1))
    guess = np.log([1 / (1 + np.exp(-10)), 1 / (1 + np.exp(10))])
    expected = share * (np.log(share) - guess[0]) + (1 - share) * (np.log(1 - share) - guess[1])
    terms = SCL(variance=8.0, hidden=0, dimension=2)(group)
    assert terms["loss"].item() == pytest.approx(expected)
    assert terms["error"].item() == pytest.approx(4 / (1 + np.exp(10)))


def test_double_loop() -> None:
    torch.manual_seed(0)
    values = [torch.randn(2 * size, 3, dtype=torch.float64) for size in (4, 3)]
    frames = [torch.tensor([0, 3, 5, 9, 1, 2, 6, 8]), torch.tensor([2, 4, 7, 0, 3, 9])]
    group = make_group(values, frames=frames)
    losses = []
    for value, frame in zip(values, frames, strict=True):
        unit, half = (value / value.norm(dim=1, keepdim=True)).numpy(), len(value) // 2
        rows = []
        for one, other in ((range(half), range(half, 2 * half)), (range(half, 2 * half), range(half))):
            for i in one:
                aims = np.array([np.exp(-((int(frame[i]) - int(frame[j])) ** 2) / 20) for j in other])
                logits = np.array([unit[i] @ unit[j] / 0.1 for j in other])
                guess = np.exp(logits) / np.exp(logits).sum()
                aims /= aims.sum()
                rows.append((aims * np.log(aims / guess)).sum())
        losses.append(np.mean(rows))
    assert SCL(hidden=0, dimension=3)(group)["loss"].item() == pytest.approx(np.mean(losses))


def test_matching_views_are_preferred() -> None:
    frames = torch.arange(0, 60, 3)
    moments = curve(frames / 60)
    good = make_group(
        [torch.cat([moments, moments])] * 2, frames=[torch.cat([frames, frames])] * 2, totals=torch.tensor([60, 60])
    )
    bad = make_group(
        [torch.cat([moments, moments.flip(0)])] * 2,
        frames=[torch.cat([frames, frames])] * 2,
        totals=torch.tensor([60, 60]),
    )
    criterion = SCL(hidden=0, dimension=16)
    assert criterion(good)["loss"] < criterion(bad)["loss"]
    assert criterion(good)["error"] < criterion(bad)["error"]


def test_the_second_view_is_a_part_of_the_video() -> None:
    rng = np.random.default_rng(0)
    spans = []
    for _ in range(200):
        first, second = np.split(SCL(crop=0.5).frames(100, count=20, rng=rng), 2)
        assert len(first) == len(second) == 20
        assert (np.diff(second) > 0).all()
        spans.append(np.ptp(second))
    assert min(spans) < 60 < max(spans)
    assert max(spans) <= 99


def test_gradient_and_padding() -> None:
    assert_padding_is_silent(SCL(hidden=0, dimension=4), [6, 4, 8])
    torch.manual_seed(0)
    values = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    criterion = SCL(hidden=4, dimension=3).double()

    def loss(values: Tensor) -> Tensor:
        return criterion(make_group([values[0], values[1]]))["loss"]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, values)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="crop must be above 0 and at most 1"):
        SCL(crop=0)
    with pytest.raises(ValueError, match="the projection takes dimension 128, got 3"):
        SCL()(make_group([torch.randn(4, 3)] * 2))
