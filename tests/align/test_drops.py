"""The recursion with drops against every way through small grids, a scalar double loop, and its special cases."""

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.align import accumulate, accumulate_with_drops, drop_dtw, match, shortest_path, shortest_path_with_drops
from inphase.align.numba import recursion_numba
from inphase.align.path import percentile_drop_cost
from inphase.align.recursion import Kind, accumulate_with_drops_reference
from tests import oracles
from tests.align.parity import KINDS, costs

kinds = pytest.mark.parametrize("kind", KINDS)
INFINITY = float("inf")


def problem(batch: int, m: int, n: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Draw costs, and drop costs that are sometimes cheaper."""
    torch.manual_seed(seed)
    cost = costs(batch, m, n, seed=seed)
    return cost, torch.rand(batch, m, dtype=torch.float64), torch.rand(batch, n, dtype=torch.float64)


def gradients(given: tuple[Tensor, Tensor, Tensor], kind: Kind, gamma: float, fast: bool) -> list[Tensor]:
    """Return the table and its gradients for a dense, random gradient."""
    cost, x, y = inputs = [each.clone().requires_grad_() for each in given]
    if fast:
        table = accumulate_with_drops(cost, x, y, kind=kind, gamma=gamma)
    else:
        table = accumulate_with_drops_reference(cost, x, y, kind, gamma)
    dense = torch.randn(table.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(table.dtype)
    return [table.detach(), *torch.autograd.grad(table, inputs, dense)]


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (3, 1), (2, 3), (4, 4)])
def test_every_way_through_a_grid(size: tuple[int, int]) -> None:
    cost, x, y = problem(2, *size)
    hard = accumulate_with_drops(cost, x, y, kind="hard")[:, -1, -1]
    soft = accumulate_with_drops(cost, x, y, kind="soft", gamma=0.3)[:, -1, -1]
    for b in range(2):
        ways = oracles.costs_with_drops(cost[b].numpy(), x[b].numpy(), y[b].numpy())
        assert hard[b].item() == pytest.approx(ways.min())
        assert soft[b].item() == pytest.approx(-0.3 * np.log(np.exp(-ways / 0.3).sum()))
        found = shortest_path_with_drops(cost[b], x[b], y[b])
        assert found.cost == pytest.approx(ways.min())


@kinds
@pytest.mark.parametrize("gamma", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("size", [(1, 1), (1, 6), (6, 1), (9, 13), (40, 11)])
def test_scalar_double_loop(kind: Kind, gamma: float, size: tuple[int, int]) -> None:
    cost, x, y = problem(2, *size)
    given = zip(cost.numpy(), x.numpy(), y.numpy(), strict=True)
    expected = np.stack([oracles.table_with_drops(*each, kind, gamma) for each in given])
    reference = accumulate_with_drops_reference(cost, x, y, kind if gamma > 0 else "hard", gamma)
    for table in (accumulate_with_drops(cost, x, y, kind=kind, gamma=gamma), reference):
        np.testing.assert_allclose(table, expected, rtol=1e-12, atol=1e-12)


@kinds
@pytest.mark.parametrize("size", [(1, 1), (1, 3), (4, 3)])
def test_gradient_of_the_whole_table(kind: Kind, size: tuple[int, int]) -> None:
    given = [each.requires_grad_() for each in problem(2, *size)]
    assert torch.autograd.gradcheck(lambda c, x, y: accumulate_with_drops(c, x, y, kind=kind, gamma=0.3), given)


@pytest.mark.parametrize("limit", [10**9, 0], ids=["kept", "recomputed"])
@kinds
@pytest.mark.parametrize("size", [(7, 1), (8, 8), (33, 20), (70, 20), (70, 150), (129, 77)])
def test_parity(kind: Kind, size: tuple[int, int], limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recursion_numba, "MAX_KEPT_STATE", limit)
    given = problem(2, *size, seed=4)  # with a large gradient where all frames of x are dropped, across strips
    for result, expected in zip(gradients(given, kind, 0.1, True), gradients(given, kind, 0.1, False), strict=True):
        scale = float(expected.abs().max().clamp_min(1))
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-10 * scale)


@kinds
@pytest.mark.parametrize("size", [(1, 1), (7, 20), (70, 20), (70, 150)])
def test_memory_is_written_before_it_is_read(
    kind: Kind, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = problem(3, *size)
    expected = gradients(given, kind, 0.1, True)
    monkeypatch.setattr(recursion_numba, "_spare_memory", [np.full(200_000, np.nan)])
    results = gradients(given, kind, 0.1, True)
    assert all(torch.equal(result, one) for result, one in zip(results, expected, strict=True))


@kinds
def test_single_precision_and_a_second_backward_pass(kind: Kind) -> None:
    given = problem(3, 20, 31)
    exact = gradients(given, kind, 0.1, True)
    single = gradients((given[0].float(), given[1].float(), given[2].float()), kind, 0.1, True)
    assert all(each.dtype == torch.float32 for each in single)
    if kind != "hard":
        assert all(torch.allclose(a, b.float(), atol=2e-3) for a, b in zip(single, exact, strict=True))
    cost, x, y = (each.requires_grad_() for each in given)
    table = accumulate_with_drops(cost, x, y, kind=kind)
    once, twice = (torch.autograd.grad(table.sum(), cost, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(once, twice, rtol=1e-12, atol=1e-12)


@kinds
def test_infinite_drop_costs_give_dynamic_time_warping(kind: Kind) -> None:
    cost, x, y = problem(2, 9, 12)
    table = accumulate_with_drops(cost, x + INFINITY, y + INFINITY, kind=kind)
    torch.testing.assert_close(table, accumulate(cost, kind=kind))
    path = shortest_path_with_drops(cost[0], x[0] + INFINITY, y[0] + INFINITY)
    assert path.path.tolist() == shortest_path(cost[0]).path.tolist()
    assert path.kept is not None
    assert path.kept[0].all()
    assert path.kept[1].all()


def test_free_drops_at_the_ends_give_relaxed_ends() -> None:
    cost = costs(2, 6, 15)[1]
    cost[:, :4] += 10
    cost[:, 11:] += 10
    inside = shortest_path(cost[:, 4:11])
    y = torch.full((15,), INFINITY, dtype=torch.float64)
    y[:4], y[11:] = 0.0, 0.0
    found = shortest_path_with_drops(cost, torch.full((6,), INFINITY, dtype=torch.float64), y)
    assert found.cost == pytest.approx(inside.cost)
    assert (found.path - [0, 4]).tolist() == inside.path.tolist()
    assert found.kept is not None
    assert found.kept[1].nonzero()[0].tolist() == list(range(4, 11))


def test_dropped_frames_are_marked_and_have_a_time() -> None:
    torch.manual_seed(0)
    drawn = torch.nn.functional.normalize(torch.randn(14, 64), dim=1)
    shared, foreign = drawn[:10], drawn[10:]
    x = torch.cat([shared[:4], foreign[:2], shared[4:]])
    y = torch.cat([foreign[2:], shared])
    found = drop_dtw(x, y, drop_cost=0.3)
    assert found.kept is not None
    assert found.kept[0].tolist() == [True] * 4 + [False] * 2 + [True] * 6
    assert found.kept[1].tolist() == [False] * 2 + [True] * 10
    assert [j - 2 for _, j in found.path] == list(range(10))
    assert found.distance == pytest.approx(0.0, abs=1e-6)
    assert found.cost == pytest.approx(4 * 0.3, abs=1e-5)
    times = found.time_map(np.arange(12.0), np.arange(12.0))
    assert times.tolist() == pytest.approx([2, 3, 4, 5, 5 + 1 / 3, 5 + 2 / 3, *range(6, 12)])
    assert match(x, y, drop=0.1).path.tolist() == found.path.tolist()


def test_percentile() -> None:
    cost = torch.arange(10.0).reshape(2, 5)
    assert percentile_drop_cost(cost) == 2.0  # the third of ten
    assert percentile_drop_cost(cost, keep=1.0) == 9.0
    assert percentile_drop_cost(cost, keep=0.01) == 0.0


def test_other_devices_run_the_reference() -> None:
    table = accumulate_with_drops(*(torch.empty(2, *size, device="meta") for size in ((5, 4), (5,), (4,))))
    assert table.shape == (2, 5, 4)
    assert table.is_meta


def test_wrong_input_is_named() -> None:
    cost, x, y = problem(2, 3, 4)
    with pytest.raises(ValueError, match=r"drop_x must be \[2, 3\] beside a cost of \[2, 3, 4\], got \[2, 4\]"):
        accumulate_with_drops(cost, y, y)
    with pytest.raises(ValueError, match="keep must be above 0 and at most 1"):
        match(torch.eye(3), torch.eye(3), drop=0.0)
    with pytest.raises(ValueError, match="give drop or subsequence"):
        match(torch.eye(3), torch.eye(3), drop=0.3, subsequence=True)
    with pytest.raises(ValueError, match="3 × 3 frames are too many to drop some"):
        match(torch.eye(3), torch.eye(3), drop=0.3, max_cells=4)
    with pytest.raises(ValueError, match="cost contains NaN"):
        shortest_path_with_drops(cost[0] * torch.nan, x[0], y[0])
    everything = shortest_path_with_drops(cost[1] + 9, x[0], y[0])
    with pytest.raises(ValueError, match="all frames were dropped"):
        everything.frame_map()
