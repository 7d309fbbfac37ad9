import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from inphase.align import Alignment, accumulate, expected_path, shortest_path
from inphase.align.recursion import Kind
from tests import oracles
from tests.align.parity import KINDS, costs
from tests.oracles import Grid

sizes = st.tuples(st.integers(1, 5), st.integers(1, 5))
grids = sizes.flatmap(lambda size: arrays(np.float64, size, elements=st.floats(-1, 3)))
# Few different costs, so that many paths cost the same.
tied_grids = sizes.flatmap(lambda size: arrays(np.float64, size, elements=st.sampled_from([0.0, 1.0])))
INF = float("inf")


def align(grid: Grid, *, subsequence: bool = False) -> Alignment:
    return shortest_path(torch.from_numpy(grid.copy()), subsequence=subsequence)


def cells(alignment: Alignment) -> list[tuple[int, int]]:
    return [(i, j) for i, j in alignment.path.tolist()]


@given(grid=st.one_of(grids, tied_grids))
def test_cheapest_of_all_paths(grid: Grid) -> None:
    m, n = grid.shape
    alignment = align(grid)
    path = cells(alignment)
    assert tuple(path) in oracles.monotone_paths(m, n)
    assert alignment.cost == pytest.approx(oracles.hard_dtw(grid), abs=1e-9)
    assert sum(grid[cell] for cell in path) == pytest.approx(alignment.cost, abs=1e-9)
    assert alignment.table is not None
    np.testing.assert_allclose(alignment.table, oracles.table(grid, "hard", 0), atol=1e-9)


@given(grid=st.one_of(grids, tied_grids))
def test_cheapest_part_of_y(grid: Grid) -> None:
    m, n = grid.shape
    alignment = align(grid, subsequence=True)
    path = cells(alignment)
    cheapest = min(oracles.hard_dtw(grid[:, first:last]) for first in range(n) for last in range(first + 1, n + 1))
    assert alignment.cost == pytest.approx(cheapest, abs=1e-9)
    assert sum(grid[cell] for cell in path) == pytest.approx(alignment.cost, abs=1e-9)
    assert oracles.is_monotone(path)
    assert (path[0][0], path[-1][0]) == (0, m - 1)
    assert 0 <= path[0][1] <= path[-1][1] < n


def test_subsequence_finds_where_x_begins_and_ends() -> None:
    grid = np.ones((3, 9))
    grid[[0, 1, 2], [4, 5, 6]] = 0
    alignment = align(grid, subsequence=True)
    assert cells(alignment) == [(0, 4), (1, 5), (2, 6)]
    assert alignment.cost == 0
    # A negative cost before the match is worth taking along.
    grid[0, 3] = -1
    assert cells(align(grid, subsequence=True)) == [(0, 3), (0, 4), (1, 5), (2, 6)]


def test_of_equal_steps_the_diagonal_is_taken() -> None:
    assert cells(align(np.zeros((3, 3)))) == [(0, 0), (1, 1), (2, 2)]
    assert cells(align(np.zeros((4, 2)))) == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert cells(align(np.zeros((2, 4)))) == [(0, 0), (0, 1), (0, 2), (1, 3)]


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 6), (6, 1)])
def test_one_frame_goes_with_all(m: int, n: int) -> None:
    alignment = align(costs(1, m, n)[0].numpy())
    assert cells(alignment) == [(i, j) for i in range(m) for j in range(n)]


@pytest.mark.parametrize("value", [INF, 1e31, 1e300])
def test_path_stays_inside_whatever_cells_cost(value: float) -> None:
    # Row 2 cannot be avoided, nor can anything be said about where it is best crossed.
    for grid in (np.full((5, 4), value), np.where(np.arange(5)[:, None] == 2, value, np.ones((5, 4)))):
        assert tuple(cells(align(grid))) in oracles.monotone_paths(5, 4)
    around = np.ones((5, 4))
    around[2, :3] = value
    alignment = align(around)
    assert (2, 3) in cells(alignment)
    assert alignment.cost < 10


@pytest.mark.parametrize("subsequence", [False, True])
@pytest.mark.parametrize("where", [(0, 0), (2, 1), (4, 3)])
def test_nan_is_refused(subsequence: bool, where: tuple[int, int]) -> None:
    grid = np.ones((5, 4))
    grid[where] = np.nan
    with pytest.raises(ValueError, match=r"cost contains NaN.*check the embeddings"):
        align(grid, subsequence=subsequence)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types_strides_and_gradients_do_not_matter(device: torch.device, dtype: torch.dtype) -> None:
    cost = costs(1, 6, 9)[0].to(device, dtype).requires_grad_()
    alignment, expected = shortest_path(cost.mT), shortest_path(cost.detach().cpu().double().mT.contiguous())
    assert alignment.path.tolist() == expected.path.tolist()
    assert alignment.cost == expected.cost
    assert alignment.path.dtype == np.int64
    assert alignment.table is not None
    assert alignment.table.dtype == np.float64


def test_time_map_by_hand() -> None:
    path = np.array([[0, 0], [0, 1], [1, 2], [2, 2], [3, 3], [3, 4], [3, 5]])
    alignment = Alignment(path=path, cost=0.0, shape=(4, 6))
    y_times = np.array([0.0, 1.0, 3.0, 4.0, 6.0, 10.0])
    # Frame 0 goes with 0 and 1, frames 1 and 2 with 3, frame 3 with what lies from 4 to 10.
    np.testing.assert_array_equal(alignment.time_map(np.arange(4) / 30, y_times), [0.5, 3.0, 3.0, 7.0])


@given(seed=st.integers(0, 1000), subsequence=st.booleans())
def test_time_map_never_goes_back(seed: int, subsequence: bool) -> None:
    alignment = align(costs(1, 12, 9, seed=seed)[0].numpy(), subsequence=subsequence)
    y_times = np.cumsum(np.random.default_rng(seed).exponential(size=9))
    seconds = alignment.time_map(np.arange(12.0), y_times)
    assert seconds.shape == (12,)
    assert seconds.dtype == np.float64
    assert (np.diff(seconds) >= 0).all()
    assert y_times[0] <= seconds[0]
    assert seconds[-1] <= y_times[-1]


@pytest.mark.parametrize(("m", "n"), [(3, 5), (4, 4), (5, 4)])
def test_times_of_wrong_length_are_named(m: int, n: int) -> None:
    alignment = align(np.zeros((4, 5)))
    with pytest.raises(ValueError, match=rf"times must be \[4\] and \[5\], got \[{m}\] and \[{n}\]"):
        alignment.time_map(np.arange(float(m)), np.arange(float(n)))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (3, 5), (5, 5)])
@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_soft_expected_path_is_the_probability_of_a_cell(m: int, n: int, gamma: float) -> None:
    cost = costs(2, m, n)
    for weights, grid in zip(expected_path(cost, gamma=gamma), cost.numpy(), strict=True):
        np.testing.assert_allclose(weights, oracles.soft_path(grid, gamma), atol=1e-12)


@pytest.mark.parametrize("free_start", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_expected_path_is_the_gradient_at_the_end(kind: Kind, free_start: bool) -> None:
    cost = costs(2, 6, 8).requires_grad_()
    end = accumulate(cost, kind=kind, gamma=0.3, free_start=free_start)[:, -1, -1]
    (expected,) = torch.autograd.grad(end.sum(), cost)
    with torch.no_grad():
        weights = expected_path(cost, kind=kind, gamma=0.3, free_start=free_start)
    assert torch.equal(weights, expected)
    assert not weights.requires_grad


def test_hard_expected_path_is_the_path() -> None:
    cost = costs(1, 7, 5)
    marked = torch.zeros(7, 5, dtype=torch.float64)
    marked[tuple(shortest_path(cost[0]).path.T)] = 1
    assert torch.equal(expected_path(cost, kind="hard")[0], marked)
