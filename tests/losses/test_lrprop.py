"""LRProp against the path that DTW traces and a double loop."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.align import shortest_path
from inphase.losses.lav import LAV
from inphase.losses.lrprop import LRProp
from tests.losses.groups import aligned_group, assert_padding_is_silent, make_group, random_group, shuffled


def test_two_frames_in_numbers() -> None:
    # The path of unit vectors at right angles is the diagonal. Frames 0 and 4, σ² = 8: targets (0.7311, 0.2689).
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    group = make_group([x, x], frames=[torch.tensor([0, 4])] * 2)
    share = 1 / (1 + np.exp(-1))
    guess = np.log([1 / (1 + np.exp(-10)), 1 / (1 + np.exp(10))])
    expected = share * (np.log(share) - guess[0]) + (1 - share) * (np.log(1 - share) - guess[1])
    assert LRProp(variance=8.0)(group)["divergence"].item() == pytest.approx(expected)


@pytest.mark.parametrize(("pairs", "chosen"), [("anchor", [(0, 1), (0, 2)]), ("all", [(0, 1), (0, 2), (1, 2)])])
def test_by_hand(pairs: Any, chosen: list[tuple[int, int]]) -> None:
    lengths = [5, 3, 4]
    drawn = random_group(lengths, d=3)
    frames = [7 * torch.arange(size) + 2 for size in lengths]
    parts = [drawn.values[k, :size] for k, size in enumerate(lengths)]
    group = make_group(parts, frames=frames)
    units = [(part / part.norm(dim=1, keepdim=True)).numpy() for part in parts]
    expected = []
    for i, j in chosen:
        cost = ((units[i][:, None] - units[j][None]) ** 2).sum(2)
        path = shortest_path(torch.from_numpy(cost)).path
        ways = []
        for a, b, steps in ((i, j, path), (j, i, path[:, ::-1])):
            rows = []
            for k in range(len(units[a])):
                matched = [float(frames[b][column]) for row, column in steps if row == k]
                aims = np.exp(-((frames[b].numpy() - np.mean(matched)) ** 2) / 20)
                logits = units[b] @ units[a][k] / 0.1
                aims, guess = aims / aims.sum(), np.exp(logits) / np.exp(logits).sum()
                rows.append((aims * np.log(aims / guess)).sum())
            ways.append(np.mean(rows))
        expected.append(np.mean(ways))
    terms = LRProp(pairs=pairs, align_weight=0.5)(group)
    assert terms["divergence"].item() == pytest.approx(np.mean(expected))
    assert terms["align"].item() == pytest.approx(LAV(pairs=pairs)(group)["loss"].item())
    assert terms["loss"].item() == pytest.approx(np.mean(expected) + 0.5 * terms["align"].item())


def test_aligned_sequences_are_preferred() -> None:
    good, bad = LRProp()(aligned_group()), LRProp()(shuffled(aligned_group()))
    assert all(good[name] < bad[name] for name in ("loss", "divergence", "align"))


def test_gradient_and_padding() -> None:
    assert_padding_is_silent(LRProp(), [6, 3, 5])
    values = random_group([4, 4]).values.requires_grad_()

    def loss(values: Tensor) -> Tensor:
        return LRProp()(make_group([values[0], values[1, :3]]))["loss"]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, values)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="variance must be positive and finite, got 0"):
        LRProp(variance=0)
