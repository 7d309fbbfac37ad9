"""One step of training: forward, backward and optimizer; optionally compiled, and replayed as one CUDA graph.

A graph is recorded once the kernels are compiled and replayed for every batch of the same shapes. It begins after
augmentation, whose random parameters change from batch to batch, and holds only losses without random choices.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inphase.data.stream import Batch, Group
from inphase.training.encoder_with_loss import EncoderWithLoss, trainable_parameters
from inphase.training.recipe import OptimizerSettings

if TYPE_CHECKING:
    from lightning.fabric import Fabric

EAGER_STEPS = 3  # before a graph is recorded: kernels are compiled and tuned, and the optimizer allocates its state


class TrainStep:
    """Take optimizer steps on batches.

    With `compiled`, `torch.compile` compiles the encoder; on one GPU the whole step also becomes a CUDA graph.
    """

    def __init__(
        self, network: EncoderWithLoss, *, settings: OptimizerSettings, fabric: "Fabric", compiled: bool = False
    ) -> None:
        """Build the optimizer, and let Fabric wrap network and optimizer for its hardware."""
        self.network, self.settings, self.fabric = network, settings, fabric
        self.graphs = compiled and fabric.device.type == "cuda" and fabric.world_size == 1 and network.loss.fixed
        if compiled:
            network.compile_encoder()
        self.optimizer = settings.build(trainable_parameters(network), graphed=self.graphs)
        self.wrapped, self.wrapped_optimizer = fabric.setup(network, self.optimizer)
        self._stream = torch.cuda.Stream() if self.graphs else None  # type: ignore[no-untyped-call]
        self._eager_steps = 0
        self._graph: _StepGraph | None = None

    def __call__(self, batch: Batch, *, lr: float) -> dict[str, Tensor]:
        """Take one optimizer step and return the terms of the loss."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
        self.network.train()
        if self._stream is None:
            return self._eager(batch)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            terms = self._on_side_stream(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return terms

    def _eager(self, batch: Batch) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = self.wrapped(batch)
        self.fabric.backward(terms["loss"] + self._penalty())
        if self.settings.clip:
            self.fabric.clip_gradients(self.wrapped, self.wrapped_optimizer, max_norm=self.settings.clip)
        self.wrapped_optimizer.step()
        self.wrapped_optimizer.zero_grad()
        found = {name: value.detach() for name, value in terms.items()}
        if self.fabric.world_size > 1:
            # A loss that is not finite in one process becomes so in all.
            found["loss"] = self.fabric.all_reduce(found["loss"])  # type: ignore[assignment]
        return found

    def _on_side_stream(self, batch: Batch) -> dict[str, Tensor]:
        """Replay the graph, after recording it where it is due; take an eager step for other shapes."""
        if self._graph is None and self._eager_steps < EAGER_STEPS:
            self._eager_steps += 1
            return self._eager(batch)
        values = self.network.prepare(batch)
        if self._graph is None:
            self._graph = _StepGraph(self, batch, values)
        if self._graph.alike != _shapes(batch, values):
            return self._eager(batch)
        return self._graph.replay(batch, values)

    def _penalty(self) -> Tensor | float:
        strength = self.settings.penalty
        return self.network.encoder.regularizer(strength=strength) if strength else 0.0

    def take_captured(self, groups: Sequence[Group], values: Sequence[Tensor]) -> dict[str, Tensor]:
        """Take a step by operations that a CUDA graph can hold."""
        with self.fabric.autocast():
            terms = self.network.score(groups, values)
        (terms["loss"] + self._penalty()).backward()  # type: ignore[no-untyped-call]
        if self.settings.clip:
            torch.nn.utils.clip_grad_norm_(trainable_parameters(self.network), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {name: value.detach() for name, value in terms.items()}


class _StepGraph:
    """A recorded step: its input and output tensors stay where they are and are copied to and from."""

    def __init__(self, step: TrainStep, batch: Batch, values: Sequence[Tensor]) -> None:
        self.alike = _shapes(batch, values)
        self._values = [value.clone() for value in values]
        self._groups = [replace(group, **_copies(group)) for group in batch.groups]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=torch.cuda.current_stream()):
            self._terms = step.take_captured(self._groups, self._values)

    def replay(self, batch: Batch, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """Take a step on a batch."""
        for own, new in zip(self._values, values, strict=True):
            own.copy_(new)
        for own_group, group in zip(self._groups, batch.groups, strict=True):
            for name, value in _copies(group).items():
                getattr(own_group, name).copy_(value)
        self._graph.replay()
        return {name: value.clone() for name, value in self._terms.items()}


def _copies(group: Group) -> dict[str, Any]:
    """List the tensors on the GPU that a loss reads."""
    return {name: value.clone() for name, value in group.annotation.items() if value is not None and value.is_cuda}


def _shapes(batch: Batch, values: Sequence[Tensor]) -> object:
    """Describe all that is fixed in a graph: shapes, and lengths, which are read on the CPU."""
    shapes = [[(k, tuple(v.shape)) for k, v in g.annotation.items() if v is not None] for g in batch.groups]
    return [tuple(value.shape) for value in values], shapes, [group.lengths.tolist() for group in batch.groups]
