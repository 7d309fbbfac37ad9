"""EmbeddedVideo videos whose answer is known by construction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from inphase.data.video import Video
from inphase.evaluation.embedded_videos import EmbeddedVideo
from inphase.media.sampling import Context
from inphase.models import Embedding

PHASES = 4


def curve(times: NDArray[np.float64], *, width: float = 0.1) -> NDArray[np.float32]:
    """Lay canonical times in [0, 1] on a curve: equal times are equal unit vectors, close ones close, others not."""
    bumps = np.exp(-np.square((times[:, None] - np.linspace(0, 1, 16)) / width) / 2)
    return np.asarray(bumps / np.linalg.norm(bumps, axis=1, keepdims=True), np.float32)


def embedded(
    values: NDArray[np.float32],
    *,
    name: str = "a",
    action: str = "throw",
    phases: NDArray[np.int64] | None = None,
    progress: NDArray[np.float64] | None = None,
    events: Mapping[str, int] | None = None,
    first: int = 0,
    length: int | None = None,
    context: Context | None = None,
) -> EmbeddedVideo:
    """Make an embedded video of some vectors."""
    total = length or len(values)
    video = Video(name, action, "test", length=total, phases=phases, progress=progress, events=events or {})
    times = np.arange(first, first + len(values)) / 30
    return EmbeddedVideo(video, Embedding(values, times), length=total, first=first, context=context or Context((0,)))


def performance(
    times: Sequence[float] | NDArray[np.float64], *, name: str = "a", action: str = "throw"
) -> EmbeddedVideo:
    """Embed a performance of known canonical times perfectly; its phases are the quarters, its event the middle."""
    progress = np.asarray(times, np.float64)
    phases = np.minimum((PHASES * progress).astype(np.int64), PHASES - 1)
    events = {"middle": int(np.abs(progress - 0.5).argmin())}
    return embedded(curve(progress), name=name, action=action, phases=phases, progress=progress, events=events)


def performances(count: int = 4, *, action: str = "throw", seed: int = 0) -> list[EmbeddedVideo]:
    """Embed performances at different speeds perfectly, each a monotone warp of the same curve."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        steps = rng.uniform(0.2, 1, rng.integers(20, 40))
        times = np.concatenate([[0], np.cumsum(steps)]) / steps.sum()
        found.append(performance(times, name=f"{action} {number}", action=action))
    return found


def noisy(videos: Sequence[EmbeddedVideo], *, noise: float = 0.2, seed: int = 0) -> list[EmbeddedVideo]:
    """Add noise, so that numbers are neither perfect nor undefined."""
    rng = np.random.default_rng(seed)
    found = []
    for item in videos:
        values = item.values + noise * rng.normal(size=item.values.shape)
        values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
        found.append(replace(item, embedding=Embedding(values, item.embedding.times)))
    return found


def constant(videos: Sequence[EmbeddedVideo]) -> list[EmbeddedVideo]:
    """Collapse every embedding to one vector."""
    values = [np.tile(np.eye(16, dtype=np.float32)[0], (len(item), 1)) for item in videos]
    return [
        replace(item, embedding=Embedding(rows, item.embedding.times))
        for item, rows in zip(videos, values, strict=True)
    ]
