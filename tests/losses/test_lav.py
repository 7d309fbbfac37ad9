"""LAV against a sum over all paths and a double loop."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.losses.lav import LAV
from tests import oracles
from tests.losses.groups import aligned_group, assert_padding_is_silent, make_group, random_group, shuffled
from tests.oracles import Grid


def contrast(x: Grid, frames: list[int], total: int) -> float:
    cost = 0.0
    for u, i in zip(x, frames, strict=True):
        for v, j in zip(x, frames, strict=True):
            distance, delta = float(((u - v) ** 2).sum()), (i - j) / total
            far = abs(delta) > 10 / total
            cost += (1 + delta**2) * max(0.0, 2 - distance) if far else distance
    return cost


def test_two_frames_in_numbers() -> None:
    # Unit vectors at a right angle: D = 2 within a sequence. 12 of 24 frames apart they are far enough: 0, then
    # in the other sequence, 4 frames apart, pulled together: 2 · 2 = 4.
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    group = make_group([x, x], frames=[torch.tensor([3, 15]), torch.tensor([3, 7])], totals=torch.tensor([24, 24]))
    assert LAV().contrast(group).tolist() == pytest.approx([0, 4])
    # Paths cost 0 (diagonal) and 2 (both corners): −γ log(1 + 2 e^(−2/γ)) = −0.1 · 2 e^−20.
    terms = LAV()(group)
    assert terms["align"].item() == pytest.approx(-0.1 * 2 * np.exp(-20) / 2, abs=1e-12)
    assert terms["loss"].item() == pytest.approx(0.5 * (0 + 4) / 2)
    same = make_group([x[:1].repeat(2, 1)] * 2, frames=[torch.tensor([3, 15])] * 2, totals=torch.tensor([24, 24]))
    assert LAV().contrast(same).tolist() == pytest.approx([2 * 1.25 * 2] * 2)  # (1 + ½²) · margin, both ways


@pytest.mark.parametrize("lengths", [[4, 4, 4], [5, 3, 4]])
@pytest.mark.parametrize(("pairs", "chosen"), [("anchor", [(0, 1), (0, 2)]), ("all", [(0, 1), (0, 2), (1, 2)])])
def test_by_hand(lengths: list[int], pairs: Any, chosen: list[tuple[int, int]]) -> None:
    drawn = random_group(lengths, d=3)
    frames = [7 * torch.arange(size) + 2 for size in lengths]
    parts = [drawn.values[k, :size] for k, size in enumerate(lengths)]
    group = make_group(parts, frames=frames, totals=torch.tensor([40, 50, 60]))
    units = [(part / part.norm(dim=1, keepdim=True)).numpy() for part in parts]
    within = [contrast(u, f.tolist(), t) for u, f, t in zip(units, frames, (40, 50, 60), strict=True)]
    expected = []
    for i, j in chosen:
        cost = ((units[i][:, None] - units[j][None]) ** 2).sum(2)
        total = oracles.soft_dtw(cost, 0.1) + 0.5 * (within[i] + within[j])
        expected.append(total / ((lengths[i] + lengths[j]) / 2))
    assert LAV(pairs=pairs)(group)["loss"].item() == pytest.approx(np.mean(expected))


def test_aligned_sequences_are_preferred() -> None:
    good, bad = LAV()(aligned_group()), LAV()(shuffled(aligned_group()))
    assert all(good[name] < bad[name] for name in ("loss", "align", "contrast"))


def test_a_collapse_is_not() -> None:
    group = aligned_group()
    collapsed = make_group(list(torch.ones_like(group.values)), frames=list(group.frames))
    assert LAV(weight=0)(collapsed)["loss"] < LAV(weight=0)(group)["loss"]
    assert LAV()(collapsed)["loss"] > LAV()(group)["loss"]


def test_gradient_and_padding() -> None:
    assert_padding_is_silent(LAV(window=2.0), [6, 3, 5])
    values = random_group([4, 4]).values.requires_grad_()

    def loss(values: Tensor) -> Tensor:
        return LAV(window=1.0)(make_group([values[0], values[1, :3]]))["loss"]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, values)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="margin must be positive and finite, got 0"):
        LAV(margin=0)
    with pytest.raises(ValueError, match="pairs must be one of 'anchor', 'all'; got 'each'"):
        LAV(pairs="each")  # type: ignore[arg-type]
