"""What every encoder is: frames with their context in, unit vectors out."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inphase.media.sampling import Context, Edges

Modality = Literal["image", "pose", "audio"]
# What a command or a function is asked to embed: one modality, or the one that suits the videos.
ModalityChoice = Literal["auto", "pose", "image", "both"]


class Encoder(nn.Module):
    """Embed frames together with their context.

    The work is done in two steps, so that a frame which is in the context of several others is looked at once, and so
    that what a frozen network sees can be kept: `features` looks at each frame alone, `combine` at the features of a
    frame and its context. A subclass defines both, names the part that `combine` trains `head`, and sets

    - `sees`    pictures, poses or sounds
    - `shape`   of one frame: (H, W, 3), (J, 3), (96, 64) …
    - `config`  the keyword arguments that build it again, as JSON can hold them

    and hands the base class the context it is trained with. Where that says its `rate`, frames a second, recordings of
    another rate are embedded with a context that reaches equally far in seconds.
    """

    modality: ClassVar[Modality]
    shape: tuple[int, ...]
    config: dict[str, Any]
    head: nn.Module

    def __init__(self, *, context: Sequence[int], edges: Edges = "clamp", rate: float | None = None) -> None:
        """Keep the context: its offsets in frames, what stands for frames past the ends, the rate it is meant at."""
        super().__init__()
        if rate is not None and not rate > 0:
            raise ValueError(f"rate must be above 0 frames a second, or None where frames alone count; got {rate}")
        self.context, self.rate = Context(tuple(context), edges), rate
        self.config = {"context": list(context), "edges": edges, "rate": rate}

    @property
    def is_frozen(self) -> bool:
        """Tell whether `features` never learns: what it finds in a frame can be kept."""
        return getattr(self, "mode", None) == "frozen"

    def context_at(self, rate: float | None) -> Context:
        """Give the context in frames of a recording of `rate` frames a second, where it is known."""
        return self.context if rate is None or self.rate is None else self.context.stretched(rate / self.rate)

    def features(self, frames: Tensor) -> Tensor:
        """Look at each frame alone: [N, *shape] → [N, …]."""
        raise NotImplementedError

    def combine(self, features: Tensor) -> Tensor:
        """Turn the features of frames and their context into unit vectors: [N, C, …] → [N, D]."""
        raise NotImplementedError

    def prepare(self, frames: Tensor) -> Tensor:
        """Turn frames as they are stored into what `features` takes; by default a change of type alone."""
        return frames.to(torch.float32)

    def forward(self, values: Tensor) -> Tensor:
        """Embed frames with their context: [B, T, C, *shape] → [B, T, D]."""
        self.check(values.shape[3:])
        frames = self.features(values.flatten(0, 2))
        return self.embed_features(frames.view(*values.shape[:3], *frames.shape[1:]))

    def embed_features(self, features: Tensor) -> Tensor:
        """Embed frames whose features are known already: [B, T, C, …] → [B, T, D]."""
        return self.combine(features.flatten(0, 1)).view(*features.shape[:2], -1)

    def regulariser(self, *, strength: float = 1e-5) -> Tensor:
        """Give the mean over the head's kernels and biases w of strength·Σw², as the released code penalises them."""
        return strength * torch.stack([weight.square().sum() for weight in kernels_and_biases(self.head)]).mean()

    def check(self, shape: torch.Size | tuple[int, ...]) -> None:
        """Refuse frames of another shape than this encoder sees."""
        if tuple(shape) != self.shape:
            fix = f"read them with size={self.shape[:2]}" if self.modality == "image" else "build one for that shape"
            raise ValueError(f"this encoder sees {self.modality} of shape {self.shape}, got {tuple(shape)}: {fix}")


def unit(vectors: Tensor) -> Tensor:
    """Normalise vectors [..., D] to length 1, in float32 at least: bfloat16 would keep the length to 0.4 % only."""
    return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)


def kernels_and_biases(module: nn.Module) -> Iterator[Tensor]:
    """List the weights of a network's linear maps; those of its normalisations are none."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d | nn.Conv3d):
            yield part.weight
            if part.bias is not None:
                yield part.bias


def choose_device(name: str) -> str:
    """Resolve "auto" to "cuda" where torch has a GPU, otherwise to "cpu"; raise for a device that is missing."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda: torch finds no GPU on this machine; use cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
