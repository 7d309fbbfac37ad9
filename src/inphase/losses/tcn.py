"""TCN: time-contrastive networks in their single-view form (Sermanet et al., ICRA 2018).

Of each video T anchors a and for each a positive p up to `window` frames before it:

    "n-pairs"  L = mean_i −log softmax_j(p_i · a_j)[i] + ¼ λ (mean ‖a_i‖² + mean ‖p_i‖²)
    "triplet"  L = mean over (i, j) of max(0, ‖a_i − p_i‖² − ‖a_i − a_j‖² + margin),   a_j further than 2 · window off

averaged over the videos: no two are compared.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from inphase.align.cost import no_autocast, require_temperature, squared_euclidean_cost
from inphase.losses.loss import Draw, Frames, Loss, Sequences, draw_distinct, masked_mean, require_choice


class TCN(Loss):
    """Pull frames close in time together and push other frames of the same video apart.

    Constants of the n-pairs form, from TCC's released code, the source of the published numbers: positives uniform in
    [t − 5, t − 1], λ 0.002, the softmax over the later frames (that code draws t, then puts the earlier frame first and
    takes it for the anchor), embeddings not normalized (with unit vectors the logits lie within ±1; `tau` divides them,
    1 in the source). The original's multi-view form, which the supplement of GTA describes, needs two cameras.

    Frames: two blocks, the plain draw as anchors and their positives in the same order; near the beginning of a video
    the window ends at frame 0, and frame 0 is its own positive. Pairs: none. Open: all of the triplet form but its
    margin of 0.2 (from memory of the original): here every other anchor further than 2 · window frames is a negative,
    without mining.
    """

    blocks = 2

    def __init__(
        self,
        *,
        kind: Literal["n-pairs", "triplet"] = "n-pairs",
        window: int = 5,
        regularizer: float = 0.002,
        margin: float = 0.2,
        tau: float = 1.0,
    ) -> None:
        """Check and store the settings."""
        super().__init__()
        require_choice("kind", kind, ("n-pairs", "triplet"))
        if window < 1:
            raise ValueError(f"window must be at least one frame, got {window}")
        require_temperature("regularizer", regularizer, zero=True)
        require_temperature("margin", margin, zero=True)
        require_temperature("tau", tau)
        self.kind, self.window, self.regularizer, self.margin, self.tau = kind, window, regularizer, margin, tau

    def frames(self, total: int, *, count: int, rng: np.random.Generator, draw: Draw = draw_distinct) -> Frames:
        """Choose anchors by the plain draw, and after them a frame up to `window` before each, int64 [2 · count]."""
        anchors = draw(total, count=count, rng=rng)
        before = rng.integers(1, self.window, size=len(anchors), endpoint=True)
        return np.concatenate([anchors, np.maximum(anchors - before, 0)])

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group of anchors followed by their positives."""
        anchors, positives = sequences.blocks(2)
        a, p, real = anchors.clean, positives.clean, anchors.mask
        with no_autocast(a):
            if self.kind == "triplet":
                return {"loss": self._triplet(a, p, anchors.frames, real)}
            logits = (p @ a.mT / self.tau).where(real[:, None, :], float("-inf"))
            entropy = -torch.log_softmax(logits, 2).diagonal(dim1=1, dim2=2)
            contrast = masked_mean(entropy, real).mean()
            size = masked_mean(a.square().sum(2) + p.square().sum(2), real).mean()
        return {"loss": contrast + 0.25 * self.regularizer * size, "contrast": contrast, "size": size}

    def _triplet(self, a: Tensor, p: Tensor, frames: Tensor, real: Tensor) -> Tensor:
        near = (a - p).square().sum(2)
        violation = (near[:, :, None] - squared_euclidean_cost(a, a) + self.margin).clamp_min(0)
        apart = (frames[:, :, None] - frames[:, None, :]).abs() > 2 * self.window
        return masked_mean(violation.flatten(1), (apart & real[:, :, None] & real[:, None, :]).flatten(1)).mean()
