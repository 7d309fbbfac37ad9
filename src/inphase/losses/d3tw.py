"""D3TW*: discriminative differentiable time warping, between videos (after Chang et al., CVPR 2019).

With ψ(x, y) = min^γ over all monotone paths of Σ c(i, j), and y⁻ the rest of y after portions of it are dropped:

    L = max(0, ψ(x, y) − ψ(x, y⁻) + margin)

The original aligns frames with a list of labels and drops labels; the form for two videos is the baseline of GTA's
supplement.
"""

import torch
from torch import Tensor

from inphase.align.cost import Cost, Lengths, require_pair, require_temperature
from inphase.align.path import soft_dtw
from inphase.losses.loss import PairLoss, Pairs, require_choice, require_count


class D3TW(PairLoss):
    """Require a video to be cheaper to align with another whole video than with one that lacks portions.

    Source (GTA's supplement): positives are frames over the whole of both videos, negatives the same with randomly
    dropped portions of the second. Open, and chosen here: two portions, together half of the second video, of equal
    size, anywhere, so that they may overlap; γ 0.1 and the cosine cost, as elsewhere in GTA; margin 1, where a diagonal
    path over 20 frames costs between 0 and 40.

    Frames: the plain draw, over the whole of a video. Every call drops other portions.
    """

    def __init__(
        self,
        *,
        gamma: float = 0.1,
        margin: float = 1.0,
        portions: int = 2,
        fraction: float = 0.5,
        cost: Cost = "cosine",
        beta: float = 0.1,
        pairs: Pairs = "anchor",
    ) -> None:
        """Check and store the settings; `fraction` bounds the part of a sequence that all portions together drop."""
        super().__init__(pairs=pairs)
        require_temperature("gamma", gamma, zero=True)
        require_temperature("margin", margin, zero=True)
        require_temperature("beta", beta)
        require_choice("cost", cost, ("contrastive", "cosine", "squared_euclidean"))
        require_count("portions", portions, at_most=1000)
        if not 0 < fraction < 1:
            raise ValueError(f"need 0 < fraction < 1, got {fraction}")
        self.gamma, self.margin, self.portions, self.fraction, self.beta = gamma, margin, portions, fraction, beta
        self.cost: Cost = cost

    def pair(self, x: Tensor, y: Tensor, x_lengths: Lengths = None, y_lengths: Lengths = None) -> dict[str, Tensor]:
        """Score x [B, M, D] against y [B, N, D]: `loss`, and the costs of `positive` and `negative` pairs."""
        require_pair(x, y)
        batch, n, _ = y.shape
        lengths = torch.full((batch,), n) if y_lengths is None else torch.as_tensor(y_lengths).cpu()
        kept, kept_lengths = self.drop(lengths, size=n)
        rows = torch.arange(batch, device=y.device)[:, None]
        less = y[rows, kept.to(y.device, non_blocking=True)]
        positive, negative = (
            soft_dtw(x, other, gamma=self.gamma, cost=self.cost, beta=self.beta, x_lengths=x_lengths, y_lengths=size)
            for other, size in ((y, y_lengths), (less, kept_lengths))
        )
        hinge = (positive.cost - negative.cost + self.margin).clamp_min(0)
        return {
            "loss": hinge.mean(),
            "positive": positive.cost.detach().mean(),
            "negative": negative.cost.detach().mean(),
        }

    def drop(self, lengths: Tensor, *, size: int) -> tuple[Tensor, Tensor]:
        """Choose the steps to keep of sequences of lengths [B]: steps in order [B, size], and their number [B].

        A sequence so short that no step would remain is kept whole.
        """
        portion = (self.fraction * lengths / self.portions).floor().clamp_min(1).long()
        room = lengths - portion
        starts = (torch.rand(len(lengths), self.portions) * (room[:, None] + 1)).long()
        steps = torch.arange(size)
        inside = (steps >= starts[..., None]) & (steps < (starts + portion[:, None])[..., None])
        gone = inside.any(1)
        gone[(gone | (steps >= lengths[:, None])).all(1)] = False
        keep = ~gone & (steps < lengths[:, None])
        return (~keep).int().argsort(dim=1, stable=True), keep.sum(1)
