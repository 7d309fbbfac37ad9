"""GTA: global temporal alignment and cycle consistency, eq. (14) of the paper, and as its authors released it."""

from typing import Literal

import torch
from torch import Tensor

from inphase.align.cost import (
    Lengths,
    contrastive_costs,
    cosine_cost,
    require_directions,
    require_pair,
    require_temperature,
)
from inphase.align.path import read_out
from inphase.align.recursion import accumulate, cycle_consistency, released_cycle_consistency
from inphase.losses.loss import PairLoss, Pairs, require_choice


class GTA(PairLoss):
    """Align every pair of sequences in both directions and require each frame to return to itself.

    L = cycle_weight · L_GCC(x, y) + align_weight · (L_smoothDTW(x, y) + L_smoothDTW(y, x))

    The defaults are the paper's. `variant="released"` computes the loss of the authors' code, whose cycle term is
    averaged, label-smoothed and confined to about [2.2, 3.1] (docs/research/gta.md compares the two). The ablation of
    Table 1 is `cost="cosine"`, `cycle_weight=0` and `minimum="soft"` (min^γ).

    Frames: the plain draw, 20 of them in the paper. Pairs: open in the paper; the released code takes the first of
    four videos with each of the others, which is `pairs="anchor"`, and averages over them.
    """

    fixed = True

    def __init__(
        self,
        *,
        gamma: float = 0.1,
        beta: float = 0.1,
        alpha: float = 1.0,
        align_weight: float = 0.1,
        cycle_weight: float = 1.0,
        minimum: Literal["smooth", "soft"] = "smooth",
        cost: Literal["contrastive", "cosine"] = "contrastive",
        variant: Literal["paper", "released"] = "paper",
        pairs: Pairs = "anchor",
    ) -> None:
        """Check and store the settings."""
        super().__init__(pairs=pairs)
        require_temperature("gamma", gamma, zero=True)
        require_temperature("beta", beta)
        require_temperature("alpha", alpha)
        require_temperature("align_weight", align_weight, zero=True)
        require_temperature("cycle_weight", cycle_weight, zero=True)
        require_choice("minimum", minimum, ("smooth", "soft"))
        require_choice("cost", cost, ("contrastive", "cosine"))
        require_choice("variant", variant, ("paper", "released"))
        self.gamma, self.beta, self.alpha = gamma, beta, alpha
        self.align_weight, self.cycle_weight = align_weight, cycle_weight
        self.minimum, self.cost, self.variant = minimum, cost, variant

    def pair(self, x: Tensor, y: Tensor, x_lengths: Lengths = None, y_lengths: Lengths = None) -> dict[str, Tensor]:
        """Score x [B, M, D] against y [B, N, D], pair by pair: `loss`, `align` and `cycle`, means over the batch."""
        require_pair(x, y)
        require_directions(self.cost, x)
        if x.is_cuda and x_lengths is None and y_lengths is None and self._fits_one_kernel(x, y):
            return self._pair_in_one_kernel(x, y)
        if self.cost == "contrastive":
            costs = contrastive_costs(x, y, beta=self.beta, x_lengths=x_lengths, y_lengths=y_lengths)
        else:
            one_way = cosine_cost(x, y, x_lengths=x_lengths, y_lengths=y_lengths)
            costs = torch.stack([one_way, one_way])
        # Both directions lie on the grid of x and y, so one call accumulates them.
        tables = accumulate(costs.flatten(0, 1), kind=self.minimum, gamma=self.gamma).view(costs.shape)
        there, back = tables.unbind()
        ends = [
            read_out(table, kind=self.minimum, gamma=self.gamma, x_lengths=x_lengths, y_lengths=y_lengths)
            for table in (there, back)
        ]
        align = (ends[0] + ends[1]).mean()
        close = cycle_consistency if self.variant == "paper" else released_cycle_consistency
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.cycle_weight > 0):
            cycle = close(there, back.mT, alpha=self.alpha, x_lengths=x_lengths, y_lengths=y_lengths).mean()
        return {"loss": self.cycle_weight * cycle + self.align_weight * align, "align": align, "cycle": cycle}

    def _fits_one_kernel(self, x: Tensor, y: Tensor) -> bool:
        short = max(x.shape[1], y.shape[1]) <= 32  # one strip of lanes
        return short and self.cost == "contrastive" and self.gamma > 0 and x.dtype != torch.float64

    def _pair_in_one_kernel(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        from inphase.align.triton.pair_triton import align_pairs

        loss, align, cycle = align_pairs(
            x, y, kind=self.minimum, released=self.variant == "released", gamma=self.gamma, beta=self.beta,
            alpha=self.alpha, weights=(self.align_weight, self.cycle_weight),
        )  # fmt: skip
        return {"loss": loss, "align": align, "cycle": cycle}
