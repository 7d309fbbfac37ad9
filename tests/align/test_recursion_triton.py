"""The GPU kernel against the reference, through the public function alone; triton itself is not needed to collect."""

import pytest
import torch

from inphase.align import accumulate
from inphase.align.recursion import Kind
from tests.align.parity import KINDS, SHAPES, both, check_parity, costs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
kinds = pytest.mark.parametrize("kind", KINDS)
starts = pytest.mark.parametrize("free_start", [False, True], ids=["fixed", "free"])
# float64 is computed as such. float32 carries its state in 48 bits or so and takes its exponentials in 24: a table is
# right to its own rounding, and a dense gradient, which adds up hundreds of weights, to some of the largest.
precisions = pytest.mark.parametrize(
    ("dtype", "values", "gradients"),
    [(torch.float64, 1e-10, 1e-10), (torch.float32, 5e-7, 2e-5)],
    ids=["double", "single"],
)
DEVICE = "cuda"


@kinds
@starts
@precisions
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_parity(
    kind: Kind, free_start: bool, m: int, n: int, dtype: torch.dtype, values: float, gradients: float
) -> None:
    cost = costs(3, m, n, dtype=dtype).to(DEVICE)
    check_parity(cost, kind, free_start=free_start, values=values, gradients=gradients)


@kinds
@precisions
@pytest.mark.parametrize("m", [31, 32, 33, 64, 65, 300])
@pytest.mark.parametrize("n", [1, 7, 33, 64, 65, 257])
def test_parity_where_strips_begin_and_end(
    kind: Kind, m: int, n: int, dtype: torch.dtype, values: float, gradients: float
) -> None:
    check_parity(costs(3, m, n, dtype=dtype).to(DEVICE), kind, values=values, gradients=gradients)


@kinds
@precisions
@pytest.mark.parametrize(("m", "n", "free_start"), [(33, 33, True), (64, 64, False), (96, 47, False)])
def test_parity_of_batches_large_enough_for_chains_of_strips(
    kind: Kind, free_start: bool, m: int, n: int, dtype: torch.dtype, values: float, gradients: float
) -> None:
    cost = costs(500, m, n, dtype=dtype).to(DEVICE)
    check_parity(cost, kind, free_start=free_start, values=values, gradients=gradients)


@kinds
def test_what_is_not_a_number_stays_where_it_belongs_in_a_chain_of_strips(kind: Kind) -> None:
    cost = costs(500, 70, 45, dtype=torch.float32).to(DEVICE)
    cost[5, 3, 44] = float("nan")  # the last column of a row
    table = accumulate(cost, kind=kind)
    rows = torch.arange(70, device=DEVICE)
    assert torch.equal(table[5, :, 44].isnan(), rows >= 3)
    assert int(table.isnan().sum()) == 67


@precisions
@pytest.mark.parametrize("kind", ["smooth", "soft"])
@pytest.mark.parametrize("gamma", [0.01, 1.0, 10.0])
def test_parity_over_temperatures(
    kind: Kind, gamma: float, dtype: torch.dtype, values: float, gradients: float
) -> None:
    # Exponentials and logarithms are right to some parts of γ, which can be more than the table holds.
    values *= max(1.0, gamma)
    check_parity(costs(2, 37, 41, dtype=dtype).to(DEVICE), kind, gamma=gamma, values=values, gradients=gradients)


@kinds
@starts
@precisions
def test_parity_where_predecessors_are_equal(
    kind: Kind, free_start: bool, dtype: torch.dtype, values: float, gradients: float
) -> None:
    cost = torch.randint(3, (4, 37, 41), generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype)
    check_parity(cost, kind, free_start=free_start, values=values, gradients=gradients)


@kinds
@precisions
def test_a_large_batch_is_bit_for_bit_its_pairs(
    kind: Kind, dtype: torch.dtype, values: float, gradients: float
) -> None:
    # From hundreds of pairs on a program does all strips of a pair; those of one pair are programs of their own.
    cost = costs(500, 70, 40, dtype=dtype).to(DEVICE)
    grad = costs(500, 70, 40, dtype=dtype, seed=1).to(DEVICE)
    batch = both(cost, grad, kind, 0.1, False)
    for b in (0, 1, 150, 499):
        for result, one in zip(batch, both(cost[b : b + 1], grad[b : b + 1], kind, 0.1, False), strict=True):
            assert torch.equal(result[b], one[0])


@kinds
@pytest.mark.parametrize(("batch", "m"), [(4, 20), (4, 70), (500, 70)])
def test_strides_do_not_matter(kind: Kind, batch: int, m: int) -> None:
    cost, grad = (costs(batch, m, 35, dtype=torch.float32, seed=seed).to(DEVICE) for seed in range(2))
    expected = both(cost, grad, kind, 0.1, False)
    for strided in (
        cost.mT.contiguous().mT,
        cost.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        cost.repeat_interleave(2, 2)[:, :, ::2],
        torch.nn.functional.pad(cost, (1, 0))[:, :, 1:],  # begins between words of 16 bytes
    ):
        assert not strided.is_contiguous()
        strided_grad = torch.empty_strided(grad.shape, cost.mT.contiguous().mT.stride(), device=DEVICE).copy_(grad)
        for result, one in zip(both(strided, strided_grad, kind, 0.1, False), expected, strict=True):
            assert torch.equal(result, one)


@kinds
@pytest.mark.parametrize(("batch", "m"), [(4, 20), (4, 70), (500, 70)])
def test_expanded_cost_and_gradient(kind: Kind, batch: int, m: int) -> None:
    cost = costs(1, m, 35, dtype=torch.float32).to(DEVICE)
    ones = torch.ones((), device=DEVICE).expand(batch, m, 35)
    table, gradient = both(cost.expand(batch, -1, -1), ones, kind, 0.1, False)
    expected, expected_gradient = both(cost, torch.ones_like(cost), kind, 0.1, False)
    assert torch.equal(table, expected.expand_as(table))
    assert torch.equal(gradient, expected_gradient.expand_as(gradient))


@kinds
@pytest.mark.parametrize("m", [20, 70])
def test_buffers_are_written_before_they_are_read(kind: Kind, m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cost, grad = (costs(3, m, 50, dtype=torch.float32, seed=seed).to(DEVICE) for seed in range(2))
    expected = both(cost, grad, kind, 0.1, False)
    new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like

    def undefined(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(float("nan") if tensor.is_floating_point() else 0)

    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *args, **options: undefined(new_empty(*args, **options)))
    monkeypatch.setattr(torch, "empty_like", lambda *args, **options: undefined(empty_like(*args, **options)))
    for result, one in zip(both(cost, grad, kind, 0.1, False), expected, strict=True):
        assert torch.equal(result, one)


@pytest.mark.parametrize("kind", ["smooth", "soft"])
@pytest.mark.parametrize("m", [20, 100])
def test_nan_does_not_hang_and_reaches_every_cell_after_it(kind: Kind, m: int) -> None:
    cost = costs(3, m, 40, dtype=torch.float32).to(DEVICE)
    cost[1, 5, 3] = float("nan")
    table, gradient = both(cost, torch.ones_like(cost), kind, 0.1, False)
    after = torch.zeros_like(table, dtype=torch.bool)
    after[1, 5:, 3:] = True
    assert torch.equal(table.isnan(), after)
    assert gradient[[0, 2]].isfinite().all()


@kinds
@pytest.mark.parametrize("m", [20, 100])
def test_cuda_graph(kind: Kind, m: int) -> None:
    cost = costs(3, m, 40, dtype=torch.float32).to(DEVICE).requires_grad_()
    grad = costs(3, m, 40, dtype=torch.float32, seed=1).to(DEVICE)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(accumulate(cost, kind=kind), cost, grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        table = accumulate(cost, kind=kind)
        (gradient,) = torch.autograd.grad(table, cost, grad)
    for seed in (2, 3):
        with torch.no_grad():
            cost.copy_(costs(3, m, 40, dtype=torch.float32, seed=seed))
        graph.replay()
        expected, expected_gradient = both(cost, grad, kind, 0.1, False)
        assert torch.equal(table.detach(), expected)
        assert torch.equal(gradient, expected_gradient)


@kinds
@pytest.mark.parametrize("m", [20, 100])
def test_backwards_twice_gives_the_same_bits(kind: Kind, m: int) -> None:
    # What strips hand each other over is cleared by who reads it, for whoever is next.
    cost = costs(3, m, 40, dtype=torch.float32).to(DEVICE).requires_grad_()
    grad = costs(3, m, 40, dtype=torch.float32, seed=1).to(DEVICE)
    table = accumulate(cost, kind=kind)
    once, twice, thrice = (torch.autograd.grad(table, cost, grad, retain_graph=True)[0] for _ in range(3))
    assert torch.equal(once, twice)
    assert torch.equal(once, thrice)


def test_cells_numbered_in_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    cost, grad = (costs(3, 70, 50, dtype=torch.float32, seed=seed).to(DEVICE) for seed in range(2))
    expected = both(cost, grad, "smooth", 0.1, False)
    from inphase.align.triton import recursion_triton

    monkeypatch.setattr(recursion_triton, "_wide", lambda *_: True)
    for result, one in zip(both(cost, grad, "smooth", 0.1, False), expected, strict=True):
        assert torch.equal(result, one)


@kinds
def test_streams_do_not_meet(kind: Kind) -> None:
    pairs = [
        (costs(8, 200, 150, seed=s).float().to(DEVICE), costs(8, 200, 150, seed=9).float().to(DEVICE)) for s in range(4)
    ]
    expected = [both(*pair, kind, 0.1, False) for pair in pairs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in pairs]  # type: ignore[no-untyped-call]
    for _ in range(5):
        results = []
        for stream, pair in zip(streams, pairs, strict=True):
            with torch.cuda.stream(stream):
                results.append(both(*pair, kind, 0.1, False))
        torch.cuda.synchronize()
        for result, one in zip(results, expected, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(result, one, strict=True))


@kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(kind: Kind, dtype: torch.dtype) -> None:
    cost = costs(2, 40, 33).to(DEVICE, dtype).requires_grad_()
    with torch.autocast("cuda", dtype=dtype):
        table = accumulate(cost, kind=kind)
    (gradient,) = torch.autograd.grad(table.sum(), cost)
    assert table.dtype == torch.float32
    assert gradient.dtype == dtype
    assert torch.equal(table.detach(), accumulate(cost.detach().float(), kind=kind))


@kinds
@pytest.mark.parametrize(("m", "n"), [(1, 8192), (8192, 1)])
def test_one_long_row_adds_up(kind: Kind, m: int, n: int) -> None:
    cost, grad = (costs(1, m, n, seed=seed).to(DEVICE) for seed in range(2))
    table, gradient = both(cost, grad, kind, 0.1, False)
    torch.testing.assert_close(table.flatten(), cost.flatten().cumsum(0))
    torch.testing.assert_close(gradient.flatten(), grad.flatten().flip(0).cumsum(0).flip(0))


@kinds
@pytest.mark.parametrize(("m", "n"), [(2000, 1500), (8192, 64), (64, 8192)])
def test_long_sequences_agree_with_the_cpu(kind: Kind, m: int, n: int) -> None:
    cost = costs(2, m, n, dtype=torch.float32)
    end = torch.zeros_like(cost)
    end[:, -1, -1] = 1
    table, gradient = both(cost.to(DEVICE), end.to(DEVICE), kind, 0.1, False)
    expected, expected_gradient = both(cost, end, kind, 0.1, False)
    # Negative costs lead to sums near 0 after two thousand steps: their error is that of the steps.
    torch.testing.assert_close(table.cpu(), expected, rtol=5e-7, atol=2e-6)
    scale = float(expected_gradient.abs().max())
    torch.testing.assert_close(gradient.cpu(), expected_gradient, rtol=0, atol=1e-3 * scale)


@kinds
def test_a_second_derivative_is_refused(kind: Kind) -> None:
    cost = costs(1, 4, 3).to(DEVICE).requires_grad_()
    with pytest.raises(RuntimeError, match=r"second derivatives .* without create_graph=True"):
        torch.autograd.grad(accumulate(cost, kind=kind).sum(), cost, create_graph=True)
