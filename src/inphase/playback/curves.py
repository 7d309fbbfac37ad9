"""Embeddings as a few curves that can be looked at."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def principal_curves(embeddings: Sequence[ArrayLike], *, dimensions: int = 3) -> list[NDArray[np.float32]]:
    """Project embeddings [T, D] of several videos on the directions in which all of them vary most: [T, dimensions].

    The directions are common, so that equal curves mean equal moments; their signs are those in which the first video
    rises from its start to its end. Videos of different lengths count alike.
    """
    values = [np.asarray(embedding, np.float64) for embedding in embeddings]
    if not values or any(value.ndim != 2 or len(value) < 1 for value in values):
        raise ValueError("embeddings must be arrays [T, D] of at least one frame each")
    if len({value.shape[1] for value in values}) > 1:
        raise ValueError(f"embeddings must have one dimension, got {sorted({value.shape[1] for value in values})}")
    centre = np.mean([value.mean(axis=0) for value in values], axis=0)
    scatter = sum((value - centre).T @ (value - centre) / len(value) for value in values)
    _, directions = np.linalg.eigh(scatter)
    directions = directions[:, ::-1][:, :dimensions]
    travel = (values[0][-1] - values[0][0]) @ directions
    directions = directions * np.where(travel < 0, -1.0, 1.0)
    return [((value - centre) @ directions).astype(np.float32) for value in values]
