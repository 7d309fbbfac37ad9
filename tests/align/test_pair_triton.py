"""The fused loss of short pairs on a GPU, against the composition it replaces in float64 on the CPU."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from inphase.losses import GTA

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

Variant = Literal["paper", "released"]
VARIANTS: tuple[Variant, ...] = ("paper", "released")
SHAPES = [
    (1, 1, 1, 3),
    (2, 1, 7, 5),
    (3, 7, 13, 31),
    (4, 20, 20, 128),
    (64, 20, 20, 128),
    (2, 32, 32, 130),
    (5, 32, 2, 64),
]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def differentiate(criterion: GTA, x: Tensor, y: Tensor, weights: dict[str, float]) -> tuple[dict[str, Tensor], Tensor]:
    """Give the terms, and the gradient in x and y of a weighted sum of them."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    terms = criterion.pair(x, y)
    total = sum(weight * terms[name] for name, weight in weights.items())
    assert isinstance(total, Tensor)
    grads = torch.autograd.grad(total, (x, y))
    return terms, torch.cat([grad.flatten() for grad in grads]).double().cpu()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("minimum", ["smooth", "soft"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_composition(shape: tuple[int, int, int, int], minimum: str, variant: Variant) -> None:
    batch, m, n, dimension = shape
    x, y = draw(batch, m, dimension, seed=1), draw(batch, n, dimension, seed=2)
    criterion = GTA(minimum=minimum, gamma=0.2, beta=0.3, alpha=1.5, variant=variant)  # type: ignore[arg-type]
    weights = {"loss": 0.7, "align": -0.3, "cycle": 2.0}
    expected, slope = differentiate(criterion, x, y, weights)
    terms, fused = differentiate(criterion, x.float().cuda(), y.float().cuda(), weights)
    for name in expected:
        torch.testing.assert_close(terms[name].double().cpu(), expected[name], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused, slope, rtol=0, atol=2e-5 * max(1.0, float(slope.abs().max())))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["loss", "align", "cycle"])
def test_each_term_alone_can_be_differentiated(name: str, variant: Variant) -> None:
    x, y = draw(3, 20, 16, seed=1), draw(3, 18, 16, seed=2)
    criterion = GTA(variant=variant)
    _, slope = differentiate(criterion, x, y, {name: 1.0})
    _, fused = differentiate(criterion, x.float().cuda(), y.float().cuda(), {name: 1.0})
    torch.testing.assert_close(fused, slope, rtol=0, atol=2e-5 * float(slope.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised_and_its_gradient_lowered(dtype: torch.dtype) -> None:
    x, y = draw(3, 20, 16, seed=1).to(dtype).cuda(), draw(3, 20, 16, seed=2).to(dtype).cuda()
    terms, slope = differentiate(GTA(), x.double().cpu(), y.double().cpu(), {"loss": 1.0})
    fused_terms, fused = differentiate(GTA(), x, y, {"loss": 1.0})
    assert fused_terms["loss"].dtype == torch.float32
    torch.testing.assert_close(fused_terms["loss"].double().cpu(), terms["loss"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused, slope, rtol=0, atol=1e-2 * float(slope.abs().max()))


def test_strided_and_expanded_input_and_a_vector_of_zeros() -> None:
    x = draw(1, 20, 32, seed=1)[:, :, ::2].expand(3, 20, 16)
    y = draw(3, 16, 20, seed=2).mT.clone()
    y[1, 4] = 0
    y = y.mT.contiguous().mT
    _, slope = differentiate(GTA(), x, y, {"loss": 1.0})
    _, fused = differentiate(GTA(), x.float().cuda(), y.float().cuda(), {"loss": 1.0})
    keep = slope.abs() < 1e9  # the gradient at a vector of zeros is a division by the least norm
    torch.testing.assert_close(fused[keep], slope[keep], rtol=0, atol=2e-5 * float(slope[keep].abs().max()))


def test_what_begins_between_words_after_what_does_not() -> None:
    x, y = draw(3, 20, 16, seed=1).float().cuda(), draw(3, 20, 16, seed=2).float().cuda()
    expected, slope = differentiate(GTA(), x, y, {"loss": 1.0})
    apart = torch.nn.functional.pad(x.flatten(), (1, 0))[1:].view(x.shape)
    assert apart.data_ptr() % 16
    terms, fused = differentiate(GTA(), apart, y, {"loss": 1.0})
    torch.testing.assert_close(terms["loss"], expected["loss"])
    torch.testing.assert_close(fused, slope, rtol=0, atol=1e-6 * float(slope.abs().max()))


def test_without_gradient_and_backwards_twice() -> None:
    x, y = draw(3, 20, 16, seed=1).float().cuda(), draw(3, 18, 16, seed=2).float().cuda()
    plain = GTA().pair(x, y)["loss"]
    assert not plain.requires_grad
    x.requires_grad_()
    loss = GTA().pair(x, y)["loss"]
    assert torch.equal(loss.detach(), plain)
    (once,) = torch.autograd.grad(loss, x, torch.tensor(2.0, device="cuda"), retain_graph=True)
    (twice,) = torch.autograd.grad(loss, x, torch.tensor(4.0, device="cuda"))
    assert torch.equal(2 * once, twice)


def test_a_gradient_too_small_for_half_precision_survives_the_scale_of_the_loss() -> None:
    x, y = draw(3, 20, 16, seed=1).half().cuda(), draw(3, 20, 16, seed=2).half().cuda()
    _, slope = differentiate(GTA(align_weight=1e-8, cycle_weight=1e-8), x.float(), y.float(), {"loss": 2.0**24})
    _, fused = differentiate(GTA(align_weight=1e-8, cycle_weight=1e-8), x, y, {"loss": 2.0**24})
    torch.testing.assert_close(fused, slope, rtol=0, atol=1e-2 * float(slope.abs().max()))


def test_buffers_are_written_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = draw(3, 20, 16, seed=1).float().cuda(), draw(3, 7, 16, seed=2).float().cuda()
    expected, slope = differentiate(GTA(), x, y, {"loss": 1.0, "align": 2.0})
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *given: new_empty(*given).fill_(float("nan")))
    terms, same = differentiate(GTA(), x, y, {"loss": 1.0, "align": 2.0})
    assert torch.equal(expected["loss"], terms["loss"])
    assert torch.equal(slope, same)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_bits_every_time_and_nan_without_a_hang(variant: Variant) -> None:
    x, y = draw(64, 20, 128, seed=1).float().cuda(), draw(64, 20, 128, seed=2).float().cuda()
    criterion = GTA(variant=variant)
    first, slope = differentiate(criterion, x, y, {"loss": 1.0})
    for _ in range(5):
        again, same = differentiate(criterion, x, y, {"loss": 1.0})
        assert torch.equal(first["loss"], again["loss"])
        assert torch.equal(slope, same)
    x[3, 5, 7] = float("nan")
    assert criterion.pair(x, y)["loss"].isnan()
