"""Sinkhorn's plan against the assignment it tends to, its marginals, and the kernel form of the iterations."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from inphase.losses.vava import add_virtual_frame, order_distances, transport


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_small_epsilon_gives_the_assignment() -> None:
    cost = draw(3, 6, 6)
    plan = transport(cost, epsilon=2e-3, iterations=3000)
    for grid, found in zip(cost.numpy(), plan.numpy(), strict=True):
        rows, columns = linear_sum_assignment(grid)
        assert found.argmax(1).tolist() == columns[rows.argsort()].tolist()
        assert (found * grid).sum() == pytest.approx(grid[rows, columns].mean(), abs=2e-3)


def test_marginals_padding_and_prior() -> None:
    cost, prior = draw(2, 5, 7), draw(2, 5, 7, seed=1).log()
    plan = transport(cost, log_prior=prior, iterations=300, x_lengths=[5, 3], y_lengths=[7, 4])
    for b, (m, n) in enumerate([(5, 7), (3, 4)]):
        torch.testing.assert_close(plan[b, :m].sum(1), torch.full((m,), 1 / m, dtype=torch.float64))
        torch.testing.assert_close(plan[b, :, :n].sum(0), torch.full((n,), 1 / n, dtype=torch.float64))
        assert not plan[b, m:].any()
        assert not plan[b, :, n:].any()
        alone = transport(cost[b : b + 1, :m, :n], log_prior=prior[b : b + 1, :m, :n], iterations=300)
        torch.testing.assert_close(plan[b, :m, :n], alone[0])
        ratio = plan[b, :m, :n].log() - (prior[b, :m, :n] - cost[b, :m, :n] / 0.1)  # f(i) + g(j)
        torch.testing.assert_close(ratio - ratio[:1], (ratio - ratio[:1])[:, :1].expand(m, n))


def test_a_kernel_that_underflows_is_no_problem() -> None:
    plan = transport(1e4 * draw(1, 4, 4), epsilon=0.1, iterations=50)
    assert plan.isfinite().all()
    assert plan.sum().item() == pytest.approx(1.0)


def test_gradient() -> None:
    cost = draw(2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda c: transport(c, epsilon=0.3, iterations=5, x_lengths=[3, 2], y_lengths=[4, 4]), cost
    )


def test_a_virtual_frame_takes_what_has_no_counterpart() -> None:
    frames = torch.eye(4, dtype=torch.float64)
    cost = 2 - 2 * frames[None, :3] @ frames[[0, 3, 1, 2]].mT
    whole = add_virtual_frame(cost, price=0.5)
    assert whole.shape == (1, 4, 5)
    assert (whole[0, 0] == 0.5).all()
    assert (whole[0, :, 0] == 0.5).all()
    plan = transport(whole, epsilon=0.05, iterations=500)
    assert plan[0, 1:, 2].max() < plan[0, 0, 2]  # y_2 matches no frame of x


def test_order_distances() -> None:
    cost = torch.tensor([[[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0]]])
    diagonal, nearest = order_distances(cost, y_lengths=[3])
    np.testing.assert_allclose(diagonal[0, :, :3], np.abs([[1 / 6, -1 / 6, -1 / 2], [2 / 3, 1 / 3, 0]]), atol=1e-6)
    np.testing.assert_allclose(nearest[0, :, :3], [[1 / 3, 0, 1 / 3], [0, 1 / 3, 2 / 3]], atol=1e-6)


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match="epsilon must be positive and finite, got 0"):
        transport(draw(1, 2, 2), epsilon=0)
    with pytest.raises(ValueError, match="need at least 1 iteration, got 0"):
        transport(draw(1, 2, 2), iterations=0)
