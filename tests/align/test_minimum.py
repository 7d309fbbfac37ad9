import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from inphase.align import min_gamma, min_gamma_penalty, smooth_min, smooth_min_penalty
from tests.oracles import minimum

Minimum = Callable[..., Tensor]
KINDS: dict[str, tuple[Minimum, Minimum]] = {
    "smooth": (smooth_min, smooth_min_penalty),
    "soft": (min_gamma, min_gamma_penalty),
}
kinds = pytest.mark.parametrize("kind", KINDS)
INF = float("inf")

numbers = st.lists(st.floats(-50, 50), min_size=1, max_size=6)
gammas = st.floats(1e-3, 100)


def double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def root(n: int) -> float:
    """Solve x − 1 = (n − 1) e^(−x) by bisection."""
    low, high = 1.0, 50.0
    for _ in range(100):
        x = (low + high) / 2
        low, high = (low, x) if x - 1 > (n - 1) * math.exp(-x) else (x, high)
    return low


@kinds
@given(values=numbers, gamma=gammas)
def test_equals_the_definition(kind: str, values: list[float], gamma: float) -> None:
    assert float(KINDS[kind][0](double(values), gamma=gamma)) == pytest.approx(minimum(values, kind, gamma), abs=1e-10)


@given(values=numbers, gamma=gammas)
def test_smooth_min_bounds_the_minimum_from_above_and_min_gamma_from_below(values: list[float], gamma: float) -> None:
    least, room = min(values), 1e-12 * max(map(abs, values))
    assert least <= float(smooth_min(double(values), gamma=gamma)) <= least + gamma * (root(len(values)) - 1) + room
    assert least - gamma * math.log(len(values)) - room <= float(min_gamma(double(values), gamma=gamma)) <= least


@kinds
@given(values=numbers, gamma=gammas)
def test_penalty_is_scale_invariant_and_what_the_minimum_adds(kind: str, values: list[float], gamma: float) -> None:
    smooth, penalty = KINDS[kind]
    measured = float(penalty(double(values), gamma=gamma))
    assert measured == pytest.approx(gamma * float(penalty(double(values) / gamma, gamma=1.0)), abs=1e-9)
    assert measured == pytest.approx(float(smooth(double(values), gamma=gamma)) - min(values), abs=1e-10)


@pytest.mark.parametrize(("n", "x", "most"), [(2, 1.2785, 0.2785), (3, 1.4631, 0.4631)])
@pytest.mark.parametrize("gamma", [0.1, 3.0])
def test_largest_penalty_is_where_the_supplement_finds_it(n: int, x: float, most: float, gamma: float) -> None:
    apart = torch.linspace(0, 5, 50_001, dtype=torch.float64)
    values = torch.cat([torch.zeros(len(apart), 1), gamma * apart[:, None].expand(-1, n - 1)], 1)
    penalty, at = smooth_min_penalty(values, gamma=gamma).max(0)
    assert float(apart[at]) == pytest.approx(x, abs=2e-4)
    assert float(apart[at]) == pytest.approx(root(n), abs=2e-4)
    assert float(penalty) == pytest.approx(most * gamma, abs=1e-4 * gamma)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 10, 100, 1000])
def test_penalty_has_its_maximum_at_the_root(n: int) -> None:
    x = root(n)
    values = torch.full((n,), x, dtype=torch.float64).index_fill(0, torch.tensor(0), 0.0).requires_grad_()
    penalty = smooth_min_penalty(values, gamma=1.0)
    (gradient,) = torch.autograd.grad(penalty, values)
    assert x - 1 == pytest.approx((n - 1) * math.exp(-x))
    assert n < 4 or x < math.log(n + 1)
    assert penalty.item() == pytest.approx(x - 1, abs=1e-12)
    assert float(gradient.abs().max()) < 1e-12


@given(values=st.lists(st.floats(0, 10), min_size=3, max_size=3))
def test_no_three_numbers_have_a_larger_penalty(values: list[float]) -> None:
    assert float(smooth_min_penalty(double(values), gamma=1.0)) <= 0.46314


@pytest.mark.parametrize("n", [1, 2, 3, 17])
@pytest.mark.parametrize("gamma", [0.1, 2.0])
def test_a_tie_costs_smooth_min_nothing_and_gains_min_gamma_most(n: int, gamma: float) -> None:
    tie = torch.full((n,), 7.0, dtype=torch.float64)
    assert float(smooth_min(tie, gamma=gamma)) == 7.0
    assert float(min_gamma(tie, gamma=gamma)) == pytest.approx(7.0 - gamma * math.log(n), abs=1e-12)


@kinds
def test_zero_gamma_is_the_exact_minimum_and_its_gradient_the_first_of_equals(kind: str) -> None:
    values = torch.tensor([[3.0, -1.0, -1.0], [2.0, 5.0, INF]], requires_grad=True)
    smallest = KINDS[kind][0](values, gamma=0.0)
    (gradient,) = torch.autograd.grad(smallest.sum(), values)
    assert smallest.tolist() == [-1.0, 2.0]
    assert gradient.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert KINDS[kind][1](values, gamma=0.0).tolist() == [0.0, 0.0]


@kinds
@pytest.mark.parametrize("large", [INF, 1e30])
def test_an_infinite_value_takes_no_part(kind: str, large: float) -> None:
    values = torch.tensor([1.0, large, 1.3], requires_grad=True)
    finite = torch.tensor([1.0, 1.3], requires_grad=True)
    smallest, expected = KINDS[kind][0](values, gamma=0.5), KINDS[kind][0](finite, gamma=0.5)
    (gradient,) = torch.autograd.grad(smallest, values)
    (expected_gradient,) = torch.autograd.grad(expected, finite)
    torch.testing.assert_close(smallest, expected)
    torch.testing.assert_close(gradient[[0, 2]], expected_gradient)
    assert gradient[1] == 0


@kinds
@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_gradient(kind: str, gamma: float) -> None:
    values = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for function in KINDS[kind]:
        assert torch.autograd.gradcheck(lambda v, f=function: f(v, gamma=gamma), values)
        assert torch.autograd.gradgradcheck(lambda v, f=function: f(v, gamma=gamma), values)


@kinds
def test_gradient_of_a_tie_shares_alike(kind: str) -> None:
    values = torch.ones(4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(KINDS[kind][0](values, gamma=0.3), values)
    torch.testing.assert_close(gradient, torch.full_like(gradient, 0.25))


@kinds
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_dim(kind: str, dim: int) -> None:
    values = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    for function in KINDS[kind]:
        torch.testing.assert_close(
            function(values, gamma=0.2, dim=dim), function(values.movedim(dim, -1).contiguous(), gamma=0.2)
        )


@kinds
@pytest.mark.parametrize("gamma", [-0.1, INF, float("nan")])
def test_wrong_gamma_is_named(kind: str, gamma: float) -> None:
    for function in KINDS[kind]:
        with pytest.raises(ValueError, match=f"gamma must be at least 0 and finite, got {gamma}"):
            function(torch.ones(3), gamma=gamma)
