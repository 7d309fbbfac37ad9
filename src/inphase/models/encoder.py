"""The base class of encoders: frames with their context in, vectors out, by default of length 1."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inphase.media.sampling import Context, Edges

if TYPE_CHECKING:
    from inphase.models.embedding import Embedding, Route

Modality = Literal["image", "pose", "audio"]
# The choice of a command or a function: one modality, two together, or what suits the videos.
ModalityChoice = Literal["auto", "pose", "image", "both"]

# The standard deviation of a standard normal distribution truncated at ±2: Keras divides by it to get variance 1.
TRUNCATED_DEVIATION = 0.87962566103423978

# How frozen backbones run.
RUNTIME_VARIABLE = "INPHASE_IMAGE_RUNTIME"
RUNTIMES = ("auto", "torch", "bf16")

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class Encoder(nn.Module):
    """Embed frames together with their context.

    Encoding has two steps, so that a frame in the context of several others is processed once, and so that the output
    of a frozen network can be cached: `features` processes each frame alone, `combine` the features of a frame and its
    context. A subclass defines both, names the part that `combine` trains `head`, and sets

    - `modality`  "image", "pose" or "audio", or another one that `models.modality.MODALITIES` lists
    - `shape`     of one frame: (H, W, 3), (J, 3), (96, 64) …
    - `config`    the keyword arguments that build it again, as JSON values
    - `beta`      the temperature at which its cosines are compared beside those of another encoder, 0.1 unless set

    and passes the context it is trained with to the base class. If that includes a `rate` in frames per second,
    recordings of another rate are embedded with a context that covers the same time in seconds. Without `normalize`
    the vectors keep their lengths, as TCC, TCN and SaL were published; applications compare them by cosine.
    """

    modality: ClassVar[str]
    beta: ClassVar[float] = 0.1
    weighted_routes: ClassVar[int] = 0  # how many of its last routes weigh each frame by what is visible in it
    shape: tuple[int, ...]
    config: dict[str, Any]
    head: nn.Module

    def __init__(
        self,
        *,
        context: Sequence[int],
        edges: Edges = "clamp",
        rate: float | None = None,
        normalize: bool = True,
    ) -> None:
        """Set the context: its offsets in frames, what replaces frames past the ends, and the fps it is meant for."""
        super().__init__()
        if rate is not None and not rate > 0:
            raise ValueError(
                f"rate must be above 0 frames per second, or None for offsets in frames at any rate; got {rate}"
            )
        self.context, self.rate = Context(tuple(context), edges), rate
        self.config = {"context": list(context), "edges": edges, "rate": rate}
        self.normalizes = normalize
        if not normalize:  # left out of the configuration by default, which hashes of older encoders include
            self.config["normalize"] = False

    @property
    def is_frozen(self) -> bool:
        """Return whether `features` is never trained, so that its output can be cached."""
        return getattr(self, "mode", None) == "frozen"

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Return height and width of the images this encoder takes; None if it takes no images."""
        return (self.shape[0], self.shape[1]) if len(self.shape) == 3 else None

    def context_at(self, rate: float | None) -> Context:
        """Return the context in frames of a recording of `rate` frames per second, or of one of unknown rate."""
        return self.context if rate is None or self.rate is None else self.context.stretched(rate / self.rate)

    def features(self, frames: Tensor) -> Tensor:
        """Process each frame alone: [N, *shape] → [N, …]."""
        raise NotImplementedError

    def combine(self, features: Tensor) -> Tensor:
        """Combine the features of frames and their context into vectors: [N, C, …] → [N, D]."""
        raise NotImplementedError

    @property
    def routes(self) -> "tuple[Route, ...]":
        """The parts of its embeddings that are compared apart; none if they are one."""
        return ()

    def describe(self, features: Tensor) -> Tensor:
        """Return the rows of an embedding before `center`, by default the trained vectors: [N, C, …] → [N, D]."""
        return self.combine(features)

    def center(self, embedding: "Embedding") -> "Embedding":
        """Finish the embedding of a whole recording; by default nothing is left to do."""
        return embedding

    def prepare(self, frames: Tensor) -> Tensor:
        """Convert stored frames to the input of `features`; by default to float32."""
        return frames.to(torch.float32)

    def forward(self, values: Tensor) -> Tensor:
        """Embed frames with their context: [B, T, C, *shape] → [B, T, D]."""
        self.check(values.shape[3:])
        frames = self.features(values.flatten(0, 2))
        return self.embed_features(frames.view(*values.shape[:3], *frames.shape[1:]))

    def embed_features(self, features: Tensor) -> Tensor:
        """Embed precomputed features: [B, T, C, …] → [B, T, D]."""
        return self.combine(features.flatten(0, 1)).view(*features.shape[:2], -1)

    def regularizer(self, *, strength: float = 1e-5) -> Tensor:
        """Return the mean over the head's kernels and biases w of strength·Σw², the penalty of the released code."""
        return strength * torch.stack([weight.square().sum() for weight in kernels_and_biases(self.head)]).mean()

    def check(self, shape: torch.Size | tuple[int, ...]) -> None:
        """Raise if frames do not have the shape that this encoder takes."""
        if tuple(shape) != self.shape:
            size = self.image_size
            fix = f"read them with size={size}" if size else "build one for that shape"
            raise ValueError(
                f"this encoder takes {self.modality} frames of shape {self.shape}, got {tuple(shape)}: {fix}"
            )


def image_runtime() -> str:
    """Return the runtime of frozen backbones: "auto", "torch" or "bf16", by `INPHASE_IMAGE_RUNTIME`.

    "auto" is OpenVINO where it is installed, and half precision on a GPU, about as precise as TF32 there; "bf16" is
    OpenVINO in half precision, which is faster on CPUs that compute in it and changes the maps by a few percent.
    """
    named = os.environ.get(RUNTIME_VARIABLE) or "auto"
    if named not in RUNTIMES:
        raise ValueError(f"{RUNTIME_VARIABLE} must be one of {', '.join(RUNTIMES)}, got {named!r}")
    return named


def image_precision() -> str:
    """Return "bf16" if features of images are computed in it, "" in single precision: caches keep the two apart."""
    return "bf16" if image_runtime() == "bf16" else ""


def compute_maps(backbone: nn.Module, images: Tensor) -> Tensor:
    """Compute the maps of images [N, H, W, 3] in [−1, 1] by a frozen backbone, without gradients."""
    if image_runtime() != "torch":
        from inphase.models.backbone_runtime import find_network

        network = find_network(backbone, images, precision=image_precision() or "f32")
        if network is not None:
            return network(images)
    with torch.no_grad():
        maps: Tensor = backbone(images.movedim(-1, 1))
    return maps


def unit(vectors: Tensor) -> Tensor:
    """Normalize vectors [..., D] to length 1, at least in float32: bfloat16 has an error of 0.4 %."""
    return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)


def finish(vectors: Tensor, *, normalize: bool) -> Tensor:
    """Return the output of an encoder's last layer in float32 at least, of length 1 if `normalize`."""
    return unit(vectors) if normalize else vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def kernels_and_biases(module: nn.Module) -> Iterator[Tensor]:
    """List the weights of linear and convolutional layers, without those of normalization layers."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d | nn.Conv3d):
            yield part.weight
            if part.bias is not None:
                yield part.bias


def he_normal(layer: nn.Conv3d) -> nn.Conv3d:
    """Initialize a kernel by Keras' he_normal, a normal distribution truncated at two standard deviations; bias 0."""
    deviation = math.sqrt(2 / layer.weight[0].numel()) / TRUNCATED_DEVIATION
    nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def glorot_uniform(layer: Layer) -> Layer:
    """Initialize a kernel by glorot_uniform, Keras' default; bias 0."""
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def choose_device(name: str) -> str:
    """Resolve "auto" to "cuda" where torch has a GPU, otherwise to "cpu"; raise for a device that is missing."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {name!r}")
    if name == "cuda":
        require_device(name)
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def require_device(device: torch.device | str) -> None:
    """Raise if a device is missing on this machine."""
    kind = torch.device(device)
    if kind.type == "cuda" and (not torch.cuda.is_available() or (kind.index or 0) >= torch.cuda.device_count()):
        raise ValueError(f"device {device}: torch finds no GPU on this machine; use cpu")
