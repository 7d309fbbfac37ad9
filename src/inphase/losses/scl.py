"""SCL: two views of one video, and distances in time as targets (CARL, CVPR 2022).

From "Frame-wise Action Representations for Long Videos via Sequence Contrastive Learning" (Chen et al.). With z and z'
the projected unit embeddings of the frames s and s' of two views of a video:

    q_ij = softmax_j(−(s_i − s'_j)² / 2σ²)        p_ij = softmax_j(z_i · z'_j / τ)
    L = mean over the frames i of both views of KL(q_i ‖ p_i),   each against the other view

No two videos are compared: what their embeddings have in common comes from the encoder.
"""

import numpy as np
from torch import Tensor, nn

from inphase.align.cost import no_autocast, require_temperature, single_precision
from inphase.losses.loss import Draw, Frames, Loss, Sequences, draw_distinct, masked_mean, normalize


class SCL(Loss):
    """Match two augmented views of the same video frame by frame, softly in time.

    Constants of the released code: σ² 10 frames², τ 0.1, negatives from the other view alone, a projection of 512
    hidden units that is not part of the encoder. There each view is a crop of a video; for PennAction, whose videos are
    shorter than the 80 frames of a view, the whole video. Open, and chosen here: the first view is the plain draw over
    all of a video and the second a draw from a random part of it, between the share `crop` and all; the projection has
    no batch norm.

    Frames: two blocks, each augmented by itself (`views`). Pairs: none.
    """

    blocks = 2
    views = 2

    def __init__(
        self, *, variance: float = 10.0, tau: float = 0.1, crop: float = 2 / 3, hidden: int = 512, dimension: int = 128
    ) -> None:
        """Make the projection for embeddings of `dimension`; `hidden` = 0 leaves it out."""
        super().__init__()
        require_temperature("variance", variance)
        require_temperature("tau", tau)
        if not 0 < crop <= 1:
            raise ValueError(f"crop must be above 0 and at most 1, the least share of a video in a view; got {crop}")
        self.variance, self.tau, self.crop, self.dimension = variance, tau, crop, dimension
        layers = nn.Linear(dimension, hidden or 1), nn.ReLU(), nn.Linear(hidden or 1, dimension)
        self.projection = nn.Sequential(*layers) if hidden else nn.Identity()

    def frames(self, total: int, *, count: int, rng: np.random.Generator, draw: Draw = draw_distinct) -> Frames:
        """Choose the plain draw, and after it as many frames of a part of the video, int64 [2 · count]."""
        whole = draw(total, count=count, rng=rng)
        length = max(1, round(total * rng.uniform(self.crop, 1)))
        start = int(rng.integers(total - length + 1))
        return np.concatenate([whole, start + draw(length, count=count, rng=rng)])

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group of two views of each video: `loss`, and the mean `error` of the expected match in frames."""
        first, second = sequences.blocks(2)
        if sequences.values.shape[2] != self.dimension:
            raise ValueError(f"the projection takes dimension {self.dimension}, got {sequences.values.shape[2]}")
        x, y = (normalize(*single_precision(self.projection(view.clean))) for view in (first, second))
        with no_autocast(x):
            logits = x @ y.mT / self.tau
            there, error = self._compare(logits, first, second)
            back, _ = self._compare(logits.mT, second, first)
            loss = ((there + back) / 2).mean()
        return {"loss": loss, "error": error.detach().mean()}

    def _compare(self, logits: Tensor, view: Sequences, other: Sequences) -> tuple[Tensor, Tensor]:
        """Compare the frames of one view with those of the other: divergence and error of each sequence, [K]."""
        real, other_real = view.mask, other.mask[:, None, :]
        gap = (view.frames[:, :, None] - other.frames[:, None, :]).to(logits.dtype)
        aims = (-gap.square() / (2 * self.variance)).where(other_real, float("-inf")).log_softmax(2)
        guess = logits.where(other_real, float("-inf")).log_softmax(2)
        share = aims.exp()
        # 0 · log 0 is 0: of padding, and of frames so far away that their share underflows.
        rows = (share * (aims - guess).where(share > 0, 0)).sum(2)
        expected = (guess.exp() * gap.where(other_real, 0)).sum(2).abs()
        return masked_mean(rows, real), masked_mean(expected, real)
