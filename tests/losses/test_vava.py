"""VAVA against plain loops over cells, its plan against Sinkhorn's iterations on the kernel itself."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.losses.vava import VAVA
from tests.losses.groups import aligned_group, assert_padding_is_silent, make_group, random_group, shuffled
from tests.oracles import Grid


def plan_by_hand(cost: Grid, phi: float) -> Grid:
    """Run the released iterations cell by cell."""
    (m, n), zeta, delta = cost.shape, 0.5, 2.0
    order, entropy = 1.0 * (m + n), 0.1 * m * n / 4
    whole = np.full((m + 1, n + 1), zeta)
    whole[1:, 1:] = cost
    rows, columns = m + 1, n + 1
    height = math.sqrt(1 / rows**2 + 1 / columns**2)
    kernel = np.empty((rows, columns))
    for i in range(rows):
        for j in range(columns):
            nearest = int(whole[i].argmin())
            gaps = [abs((i + 1) / rows - (j + 1) / columns), abs(j - nearest) / columns]
            if (i == 0) != (j == 0):
                gaps = [1.5 * 2 * 5 / (rows + columns)] * 2
            bells = [
                math.exp(-((gap / height) ** 2) / (2 * delta**2)) / (delta * math.sqrt(2 * math.pi)) for gap in gaps
            ]
            pull = [order / (gap**2 + 1) for gap in gaps]
            prior, reward = (phi * a + (1 - phi) * b for a, b in (bells, pull))
            kernel[i, j] = prior * math.exp((reward - whole[i, j]) / entropy)
    u, v = np.ones(rows), np.ones(columns)
    for _ in range(20):
        u = (1 / rows) / (kernel @ v)
        v = (1 / columns) / (kernel.T @ u)
    u = (1 / rows) / (kernel @ v)
    return np.asarray(u[:, None] * kernel * v)


@pytest.mark.parametrize("phi", [0.0, 0.9, 1.0])
def test_plan(phi: float) -> None:
    cost = torch.rand(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([5, 3]), torch.tensor([4, 4])
    plan = VAVA(consistency=phi).plan(cost, *lengths)
    assert plan.shape == (2, 6, 5)
    np.testing.assert_allclose(plan[0], plan_by_hand(cost[0].numpy(), phi), atol=1e-12)
    np.testing.assert_allclose(plan[1, :4], plan_by_hand(cost[1, :3].numpy(), phi), atol=1e-12)
    assert not plan[1, 4:].any()


def test_terms_in_numbers() -> None:
    # Unit vectors at a right angle, 20 frames apart: D = 2 within a sequence, its two margins used up. The cost of a
    # matched pair is 0, of the others 2.
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    group = make_group([x, x], frames=[torch.tensor([0, 20])] * 2)
    terms = VAVA()(group)
    cost = np.array([[0.0, 2.0], [2.0, 0.0]])
    whole = np.full((3, 3), 0.5)
    whole[1:, 1:] = cost
    assert terms["align"].item() == pytest.approx((plan_by_hand(cost, 0.9) * whole).sum())
    assert terms["contrast"].item() == pytest.approx(0.0)
    # Both means of the best are 0, of the worst 2: softmax((0, (2 + 2)/0.5)).
    assert terms["inter"].item() == pytest.approx(math.log(1 + math.exp(-8)))
    near = make_group([x, x], frames=[torch.tensor([0, 10])] * 2)
    assert VAVA()(near)["contrast"].item() == pytest.approx(2 * (2 * 2 / 2) / 4)  # D/((0 − 1)² + 1), two of four cells


def test_aligned_sequences_are_preferred() -> None:
    good, bad = VAVA()(aligned_group()), VAVA()(shuffled(aligned_group()))
    assert good["align"] < bad["align"]
    assert good["loss"] < bad["loss"]


def test_gradient_and_padding() -> None:
    assert_padding_is_silent(VAVA(window=2.0), [6, 3, 5])
    values = random_group([4, 4]).values.requires_grad_()

    def loss(values: Tensor) -> Tensor:
        return VAVA(window=1.0)(make_group([values[0], values[1, :3]]))["loss"]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, values)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="consistency must lie between 0 and 1, got 2"):
        VAVA(consistency=2)
    with pytest.raises(ValueError, match="entropy must be positive and finite, got 0"):
        VAVA(entropy=0)
