"""Checks of inputs, their precision and first-order gradients, shared by all functions of this package."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Lengths = Tensor | Sequence[int] | None

HALF = (torch.float16, torch.bfloat16)
FLOATING = (*HALF, torch.float32, torch.float64)


def require_tensor(name: str, value: Tensor, shape: str) -> None:
    """Raise if a value is not a non-empty floating-point tensor of a shape written as `"[B, M, N]"`."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch tensor {shape}, got {type(value).__name__}; use torch.as_tensor")
    dimensions = shape.count(",") + 1
    if value.ndim != dimensions:
        batched = shape.startswith("[B") and value.ndim == dimensions - 1
        fix = f"; a single item needs {name}[None]" if batched else ""
        raise ValueError(f"{name} must be {shape}, got shape {list(value.shape)}{fix}")
    if 0 in value.shape:
        raise ValueError(f"{name} must be {shape} with no empty dimension, got shape {list(value.shape)}")
    if value.dtype not in FLOATING:
        raise TypeError(f"{name} must be float16, bfloat16, float32 or float64, got {value.dtype}; use {name}.float()")


def require_pair(x: Tensor, y: Tensor) -> None:
    """Refuse two sequences that cannot be compared: other batch, dimension, type or device."""
    require_tensor("x", x, "[B, M, D]")
    require_tensor("y", y, "[B, N, D]")
    require_alike("x", x, "y", y)
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"x and y must have the same number of sequences, got {x.shape[0]} and {y.shape[0]}")
    if x.shape[2] != y.shape[2]:
        raise ValueError(f"x and y must have the same embedding dimension, got {x.shape[2]} and {y.shape[2]}")


def require_alike(first: str, a: Tensor, second: str, b: Tensor) -> None:
    """Raise if two tensors differ in device or type."""
    if a.device != b.device:
        raise ValueError(f"{first} is on {a.device} and {second} on {b.device}; move one with .to()")
    if a.dtype != b.dtype:
        raise TypeError(f"{first} is {a.dtype} and {second} {b.dtype}; convert one with .to()")


def require_temperature(name: str, value: float, *, zero: bool = False) -> None:
    """Raise if a temperature is negative or not finite, or is 0 and `zero` is False."""
    if not (0 < value < float("inf") or (zero and value == 0)):
        raise ValueError(f"{name} must be {'at least 0' if zero else 'positive'} and finite, got {value}")


def valid(lengths: Lengths, *, name: str, batch: int, size: int, device: torch.device) -> Tensor | None:
    """Mark the frames that are not padding, bool [B, size]; None without padding.

    Lengths on the CPU (a list or a CPU tensor) are checked without synchronizing with the GPU.
    """
    if lengths is None:
        return None
    given = torch.as_tensor(lengths)
    if given.shape != (batch,) or given.dtype.is_floating_point or given.dtype == torch.bool:
        raise ValueError(f"{name} must be {batch} integers, got {given.dtype} of shape {list(given.shape)}")
    low, high = int(given.min()), int(given.max())
    if low < 1:
        raise ValueError(f"{name} must be at least 1, got {low}; drop empty sequences before the call")
    if high > size:
        raise ValueError(f"{name} must be at most the padded length {size}, got {high}")
    if low == size:
        return None
    return torch.arange(size, device=device) < given.to(device, non_blocking=True)[:, None]


def last_frame(lengths: Lengths, *, batch: int, size: int, device: torch.device) -> Tensor:
    """Index the last frame of each sequence, int64 [B]."""
    if lengths is None:
        return torch.full((batch,), size - 1, device=device)
    return torch.as_tensor(lengths).to(device, torch.int64, non_blocking=True) - 1


def single_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Convert half precision to float32: costs and tables are sums too long for fewer bits."""
    return tuple([t.float() if t.dtype in HALF else t for t in tensors])


def no_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Disable autocast, where it is enabled, for computations on the device of `tensor`."""
    kind = tensor.device.type
    lowers = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if lowers else nullcontext()


def cheap_once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Raise on a second derivative, as `once_differentiable` does, at no cost to a plain backward pass.

    torch's guard takes as long as a kernel over short sequences. Gradients are enabled in a backward pass only under
    `create_graph`, so only then is the guard needed.
    """
    guarded = once_differentiable(backward)

    @wraps(backward)
    def guarded_if_needed(ctx: Any, *grads: Any) -> Any:
        return (guarded if torch.is_grad_enabled() else backward)(ctx, *grads)

    return guarded_if_needed
