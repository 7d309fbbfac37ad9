"""The GPU kernel with drops against the reference, through the public function alone."""

import pytest
import torch

from inphase.align import accumulate_with_drops
from inphase.align.recursion import Kind, accumulate_with_drops_reference
from tests.align.parity import KINDS, costs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
DEVICE = "cuda"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "values", "slopes"),
    [(torch.float64, 1e-10, 1e-10), (torch.float32, 5e-7, 2e-5)],
    ids=["double", "single"],
)
@pytest.mark.parametrize(
    "shape",
    [
        *((3, 1, 1), (3, 1, 7), (3, 7, 1), (3, 20, 20), (3, 31, 33), (3, 32, 32), (3, 63, 64), (3, 129, 77)),
        *((3, 32, 1), (3, 32, 7), (3, 29, 15)),  # the last lane begins after the first has ended
        *((3, 300, 200), (500, 33, 33), (500, 64, 64), (500, 96, 47)),  # 500: a program does all strips of a pair
    ],
)
def test_parity(kind: Kind, shape: tuple[int, int, int], dtype: torch.dtype, values: float, slopes: float) -> None:
    batch, m, n = shape
    generator = torch.Generator().manual_seed(0)
    drops = [torch.rand(batch, length, generator=generator, dtype=torch.float64).to(dtype) for length in (m, n)]
    given = [costs(batch, m, n, dtype=dtype), *drops]
    dense = torch.randn(batch, m, n, generator=generator, dtype=torch.float64)
    exact = [each.double().requires_grad_() for each in given]
    expected = accumulate_with_drops_reference(exact[0], exact[1], exact[2], kind, 0.1)
    expected_gradients = torch.autograd.grad(expected, exact, dense)
    inputs = [each.to(DEVICE).requires_grad_() for each in given]
    table = accumulate_with_drops(*inputs, kind=kind, gamma=0.1)
    assert table.dtype == dtype
    torch.testing.assert_close(table.detach().cpu().double(), expected.detach(), rtol=values, atol=values)
    found = torch.autograd.grad(table, inputs, dense.to(DEVICE, dtype))
    for result, one in zip(found, expected_gradients, strict=True):
        scale = float(one.abs().max().clamp_min(1))
        torch.testing.assert_close(result.cpu().double(), one, rtol=0, atol=slopes * scale)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_bit_for_bit_its_pairs(kind: Kind) -> None:
    cost, x, y = costs(500, 70, 40, dtype=torch.float32), torch.rand(500, 70), torch.rand(500, 40)
    whole = accumulate_with_drops(cost.to(DEVICE), x.to(DEVICE), y.to(DEVICE), kind=kind)
    alone = accumulate_with_drops(cost[7:8].to(DEVICE), x[7:8].to(DEVICE), y[7:8].to(DEVICE), kind=kind)
    assert torch.equal(whole[7], alone[0])
