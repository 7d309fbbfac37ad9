"""One step of training: encoder, loss, backward and optimizer; optionally compiled, and replayed as one CUDA graph.

A graph is recorded once the kernels are compiled and replayed for every batch of the same shapes. It begins after
augmentation, whose random parameters change from batch to batch, and holds only losses without random choices.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inphase.data.stream import Batch, Group
from inphase.training.recipe import OptimizerSettings

if TYPE_CHECKING:
    from lightning.fabric import Fabric
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import cast

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from inphase.data.batches import apply_augmentations
from inphase.losses.loss import Loss, Sequences
from inphase.models.encoder import Encoder


class EncoderWithLoss(nn.Module):
    """Embed all groups of a batch together, so that batch norms cover all of them, and compute the loss of each.

    With an `audio` encoder a group is one clip: its frames and its audio. Where `precomputed`, groups hold the features
    of a frozen network in place of frames.
    """

    def __init__(
        self, encoder: Encoder, loss: Loss, *, audio: Encoder | None = None, precomputed: bool = False
    ) -> None:
        """Combine the parts."""
        super().__init__()
        self.encoder, self.loss, self.audio, self.precomputed = encoder, loss, audio, precomputed
        self._compiled: list[Callable[[Tensor], Tensor]] = []  # not a submodule: weights keep their names

    def compile_encoder(self) -> None:
        """Compile the encoder for training; validation, with its many shapes, runs it as it is."""
        self._compiled = [torch.compile(self._embedder())]

    def _embedder(self) -> Callable[[Tensor], Tensor]:
        return self.encoder.embed_features if self.precomputed else self.encoder

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the mean over groups of `loss` and its terms, and the health of the embeddings."""
        return self.score(batch.groups, self.prepare(batch))

    def prepare(self, batch: Batch) -> list[Tensor]:
        """Convert the stored frames of every group into the encoder's input, augmented."""
        return [self._prepare(group) for group in batch.groups]

    def score(self, groups: Sequence[Group], values: Sequence[Tensor]) -> dict[str, Tensor]:
        """Embed prepared frames and compute the loss of each group."""
        frames = self.embed(values)
        sounds = self._embed_audio([group.sound for group in groups if group.sound is not None])
        sequences = [_sequences(*parts) for parts in zip_longest(groups, frames, sounds)]
        everything = torch.cat([part.detach().flatten(0, 1) for part in (*frames, *sounds)])
        return self.loss.mean_over(sequences) | health(everything) | {FIRST_NAN: find_nan(everything)}

    def embed(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Embed the frames of groups [K, T, C, …], in one call where their shapes agree."""
        embed = self._compiled[0] if self._compiled else self._embedder()
        if len({part.shape[1:] for part in values}) > 1:
            return [embed(part) for part in values]
        together: Tensor = embed(torch.cat(list(values)))
        return list(torch.split(together, [len(part) for part in values]))

    def _prepare(self, group: Group) -> Tensor:
        """Convert stored frames into the encoder's input, and apply the group's augmentations."""
        if self.precomputed:
            return group.values.float()
        if group.augmentations:
            return apply_augmentations(group.values, augmentations=group.augmentations)
        return self.encoder.prepare(group.values)

    def _embed_audio(self, sounds: Sequence[Tensor]) -> list[Tensor]:
        """Embed the audio of all groups, [1, N, …] each, in one call: [1, N, D]."""
        if bool(sounds) != (self.audio is not None):
            raise ValueError("groups with audio need a table [audio] in the recipe, and the table needs such groups")
        if self.audio is None:
            return []
        together: Tensor = self.audio(self.audio.prepare(torch.cat(list(sounds), 1))[:, :, None])
        return list(torch.split(together, [part.shape[1] for part in sounds], dim=1))


def _sequences(group: Group, vectors: Tensor, sound: Tensor | None) -> Sequences:
    """Build the loss's input from a group's embeddings; frames and audio are two sequences."""
    if sound is not None:
        longest = max(vectors.shape[1], sound.shape[1])
        vectors = torch.cat([_pad(part, longest) for part in (vectors, sound)])
    return Sequences(vectors, **group.annotation)


# The term that holds the row of the first embedding of a batch that is not finite, −1 if all are.
FIRST_NAN = "first_nan"


def find_nan(vectors: Tensor) -> Tensor:
    """Return the first row of vectors [N, D] that is not finite, −1 if all are, without waiting for a GPU."""
    bad = ~vectors.isfinite().all(1)
    return torch.where(bad.any(), bad.int().argmax(), -1)


def locate_row(batch: Batch, row: int) -> str:
    """Name the video and the frame whose embedding is a row of those of a batch, frames before sounds."""
    for group in batch.groups:
        k, t = group.values.shape[:2]
        if row < k * t:
            frame = int(group.frames[row // t, row % t])
            return f"{group.ids[row // t]} at frame {frame}"
        row -= k * t
    return f"the sound of {batch.groups[0].ids[0]}" if len(batch.groups) == 1 else "the sound of a clip"


def health(vectors: Tensor) -> dict[str, Tensor]:
    """Measure collapse: the mean cosine between embeddings [N, D] and their variance; 1 and 0 where all are equal."""
    unit = torch.nn.functional.normalize(vectors.float(), dim=-1)
    count = len(unit)
    together = unit.sum(0).square().sum()
    cosine = (together - count) / max(1, count * (count - 1))
    return {"cosine": cosine, "variance": 1 - together / count**2}


def _pad(vectors: Tensor, length: int) -> Tensor:
    """Pad a sequence [1, T, D] with zeros, which the sequence's length excludes."""
    return torch.nn.functional.pad(vectors, (0, 0, 0, length - vectors.shape[1]))


def put_channels_last(module: nn.Module) -> None:
    """Store the kernels of 2D and 3D convolutions channels-last, the fastest layout on GPUs."""
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    for parameter in module.parameters():
        if parameter.ndim in layouts:
            parameter.data = parameter.data.contiguous(memory_format=layouts[parameter.ndim])


def trainable_parameters(module: nn.Module) -> list[Tensor]:
    """List the parameters that train."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def as_floats(terms: Mapping[str, Tensor]) -> dict[str, float]:
    """Convert terms to floats."""
    return {name: float(value) for name, value in terms.items()}


class GlobalBatchNorm(_BatchNorm):
    """Batch norm over the batches of all processes, which must be equally large; SyncBatchNorm needs GPUs."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of axes after [N, C]."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize [N, C, …]."""
        if not self.training:
            return self._normalize(input)
        values = input.float()
        axes = [0, *range(2, input.ndim)]
        world = torch.distributed.get_world_size()
        count = world * values.numel() // values.shape[1]
        shape = (1, -1, *[1] * (input.ndim - 2))
        mean = _all_reduce_sum(values.sum(axes)) / count
        centered = values - mean.view(shape)
        variance = _all_reduce_sum(centered.square().sum(axes)) / count
        self._update(mean.detach(), variance.detach() * (count / max(1, count - 1)))
        scaled = centered * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        return scaled.to(input.dtype)

    def _normalize(self, input: Tensor) -> Tensor:
        """Normalize by the running statistics."""
        normalized: Tensor = super().forward(input)
        return normalized

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics, as batch norm does."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance, momentum)


class _AllReduceSum(torch.autograd.Function):
    """Sum over all processes; gradients are summed too, since the loss of every process depends on the sum."""

    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return _AllReduceSum.forward(ctx, gradient)


def _all_reduce_sum(values: Tensor) -> Tensor:
    total: Tensor = _AllReduceSum.apply(values)  # type: ignore[no-untyped-call]
    return total


def synchronize_batch_norms(module: nn.Module) -> nn.Module:
    """Replace the batch norms of a network by `GlobalBatchNorm`s with the same parameters and statistics."""
    for name, part in module.named_children():
        if isinstance(part, _BatchNorm):
            wide = GlobalBatchNorm(part.num_features, eps=part.eps, momentum=cast("float", part.momentum))
            wide.__dict__.update(part.__dict__)  # the same parameters, buffers and flags, not copies
            module.add_module(name, wide)
        else:
            synchronize_batch_norms(part)
    return module


class CopyToDevice:
    """Copy batches to a device; to a GPU on a stream of its own, while the GPU computes the step before."""

    def __init__(self, device: torch.device) -> None:
        """Open the stream."""
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, batch: Batch) -> Batch:
        """Copy a batch; work queued from now on waits for the copy, the CPU does not."""
        if self._stream is None:
            return batch.to(self._device)
        with torch.cuda.stream(self._stream):
            copied = batch.to(self._device)
        current = torch.cuda.current_stream()
        current.wait_stream(self._stream)
        for group in copied.groups:
            for tensor in group.tensors.values():
                if tensor.is_cuda:
                    tensor.record_stream(current)  # its memory is used again only after the work queued until then
        return copied


class LateRead:
    """Numbers on a GPU, copied to the CPU as soon as they are computed.

    `float(tensor)` would also wait for everything queued since.
    """

    def __init__(self, *numbers: Tensor) -> None:
        """Queue the copies."""
        self._numbers = [number.to("cpu", non_blocking=True) for number in numbers]
        self._copied = torch.cuda.Event() if numbers[0].is_cuda else None  # type: ignore[no-untyped-call]
        if self._copied is not None:
            self._copied.record()

    def read(self) -> list[float]:
        """Wait for the numbers and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        return [float(number) for number in self._numbers]


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
        benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True  # kernels are chosen by trial
        try:
            with torch.cuda.stream(self._stream):
                terms = self._on_side_stream(batch)
        finally:
            torch.backends.cudnn.benchmark = benchmark
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
        # Recording must not fail where a thread of the loader allocates pinned memory meanwhile: hence "thread_local".
        stream = torch.cuda.current_stream()
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
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
