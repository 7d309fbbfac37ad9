from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from inphase.align import contrastive_cost, cosine_cost, squared_euclidean_cost
from inphase.align.cost import Cost, contrastive_costs, pairwise_cost
from tests import oracles

CostFunction = Callable[..., Tensor]
COSTS: dict[Cost, CostFunction] = {
    "contrastive": contrastive_cost,
    "cosine": cosine_cost,
    "squared_euclidean": squared_euclidean_cost,
}
costs = pytest.mark.parametrize("cost", list(COSTS.values()), ids=list(COSTS))
shapes = pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (5, 1), (3, 6)])
HALVES = (torch.float16, torch.bfloat16)


def sequences(m: int, n: int, *, d: int = 4, batch: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(batch, size, d, dtype=torch.float64, generator=generator) for size in (m, n))
    return x, y


@shapes
@pytest.mark.parametrize("beta", [0.05, 0.1, 1.0])
def test_contrastive_cost_equals_the_scalar_one(m: int, n: int, beta: float) -> None:
    x, y = sequences(m, n)
    expected = np.stack([oracles.contrastive_cost(u, v, beta) for u, v in zip(x.numpy(), y.numpy(), strict=True)])
    torch.testing.assert_close(contrastive_cost(x, y, beta=beta), torch.from_numpy(expected))


@shapes
def test_contrastive_costs_are_those_of_both_directions(m: int, n: int) -> None:
    x, y = sequences(m, n)
    there, back = contrastive_costs(x, y, beta=0.2, x_lengths=[m, 1], y_lengths=[1, n])
    torch.testing.assert_close(there, contrastive_cost(x, y, beta=0.2, x_lengths=[m, 1], y_lengths=[1, n]))
    torch.testing.assert_close(back.mT, contrastive_cost(y, x, beta=0.2, x_lengths=[1, n], y_lengths=[m, 1]))


@shapes
def test_cosine_and_squared_euclidean_cost_equal_the_scalar_ones(m: int, n: int) -> None:
    x, y = sequences(m, n)
    for b, i, j in np.ndindex(2, m, n):
        u, v = x[b, i].numpy(), y[b, j].numpy()
        cosine = 1 - float(u @ v) / (np.linalg.norm(u) * np.linalg.norm(v))
        assert cosine_cost(x, y)[b, i, j].item() == pytest.approx(cosine)
        assert squared_euclidean_cost(x, y)[b, i, j].item() == pytest.approx(float(((u - v) ** 2).sum()))


@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
def test_contrastive_cost_is_a_distribution_over_y_and_blind_to_scale(seed: int, scale: float) -> None:
    x, y = sequences(4, 5, seed=seed)
    cost = contrastive_cost(x, y)
    assert (cost >= 0).all()
    torch.testing.assert_close(torch.exp(-cost).sum(2), torch.ones(2, 4, dtype=torch.float64))
    torch.testing.assert_close(contrastive_cost(scale * x, y / scale), cost)
    torch.testing.assert_close(cosine_cost(scale * x, y / scale), cosine_cost(x, y))


def test_contrastive_cost_is_sharper_for_a_lower_temperature() -> None:
    x = torch.eye(3)[None]
    assert contrastive_cost(x, x, beta=0.1)[0, 0, 0] < contrastive_cost(x, x, beta=1.0)[0, 0, 0]


def test_squared_euclidean_cost_does_not_cancel_far_from_the_origin() -> None:
    x, y = (t.float() + 1000 for t in sequences(4, 5))
    torch.testing.assert_close(squared_euclidean_cost(x, y), squared_euclidean_cost(x.double(), y.double()).float())
    # Padding is as near the origin as the sequences are far from it.
    padded = torch.cat([y, torch.full((2, 95, 4), float("nan"))], 1)
    short = squared_euclidean_cost(x, padded, y_lengths=[5, 5])[:, :, :5]
    torch.testing.assert_close(short, squared_euclidean_cost(x, y))


@costs
@pytest.mark.parametrize("filling", [0.0, 1e4, float("nan"), float("inf")])
def test_padding_changes_neither_cost_nor_gradient(cost: CostFunction, filling: float) -> None:
    x, y = sequences(4, 6, batch=3)
    x_lengths, y_lengths = [4, 2, 1], [3, 6, 1]
    for values, lengths in ((x, x_lengths), (y, y_lengths)):
        for row, length in zip(values, lengths, strict=True):
            row[length:] = filling
    x, y = x.requires_grad_(), y.requires_grad_()
    weights = torch.randn(3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    padded = cost(x, y, x_lengths=torch.tensor(x_lengths), y_lengths=y_lengths)
    gradients = torch.autograd.grad(padded, (x, y), weights)
    for b, (m, n) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        u, v = (t[b : b + 1, :size].detach().requires_grad_() for t, size in ((x, m), (y, n)))
        alone = cost(u, v)
        torch.testing.assert_close(padded[b, :m, :n], alone[0])
        expected = torch.autograd.grad(alone, (u, v), weights[b : b + 1, :m, :n])
        for gradient, one, size in zip(gradients, expected, (m, n), strict=True):
            torch.testing.assert_close(gradient[b, :size], one[0])
            assert (gradient[b, size:] == 0).all()
        assert (padded[b, m:] == 0).all()
        assert (padded[b, :, n:] == 0).all()


@costs
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_cost_is_float32_or_float64(cost: CostFunction, dtype: torch.dtype) -> None:
    x, y = (t.to(dtype) for t in sequences(3, 5))
    result = cost(x, y)
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected = cost(x.double(), y.double()).to(result.dtype)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@costs
@pytest.mark.parametrize("lowered", HALVES)
def test_autocast_does_not_lower_the_precision(cost: CostFunction, lowered: torch.dtype) -> None:
    x, y = (t.float() for t in sequences(3, 5))
    with torch.autocast("cpu", dtype=lowered):
        result = cost(x, y)
    assert result.dtype == torch.float32
    assert torch.equal(result, cost(x, y))


@costs
def test_gradient(cost: CostFunction) -> None:
    x, y = (t.requires_grad_() for t in sequences(3, 4, d=3))
    assert torch.autograd.gradcheck(lambda u, v: cost(u, v), (x, y))
    assert torch.autograd.gradcheck(lambda u, v: cost(u, v, x_lengths=[2, 3], y_lengths=[4, 1]), (x, y))


@costs
def test_strides_do_not_matter(cost: CostFunction) -> None:
    x, y = sequences(3, 5)
    strided_x, strided_y = x.mT.contiguous().mT, y.repeat_interleave(2, 1)[:, ::2]
    torch.testing.assert_close(cost(strided_x, strided_y), cost(x, y))


@costs
def test_a_frame_of_zeros_is_finite(cost: CostFunction) -> None:
    x, y = (t.requires_grad_() for t in sequences(3, 5))
    with torch.no_grad():
        x[0, 1] = 0
    result = cost(x, y)
    assert result.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.sum(), (x, y)))


@pytest.mark.parametrize("name", list(COSTS))
def test_costs_by_name(name: Cost) -> None:
    x, y = sequences(3, 5)
    lengths = {"x_lengths": [2, 3], "y_lengths": [5, 4]}
    expected = COSTS[name](x, y, **lengths, **({"beta": 0.3} if name == "contrastive" else {}))
    named = pairwise_cost(x, y, cost=name, beta=0.3, x_lengths=lengths["x_lengths"], y_lengths=lengths["y_lengths"])
    assert torch.equal(named, expected)


def test_an_unknown_cost_is_named() -> None:
    x, y = sequences(2, 2)
    with pytest.raises(ValueError, match="'contrastive', 'cosine' or 'squared_euclidean', got 'manhattan'"):
        pairwise_cost(x, y, cost="manhattan")  # type: ignore[arg-type]
