"""The recursion as an operator of torch, for `torch.compile`, and as a function for `vmap` and `torch.func`.

Plain eager code uses neither: dispatching an operator takes three times as long as the kernels' own autograd functions,
which is longer than a kernel over short sequences.

    inphase::accumulate           cost [B, M, N] → table [B, M, N] and the state that the backward pass needs
    inphase::accumulate_backward  ∂L/∂table → ∂L/∂cost
"""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from inphase.align.cost import SECOND, first_order_only
from inphase.align.numba.recursion_numba import KINDS, NO_STATE, cut_into_strips, launch_forward, over_pairs, run_back
from inphase.align.triton import KINDS as TRITON_KINDS
from inphase.align.triton import is_chained, low_size

FORWARD_MODE = (
    "forward-mode derivatives of the DTW recursion are not available: use reverse mode, "
    "such as torch.func.grad, torch.func.vjp or torch.func.jacrev in place of jvp or jacfwd"
)


def accumulate_transformed(cost: Tensor, kind: str, gamma: float, free_start: bool) -> Tensor | None:
    """Accumulate cost [B, M, N] where torch.compile traces or a torch.func transform is active; None elsewhere."""
    if torch.compiler.is_compiling():
        return cast("Tensor", accumulate_operator(cost, kind, gamma, free_start)[0])
    if torch._C._are_functorch_transforms_active():
        return cast("Tensor", _Accumulate.apply(cost, kind, gamma, free_start)[0])  # type: ignore[no-untyped-call]
    return None


def _accumulate(cost: Tensor, kind: str, gamma: float, free_start: bool) -> tuple[Tensor, Tensor]:
    """Accumulate cost [B, M, N] into its table; the state is the kernel's own."""
    if cost.is_cpu:
        setting = KINDS[kind], gamma, free_start
        parts = launch_forward(cost.detach().contiguous().numpy(), NO_STATE, setting)
        return torch.from_numpy(parts[0]), torch.from_numpy(parts[1])
    from inphase.align.triton import recursion_triton

    table, low, _ = recursion_triton.launch_forward(cost, TRITON_KINDS[kind], gamma, free_start, keep=True)
    return table, low


def _accumulate_backward(
    grad: Tensor, cost: Tensor, table: Tensor, state: Tensor, kind: str, gamma: float, free_start: bool
) -> Tensor:
    """Run the gradient of a table back to its cost."""
    if grad.is_cpu:
        given, edges = grad.detach().contiguous().numpy(), state.numpy()
        grad_cost = np.empty_like(given)
        arrays = given, cost.detach().contiguous().numpy(), edges, NO_STATE, grad_cost
        over_pairs(run_back, arrays, (KINDS[kind], gamma))
        return torch.from_numpy(grad_cost)
    from inphase.align.triton import recursion_triton

    return recursion_triton.launch_backward(grad, table, state, None, TRITON_KINDS[kind], gamma, free_start)


accumulate_operator = torch.library.custom_op("inphase::accumulate", _accumulate, mutates_args=())
backward_operator = torch.library.custom_op("inphase::accumulate_backward", _accumulate_backward, mutates_args=())


@accumulate_operator.register_fake
def _(cost: Tensor, kind: str, gamma: float, free_start: bool) -> tuple[Tensor, Tensor]:
    batch, m, n = cost.shape
    table = torch.empty_like(cost, memory_format=torch.contiguous_format)
    if cost.device.type == "cuda":
        return table, cost.new_empty((batch * low_size(m, n, chained=is_chained(cost)),), dtype=torch.float16)
    strips, lanes = cut_into_strips(m)
    return table, cost.new_empty((batch, strips + 1, n + lanes + 1), dtype=torch.float64)


@backward_operator.register_fake
def _(grad: Tensor, cost: Tensor, table: Tensor, *rest: object) -> Tensor:
    return torch.empty_like(table)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    cost, *ctx.setting = inputs
    ctx.save_for_backward(cost, *output)
    ctx.mark_non_differentiable(output[1])


@first_order_only
def _operator_backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return backward_operator(grad, *ctx.saved_tensors, *ctx.setting), None, None, None


accumulate_operator.register_autograd(_operator_backward, setup_context=_keep)


class _Accumulate(torch.autograd.Function):
    """The recursion under torch.func transforms, which operators with an autograd formula do not support."""

    forward = staticmethod(_accumulate)
    setup_context = staticmethod(_keep)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        found = _AccumulateBackward.apply(grad, *ctx.saved_tensors, *ctx.setting)  # type: ignore[no-untyped-call]
        return found, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *values: Any) -> Any:
        return _map_batch(_Accumulate.apply, info.batch_size, in_dims, values)


class _AccumulateBackward(torch.autograd.Function):
    forward = staticmethod(_accumulate_backward)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(SECOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *values: Any) -> Any:
        return _map_batch(_AccumulateBackward.apply, info.batch_size, in_dims, values)


def _map_batch(function: Any, size: int, in_dims: Any, values: Any) -> Any:
    """Join the dimension that vmap maps with the batch, so that one call computes all of it."""

    def fold(value: Any, dim: int | None) -> Any:
        if not isinstance(value, Tensor):
            return value
        return (value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)).flatten(0, 1)

    found = function(*map(fold, values, in_dims))
    if isinstance(found, Tensor):
        return found.unflatten(0, (size, -1)), 0  # type: ignore[no-untyped-call]
    return tuple(part.unflatten(0, (size, -1)) for part in found), (0,) * len(found)


@accumulate_operator.register_vmap
def _(info: Any, in_dims: Any, *values: Any) -> Any:
    return _map_batch(accumulate_operator, info.batch_size, in_dims, values)


@backward_operator.register_vmap
def _(info: Any, in_dims: Any, *values: Any) -> Any:
    return _map_batch(backward_operator, info.batch_size, in_dims, values)
