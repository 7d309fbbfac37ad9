"""Embed every frame of a recording, in memory for a stretch of it, however long it is."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.media.frames import Clip
from inphase.media.sampling import Context, context_frames
from inphase.models.encoder import Encoder

# Frames [T, …] and the second of each [T]: poses [T, J, 3], spectra [T, 96, 64] …
Stretch = tuple[NDArray[Any], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Embedding:
    """Unit vectors on the clock of the frames they were made from: `values` [T, D] float32, `times` [T] float64."""

    values: NDArray[np.float32]
    times: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Refuse values and times that do not belong together."""
        if self.values.ndim != 2 or self.values.dtype != np.float32:
            raise ValueError(f"values must be [T, D] float32, got {list(self.values.shape)} {self.values.dtype}")
        if self.times.shape != self.values.shape[:1]:
            raise ValueError(f"{len(self.values)} vectors need as many times, got shape {self.times.shape}")

    def __len__(self) -> int:
        """Count the frames."""
        return len(self.values)


def embed(
    encoder: Encoder,
    seen: Clip | Stretch | Iterable[Clip] | Iterable[Stretch],
    *,
    context: Context | None = None,
    batch: int = 16,
    precomputed: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Embedding:
    """Embed every frame of a clip, of poses or sounds (values, times), or of a stream of consecutive ones.

    Each frame is looked at once, `batch` at a time; what was seen is kept as long as it is in somebody's context. The
    work is done where the encoder lives, in evaluation mode, and `batch` changes memory and speed alone: 16 pictures
    suit a processor's cache, a GPU or poses want hundreds. The context is the encoder's, as far in seconds as that says
    at which rate it was trained, unless another is given; where its edges are "valid", frames without a whole context
    are left out. Where `precomputed`, the input holds features of the encoder. `progress` is
    told how many frames are embedded. Memory: the features of batch + 2·(the farthest
    offset) frames, and the embedding itself.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1 frame, got {batch}")
    stretches = iter(_stretches(seen))
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
        raise ValueError(f"none of {len(clock)} frames has its whole context {context.offsets}: let edges be 'mirror'")
    return Embedding(np.concatenate(values), clock[window.first : window.first + found])


def rate_of(times: NDArray[np.float64]) -> float | None:
    """Tell how many frames a second follow each other at `times`, or None where that cannot be told."""
    gap = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return 1 / gap if gap > 0 else None


def _vectors(
    window: "_Window", stretches: Iterable[Stretch], *, times: list[NDArray[np.float64]]
) -> Iterator[NDArray[np.float32]]:
    """Yield what is embedded as stretches come in, and note their times."""
    for frames, seconds in stretches:
        times.append(seconds)
        window.look(frames)
        yield from window.embedded(ended=False)
    yield from window.embedded(ended=True)


class _Window:
    """The features of the frames that are in the context of a frame not embedded yet."""

    def __init__(self, encoder: Encoder, *, context: Context, batch: int, precomputed: bool) -> None:
        """Begin before the first frame."""
        self._encoder, self._context, self._batch, self._precomputed = encoder, context, batch, precomputed
        self._device = next(encoder.parameters()).device
        # A mirrored frame lies on the other side, so that both sides are kept as far as the farthest offset.
        self._reach = max(abs(offset) for offset in context.offsets)
        self._features: Tensor | None = None
        self._begin = 0  # the frame whose features are the first kept
        self._received = 0
        valid = context.edges == "valid"
        self.first = max(0, -min(context.offsets)) if valid else 0
        self._cut = max(0, *context.offsets) if valid else 0
        self._next = self.first

    def look(self, frames: NDArray[Any]) -> None:
        """Look at the frames that follow, and forget those no longer needed."""
        tensor = torch.from_numpy(np.ascontiguousarray(frames)).to(self._device)
        if self._precomputed:
            features = tensor.float()
        else:
            self._encoder.check(frames.shape[1:])
            features = self._encoder.features(self._encoder.prepare(tensor))
        if self._features is not None:
            forgotten = max(0, min(self._next - self._reach, self._received) - self._begin)
            features = torch.cat([self._features[forgotten:], features])
            self._begin += forgotten
        self._features = features
        self._received += len(frames)

    def embedded(self, *, ended: bool) -> Iterator[NDArray[np.float32]]:
        """Embed the frames whose context is complete, which at the end of the recording all are."""
        stop = self._received - (self._cut if ended else self._reach)
        while self._next < stop and self._features is not None:
            frames = np.arange(self._next, min(stop, self._next + self._batch))
            wanted = context_frames(frames, length=self._received, context=self._context) - self._begin
            rows = torch.from_numpy(wanted).to(self._device)
            vectors = self._encoder.combine(self._features[rows])
            self._next += len(frames)
            yield vectors.float().cpu().numpy()


def _stretches(seen: Clip | Stretch | Iterable[Clip] | Iterable[Stretch]) -> Iterator[Stretch]:
    """List what is seen as frames and their times."""
    for part in [seen] if isinstance(seen, Clip | tuple) else seen:
        frames, times = (part.frames, part.times) if isinstance(part, Clip) else part
        if len(frames) != len(times):
            raise ValueError(f"{len(frames)} frames need as many times, got {len(times)}")
        yield frames, times


def _batches(stretches: Iterable[Stretch], *, batch: int) -> Iterator[Stretch]:
    """Cut what is seen into parts of at most `batch` frames."""
    for frames, times in stretches:
        for begin in range(0, len(frames), batch):
            yield frames[begin : begin + batch], times[begin : begin + batch]
