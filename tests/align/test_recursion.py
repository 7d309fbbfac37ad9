"""The recursion against every monotone path, a scalar double loop, and what must be true of any table."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from inphase.align import accumulate
from inphase.align.recursion import Kind, accumulate_reference
from tests import oracles
from tests.align.parity import KINDS, costs
from tests.oracles import Grid

kinds = pytest.mark.parametrize("kind", KINDS)
starts = pytest.mark.parametrize("free_start", [False, True], ids=["fixed", "free"])
small_grids = pytest.mark.parametrize("m", range(1, 6))
sizes = st.tuples(st.integers(1, 7), st.integers(1, 7))
grids = sizes.flatmap(lambda size: arrays(np.float64, size, elements=st.floats(-2, 5)))
gammas = st.floats(0.01, 2)


def corner(grid: Grid, kind: Kind, gamma: float) -> float:
    return float(accumulate(torch.from_numpy(grid.copy())[None], kind=kind, gamma=gamma)[0, -1, -1])


@small_grids
@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("gamma", [0.05, 1.0])
def test_all_paths(m: int, n: int, gamma: float) -> None:
    cost = costs(2, m, n, seed=10 * m + n)
    soft = cost.clone().requires_grad_()
    table = accumulate(soft, kind="soft", gamma=gamma)
    (weights,) = torch.autograd.grad(table[:, -1, -1].sum(), soft)
    for b, grid in enumerate(cost.numpy()):
        assert corner(grid, "hard", gamma) == pytest.approx(oracles.hard_dtw(grid), abs=1e-12)
        assert table[b, -1, -1].item() == pytest.approx(oracles.soft_dtw(grid, gamma), abs=1e-12)
        np.testing.assert_allclose(weights[b], oracles.soft_path(grid, gamma), atol=1e-12)


@kinds
@starts
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 6), (6, 1), (2, 2), (5, 4), (9, 13), (40, 11)])
@pytest.mark.parametrize("gamma", [0.0, 0.1, 2.0])
def test_scalar_double_loop(kind: Kind, free_start: bool, m: int, n: int, gamma: float) -> None:
    cost = costs(2, m, n)
    expected = np.stack([oracles.table(grid, kind, gamma, free_start) for grid in cost.numpy()])
    reference = accumulate_reference(cost, kind if gamma > 0 else "hard", gamma, free_start)
    for table in (accumulate(cost, kind=kind, gamma=gamma, free_start=free_start), reference):
        np.testing.assert_allclose(table, expected, rtol=1e-12, atol=1e-12)


@kinds
@starts
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 3), (3, 1), (4, 3)])
def test_gradient_of_the_whole_table(kind: Kind, free_start: bool, m: int, n: int) -> None:
    cost = costs(2, m, n).requires_grad_()  # random, so away from ties
    assert torch.autograd.gradcheck(lambda c: accumulate(c, kind=kind, gamma=0.3, free_start=free_start), cost)
    assert torch.autograd.gradcheck(lambda c: accumulate_reference(c, kind, 0.3, free_start), cost)


@kinds
def test_gradient_of_equal_predecessors(kind: Kind) -> None:
    # All three predecessors of the last cell of [[1, 0], [0, c]] are 1: the first gets all, or each an equal share.
    for function in (accumulate, lambda c, kind, gamma: accumulate_reference(c, kind, gamma, False)):
        cost = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(function(cost, kind=kind, gamma=0.5)[0, 1, 1], cost)
        expected = [[1, 0], [0, 1]] if kind == "hard" else [[1, 1 / 3], [1 / 3, 1]]
        torch.testing.assert_close(gradient[0], torch.tensor(expected, dtype=torch.float64))


@given(grid=grids, gamma=gammas)
def test_smooth_hard_and_soft_bound_each_other(grid: Grid, gamma: float) -> None:
    cost = torch.from_numpy(grid.copy())[None]
    smooth, soft, hard = (accumulate(cost, kind=kind, gamma=gamma) for kind in ("smooth", "soft", "hard"))
    # A path to (i, j) has at most i + j steps, each with a penalty of at most 0.4631 γ and at least −γ log 3.
    steps = torch.arange(grid.shape[0])[:, None] + torch.arange(grid.shape[1])
    assert (smooth >= hard - 1e-12).all()
    assert (smooth <= hard + 0.46314 * gamma * steps + 1e-12).all()
    assert (soft <= hard + 1e-12).all()
    assert (soft >= hard - math.log(3) * gamma * steps - 1e-12).all()


@given(grid=grids)
def test_vanishing_gamma_is_dynamic_time_warping(grid: Grid) -> None:
    cost = torch.from_numpy(grid.copy())[None]
    hard = accumulate(cost, kind="hard")
    for kind in ("smooth", "soft"):
        torch.testing.assert_close(accumulate(cost, kind=kind, gamma=1e-9), hard, rtol=0, atol=1e-7)
        assert torch.equal(accumulate(cost, kind=kind, gamma=0), hard)


@pytest.mark.parametrize("kind", ["soft", "hard"])
@given(grid=grids, gamma=gammas)
def test_time_reversal(kind: Kind, grid: Grid, gamma: float) -> None:
    assert corner(grid[::-1, ::-1], kind, gamma) == pytest.approx(corner(grid, kind, gamma), abs=1e-9)


@kinds
@given(grid=grids, gamma=gammas, scale=st.floats(0.1, 10))
def test_transposition_and_scale(kind: Kind, grid: Grid, gamma: float, scale: float) -> None:
    cost = torch.from_numpy(grid.copy())[None]
    table = accumulate(cost, kind=kind, gamma=gamma)
    torch.testing.assert_close(accumulate(cost.mT, kind=kind, gamma=gamma).mT, table)
    torch.testing.assert_close(accumulate(scale * cost, kind=kind, gamma=scale * gamma), scale * table)


@kinds
@given(order=st.permutations(range(5)))
def test_pairs_of_a_batch_do_not_meet(kind: Kind, order: list[int]) -> None:
    cost = costs(5, 9, 6)
    assert torch.equal(accumulate(cost[order], kind=kind), accumulate(cost, kind=kind)[order])


@kinds
@starts
@given(size=sizes, garbage=st.sampled_from([0.0, -1e6, 1e6, float("nan")]))
def test_what_follows_a_cell_changes_neither_it_nor_its_gradient(
    kind: Kind, free_start: bool, size: tuple[int, int], garbage: float
) -> None:
    m, n = size
    alone = costs(1, m, n, seed=10 * m + n)
    padded = torch.full((1, m + 3, n + 2), garbage, dtype=torch.float64)
    padded[:, :m, :n] = alone
    results = []
    for cost in (alone.requires_grad_(), padded.requires_grad_()):
        cell = accumulate(cost, kind=kind, free_start=free_start)[0, m - 1, n - 1]
        (gradient,) = torch.autograd.grad(cell, cost)
        results.append((cell.detach(), gradient[:, :m, :n]))
        if garbage == garbage:
            assert (gradient[:, m:] == 0).all()
            assert (gradient[:, :, n:] == 0).all()
    assert torch.equal(results[0][0], results[1][0])
    if garbage == garbage:  # a gradient of 0 times NaN is NaN: costs mask their padding for that
        assert torch.equal(results[0][1], results[1][1])


@kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision(kind: Kind, dtype: torch.dtype) -> None:
    cost = costs(2, 5, 4).to(dtype).requires_grad_()
    table = accumulate(cost, kind=kind)
    (gradient,) = torch.autograd.grad(table.sum(), cost)
    assert table.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert gradient.dtype == dtype
    expected = accumulate(cost.detach().double(), kind=kind)
    torch.testing.assert_close(table.detach().double(), expected, rtol=1e-7, atol=1e-7)


@kinds
def test_autocast_changes_nothing(kind: Kind) -> None:
    cost = costs(2, 5, 4, dtype=torch.float32)
    expected = accumulate(cost, kind=kind), accumulate_reference(cost, kind, 0.1, False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tables = accumulate(cost, kind=kind), accumulate_reference(cost, kind, 0.1, False)
    assert all(torch.equal(table, one) for table, one in zip(tables, expected, strict=True))


def test_other_devices_run_the_reference() -> None:
    table = accumulate(torch.empty(2, 5, 4, device="meta"))
    assert table.shape == (2, 5, 4)
    assert table.is_meta


@kinds
@pytest.mark.parametrize("where", [(0, 0), (2, 1), (4, 3)])
def test_nan_reaches_every_cell_after_it_and_no_other(kind: Kind, where: tuple[int, int]) -> None:
    cost = costs(2, 5, 4)
    cost[1, where[0], where[1]] = float("nan")
    after = torch.zeros(2, 5, 4, dtype=torch.bool)
    after[1, where[0] :, where[1] :] = True
    tables: list[Tensor] = [accumulate(cost, kind=kind), accumulate(cost.clone().requires_grad_(), kind=kind)]
    for table in (*tables, accumulate_reference(cost, kind, 0.1, False)):
        assert torch.equal(table.isnan(), after)
