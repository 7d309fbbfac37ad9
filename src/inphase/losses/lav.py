"""LAV: soft-DTW between videos and a contrast within each (Haresh et al., "Learning by Aligning Videos", CVPR 2021).

With unit embeddings x of M and y of N frames, D(i, j) = ‖x_i − x_j‖², and Δ_ij the difference of two frames' numbers
over the length of their video:

    L = (soft-DTW_γ(x, y) + ½ (I(x) + I(y))) / N
    I(x) = Σ_ij (1 + Δ_ij²) max(0, λ − D(i, j))  where |Δ_ij| > σ / length,   D(i, j)  elsewhere
"""

from torch import Tensor

from inphase.align.cost import no_autocast, require_temperature, squared_euclidean_cost
from inphase.align.path import soft_dtw
from inphase.losses.loss import Loss, Pairs, Sequences, normalize, pair_up, require_choice


class LAV(Loss):
    """Align pairs by soft-DTW and keep distant frames of each video apart, so that it cannot collapse.

    Constants of the released code: γ 0.1, squared Euclidean cost, weight of I 0.5, margin λ 2, window σ 10 frames,
    weight 1 for frames within it, the sum over all i and j. Embeddings are normalized here.

    Frames: the plain draw (the source takes one frame at random of each of 20 equal parts: pass that as `draw`).
    Pairs: a batch of the source is one pair. Open: sequences of unequal length, where N is here the mean of both.
    """

    def __init__(
        self,
        *,
        gamma: float = 0.1,
        weight: float = 0.5,
        margin: float = 2.0,
        window: float = 10.0,
        pairs: Pairs = "anchor",
    ) -> None:
        """Check and store the settings; `window` counts frames of the video."""
        super().__init__()
        require_choice("pairs", pairs, ("anchor", "all"))
        require_temperature("gamma", gamma, zero=True)
        require_temperature("weight", weight, zero=True)
        require_temperature("margin", margin)
        require_temperature("window", window, zero=True)
        self.gamma, self.weight, self.margin, self.window = gamma, weight, margin, window
        self.pairs: Pairs = pairs

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, and its terms `align` and `contrast` a frame, means over pairs."""
        first, second = pair_up(sequences, self.pairs)
        values = normalize(sequences.clean)
        lengths = None if sequences.unpadded else sequences.lengths
        x_lengths, y_lengths = (None, None) if lengths is None else (lengths[first], lengths[second])
        warping = soft_dtw(values[first], values[second], gamma=self.gamma, x_lengths=x_lengths, y_lengths=y_lengths)
        within = self.contrast(sequences)
        size = (sequences.lengths[first] + sequences.lengths[second]).to(values.device, non_blocking=True) / 2
        align = (warping.cost / size).mean()
        contrast = ((within[first] + within[second]) / size).mean()
        return {"loss": align + self.weight * contrast, "align": align, "contrast": contrast}

    def contrast(self, sequences: Sequences) -> Tensor:
        """Push frames outside the window apart and pull those within it together: I of each sequence, [K]."""
        values, real = normalize(sequences.clean), sequences.mask
        gap = (sequences.frames[:, :, None] - sequences.frames[:, None, :]).abs()
        delta = (gap / sequences.totals[:, None, None]).to(values.dtype)
        with no_autocast(values):
            distance = squared_euclidean_cost(values, values)
            apart = (1 + delta.square()) * (self.margin - distance).clamp_min(0)
            cells = apart.where(gap > self.window, distance)
            return cells.where(real[:, :, None] & real[:, None, :], 0).sum((1, 2))
