"""Backward passes that cannot be differentiated in turn, and say so only where someone may ask."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def cheap_once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a second derivative, as `once_differentiable` does, at no cost to a plain backward pass.

    torch's guard takes as long as a kernel over short sequences; the mode of gradients is on only under `create_graph`.
    """
    guarded = once_differentiable(backward)

    @wraps(backward)
    def chosen(ctx: Any, *grads: Any) -> Any:
        return (guarded if torch.is_grad_enabled() else backward)(ctx, *grads)

    return chosen
