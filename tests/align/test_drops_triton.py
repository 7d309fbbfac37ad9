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
    "size", [(1, 1), (1, 7), (7, 1), (20, 20), (31, 33), (32, 32), (63, 64), (129, 77), (300, 200)]
)
def test_parity(kind: Kind, size: tuple[int, int], dtype: torch.dtype, values: float, slopes: float) -> None:
    m, n = size
    generator = torch.Generator().manual_seed(0)
    drops = [torch.rand(3, length, generator=generator, dtype=torch.float64).to(dtype) for length in size]
    given = [costs(3, m, n, dtype=dtype), *drops]
    dense = torch.randn(3, m, n, generator=generator, dtype=torch.float64)
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
    cost, x, y = costs(40, 70, 40, dtype=torch.float32), torch.rand(40, 70), torch.rand(40, 40)
    whole = accumulate_with_drops(cost.to(DEVICE), x.to(DEVICE), y.to(DEVICE), kind=kind)
    alone = accumulate_with_drops(cost[7:8].to(DEVICE), x[7:8].to(DEVICE), y[7:8].to(DEVICE), kind=kind)
    assert torch.equal(whole[7], alone[0])
