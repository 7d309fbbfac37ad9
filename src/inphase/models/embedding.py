"""Embeddings, and `embed`, which streams a recording of any length through an encoder in bounded memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.media.frames import Clip
from inphase.media.sampling import Context, context_frames
from inphase.models.encoder import Encoder
from inphase.pose.pose import Pose

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

    def part(self, start: float, end: float) -> "Embedding":
        """Return the frames from second `start` to before `end`, at least two, on the same clock."""
        first, last = np.searchsorted(self.times, [start - 1e-9, end]).tolist()
        first = min(first, len(self) - 2)
        frames = slice(first, max(last, first + 2))
        pose = None if self.pose is None else self.pose.part(start, end)
        return replace(self, values=self.values[frames], times=self.times[frames], pose=pose)


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
    clock = clock[window.first : window.first + found]
    return encoder.center(Embedding(np.concatenate(values), clock, encoder.modality))


def unit_rows(values: NDArray[Any]) -> NDArray[Any]:
    """Normalize rows to unit length; rows of zeros stay zeros."""
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12))


def subtract_mean(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Subtract the mean of rows [T, D] and normalize the rest; without any, as in a still recording, all are equal."""
    rest = rows - rows.mean(0)
    moves = np.linalg.norm(rest, axis=1, keepdims=True) > 1e-6
    return np.where(moves, unit_rows(rest), np.float32(1 / np.sqrt(rest.shape[1])))


def rate_of(times: NDArray[np.float64]) -> float | None:
    """Measure frames per second by the median gap between `times`; None if there are fewer than two frames."""
    gap = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return 1 / gap if gap > 0 else None


def resample(values: NDArray[Any], density: float) -> NDArray[Any]:
    """Take every n-th row of values [T, …] for a density of 1/n, and interpolate n − 1 between two rows for n."""
    if density <= 1:
        return values[:: max(1, round(1 / density))]
    number = round(density)
    places = np.arange(number * (len(values) - 1) + 1) / number
    before = places.astype(np.int64)
    after = np.minimum(before + 1, len(values) - 1)
    share = (places - before).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(values[before] * (1 - share) + values[after] * share, values.dtype)


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
            vectors = self._encoder.describe(self._features[rows])
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
