from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from inphase.align import dtw, matching
from inphase.align.cost import contrastive_costs
from inphase.align.matching import align_with_itself, match, match_many, pair_cost, subsequence_cost
from inphase.align.numba import path_numba
from inphase.align.numba.path_numba import backtrack, hard_table
from inphase.align.path import Alignment
from tests.conftest import CUDA

Pairs = list[tuple[NDArray[np.float32], NDArray[np.float32]]]


def walk(rng: np.random.Generator, frames: int) -> NDArray[np.float32]:
    """Draw unit vectors [T, 16] that wander."""
    values = rng.standard_normal((frames, 16)).cumsum(0) + rng.standard_normal(16)
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def walks(count: int, *, seed: int = 1) -> Pairs:
    """Draw pairs of any lengths."""
    rng = np.random.default_rng(seed)
    return [(walk(rng, int(m)), walk(rng, int(n))) for m, n in rng.integers(1, 40, (count, 2))]


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("subsequence", [False, True])
@pytest.mark.parametrize("cost", ["contrastive", "cosine"])
def test_pairs_in_batches_are_pairs_one_by_one(
    device: str, subsequence: bool, cost: matching.PairCost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "BATCH_CELLS", 2500)
    drawn = walks(25)
    found = list(match_many(drawn, cost=cost, subsequence=subsequence, keep_cost=True, device=device))
    for (x, y), each in zip(drawn, found, strict=True):
        expected = match(x, y, cost=cost, subsequence=subsequence)
        assert each.shape == expected.shape == (len(x), len(y))
        if device == "cpu":  # elsewhere products are rounded in another order, and decide between equals
            np.testing.assert_array_equal(each.path, expected.path)
        assert each.distance == pytest.approx(expected.distance, abs=1e-5)
        assert each.cost == pytest.approx(expected.cost, abs=1e-4)
        assert each.cost_matrix is not None
        assert expected.cost_matrix is not None
        np.testing.assert_allclose(each.cost_matrix, expected.cost_matrix, atol=1e-4)


def test_a_pair_too_long_for_one_table_is_aligned_piece_by_piece() -> None:
    rng = np.random.default_rng(1)
    x, y = walk(rng, 40), walk(rng, 30)
    (found,) = match_many([(x, y)], max_cells=500, batch_cells=500)
    expected = match(x, y, max_cells=500)
    np.testing.assert_array_equal(found.path, expected.path)
    assert found.cost_matrix is expected.cost_matrix is None
    assert (found.distance, found.cost) == (expected.distance, expected.cost)
    assert found.distance == pytest.approx(match(x, y).distance, abs=0.1)


@pytest.mark.parametrize("long", [False, True])
def test_copies_have_a_distance_of_at_least_zero(long: bool) -> None:
    rng = np.random.default_rng(0)
    copies = [rng.normal(size=(7, 32)).astype(np.float32) for _ in range(40)]
    copies = [values / np.linalg.norm(values, axis=1, keepdims=True) for values in copies]
    found = match_many(
        [(values, values) for values in copies], max_cells=20 if long else 10**6, batch_cells=1 if long else 500
    )
    distances = [each.distance for each in found]
    assert min(distances) >= 0
    assert max(distances) < 1e-6


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("free_start", [False, True])
def test_tables_filled_at_once_are_those_filled_one_by_one(kind: torch.dtype, free_start: bool) -> None:
    """What a GPU does, done here: padding reaches no cell that is read, and paths are the same."""
    rng = np.random.default_rng(2)
    rows, columns = (rng.integers(1, 24, 9).tolist() for _ in range(2))
    costs = torch.from_numpy(rng.random((9, max(rows), max(columns)))).to(kind)
    for number, (m, n) in enumerate(zip(rows, columns, strict=True)):
        costs[number, m:], costs[number, :, n:] = torch.nan, torch.nan
    one_by_one = list(matching._fill_tables_one_by_one(costs, rows, columns, free_start))
    at_once = list(matching._fill_tables_at_once(costs, rows, columns, free_start))
    for one, other, m, n in zip(one_by_one, at_once, rows, columns, strict=True):
        assert one.shape == other.shape == (m, n)
        np.testing.assert_allclose(other, one, rtol=1e-12)
        np.testing.assert_array_equal(backtrack(other, n - 1, free_start), backtrack(one, n - 1, free_start))


@pytest.mark.parametrize("free_start", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_tables_and_paths_without_numba_are_those_of_the_kernels(
    monkeypatch: pytest.MonkeyPatch, kind: type[np.floating[Any]], free_start: bool
) -> None:
    """Small whole costs have many ties, and some cells cannot be passed."""
    rng = np.random.default_rng(3)
    shapes = [(1, 1), (1, 9), (9, 1), (2, 2), (7, 30), (30, 7), *rng.integers(1, 24, (20, 2)).tolist()]
    costs = [rng.integers(0, 4, shape).astype(kind) for shape in shapes]
    for cost in costs[::3]:
        cost[rng.random(cost.shape) < 0.2] = np.inf
    found: dict[int, list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    for plain in (0, len(costs)):
        monkeypatch.setattr(path_numba, "_tables", count())
        monkeypatch.setattr(path_numba, "_paths", count())
        monkeypatch.setattr(path_numba, "MAX_PLAIN_TABLES", plain)
        tables = [hard_table(cost, free_start) for cost in costs]
        found[plain] = [(table, backtrack(table, table.shape[1] - 1, free_start)) for table in tables]
    for (table, path), (plain_table, plain_path) in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(plain_table, table)
        np.testing.assert_array_equal(plain_path, path)
        assert plain_path.dtype == path.dtype


def test_many_tables_are_left_to_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    filled, fill = list[int](), path_numba.fill_diagonals

    def count_cells(cost: NDArray[Any], free_start: bool) -> NDArray[Any]:
        filled.append(cost.size)
        return fill(cost, free_start)

    monkeypatch.setattr(path_numba, "_tables", count())
    monkeypatch.setattr(path_numba, "MAX_PLAIN_TABLES", 3)
    monkeypatch.setattr(path_numba, "MAX_PLAIN_CELLS", 20)
    monkeypatch.setattr(path_numba, "fill_diagonals", count_cells)
    for size in (4, 5, 4, 4, 4):
        hard_table(np.ones((size, size)), False)
    assert filled == [16, 16, 16]


def test_an_alignment_holds_what_it_was_found_by() -> None:
    x, y = walks(1)[0]
    found = match(x, y)
    assert found.cost_matrix is not None
    np.testing.assert_array_equal(found.cost_matrix, pair_cost(torch.from_numpy(x), torch.from_numpy(y)))
    i, j = found.path.T
    assert found.cost == pytest.approx(found.cost_matrix[i, j].sum(), rel=1e-6)
    assert found.distance == pytest.approx(1 - (x[i] * y[j]).sum(1).mean(), abs=1e-6)
    assert found.table is None
    assert match(x, y, keep_cost=False).cost_matrix is None
    (batched,) = match_many([(x, y)])
    assert batched.cost_matrix is None


def test_the_cost_of_a_path_found_in_pieces_is_that_of_its_cells() -> None:
    rng = np.random.default_rng(3)
    x, y = walk(rng, 60), walk(rng, 50)
    found = match(x, y, cost="cosine", max_cells=400)
    i, j = found.path.T
    assert found.cost == pytest.approx((1 - (x[i] * y[j]).sum(1)).sum(), rel=1e-5)


@pytest.mark.parametrize("subsequence", [False, True])
def test_the_length_of_vectors_does_not_matter(subsequence: bool) -> None:
    x, y = walks(1)[0]
    lengths = np.random.default_rng(0).uniform(0.2, 5, (len(x), 1)).astype(np.float32)
    expected = match(x, y, subsequence=subsequence)
    (found,) = match_many([(x * lengths, y)], subsequence=subsequence)
    assert found.distance == pytest.approx(expected.distance, abs=1e-5)
    assert match(x * lengths, y, subsequence=subsequence).distance == pytest.approx(expected.distance, abs=1e-5)


def test_a_single_frame_goes_with_all() -> None:
    (x, y), times = (walk(np.random.default_rng(0), 1), walk(np.random.default_rng(1), 60)), np.arange(60) / 30
    assert match(x, y).path.tolist() == [[0, j] for j in range(60)]
    assert match(y, x).time_map(times, times[:1]).tolist() == [0.0] * 60


def test_the_contrastive_cost_treats_both_alike() -> None:
    x, y = (torch.from_numpy(walk(np.random.default_rng(n), n)) for n in (7, 5))
    torch.testing.assert_close(pair_cost(x, y), pair_cost(y, x).T)
    both = contrastive_costs(x[None], y[None], beta=0.3)
    torch.testing.assert_close(pair_cost(x, y, beta=0.3), both[:, 0].mean(0))
    assert (subsequence_cost(x, y).amin(1) == 0).all()


def match_in_a_batch(x: NDArray[np.float32], y: NDArray[np.float32], **settings: Any) -> Alignment:
    (found,) = match_many([(x, y)], **settings)
    return found


def test_wrong_inputs_are_named() -> None:
    x, y = walks(1)[0]
    for find in (match, match_in_a_batch):
        with pytest.raises(ValueError, match="16 and 8 dimensions"):
            find(x, y[:, :8])
        for subsequence in (False, True):
            with pytest.raises(ValueError, match="cost must be 'contrastive' or 'cosine', got 'euclid'"):
                find(x, y, cost="euclid", subsequence=subsequence)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="cost contains NaN"):
            find(np.where(np.arange(len(x))[:, None] == 1, np.float32(np.nan), x), y)


def test_no_pairs_give_no_alignments() -> None:
    assert list(match_many([])) == []


def test_frames_are_mapped_as_times_are() -> None:
    x, y = walks(1)[0]
    found = dtw(torch.from_numpy(x), torch.from_numpy(y))
    expected = found.time_map(np.arange(len(x), dtype=np.float64), np.arange(len(y), dtype=np.float64))
    np.testing.assert_array_equal(found.frame_map(), expected)
    assert found.distance == pytest.approx(match(x, y, cost="cosine").distance, abs=1e-6)
    itself = align_with_itself(5)
    assert itself.frame_map().tolist() == [0, 1, 2, 3, 4]
    assert (itself.cost, itself.distance) == (0, 0)
