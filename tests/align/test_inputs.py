"""Wrong input gets an error that names the value and the fix, through whichever door it comes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from inphase.align import (
    accumulate,
    contrastive_cost,
    cosine_cost,
    cycle_consistency,
    dtw,
    expected_path,
    shortest_path,
    smooth_dtw,
    soft_dtw,
    squared_euclidean_cost,
)
from inphase.align.cost import contrastive_costs, last_frame, no_autocast, single_precision, valid
from inphase.align.recursion import released_cycle_consistency
from inphase.losses import GTA

CPU = torch.device("cpu")
PAIRS: dict[str, Callable[..., Any]] = {
    "contrastive_cost": contrastive_cost,
    "contrastive_costs": contrastive_costs,
    "cosine_cost": cosine_cost,
    "squared_euclidean_cost": squared_euclidean_cost,
    "smooth_dtw": smooth_dtw,
    "soft_dtw": soft_dtw,
    "GTA.pair": GTA().pair,
}
CYCLES: dict[str, Callable[..., Any]] = {"paper": cycle_consistency, "released": released_cycle_consistency}
pairs = pytest.mark.parametrize("pair", list(PAIRS.values()), ids=list(PAIRS))
cycles = pytest.mark.parametrize("cycle", list(CYCLES.values()), ids=list(CYCLES))


def frames(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.ones(shape, device=device).to(dtype)


@pytest.mark.parametrize("pair", [pair for name, pair in PAIRS.items() if "dtw" not in name])
@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (frames(5, 3), frames(2, 4, 3), ValueError, r"x must be \[B, M, D\], got shape \[5, 3\]; .* needs x\[None\]"),
        (frames(2, 5, 3), frames(4, 3), ValueError, r"y must be \[B, N, D\], got shape \[4, 3\]; .* needs y\[None\]"),
        (frames(1, 2, 5, 3), frames(2, 4, 3), ValueError, r"x must be \[B, M, D\], got shape \[1, 2, 5, 3\]$"),
        ([[[1.0]]], frames(1, 4, 1), TypeError, "x must be a torch tensor .*, got list; use torch.as_tensor"),
    ],
)
def test_costs_take_batches_alone(
    pair: Callable[..., Any], x: Tensor, y: Tensor, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pair(x, y)


@pairs
@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (frames(2, 0, 3), frames(2, 4, 3), ValueError, r"x must be .* no empty dimension, got shape \[2, 0, 3\]"),
        (frames(2, 5, 3), frames(2, 4, 0), ValueError, r"y must be .* no empty dimension, got shape \[2, 4, 0\]"),
        (frames(2, 5, 3), frames(3, 4, 3), ValueError, "the same number of sequences, got 2 and 3"),
        (frames(2, 5, 3), frames(2, 4, 7), ValueError, "the same embedding dimension, got 3 and 7"),
        (frames(2, 5, 3, dtype=torch.int64), frames(2, 4, 3), TypeError, r"x must be .*got torch.int64; use x.float()"),
        (frames(2, 5, 3), frames(2, 4, 3, dtype=torch.bool), TypeError, r"y must be .*got torch.bool; use y.float()"),
        (
            frames(2, 5, 3),
            frames(2, 4, 3, dtype=torch.float64),
            TypeError,
            r"x is torch.float32 and y torch.float64; c",
        ),
        (frames(2, 5, 3), frames(2, 4, 3, device="meta"), ValueError, r"x is on cpu and y on meta; move one with .to"),
    ],
)
def test_two_sequences(pair: Callable[..., Any], x: Tensor, y: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pair(x, y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_two_devices() -> None:
    with pytest.raises(ValueError, match="x is on cpu and y on cuda:0; move one"):
        contrastive_cost(frames(1, 2, 3), frames(1, 2, 3, device="cuda"))


@pairs
@pytest.mark.parametrize("side", ["x_lengths", "y_lengths"])
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, 0], "must be at least 1, got 0; drop empty sequences"),
        ([3, -2], "must be at least 1, got -2; drop empty sequences"),
        ([3, 6], "must be at most the padded length 5, got 6"),
        ([3], r"must be 2 integers, got torch.int64 of shape \[1\]"),
        (torch.tensor([[3, 3]]), r"must be 2 integers, got torch.int64 of shape \[1, 2\]"),
        ([3.0, 2.0], r"must be 2 integers, got torch.float32 of shape \[2\]"),
        (torch.tensor([True, True]), r"must be 2 integers, got torch.bool of shape \[2\]"),
    ],
)
def test_lengths(pair: Callable[..., Any], side: str, lengths: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"{side} {message}"):
        pair(frames(2, 5, 3), frames(2, 5, 3), **{side: lengths})


@cycles
def test_cycle_tables(cycle: Callable[..., Any]) -> None:
    good = frames(2, 3, 4)
    with pytest.raises(ValueError, match=r"table_xy must be \[B, M, N\], got shape \[3, 4\]; .*table_xy\[None\]"):
        cycle(frames(3, 4), frames(2, 4, 3))
    with pytest.raises(ValueError, match=r"table_yx must be \[2, 4, 3\] beside table_xy \[2, 3, 4\], got \[2, 3, 4\]"):
        cycle(good, good)
    with pytest.raises(ValueError, match="table_xy is on cpu and table_yx on meta"):
        cycle(good, frames(2, 4, 3, device="meta"))
    with pytest.raises(TypeError, match=r"table_xy is torch.float32 and table_yx torch.float16"):
        cycle(good, frames(2, 4, 3, dtype=torch.float16))
    with pytest.raises(ValueError, match="x_lengths must be at most the padded length 3, got 4"):
        cycle(good, good.mT, x_lengths=[3, 4])
    with pytest.raises(ValueError, match="y_lengths must be at least 1, got 0"):
        cycle(good, good.mT, y_lengths=[4, 0])
    with pytest.raises(ValueError, match="alpha must be positive and finite, got 0"):
        cycle(good, good.mT, alpha=0)


@pytest.mark.parametrize("function", [accumulate, expected_path])
def test_cost_of_a_batch(function: Callable[..., Any]) -> None:
    with pytest.raises(
        ValueError, match=r"cost must be \[B, M, N\], got shape \[3, 4\]; a single item needs cost\[None\]"
    ):
        function(frames(3, 4))
    with pytest.raises(ValueError, match=r"no empty dimension, got shape \[2, 0, 4\]"):
        function(frames(2, 0, 4))
    with pytest.raises(TypeError, match=r"cost must be float16.*got torch.int32; use cost.float\(\)"):
        function(frames(1, 3, 4, dtype=torch.int32))
    with pytest.raises(ValueError, match="kind must be 'smooth', 'soft' or 'hard', got 'sharp'"):
        function(frames(1, 3, 4), kind="sharp")
    for kind in ("smooth", "soft", "hard"):
        with pytest.raises(ValueError, match="gamma must be at least 0 and finite, got -1"):
            function(frames(1, 3, 4), kind=kind, gamma=-1)


def test_single_sequences() -> None:
    with pytest.raises(ValueError, match=r"cost must be \[M, N\], got shape \[1, 3, 4\]$"):
        shortest_path(frames(1, 3, 4))
    with pytest.raises(ValueError, match=r"x is a batch and y one sequence: give two sequences \[T, D\]"):
        dtw(frames(1, 3, 4), frames(3, 4))
    with pytest.raises(ValueError, match="dtw aligns one pair, got a batch of 2: call it for each, or match_many"):
        dtw(frames(2, 3, 4), frames(2, 3, 4))
    with pytest.raises(ValueError, match="the same embedding dimension, got 4 and 1"):
        dtw(frames(3, 4), frames(3))
    with pytest.raises(ValueError, match=r"x must be \[T\], \[T, D\] or \[B, T, D\], got shape \[1, 1, 3, 4\]"):
        dtw(frames(1, 1, 3, 4), frames(3, 4))
    with pytest.raises(ValueError, match="the same embedding dimension, got 4 and 5"):
        dtw(frames(3, 4), frames(3, 5))


@pytest.mark.parametrize("warp", [smooth_dtw, soft_dtw])
@pytest.mark.parametrize("gamma", [-0.5, float("nan"), float("inf")])
def test_gamma(warp: Callable[..., Any], gamma: float) -> None:
    with pytest.raises(ValueError, match=f"gamma must be at least 0 and finite, got {gamma}"):
        warp(frames(1, 3, 4), frames(1, 3, 4), gamma=gamma)


@pytest.mark.parametrize("function", [contrastive_cost, contrastive_costs, smooth_dtw])
@pytest.mark.parametrize("beta", [0, -0.1, float("inf")])
def test_beta(function: Callable[..., Any], beta: float) -> None:
    with pytest.raises(ValueError, match=f"beta must be positive and finite, got {beta}"):
        function(frames(1, 3, 4), frames(1, 3, 4), beta=beta)


def test_valid_marks_frames_and_nothing_where_all_are() -> None:
    def mark(lengths: Any) -> Tensor | None:
        return valid(lengths, name="lengths", batch=2, size=3, device=CPU)

    expected = [[True, False, False], [True, True, True]]
    for lengths in ([1, 3], (1, 3), torch.tensor([1, 3]), torch.tensor([1, 3], dtype=torch.uint8)):
        marked = mark(lengths)
        assert marked is not None
        assert marked.tolist() == expected
    assert mark(None) is None
    assert mark([3, 3]) is None


def test_last_frame() -> None:
    assert last_frame(None, batch=2, size=5, device=CPU).tolist() == [4, 4]
    assert last_frame([1, 5], batch=2, size=5, device=CPU).tolist() == [0, 4]
    assert last_frame(torch.tensor([1, 5], dtype=torch.uint8), batch=2, size=5, device=CPU).tolist() == [0, 4]


def test_precision() -> None:
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    raised = single_precision(*[torch.ones(1, dtype=kind) for kind in kinds])
    assert [t.dtype for t in raised] == [torch.float32, torch.float32, torch.float32, torch.float64]
    x = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        with no_autocast(x):
            assert (x @ x).dtype == torch.float32


SINGLE = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
OTHER = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)


@pytest.mark.parametrize("warp", [smooth_dtw, soft_dtw])
def test_arrays_lists_and_unequal_lengths_are_taken_alike(warp: Callable[..., Any]) -> None:
    x, y = torch.from_numpy(SINGLE), torch.from_numpy(OTHER)
    expected = warp(x[None], y[None])
    for given in ((x, y), (SINGLE, OTHER), (SINGLE.tolist(), OTHER.tolist()), (x, OTHER), (SINGLE.tolist(), y)):
        found = warp(*given)
        torch.testing.assert_close(found.cost.float(), expected.cost[0])
        torch.testing.assert_close(found.table.float(), expected.table[0])
    assert warp(x, y).cost.shape == ()
    together = warp([SINGLE, SINGLE[:4]], [y, y[:6]])
    torch.testing.assert_close(together.cost, torch.stack([warp(x, y).cost, warp(x[:4], y[:6]).cost]))
    lines = warp([[0, 1, 2], [0, 2]], [[0, 1], [0, 1, 2]])
    torch.testing.assert_close(lines.cost[1], warp(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0, 2.0])).cost)


def test_dtw_takes_arrays_lists_and_numbers() -> None:
    x, y = torch.from_numpy(SINGLE), torch.from_numpy(OTHER)
    expected = dtw(x, y)
    for given in ((SINGLE, OTHER), (SINGLE.tolist(), OTHER.tolist()), (x, OTHER)):
        found = dtw(*given)
        assert found.path.tolist() == expected.path.tolist()
        assert found.cost == pytest.approx(expected.cost, rel=1e-5)
    line = [0, 1, 2, 3]
    assert dtw(line, [0, 1, 1, 2, 3]).path.tolist() == [[0, 0], [1, 1], [1, 2], [2, 3], [3, 4]]
    assert dtw(np.array(line)[::-1], torch.tensor([3.0, 2.0, 1.0, 0.0])).cost == 0
    with pytest.raises(TypeError, match="x must be numbers of shape"):
        dtw(["a", "b"], line)
    with pytest.raises(ValueError, match="leave x_lengths out"):
        smooth_dtw([SINGLE, SINGLE], [OTHER, OTHER], x_lengths=[3, 3])
    with pytest.raises(ValueError, match=r"x must be a list of sequences \[T, D\] of one D"):
        smooth_dtw([SINGLE, SINGLE[:, :2]], [OTHER, OTHER])


@pytest.mark.parametrize("cost", ["contrastive", "cosine"])
def test_a_cost_of_directions_is_refused_in_one_dimension(cost: Any) -> None:
    for call in (dtw, smooth_dtw, soft_dtw):
        with pytest.raises(ValueError, match=f"the {cost} cost compares directions, and sequences of dimension 1"):
            call([0.0, 1.0], [0.0, 2.0], cost=cost)
    with pytest.raises(ValueError, match=f"the {cost} cost compares directions"):
        GTA(cost=cost)([0.0, 1.0], [0.0, 2.0])


def test_the_first_nan_is_named_when_asked() -> None:
    x, y = torch.rand(2, 5, 3), torch.rand(2, 6, 3)
    y[1, 4, 2] = float("nan")
    for call in (smooth_dtw, soft_dtw, GTA()):
        with pytest.raises(ValueError, match=r"y\[1\] is NaN at frame 4"):
            call(x, y, check=True)
        call(x, y, y_lengths=[6, 4], check=True)  # padding may hold anything
    y[0, 2] = float("inf")
    with pytest.raises(ValueError, match=r"y\[0\] is infinite at frame 2"):
        smooth_dtw(x, y, check=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_forward_mode_is_refused() -> None:
    x, y = torch.rand(1, 5, 3), torch.rand(1, 6, 3)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward-mode derivatives of the DTW recursion"):
        smooth_dtw(forward_ad.make_dual(x, torch.ones_like(x)), y)  # type: ignore[no-untyped-call]
