"""Health of embeddings: whether they have collapsed, to a point, to a line, or to a point for each video.

τ is independent of scale and does not show a collapse. With u the unit vectors of all frames, ū their mean:

    mean_cosine     of two different frames, over all pairs; 1: a point
    variance        mean ‖u − ū‖², from 0 to 1
    effective_rank  exp of the entropy of the centered vectors' singular values (Roy and Vetterli, 2007), 1 to D
    within_videos   the share of the variance within videos, the rest being between them; 0: a point for each video
"""

from collections.abc import Sequence

import numpy as np

from inphase.evaluation.embedded_videos import EmbeddedVideo, all_constant
from inphase.evaluation.scores import Score


def health(train: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo]) -> list[Score]:
    """Measure how much of their space the embeddings use; `train` is not used. O(N D²) time."""
    count = sum(len(item) for item in test)
    total = sum(item.values.sum(0, dtype=np.float64) for item in test)
    center = total / count
    spread = np.zeros((len(center), len(center)))
    within = 0.0
    for item in test:
        rows = item.values.astype(np.float64)
        spread += (rows - center).T @ (rows - center)
        within += float(np.square(rows - rows.mean(0)).sum())
    variance = float(np.trace(spread)) / count
    # Σ over pairs of u·v = ‖Σ u‖² − Σ ‖u‖²
    squares = variance * count + count * float(center @ center)
    mean_cosine = (float(total @ total) - squares) / (count * (count - 1)) if count > 1 else float("nan")
    collapsed = all_constant(test)
    found = {
        "mean_cosine": mean_cosine,
        "variance": variance,
        "effective_rank": float("nan") if collapsed else _effective_rank(spread),
        "within_videos": float("nan") if collapsed else within / (variance * count),
    }
    return [Score("health", metric, value) for metric, value in found.items()]


def _effective_rank(spread: np.ndarray) -> float:
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(spread), 0))
    share = singular / singular.sum()
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))
