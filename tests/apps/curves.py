"""Embeddings whose alignment is known: a curve through a sphere, walked at different speeds."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inphase.models.embedding import Embedding


def on_curve(moments: ArrayLike, *, rate: float = 30.0, noise: float = 0.0, seed: int = 0) -> Embedding:
    """Embed moments [T] of an action, from 0 to 1, at `rate` frames a second."""
    times = np.asarray(moments, np.float64)
    waves = [wave(k * np.pi * times) for k in (1, 2, 5) for wave in (np.sin, np.cos)]
    values: NDArray[np.float64] = np.stack(waves, axis=1)
    values += noise * np.random.default_rng(seed).normal(size=values.shape)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return Embedding(values.astype(np.float32), np.arange(len(times)) / rate)
