"""TCC: temporal cycle consistency of single frames (Dwibedi et al., CVPR 2019).

From frame i of u to v and back, softly:

    sim(a, b) = −‖a − b‖² / (D τ)        α_j = softmax_j sim(u_i, v_j)        ṽ_i = Σ_j α_j v_j
    β_k = softmax_k sim(ṽ_i, u_k)        μ_i = Σ_k β_k t_k                    σ_i² = Σ_k β_k (t_k − μ_i)²

with t_k the frame's number over the length of its video. The frame should come back to where it left:

    "variance"        (t_i − μ_i)² / σ_i² + λ log σ_i²
    "mse"             (t_i − μ_i)²
    "huber"           ½ e² where |e| = |t_i − μ_i| ≤ δ, δ (|e| − ½ δ) elsewhere
    "classification"  cross entropy of β_i with the frame itself, labels smoothed by 0.1

Time enters through t alone: classification does not depend on the order of frames.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from inphase.align.cost import no_autocast, require_temperature, squared_euclidean_cost
from inphase.losses.loss import Loss, Pairs, Sequences, masked_mean, normalize, pair_up, require_choice

CycleLoss = Literal["variance", "mse", "huber", "classification"]


class TCC(Loss):
    """Send each frame to another sequence and back, and require it to return to its own position.

    Constants of the released code: τ 0.1 and the division by D in both similarities, λ 0.001 of log σ² (the paper
    prints log σ), δ 0.1, label smoothing 0.1, all ordered pairs, embeddings as they are: its networks do not normalize.
    With unit vectors the division by D = 128 makes all softmaxes nearly flat; `by_dimension=False` leaves it out, which
    neither source does. `similarity="cosine"` is the dot product of unit vectors (the released one's is not of unit
    vectors).

    Frames: the plain draw. Open in the sources: sequences of unequal length, here averaged over their frames first and
    then over pairs; a variance of 0, here at least 10⁻¹².
    """

    def __init__(
        self,
        *,
        kind: CycleLoss = "variance",
        similarity: Literal["l2", "cosine"] = "l2",
        tau: float = 0.1,
        variance_weight: float = 0.001,
        delta: float = 0.1,
        label_smoothing: float = 0.1,
        by_dimension: bool = True,
        unit: bool = False,
        pairs: Pairs = "all",
    ) -> None:
        """Check and store the settings; `unit` normalizes the embeddings first."""
        super().__init__()
        require_choice("kind", kind, ("variance", "mse", "huber", "classification"))
        require_choice("similarity", similarity, ("l2", "cosine"))
        require_choice("pairs", pairs, ("anchor", "all"))
        require_temperature("tau", tau)
        require_temperature("variance_weight", variance_weight, zero=True)
        require_temperature("delta", delta)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, got {label_smoothing}")
        self.kind, self.similarity, self.tau = kind, similarity, tau
        self.variance_weight, self.delta, self.label_smoothing = variance_weight, delta, label_smoothing
        self.by_dimension, self.unit = by_dimension, unit
        self.pairs: Pairs = pairs

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score every ordered pair of a group: `loss`, and the mean `error` of a frame's return in video lengths."""
        values, real, positions = sequences.clean, sequences.mask, sequences.positions
        if self.unit:
            values = normalize(values)
        first, second = pair_up(sequences, self.pairs, ordered=True)
        u, v, home = values[first], values[second], positions[first]
        with no_autocast(u):
            there = self._softmax(u, v, real[second]) @ v
            back = self._softmax(there, u, real[first])
            mean = (back * home[:, None, :]).sum(2)
            rows = self._rows(back, mean, home, real[first])
            loss = masked_mean(rows, real[first]).mean()
            error = masked_mean((home - mean).abs(), real[first]).mean()
        return {"loss": loss, "error": error.detach()}

    def _softmax(self, a: Tensor, b: Tensor, real: Tensor) -> Tensor:
        """Match rows of a [P, M, D] with those of b [P, N, D] that are `real` [P, N]: probabilities [P, M, N]."""
        if self.similarity == "l2":
            logits = -squared_euclidean_cost(a, b)
        else:
            logits = normalize(a) @ normalize(b).mT
        scale = self.tau * (a.shape[2] if self.by_dimension else 1)
        return torch.softmax((logits / scale).where(real[:, None, :], float("-inf")), 2)

    def _rows(self, back: Tensor, mean: Tensor, home: Tensor, real: Tensor) -> Tensor:
        """Score each frame's return, [P, M]."""
        if self.kind == "mse":
            return (home - mean).square()
        if self.kind == "huber":
            return F.huber_loss(mean, home, delta=self.delta, reduction="none")
        if self.kind == "variance":
            spread = (back * (home[:, None, :] - mean[:, :, None]).square()).sum(2).clamp_min(1e-12)
            return (home - mean).square() / spread + self.variance_weight * spread.log()
        log_probability = back.clamp_min(1e-30).log()
        own = log_probability.diagonal(dim1=1, dim2=2)
        return -((1 - self.label_smoothing) * own + self.label_smoothing * masked_mean(log_probability, real[:, None]))
