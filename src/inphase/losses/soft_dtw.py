"""SoftDTW: the alignment cost itself as a loss (Cuturi and Blondel, ICML 2017).

    L = min^γ over all monotone paths of Σ c(i, j),    c(i, j) = ‖x_i − y_j‖²

min^γ as in `inphase.align.recursion`. It pulls matching frames together and pushes none apart: embeddings that are all
equal cost nothing. The contrastive cost, `cost="contrastive"`, keeps them apart.
"""

from torch import Tensor

from inphase.align.cost import Cost, Lengths, require_temperature
from inphase.align.path import soft_dtw
from inphase.losses.loss import PairLoss, Pairs, require_choice


class SoftDTW(PairLoss):
    """Lower the smoothed cost of aligning each pair.

    Source: the recursion and the squared Euclidean cost. Open, as the source leaves γ to the user: γ 0.1, GTA's; pairs
    as GTA's; no division by the lengths.

    Frames: the plain draw.
    """

    def __init__(
        self,
        *,
        gamma: float = 0.1,
        cost: Cost = "squared_euclidean",
        beta: float = 0.1,
        pairs: Pairs = "anchor",
    ) -> None:
        """Check and store the settings; `beta` is the contrastive cost's temperature."""
        super().__init__(pairs=pairs)
        require_temperature("gamma", gamma, zero=True)
        require_temperature("beta", beta)
        require_choice("cost", cost, ("contrastive", "cosine", "squared_euclidean"))
        self.gamma, self.beta = gamma, beta
        self.cost: Cost = cost

    def pair(self, x: Tensor, y: Tensor, x_lengths: Lengths = None, y_lengths: Lengths = None) -> dict[str, Tensor]:
        """Score x [B, M, D] against y [B, N, D], pair by pair: the mean `loss` of the batch."""
        warping = soft_dtw(
            x, y, gamma=self.gamma, cost=self.cost, beta=self.beta, x_lengths=x_lengths, y_lengths=y_lengths
        )
        return {"loss": warping.cost.mean()}
