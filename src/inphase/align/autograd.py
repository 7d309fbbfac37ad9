"""A cheap `once_differentiable`: the check runs only under `create_graph`."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd.function import once_differentiable


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
