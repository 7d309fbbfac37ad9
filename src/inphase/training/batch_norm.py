"""Batch norm over the batches of all processes: many of them then train as one would on the whole batch.

torch's SyncBatchNorm does the same on GPUs alone.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class GlobalBatchNorm(_BatchNorm):
    """Normalise by mean and variance over every process' share; every process has an equal one."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Take any number of axes after [N, C]."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise [N, C, …]."""
        if not self.training:
            return self._normalise(input)
        values = input.float()
        axes = [0, *range(2, input.ndim)]
        world = torch.distributed.get_world_size()
        count = world * values.numel() // values.shape[1]
        shape = (1, -1, *[1] * (input.ndim - 2))
        mean = _total(values.sum(axes)) / count
        centred = values - mean.view(shape)
        variance = _total(centred.square().sum(axes)) / count
        self._update(mean.detach(), variance.detach() * (count / max(1, count - 1)))
        scaled = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        return scaled.to(input.dtype)

    def _normalise(self, input: Tensor) -> Tensor:
        """Normalise by the running statistics."""
        normalised: Tensor = super().forward(input)
        return normalised

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, as batch norm does."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)


class _Total(torch.autograd.Function):
    """Add up over all processes; the gradient is added up likewise, since every process' loss depends on the sum."""

    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return _Total.forward(ctx, gradient)


def _total(values: Tensor) -> Tensor:
    total: Tensor = _Total.apply(values)  # type: ignore[no-untyped-call]
    return total


def globalise(module: nn.Module) -> nn.Module:
    """Replace the batch norms of a network by global ones with the same parameters and statistics."""
    for name, part in module.named_children():
        if isinstance(part, _BatchNorm):
            wide = GlobalBatchNorm(part.num_features, eps=part.eps, momentum=cast("float", part.momentum))
            wide.__dict__.update(part.__dict__)  # the very parameters, buffers and flags
            module.add_module(name, wide)
        else:
            globalise(part)
    return module
