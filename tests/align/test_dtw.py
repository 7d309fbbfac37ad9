from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.align import Warping, dtw, shortest_path, smooth_dtw, soft_dtw
from inphase.align.cost import Cost, pairwise_cost
from inphase.align.path import read_out
from tests import oracles

Warp = Callable[..., Warping]
WARPS: dict[str, Warp] = {"smooth": smooth_dtw, "soft": soft_dtw}
COSTS: tuple[Cost, ...] = ("contrastive", "cosine", "squared_euclidean")
kinds = pytest.mark.parametrize("kind", WARPS)
parts = pytest.mark.parametrize("subsequence", [False, True], ids=["whole", "part"])
shapes = pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 6), (6, 1), (5, 5), (7, 4)])


def sequences(m: int, n: int, *, batch: int = 2, d: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(batch, size, d, dtype=torch.float64, generator=generator) for size in (m, n))
    return x, y


@kinds
@parts
@shapes
@pytest.mark.parametrize("cost", COSTS)
def test_equals_the_scalar_recursion(kind: str, subsequence: bool, m: int, n: int, cost: Cost) -> None:
    x, y = sequences(m, n)
    warping = WARPS[kind](x, y, gamma=0.2, cost=cost, beta=0.3, subsequence=subsequence)
    for b, grid in enumerate(pairwise_cost(x, y, cost=cost, beta=0.3).numpy()):
        table = oracles.table(grid, kind, 0.2, free_start=subsequence)
        np.testing.assert_allclose(warping.table[b], table, rtol=1e-12, atol=1e-12)
        end = oracles.minimum(list(table[-1]), kind, 0.2) if subsequence else table[-1, -1]
        assert warping.cost[b].item() == pytest.approx(end, abs=1e-10)


def test_defaults_are_the_papers_and_soft_dtws_own() -> None:
    x, y = sequences(6, 5)
    contrastive = np.stack([oracles.contrastive_cost(u, v, 0.1) for u, v in zip(x.numpy(), y.numpy(), strict=True)])
    squares = ((x[:, :, None] - y[:, None]) ** 2).sum(3).numpy()
    for b in range(2):
        np.testing.assert_allclose(smooth_dtw(x, y).table[b], oracles.table(contrastive[b], "smooth", 0.1))
        np.testing.assert_allclose(soft_dtw(x, y).table[b], oracles.table(squares[b], "soft", 0.1))


@kinds
@parts
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("filling", [0.0, float("nan"), float("inf")])
def test_a_padded_batch_gives_each_pair_what_it_gets_alone(
    kind: str, subsequence: bool, cost: Cost, filling: float
) -> None:
    x_lengths, y_lengths = [7, 3, 1, 6], [5, 4, 2, 1]
    x, y = sequences(7, 5, batch=4)
    for b, (m, n) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        x[b, m:], y[b, n:] = filling, filling
    x, y = x.requires_grad_(), y.requires_grad_()
    options: dict[str, Any] = {"cost": cost, "subsequence": subsequence, "gamma": 0.3}
    padded = WARPS[kind](x, y, x_lengths=x_lengths, y_lengths=torch.tensor(y_lengths), **options)
    gradients = torch.autograd.grad(padded.cost @ torch.arange(1.0, 5.0, dtype=torch.float64), (x, y))
    for b, (m, n) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        u, v = x[b : b + 1, :m].detach().requires_grad_(), y[b : b + 1, :n].detach().requires_grad_()
        alone = WARPS[kind](u, v, **options)
        torch.testing.assert_close(padded.cost[b], alone.cost[0])
        torch.testing.assert_close(padded.table[b, :m, :n], alone.table[0])
        expected = torch.autograd.grad((b + 1) * alone.cost, (u, v))
        for gradient, one, size in zip(gradients, expected, (m, n), strict=True):
            torch.testing.assert_close(gradient[b, :size], one[0])
            assert (gradient[b, size:] == 0).all()


@kinds
def test_one_sequence_may_be_padded_alone(kind: str) -> None:
    x, y = sequences(6, 5)
    for lengths in ({"x_lengths": [3, 6]}, {"y_lengths": [5, 2]}):
        m, n = lengths.get("x_lengths", [6, 6]), lengths.get("y_lengths", [5, 5])
        costs = WARPS[kind](x, y, **lengths).cost
        for b in range(2):
            alone = WARPS[kind](x[b : b + 1, : m[b]], y[b : b + 1, : n[b]])
            torch.testing.assert_close(costs[b], alone.cost[0])


@kinds
@parts
def test_gradient(kind: str, subsequence: bool) -> None:
    x, y = (values.requires_grad_() for values in sequences(3, 4))
    lengths = {"x_lengths": [3, 2], "y_lengths": [1, 4]}

    def warp(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        warping = WARPS[kind](u, v, gamma=0.5, beta=0.5, subsequence=subsequence, **lengths)
        return warping.cost, warping.table

    assert torch.autograd.gradcheck(warp, (x, y))


@kinds
@parts
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_and_autocast(kind: str, subsequence: bool, dtype: torch.dtype) -> None:
    x, y = (values.to(dtype).requires_grad_() for values in sequences(6, 5))
    warping = WARPS[kind](x, y, subsequence=subsequence)
    exact = WARPS[kind](x.detach().double(), y.detach().double(), subsequence=subsequence)
    expected_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    assert warping.cost.dtype == warping.table.dtype == expected_dtype
    torch.testing.assert_close(warping.cost.double(), exact.cost, rtol=1e-5, atol=1e-5)
    assert torch.autograd.grad(warping.cost.sum(), x)[0].dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = WARPS[kind](x, y, subsequence=subsequence)
    assert torch.equal(lowered.cost, warping.cost)
    assert torch.equal(lowered.table, warping.table)


@kinds
def test_zero_gamma_is_dynamic_time_warping(kind: str) -> None:
    x, y = sequences(6, 5)
    for cost in COSTS:
        warped = WARPS[kind](x, y, gamma=0.0, cost=cost).cost
        assert warped.tolist() == pytest.approx([dtw(u, v, cost=cost).cost for u, v in zip(x, y, strict=True)])


@parts
@pytest.mark.parametrize("cost", COSTS)
def test_dtw_is_the_shortest_path_of_its_cost(device: torch.device, subsequence: bool, cost: Cost) -> None:
    x, y = (values.to(device).requires_grad_() for values in sequences(6, 9))
    alignment = dtw(x[0], y[0], cost=cost, beta=0.2, subsequence=subsequence)
    expected = shortest_path(pairwise_cost(x, y, cost=cost, beta=0.2)[0].cpu(), subsequence=subsequence)
    assert alignment.path.tolist() == expected.path.tolist()
    assert alignment.cost == pytest.approx(expected.cost)
    np.testing.assert_allclose(alignment.table, expected.table)  # type: ignore[arg-type]


def test_dtw_finds_a_repeated_frame_and_a_part() -> None:
    frames = torch.eye(4)
    assert dtw(frames, frames[[0, 1, 1, 2, 3]]).path.tolist() == [[0, 0], [1, 1], [1, 2], [2, 3], [3, 4]]
    assert dtw(frames[1:3], frames, subsequence=True).path.tolist() == [[0, 1], [1, 2]]


def test_dtw_refuses_a_frame_of_nan() -> None:
    frames = torch.eye(4)
    frames[2] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        dtw(frames, torch.eye(4))


def test_read_out_takes_the_end_of_each_pair() -> None:
    table = torch.arange(24.0).view(2, 3, 4)
    assert read_out(table, kind="smooth", gamma=0.1).tolist() == [11, 23]
    assert read_out(table, kind="smooth", gamma=0.1, x_lengths=[1, 3], y_lengths=[2, 4]).tolist() == [1, 23]
    assert read_out(table, kind="smooth", gamma=0.1, x_lengths=[2, 1]).tolist() == [7, 15]
    assert read_out(table, kind="smooth", gamma=0.1, y_lengths=[2, 1]).tolist() == [9, 20]
    hard = read_out(-table, kind="hard", gamma=0.1, x_lengths=[1, 2], y_lengths=[3, 2], subsequence=True)
    assert hard.tolist() == [-2, -17]
