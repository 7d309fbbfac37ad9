"""A verdict on an alignment: how probable it is that two videos show the same action and are aligned closely.

Any two videos have a cheapest path, whatever they show. The mean cost along it over the mean of all costs shows whether
the path is worth following: it is near 1 where matched frames are hardly more alike than any others. A logistic
regression of this ratio, fitted on right pairs of two domains and on wrong ones (`python -m benchmarks.verdict`), gives
the probability. It holds for embeddings by pose and images together; those of one modality have other ratios.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inphase.align.path import Alignment
from inphase.media.recording import NamedVideo
from inphase.models.embedding import Embedding

Judgment = Literal["good", "check", "do_not_trust"]
# The logistic regression of the cost ratio (docs/lab/transfer.md).
CONSTANT, RATIO_WEIGHT = 11.6, -16.7
# Probabilities from which an alignment is good, and below which it is not to be trusted.
GOOD, DOUBTFUL = 0.7, 0.3
# A moment counts as right if its error is at most this many seconds.
TOLERANCE_SECONDS = 0.1


@dataclass(frozen=True)
class Verdict:
    """A judgment of an alignment, the probability that it is right, and the reasons against it, in sentences."""

    judgment: Judgment | None = None
    probability: float | None = None
    reasons: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; null without a verdict."""
        return {"verdict": self.judgment, "probability": self.probability, "reasons": list(self.reasons)}


def judge(x: Embedding, y: Embedding, alignment: Alignment) -> Verdict:
    """Judge the alignment of two whole videos; the verdict is empty without a cost matrix, and for one modality."""
    m, n = alignment.shape
    whole = alignment.path[[0, -1]].tolist() == [[0, 0], [m - 1, n - 1]]
    if alignment.cost_matrix is None or not whole or min(len(x.routes), len(y.routes)) < 2:
        return Verdict()
    ratio = cost_ratio(alignment)
    probability = 1 / (1 + math.exp(-(CONSTANT + RATIO_WEIGHT * ratio)))
    if probability >= GOOD:
        return Verdict("good", probability)
    reason = f"Matched frames are hardly more alike than others: their cost is {ratio:.0%} of the average."
    return Verdict("check" if probability >= DOUBTFUL else "do_not_trust", probability, (reason,))


def cost_ratio(alignment: Alignment) -> float:
    """Divide the mean cost along the path by the mean of all costs; 1 where all costs are 0."""
    matrix = np.asarray(alignment.cost_matrix, np.float64)
    i, j = alignment.path.T
    mean = float(matrix.mean())
    return float(matrix[i, j].mean()) / mean if mean > 0 else 1.0


def describe_aligned(
    video: NamedVideo, found: Alignment, verdict: Verdict, seconds: NDArray[np.float64]
) -> dict[str, Any]:
    """Describe an aligned video by JSON-ready values: its `seconds` at each frame of the reference, the verdict."""
    about = {"name": video.name, "path": str(video.path), "duration": video.properties.duration}
    kept = None if found.kept is None else found.kept[0].tolist()
    return {**about, "distance": found.distance, **verdict.to_dict(), "seconds": seconds.tolist(), "kept": kept}


VERDICT_COLUMNS = ("video", "file", "verdict", "probability", "offset", "from", "to", "distance", "reason")


def describe_row(
    video: NamedVideo, verdict: Verdict, found: Alignment, seconds: NDArray[np.float64], *, clock: NDArray[np.float64]
) -> tuple[str, ...]:
    """Describe an aligned video by a row of a table, with the `VERDICT_COLUMNS`.

    The offset is the median of the video's `seconds` [R] minus those of the reference, `clock` [R].
    """
    numbers = (f"{value:z.3f}" for value in (np.median(seconds - clock), seconds[0], seconds[-1]))
    sure = "" if verdict.probability is None else f"{verdict.probability:.3f}"
    reasons = " ".join(verdict.reasons)
    return video.name, str(video.path), verdict.judgment or "", sure, *numbers, f"{found.distance:.4f}", reasons
