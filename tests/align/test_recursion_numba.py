"""The CPU kernel against the reference: odd shapes, strides, buffers, threads and processes."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from inphase.align import accumulate
from inphase.align.numba import recursion_numba
from inphase.align.recursion import Kind
from tests.align.parity import KINDS, SHAPES, both, check_parity, costs

pytestmark = pytest.mark.slow

kinds = pytest.mark.parametrize("kind", KINDS)
starts = pytest.mark.parametrize("free_start", [False, True], ids=["fixed", "free"])


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Give torch back the threads it had."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


@pytest.fixture(params=[True, False], ids=["kept", "recomputed"])
def keep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with the state for the backward pass kept, and with none kept."""
    monkeypatch.setattr(recursion_numba, "MAX_KEPT_STATE", 10**9 if request.param else 0)


# Both sides keep float64 state: they differ by rounding, of the result where that is float32.
@pytest.mark.usefixtures("keep")
@kinds
@starts
@pytest.mark.parametrize(("m", "n"), SHAPES)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-10), (torch.float32, 2e-7)], ids=["double", "single"])
def test_parity(kind: Kind, free_start: bool, m: int, n: int, dtype: torch.dtype, error: float) -> None:
    check_parity(costs(2, m, n, dtype=dtype), kind, free_start=free_start, values=error, gradients=error)


@pytest.mark.usefixtures("keep")
@pytest.mark.parametrize("kind", ["smooth", "soft"])
@pytest.mark.parametrize("gamma", [1e-6, 0.01, 1.0, 100.0])
def test_parity_over_temperatures(kind: Kind, gamma: float) -> None:
    check_parity(costs(2, 37, 41), kind, gamma=gamma, values=1e-10, gradients=1e-10)


@pytest.mark.usefixtures("keep")
@kinds
@starts
def test_parity_where_predecessors_are_equal(kind: Kind, free_start: bool) -> None:
    cost = torch.randint(3, (4, 37, 41), generator=torch.Generator().manual_seed(0)).double()
    check_parity(cost, kind, free_start=free_start, values=1e-10, gradients=1e-10)


@pytest.mark.parametrize("rows", [7, 8, 9, 31, 32, 33, 64, 65, 97])
def test_parity_where_strips_begin_and_end(rows: int) -> None:
    for columns in (1, 8, 31, 130):
        check_parity(costs(2, rows, columns), "smooth", values=1e-10, gradients=1e-10)


@pytest.mark.usefixtures("keep")
@kinds
@starts
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 7), (7, 1), (20, 20), (63, 64), (70, 150)])
def test_buffers_are_written_before_they_are_read(
    kind: Kind, free_start: bool, m: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost, grad = costs(3, m, n), costs(3, m, n, seed=1)
    expected = both(cost, grad, kind, 0.1, free_start)
    made = []

    def undefined(array: NDArray[Any]) -> NDArray[Any]:
        made.append(array)
        return np.full_like(array, np.nan)

    empty, empty_like = np.empty, np.empty_like
    monkeypatch.setattr(recursion_numba, "_spare_memory", [])
    monkeypatch.setattr(np, "empty", lambda *args, **options: undefined(empty(*args, **options)))
    monkeypatch.setattr(np, "empty_like", lambda *args, **options: undefined(empty_like(*args, **options)))
    results = both(cost, grad, kind, 0.1, free_start)
    assert len(made) >= 3  # the table, edges, the gradient; and the state where it is kept
    assert all(torch.equal(result, one) for result, one in zip(results, expected, strict=True))


@kinds
def test_strides_do_not_matter(kind: Kind) -> None:
    cost, grad = costs(4, 21, 35), costs(4, 21, 35, seed=1)
    expected = both(cost, grad, kind, 0.1, False)
    for strided in (
        cost.mT.contiguous().mT,
        cost.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        cost.repeat_interleave(2, 2)[:, :, ::2],
    ):
        assert not strided.is_contiguous()
        strided_grad = torch.empty_like(strided).copy_(grad)
        for result, one in zip(both(strided, strided_grad, kind, 0.1, False), expected, strict=True):
            assert torch.equal(result, one)


@kinds
def test_expanded_cost_and_gradient(kind: Kind) -> None:
    cost = costs(1, 21, 35)
    ones = torch.ones((), dtype=torch.float64).expand(4, 21, 35)
    table, gradient = both(cost.expand(4, -1, -1), ones, kind, 0.1, False)
    expected, expected_gradient = both(cost, torch.ones_like(cost), kind, 0.1, False)
    assert torch.equal(table, expected.expand_as(table))
    assert torch.equal(gradient, expected_gradient.expand_as(gradient))


@pytest.mark.usefixtures("keep")
@kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_among_threads_is_bit_for_bit_its_pairs(kind: Kind, dtype: torch.dtype) -> None:
    cost, grad = costs(7, 200, 150, dtype=dtype), costs(7, 200, 150, dtype=dtype, seed=1)
    assert cost.numel() >= 2 * recursion_numba.CELLS_PER_THREAD
    alone = [both(cost[b : b + 1], grad[b : b + 1], kind, 0.1, False) for b in range(7)]
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        for result, one in zip(
            both(cost, grad, kind, 0.1, False), map(torch.cat, zip(*alone, strict=True)), strict=True
        ):
            assert torch.equal(result, one)


@kinds
def test_table_is_the_same_with_and_without_gradient(kind: Kind) -> None:
    cost = costs(2, 40, 30)
    with_gradient, _ = both(cost, torch.ones_like(cost), kind, 0.1, False)
    torch.testing.assert_close(accumulate(cost, kind=kind), with_gradient, rtol=1e-14, atol=0)
    with torch.no_grad():
        assert not accumulate(cost.requires_grad_(), kind=kind).requires_grad


@kinds
def test_a_second_derivative_is_refused(kind: Kind) -> None:
    cost = costs(1, 4, 3).requires_grad_()
    with pytest.raises(RuntimeError, match=r"second derivatives .* without create_graph=True"):
        torch.autograd.grad(accumulate(cost, kind=kind).sum(), cost, create_graph=True)


def test_memory_is_left_to_the_next_call_and_never_shared_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recursion_numba, "_spare_memory", [])
    sizes = [(3, 40, 70), (2, 60, 50), (3, 40, 70)]
    given = [(costs(*size, seed=k).requires_grad_(), costs(*size, seed=9 - k)) for k, size in enumerate(sizes)]
    alone = [both(cost.detach(), grad, "smooth", 0.1, False)[1] for cost, grad in given]
    tables = [accumulate(cost) for cost, _ in given]
    assert recursion_numba._spare_memory == []
    for table, (cost, grad), expected in zip(tables, given, alone, strict=True):
        assert torch.equal(torch.autograd.grad(table, cost, grad)[0], expected)
    (left,) = recursion_numba._spare_memory
    assert accumulate(given[0][0]).grad_fn.kept[0].base is left  # type: ignore[union-attr]


@pytest.mark.usefixtures("keep")
@kinds
def test_backwards_twice_gives_the_same_whatever_came_between(kind: Kind) -> None:
    cost, grad = costs(3, 40, 70).requires_grad_(), costs(3, 40, 70, seed=1)
    table = accumulate(cost, kind=kind)
    (first,) = torch.autograd.grad(table, cost, grad, retain_graph=True)
    both(costs(3, 40, 70, seed=2), grad, kind, 0.1, False)
    assert torch.equal(torch.autograd.grad(table, cost, grad)[0], first)


@pytest.mark.usefixtures("keep")
@kinds
def test_two_backward_passes_at_a_time_do_not_meet(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    cost, grad = costs(3, 40, 70).requires_grad_(), costs(3, 40, 70, seed=1)
    _, expected = both(cost, grad, kind, 0.1, False)
    table, launch = accumulate(cost, kind=kind), recursion_numba.over_pairs
    meanwhile: list[Any] = []

    def interrupted(kernel: Any, *rest: Any) -> None:
        """Do what another thread may while this one is about to run its kernel."""
        if kernel is recursion_numba.run_back and not meanwhile:
            meanwhile.append(None)
            meanwhile.extend(torch.autograd.grad(table, cost, grad, retain_graph=True))
            with torch.enable_grad():
                both(costs(3, 40, 70, seed=2), grad, kind, 0.1, False)
        launch(kernel, *rest)

    monkeypatch.setattr(recursion_numba, "over_pairs", interrupted)
    (gradient,) = torch.autograd.grad(table, cost, grad, retain_graph=True)
    assert torch.equal(gradient, expected)
    assert torch.equal(meanwhile[1], expected)


@pytest.mark.usefixtures("keep")
def test_a_cost_changed_between_two_backward_passes_is_refused() -> None:
    leaf = costs(2, 20, 20).requires_grad_()
    cost = leaf * 1
    end = accumulate(cost)[:, -1, -1].sum()
    torch.autograd.backward(end, retain_graph=True)
    torch.autograd.backward(end, retain_graph=True)
    with torch.no_grad():
        cost.mul_(2)
    with pytest.raises(RuntimeError, match=r"changed in place|modified by an inplace operation"):
        torch.autograd.backward(end)


def accumulate_in_a_process(cost: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = torch.from_numpy(cost)
    table, gradient = both(values, values, "smooth", 0.1, False)
    return table.numpy(), gradient.numpy()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # that is the point
def test_it_works_after_a_fork() -> None:
    torch.set_num_threads(2)
    cost = costs(4, 300, 200).numpy()
    expected = accumulate_in_a_process(cost)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        results = pool.apply_async(accumulate_in_a_process, (cost,)).get(timeout=60)
    for result, one in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, one)


@kinds
@pytest.mark.parametrize(("m", "n"), [(1, 8192), (8192, 1)])
def test_one_long_row_adds_up(kind: Kind, m: int, n: int) -> None:
    cost, grad = costs(1, m, n), costs(1, m, n, seed=1)
    table, gradient = both(cost, grad, kind, 0.1, False)
    torch.testing.assert_close(table.flatten(), cost.flatten().cumsum(0))
    torch.testing.assert_close(gradient.flatten(), grad.flatten().flip(0).cumsum(0).flip(0))


def test_long_sequences() -> None:
    cost = costs(2, 2000, 1500, dtype=torch.float32)
    end = torch.zeros_like(cost)
    end[:, -1, -1] = 1
    smooth, _ = both(cost, end, "smooth", 0.1, False)
    hard, path = both(cost, end, "hard", 0.1, False)
    soft, weights = both(cost, end, "soft", 0.1, False)
    assert (smooth >= hard).all()
    assert (hard >= soft).all()
    # Every path visits the first and the last cell, every row and every column.
    for share in (path, weights):
        assert share.min() >= 0
        torch.testing.assert_close(share[:, [0, -1], [0, -1]], torch.ones(2, 2))
        assert share.sum(1).min() > 1 - 1e-5
        assert share.sum(2).min() > 1 - 1e-5
    torch.testing.assert_close((path * cost).sum((1, 2)), hard[:, -1, -1], rtol=1e-5, atol=0)
    reverse = accumulate(cost.flip(1, 2), kind="soft")[:, -1, -1]
    torch.testing.assert_close(reverse, soft[:, -1, -1], rtol=1e-6, atol=0)


def test_an_integer_temperature_needs_no_other_kernel() -> None:
    cost = costs(1, 3, 3)
    expected = accumulate(cost, gamma=1.0)
    known = len(recursion_numba._forward.signatures)
    assert torch.equal(accumulate(cost, gamma=1), expected)
    assert len(recursion_numba._forward.signatures) == known
