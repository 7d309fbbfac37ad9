import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from inphase.align import cycle_consistency
from inphase.align.recursion import released_cycle_consistency
from tests import oracles
from tests.oracles import Grid

Cycle = Callable[..., Tensor]
CYCLES: dict[str, Cycle] = {"paper": cycle_consistency, "released": released_cycle_consistency}
cycles = pytest.mark.parametrize("cycle", list(CYCLES.values()), ids=list(CYCLES))


def tables(batch: int, m: int, n: int, *, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    xy, yx = (torch.randn(batch, *s, dtype=torch.float64, generator=generator) for s in ((m, n), (n, m)))
    return scale * xy, scale * yx


def released(q: Grid) -> float:
    """Take the mean over rows of the cross entropy of softmax(q) with smoothed labels, one cell after the other."""
    total = 0.0
    for i, row in enumerate(q):
        log_sum = math.log(sum(math.exp(value) for value in row))
        for k, value in enumerate(row):
            label = 0.9 * (i == k) + 0.1 / len(q)
            total += label * (log_sum - value)
    return total / len(q)


def permutation(order: list[int]) -> Tensor:
    """Make a table whose probabilities are all but 0 and 1: row i goes to order[i]."""
    table = torch.full((1, len(order), len(order)), 1000.0, dtype=torch.float64)
    table[0, torch.arange(len(order)), torch.tensor(order)] = 0
    return table


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (4, 1), (3, 5), (6, 4)])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0])
def test_equals_the_product_of_probabilities(m: int, n: int, alpha: float) -> None:
    xy, yx = tables(3, m, n)
    q = [oracles.cycle_matrix(a, b, alpha) for a, b in zip(xy.numpy(), yx.numpy(), strict=True)]
    expected = torch.tensor([-np.log(np.diag(one)).sum() for one in q], dtype=torch.float64)
    torch.testing.assert_close(cycle_consistency(xy, yx, alpha=alpha), expected)
    expected = torch.tensor([released(one) for one in q], dtype=torch.float64)
    torch.testing.assert_close(released_cycle_consistency(xy, yx, alpha=alpha), expected)


def test_two_frames_by_hand() -> None:
    # p(y₁|x₁) = 3/4, p(y₁|x₂) = 1/4; p(x₁|y₁) = 2/3, p(x₁|y₂) = 1/2.
    xy = -torch.tensor([[[3.0, 1.0], [1.0, 3.0]]]).log()
    yx = -torch.tensor([[[2.0, 1.0], [1.0, 1.0]]]).log()
    first, second = 3 / 4 * 2 / 3 + 1 / 4 * 1 / 2, 1 / 4 * 1 / 3 + 3 / 4 * 1 / 2
    assert cycle_consistency(xy, yx).item() == pytest.approx(-math.log(first) - math.log(second))


def test_values_of_the_paper_and_of_the_released_code() -> None:
    identity, uniform = permutation(list(range(20))), torch.zeros(1, 20, 20)
    wrong = permutation([*range(1, 20), 0])
    assert cycle_consistency(identity, identity).item() == pytest.approx(0, abs=1e-12)
    assert cycle_consistency(uniform, uniform).item() == pytest.approx(20 * math.log(20), rel=1e-6)  # 59.9
    assert released_cycle_consistency(identity, identity).item() == pytest.approx(2.1732, abs=5e-5)
    assert released_cycle_consistency(uniform, uniform).item() == pytest.approx(2.9957, abs=5e-5)
    assert released_cycle_consistency(wrong, identity).item() == pytest.approx(3.0732, abs=5e-5)


def test_there_and_back_by_opposite_permutations_is_the_identity() -> None:
    there, back = permutation([1, 2, 3, 0]), permutation([3, 0, 1, 2])
    assert cycle_consistency(there, back).item() == pytest.approx(0, abs=1e-12)
    # Twice there is two frames on; of the steps to come back one costs 1000, and either may be the one.
    assert cycle_consistency(there, there).item() == pytest.approx(4 * (1000 - math.log(2)))


def exact_cycle(xy: Grid, yx: Grid) -> float:
    """Compute eq. (13) in decimals, whose exponents have no end: nothing underflows."""

    def rows(table: Grid) -> list[list[Decimal]]:
        shares = [[Decimal(-value).exp() for value in row] for row in table.tolist()]
        return [[share / sum(row) for share in row] for row in shares]

    there, back = rows(xy), rows(yx)
    returned = [sum(p * back[k][i] for k, p in enumerate(row)) for i, row in enumerate(there)]
    return float(-sum(Decimal(p).ln() for p in returned))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_where_a_probability_underflows(dtype: torch.dtype) -> None:
    xy, yx = (table.to(dtype).requires_grad_() for table in tables(1, 5, 4, scale=1000))
    loss = cycle_consistency(xy, yx)
    expected = exact_cycle(xy[0].detach().double().numpy(), yx[0].detach().double().numpy())
    assert expected > 1000, "a case without underflow shows nothing"
    assert loss.item() == pytest.approx(expected, rel=1e-6 if dtype == torch.float32 else 1e-14)
    for gradient in torch.autograd.grad(loss, (xy, yx)):
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0.5
        torch.testing.assert_close(gradient.sum(2), torch.zeros(1, len(gradient[0]), dtype=dtype), rtol=0, atol=1e-5)


@given(seed=st.integers(0, 1000), shift=st.floats(-100, 100))
def test_a_constant_added_to_a_row_does_not_matter(seed: int, shift: float) -> None:
    xy, yx = tables(2, 4, 5, seed=seed)
    for cycle in CYCLES.values():
        torch.testing.assert_close(cycle(xy + shift, yx + shift * torch.arange(5)[:, None]), cycle(xy, yx))


@cycles
@pytest.mark.parametrize("filling", [0.0, 1e30, float("nan"), float("inf"), -float("inf")])
def test_padding_changes_neither_value_nor_gradient(cycle: Cycle, filling: float) -> None:
    xy, yx = tables(4, 5, 6)
    x_lengths, y_lengths = [5, 3, 1, 5], [6, 2, 4, 1]
    for b, (m, n) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        xy[b, m:], xy[b, :, n:] = filling, filling
        yx[b, n:], yx[b, :, m:] = filling, filling
    xy, yx = xy.requires_grad_(), yx.requires_grad_()
    padded = cycle(xy, yx, alpha=0.7, x_lengths=x_lengths, y_lengths=torch.tensor(y_lengths))
    gradients = torch.autograd.grad(padded @ torch.arange(1.0, 5.0, dtype=torch.float64), (xy, yx))
    for b, (m, n) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        one_xy, one_yx = (t.detach().requires_grad_() for t in (xy[b : b + 1, :m, :n], yx[b : b + 1, :n, :m]))
        alone = cycle(one_xy, one_yx, alpha=0.7)
        torch.testing.assert_close(padded[b], alone[0])
        expected = torch.autograd.grad((b + 1) * alone, (one_xy, one_yx))
        for gradient, one in zip(gradients, expected, strict=True):
            inside = torch.zeros_like(gradient[b])
            inside[: one.shape[1], : one.shape[2]] = one[0]
            torch.testing.assert_close(gradient[b], inside)


@cycles
def test_gradient(cycle: Cycle) -> None:
    xy, yx = (table.requires_grad_() for table in tables(2, 3, 4))
    assert torch.autograd.gradcheck(lambda a, b: cycle(a, b, alpha=0.8), (xy, yx))
    assert torch.autograd.gradcheck(lambda a, b: cycle(a, b, x_lengths=[2, 3], y_lengths=[4, 1]), (xy, yx))


@cycles
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_and_autocast(cycle: Cycle, dtype: torch.dtype) -> None:
    xy, yx = (table.to(dtype) for table in tables(2, 6, 5, scale=3))
    loss = cycle(xy, yx)
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(loss.double(), cycle(xy.double(), yx.double()), rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(cycle(xy, yx), loss)


@cycles
def test_strides_do_not_matter(cycle: Cycle) -> None:
    xy, yx = tables(2, 6, 5)
    torch.testing.assert_close(cycle(xy.mT.contiguous().mT, yx.mT.contiguous().mT), cycle(xy, yx))
