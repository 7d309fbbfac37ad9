"""SoftDTW against a sum over all paths."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.losses.soft_dtw import SoftDTW
from tests import oracles
from tests.losses.groups import aligned_group, assert_padding_is_silent, make_group, random_group, shuffled

costs = pytest.mark.parametrize("cost", ["squared_euclidean", "cosine", "contrastive"])


def test_two_frames_in_numbers() -> None:
    x, y = torch.tensor([[0.0], [1.0]], dtype=torch.float64), torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    # Costs [[0, 4], [1, 1]]: the diagonal path costs 1, over the corners (0, 1) and (1, 0) it is 5 and 2.
    expected = -0.5 * math.log(math.exp(-1 / 0.5) + math.exp(-5 / 0.5) + math.exp(-2 / 0.5))
    assert SoftDTW(gamma=0.5)(make_group([x, y]))["loss"].item() == pytest.approx(expected)


@pytest.mark.parametrize("lengths", [[4, 4, 4], [5, 2, 3]])
@pytest.mark.parametrize(("pairs", "chosen"), [("anchor", [(0, 1), (0, 2)]), ("all", [(0, 1), (0, 2), (1, 2)])])
def test_all_paths(lengths: list[int], pairs: Any, chosen: list[tuple[int, int]]) -> None:
    group = random_group(lengths)
    parts = [group.values[k, :size].numpy() for k, size in enumerate(lengths)]
    grids = [((parts[i][:, None] - parts[j][None]) ** 2).sum(2) for i, j in chosen]
    expected = np.mean([oracles.soft_dtw(grid, 0.1) for grid in grids])
    assert SoftDTW(pairs=pairs)(group)["loss"].item() == pytest.approx(expected)


@costs
def test_aligned_sequences_are_preferred(cost: Any) -> None:
    assert SoftDTW(cost=cost)(aligned_group())["loss"] < SoftDTW(cost=cost)(shuffled(aligned_group()))["loss"]


def test_only_the_contrastive_cost_dislikes_a_collapse() -> None:
    group = aligned_group()
    collapsed = make_group(list(torch.ones_like(group.values)))
    assert SoftDTW()(collapsed)["loss"] < SoftDTW()(group)["loss"]
    assert SoftDTW(cost="contrastive")(collapsed)["loss"] > SoftDTW(cost="contrastive")(group)["loss"]


@costs
def test_gradient_and_padding(cost: Any) -> None:
    assert_padding_is_silent(SoftDTW(cost=cost), [5, 2, 4])
    values = random_group([4, 4]).values.requires_grad_()

    def loss(values: Tensor) -> Tensor:
        return SoftDTW(cost=cost)(make_group([values[0], values[1, :3]]))["loss"]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, values)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="cost must be one of 'contrastive', 'cosine', 'squared_euclidean'; got 'l1'"):
        SoftDTW(cost="l1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gamma must be at least 0 and finite, got -1"):
        SoftDTW(gamma=-1)
