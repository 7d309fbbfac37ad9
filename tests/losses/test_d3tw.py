"""D3TW* against a sum over all paths of what it says it kept."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.losses.d3tw import D3TW
from tests import oracles
from tests.losses.groups import aligned_group, assert_padding_is_silent, make_group, random_group, shuffled


def test_portions_are_dropped_in_order() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([20, 8, 2, 1])
    seen = np.zeros(20)
    for _ in range(100):
        kept, counts = D3TW().drop(lengths, size=20)
        for steps, count, length in zip(kept.tolist(), counts.tolist(), lengths.tolist(), strict=True):
            assert steps[:count] == sorted(steps[:count])
            assert max(steps[:count]) < length
            gone = sorted(set(range(length)) - set(steps[:count]))
            runs = 1 + (np.diff(gone) > 1).sum() if gone else 0
            assert runs <= 2
            if length >= 8:
                portion = length // 4
                assert portion <= len(gone) <= 2 * portion
            if length == 20:
                seen[gone] += 1
        assert counts[3] == 1
    assert (seen > 0).all()
    (kept,), (count,) = D3TW(portions=1, fraction=0.3).drop(torch.tensor([10]), size=10)
    assert count == 7
    assert len(set(kept[:7].tolist())) == 7


class DropMiddle(D3TW):
    """Drop the middle one of three frames."""

    def drop(self, lengths: Tensor, *, size: int) -> tuple[Tensor, Tensor]:
        return torch.tensor([[0, 2, 1]] * len(lengths)), torch.full_like(lengths, 2)


def test_three_frames_in_numbers() -> None:
    x = torch.eye(3, dtype=torch.float64)
    group = make_group([x, x])
    # γ = 0: the whole costs 0; without its middle frame x_1 costs 1 wherever it goes.
    hard = DropMiddle(gamma=0, margin=1.5)(group)
    assert (hard["positive"].item(), hard["negative"].item(), hard["loss"].item()) == pytest.approx((0, 1, 0.5))
    assert DropMiddle(gamma=0, margin=0.5)(group)["loss"].item() == 0


@pytest.mark.parametrize("lengths", [[4, 4, 4], [5, 2, 4]])
@pytest.mark.parametrize(("pairs", "chosen"), [("anchor", [(0, 1), (0, 2)]), ("all", [(0, 1), (0, 2), (1, 2)])])
def test_all_paths(lengths: list[int], pairs: Any, chosen: list[tuple[int, int]]) -> None:
    group = random_group(lengths)
    criterion = D3TW(pairs=pairs, margin=0.3)
    units = [group.values[k, :size] for k, size in enumerate(lengths)]
    units = [unit / unit.norm(dim=1, keepdim=True) for unit in units]
    torch.manual_seed(3)
    kept, counts = criterion.drop(torch.tensor([lengths[j] for _, j in chosen]), size=max(lengths))
    expected = []
    for (i, j), steps, count in zip(chosen, kept, counts, strict=True):
        whole = oracles.soft_dtw((1 - units[i] @ units[j].T).numpy(), 0.1)
        less = oracles.soft_dtw((1 - units[i] @ units[j][steps[:count]].T).numpy(), 0.1)
        expected.append(max(0.0, whole - less + 0.3))
    torch.manual_seed(3)
    assert criterion(group)["loss"].item() == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("cost", ["cosine", "squared_euclidean", "contrastive"])
def test_aligned_sequences_are_preferred(cost: Any) -> None:
    torch.manual_seed(0)
    criterion = D3TW(cost=cost, margin=20.0)
    good = [criterion(aligned_group())["loss"] for _ in range(10)]
    bad = [criterion(shuffled(aligned_group()))["loss"] for _ in range(10)]
    assert sum(good) < sum(bad)


def test_gradient_and_padding() -> None:
    assert_padding_is_silent(D3TW(margin=20.0), [8, 5, 1, 6])
    values = random_group([4, 4]).values.requires_grad_()

    def loss(values: Tensor) -> Tensor:
        torch.manual_seed(0)
        return D3TW(margin=20.0)(make_group([values[0], values[1, :3]]))["loss"]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, values)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"portions": 0}, "portions must be a whole number from 1 to 1,000, got 0"),
        ({"fraction": 1.0}, "need 0 < fraction < 1, got 1.0"),
        ({"margin": -1}, "margin must be at least 0 and finite, got -1"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        D3TW(**setting)
