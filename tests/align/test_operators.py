"""The recursion and the losses under torch.compile, vmap and torch.func."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from inphase.align import accumulate, smooth_dtw, soft_dtw
from inphase.align.operators import accumulate_operator
from inphase.losses import GTA

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
devices = pytest.mark.parametrize("device", DEVICES)
kinds = pytest.mark.parametrize("kind", ["smooth", "soft", "hard"])
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "smooth_dtw": lambda x, y: smooth_dtw(x, y).cost.sum(),
    "soft_dtw": lambda x, y: soft_dtw(x, y, subsequence=True).cost.sum(),
    "GTA": lambda x, y: GTA().pair(x, y)["loss"],
    "GTA released": lambda x, y: GTA(variant="released").pair(x, y)["loss"],
    "GTA with lengths": lambda x, y: GTA().pair(x, y, x_lengths=[5, 12], y_lengths=[9, 7])["loss"],
}


def costs(*shape: int, device: str = "cpu") -> Tensor:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)


@devices
@pytest.mark.parametrize("name", LOSSES)
def test_a_compiled_loss_is_one_graph_and_equals_the_eager_one(name: str, device: str) -> None:
    torch.compiler.reset()
    loss = LOSSES[name]
    x, y = (costs(2, length, 8, device=device).requires_grad_() for length in (12, 9))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    eager, traced = loss(x, y), compiled(x, y)
    torch.testing.assert_close(traced, eager, rtol=1e-6, atol=1e-6)
    expected = torch.autograd.grad(eager, (x, y))
    for found, right in zip(torch.autograd.grad(traced, (x, y)), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-6)


@devices
@pytest.mark.parametrize("shape", [(3, 20, 50), (3, 70, 50), (500, 64, 40)])
def test_a_compiled_recursion_equals_the_eager_one_whatever_its_strips(shape: tuple[int, ...], device: str) -> None:
    torch.compiler.reset()

    def loss(cost: Tensor) -> Tensor:
        return accumulate(cost).square().mean()

    cost = costs(*shape, device=device).requires_grad_()
    traced = torch.compile(loss, fullgraph=True, backend="aot_eager")(cost)
    (expected,) = torch.autograd.grad(loss(cost), cost)
    (found,) = torch.autograd.grad(traced, cost)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@devices
@kinds
def test_vmap_maps_over_any_dimension(kind: str, device: str) -> None:
    cost = costs(5, 3, 40, 24, device=device)

    def function(one: Tensor) -> Tensor:
        return accumulate(one, kind=kind)  # type: ignore[arg-type]

    expected = torch.stack([function(one) for one in cost])
    assert torch.equal(torch.vmap(function)(cost), expected)
    assert torch.equal(torch.vmap(function, in_dims=2, out_dims=1)(cost.movedim(0, 2)), expected.movedim(0, 1))


@devices
@kinds
def test_gradients_of_each_item_by_vmap(kind: str, device: str) -> None:
    cost = costs(4, 2, 40, 24, device=device)

    def loss(one: Tensor) -> Tensor:
        return accumulate(one, kind=kind).square().sum()  # type: ignore[arg-type]

    found = torch.func.vmap(torch.func.grad(loss))(cost)
    given = cost.clone().requires_grad_()
    (expected,) = torch.autograd.grad(sum(loss(one) for one in given), given)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_a_jacobian_by_reverse_mode() -> None:
    cost = costs(1, 4, 3)
    jacobian = torch.func.jacrev(lambda one: accumulate(one)[0, -1, -1])(cost)
    given = cost.clone().requires_grad_()
    assert torch.equal(jacobian, torch.autograd.grad(accumulate(given)[0, -1, -1], given)[0])


@devices
def test_a_jacobian_of_more_values_than_the_forward_pass_had_pairs(device: str) -> None:
    cost = costs(1, 64, 40, device=device)
    jacobian = torch.func.jacrev(lambda one: accumulate(one)[0, 50:62].flatten())(cost)  # 480 pairs at once
    given = cost.clone().requires_grad_()
    table = accumulate(given)[0, 50:62].flatten()
    for k in (0, 99, 479):
        (expected,) = torch.autograd.grad(table[k], given, retain_graph=True)
        torch.testing.assert_close(jacobian[k], expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_derivatives_that_do_not_exist_are_refused_with_a_way_out() -> None:
    cost = costs(1, 4, 3)

    def end(one: Tensor) -> Tensor:
        return accumulate(one)[0, -1, -1]

    with pytest.raises(RuntimeError, match=r"forward-mode .* use reverse mode"):
        torch.func.jvp(end, (cost,), (cost,))
    with pytest.raises(RuntimeError, match=r"second derivatives .*accumulate_reference"):
        torch.func.grad(lambda one: torch.func.grad(end)(one).square().sum())(cost)


@pytest.mark.parametrize("name", LOSSES)
def test_create_graph_is_refused_even_where_the_loss_is_linear_in_the_table(name: str) -> None:
    x, y = costs(2, 12, 8).requires_grad_(), costs(2, 9, 8)
    with pytest.raises(RuntimeError, match="without create_graph=True"):
        torch.autograd.grad(LOSSES[name](x, y), x, create_graph=True)


def test_the_operator_passes_the_checks_of_torch() -> None:
    torch.library.opcheck(
        torch.ops.inphase.accumulate.default, (costs(2, 40, 9).requires_grad_(), "smooth", 0.1, False)
    )


@devices
@pytest.mark.parametrize("shape", [(2, 1, 9), (2, 33, 9), (2, 128, 9), (2, 130, 9), (2, 300, 9), (500, 64, 40)])
def test_the_operator_declares_the_shapes_it_returns(shape: tuple[int, ...], device: str) -> None:
    cost = costs(*shape, device=device)
    real = accumulate_operator(cost, "smooth", 0.1, False)
    with FakeTensorMode() as mode:
        declared = accumulate_operator(mode.from_tensor(cost), "smooth", 0.1, False)
    assert [(part.shape, part.dtype) for part in declared] == [(part.shape, part.dtype) for part in real]
