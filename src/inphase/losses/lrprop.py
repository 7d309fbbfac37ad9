"""LRProp: the path of DTW as the target of frame similarities (2023).

From "Weakly-supervised Representation Learning for Video Alignment and Analysis" (Bar-Shalom et al.). With π(i) the
middle of the frames of y that DTW matches with frame i of x, in frames s' of the video:

    q_ij = softmax_j(−(s'_j − π(i))² / 2σ²)        p_ij = softmax_j(x_i · y_j / τ)
    L = ½ mean_i KL(q_i ‖ p_i) + ½ the same from y to x + w · L_LAV(x, y)

"Pair-wise position propagation": positions travel along the path from one video to the other; no gradient passes
through the path. L_LAV is soft-DTW with its regularizer, meant to find the path before similarities are sharp.
"""

import torch
from torch import Tensor

from inphase.align.cost import no_autocast, require_temperature, squared_euclidean_cost
from inphase.align.path import read_out
from inphase.align.recursion import accumulate
from inphase.losses.lav import LAV
from inphase.losses.loss import Loss, Pairs, Sequences, masked_mean, normalize, pair_up, require_choice


class LRProp(Loss):
    """Sharpen the similarities of two videos around the path that DTW finds between them.

    Source: DTW within each training step, Gaussian targets around its path, KL divergence, and a regularized soft-DTW
    loss beside it. Open, since no code is public: σ² 10 frames² and τ 0.1, as SCL's, whose form of targets this is; the
    regularized loss is LAV's, and its weight 0.1; DTW by the squared distance of unit vectors.

    Frames: the plain draw. Pairs: as GTA's.
    """

    def __init__(
        self, *, variance: float = 10.0, tau: float = 0.1, align_weight: float = 0.1, pairs: Pairs = "anchor"
    ) -> None:
        """Check and store the settings; `align_weight` is the weight of LAV's loss."""
        super().__init__()
        require_choice("pairs", pairs, ("anchor", "all"))
        require_temperature("variance", variance)
        require_temperature("tau", tau)
        require_temperature("align_weight", align_weight, zero=True)
        self.variance, self.tau, self.align_weight = variance, tau, align_weight
        self.pairs: Pairs = pairs
        self._align = LAV(pairs=pairs)

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, and its terms `divergence` and `align`, means over pairs."""
        first, second = pair_up(sequences, self.pairs)
        values, real, frames = normalize(sequences.clean), sequences.mask, sequences.frames
        x_lengths, y_lengths = sequences.lengths[first], sequences.lengths[second]
        with no_autocast(values):
            x, y = values[first], values[second]
            path = self.path(x, y, x_lengths, y_lengths)
            logits = x @ y.mT / self.tau
            there = self._divergence(logits, path, frames[second], real[first], real[second])
            back = self._divergence(logits.mT, path.mT, frames[first], real[second], real[first])
            divergence = ((there + back) / 2).mean()
        align = self._align(sequences)["loss"]
        return {"loss": divergence + self.align_weight * align, "divergence": divergence, "align": align}

    def path(self, x: Tensor, y: Tensor, x_lengths: Tensor, y_lengths: Tensor) -> Tensor:
        """Mark the cells of the cheapest path between x [P, M, D] and y [P, N, D], [P, M, N]: 1 on it, 0 elsewhere.

        The gradient of the hard minimum is its path: nothing has to be traced back on the CPU.
        """
        cost = squared_euclidean_cost(x.detach(), y.detach(), x_lengths=x_lengths, y_lengths=y_lengths)
        with torch.enable_grad():
            cost.requires_grad_()
            ends = read_out(
                accumulate(cost, kind="hard"), kind="hard", gamma=0.0, x_lengths=x_lengths, y_lengths=y_lengths
            )
            (path,) = torch.autograd.grad(ends.sum(), cost)
        return path

    def _divergence(self, logits: Tensor, path: Tensor, frames: Tensor, real: Tensor, other_real: Tensor) -> Tensor:
        """Compare the matches [P, M, N] of each frame with those along the path, [P]; `frames` [P, N] number y's."""
        numbers, other = frames.to(logits.dtype), other_real[:, None, :]
        middle = (path * numbers[:, None]).sum(2) / path.sum(2).clamp_min(1)
        gap = numbers[:, None, :] - middle[:, :, None]
        aims = (-gap.square() / (2 * self.variance)).where(other, float("-inf")).log_softmax(2)
        guess = logits.where(other, float("-inf")).log_softmax(2)
        share = aims.exp()
        return masked_mean((share * (aims - guess).where(share > 0, 0)).sum(2), real)
