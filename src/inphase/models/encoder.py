"""The base class of encoders: frames with their context in, unit vectors out; embeddings, and `embed`.

`embed` streams a recording of any length through an encoder in bounded memory.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from inphase.media.frames import Clip
from inphase.media.sampling import Context, Edges, context_frames
from inphase.pose.pose import Pose

Modality = Literal["image", "pose", "audio"]
# The choice of a command or a function: one modality, two together, or what suits the videos.
ModalityChoice = Literal["auto", "pose", "image", "both"]

# The standard deviation of a standard normal distribution truncated at ±2: Keras divides by it to get variance 1.
TRUNCATED_DEVIATION = 0.87962566103423978

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
    recordings of another rate are embedded with a context that covers the same time in seconds.
    """

    modality: ClassVar[str]
    beta: ClassVar[float] = 0.1
    shape: tuple[int, ...]
    config: dict[str, Any]
    head: nn.Module

    def __init__(self, *, context: Sequence[int], edges: Edges = "clamp", rate: float | None = None) -> None:
        """Set the context: its offsets in frames, what replaces frames past the ends, and the fps it is meant for."""
        super().__init__()
        if rate is not None and not rate > 0:
            raise ValueError(
                f"rate must be above 0 frames per second, or None for offsets in frames at any rate; got {rate}"
            )
        self.context, self.rate = Context(tuple(context), edges), rate
        self.config = {"context": list(context), "edges": edges, "rate": rate}

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
        """Combine the features of frames and their context into unit vectors: [N, C, …] → [N, D]."""
        raise NotImplementedError

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


def unit(vectors: Tensor) -> Tensor:
    """Normalize vectors [..., D] to length 1, at least in float32: bfloat16 has an error of 0.4 %."""
    return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)


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


# Frames [T, …] and the second of each [T]: poses [T, J, 3], spectra [T, 96, 64] …
Stretch = tuple[NDArray[Any], NDArray[np.float64]]


class Route(NamedTuple):
    """Columns of joint vectors that one encoder gives: how many, and the temperature of their contrastive cost."""

    width: int
    beta: float


@dataclass(frozen=True, eq=False)
class Embedding:
    """Unit vectors `values` [T, D] float32 at `times` [T] float64 in seconds.

    `modality` is that of the encoder: "pose", "image", "both", "audio"; None if it is not known. `pose` is the embedded
    one, if it was estimated in the frames of a video. `routes` are the parts of vectors that join those of several
    encoders (`inphase.models.joint_encoder`), empty for a single one.
    """

    values: NDArray[np.float32]
    times: NDArray[np.float64]
    modality: str | None = None
    pose: Pose | None = None
    routes: tuple[Route, ...] = ()

    def __post_init__(self) -> None:
        """Raise if the shapes of values and times do not match."""
        if self.values.ndim != 2 or self.values.dtype != np.float32:
            raise ValueError(f"values must be [T, D] float32, got {list(self.values.shape)} {self.values.dtype}")
        if self.times.shape != self.values.shape[:1]:
            raise ValueError(f"{len(self.values)} vectors need as many times, got shape {self.times.shape}")
        if self.routes and sum(route.width for route in self.routes) != self.values.shape[1]:
            raise ValueError(f"routes {self.routes} do not add up to the {self.values.shape[1]} columns of the vectors")

    def __len__(self) -> int:
        """Count the frames."""
        return len(self.values)


def embed(
    encoder: Encoder,
    frames: Clip | Stretch | Iterable[Clip] | Iterable[Stretch],
    *,
    context: Context | None = None,
    batch: int = 16,
    precomputed: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Embedding:
    """Embed every frame of a clip, of poses or spectra (values, times), or of a stream of consecutive parts.

    Each frame passes through `features` once, `batch` frames at a time; features are kept while they are in the context
    of a frame that is not embedded yet. The encoder runs on its own device in evaluation mode. `batch` affects memory
    and speed only: 16 images suit the cache of a CPU, a GPU or poses profit from hundreds. `context` is by default
    the encoder's, adapted to the frame rate of the recording; if its edges are "valid", frames without a full context
    are omitted. If `precomputed`, the input is features. `progress` is called with the number of embedded frames.
    Memory: the features of batch + 2·(farthest offset) frames, and the embedding itself.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1 frame, got {batch}")
    stretches = iter(_stretches(frames))
    first = next(stretches, None)
    if context is None:
        context = encoder.context_at(None if first is None else rate_of(first[1]))
    window = _Window(encoder, context=context, batch=batch, precomputed=precomputed)
    times: list[NDArray[np.float64]] = []
    values: list[NDArray[np.float32]] = []
    found, training = 0, encoder.training
    encoder.eval()
    try:
        with torch.inference_mode():
            for part in _vectors(
                window, _batches(chain([first] if first else [], stretches), batch=batch), times=times
            ):
                values.append(part)
                found += len(part)
                if progress is not None:
                    progress(found)
    finally:
        encoder.train(training)
    clock = np.concatenate(times) if times else np.empty(0)
    if not found:
        raise ValueError(f"none of {len(clock)} frames has its full context {context.offsets}: set edges to 'mirror'")
    return Embedding(np.concatenate(values), clock[window.first : window.first + found], encoder.modality)


def rate_of(times: NDArray[np.float64]) -> float | None:
    """Measure frames per second by the median gap between `times`; None if there are fewer than two frames."""
    gap = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return 1 / gap if gap > 0 else None


def _vectors(
    window: "_Window", stretches: Iterable[Stretch], *, times: list[NDArray[np.float64]]
) -> Iterator[NDArray[np.float32]]:
    """Yield vectors as their stretches arrive, and append the times of each stretch to `times`."""
    for frames, seconds in stretches:
        times.append(seconds)
        window.add(frames)
        yield from window.embedded(ended=False)
    yield from window.embedded(ended=True)


class _Window:
    """The features of the frames that are in the context of a frame that is not embedded yet."""

    def __init__(self, encoder: Encoder, *, context: Context, batch: int, precomputed: bool) -> None:
        """Start before the first frame."""
        self._encoder, self._context, self._batch, self._precomputed = encoder, context, batch, precomputed
        self._device = next(encoder.parameters()).device
        # A mirrored frame lies on the other side: both sides are kept as far as the farthest offset.
        self._reach = max(abs(offset) for offset in context.offsets)
        self._features: Tensor | None = None
        self._begin = 0  # the first frame whose features are kept
        self._received = 0
        valid = context.edges == "valid"
        self.first = max(0, -min(context.offsets)) if valid else 0
        self._cut = max(0, *context.offsets) if valid else 0
        self._next = self.first

    def add(self, frames: NDArray[Any]) -> None:
        """Compute the features of the next frames, and drop features no longer needed."""
        tensor = torch.from_numpy(np.ascontiguousarray(frames)).to(self._device)
        if self._precomputed:
            features = tensor.float()
        else:
            self._encoder.check(frames.shape[1:])
            features = self._encoder.features(self._encoder.prepare(tensor))
        if self._features is not None:
            dropped = max(0, min(self._next - self._reach, self._received) - self._begin)
            features = torch.cat([self._features[dropped:], features])
            self._begin += dropped
        self._features = features
        self._received += len(frames)

    def embedded(self, *, ended: bool) -> Iterator[NDArray[np.float32]]:
        """Embed the frames whose context is complete; at the end of the recording, all."""
        stop = self._received - (self._cut if ended else self._reach)
        while self._next < stop and self._features is not None:
            frames = np.arange(self._next, min(stop, self._next + self._batch))
            wanted = context_frames(frames, length=self._received, context=self._context) - self._begin
            rows = torch.from_numpy(wanted).to(self._device)
            vectors = self._encoder.combine(self._features[rows])
            self._next += len(frames)
            yield vectors.float().cpu().numpy()


def _stretches(frames: Clip | Stretch | Iterable[Clip] | Iterable[Stretch]) -> Iterator[Stretch]:
    """List the input as arrays of frames and their times."""
    for part in [frames] if isinstance(frames, Clip | tuple) else frames:
        values, times = (part.frames, part.times) if isinstance(part, Clip) else part
        if len(values) != len(times):
            raise ValueError(f"{len(values)} frames need as many times, got {len(times)}")
        yield values, times


def _batches(stretches: Iterable[Stretch], *, batch: int) -> Iterator[Stretch]:
    """Split stretches into parts of at most `batch` frames."""
    for frames, times in stretches:
        for begin in range(0, len(frames), batch):
            yield frames[begin : begin + batch], times[begin : begin + batch]
