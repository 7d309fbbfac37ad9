"""Pictures as a network that knows ImageNet sees them, averaged over the cells of a coarse grid.

A maximum over the whole picture, which the paper's embedder takes, forgets where something moved; a grid keeps it, in
two kilobytes a frame. The network is never trained: what it sees can be kept.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from inphase.media.context import Edges
from inphase.models.backbone import build_backbone
from inphase.models.encoder import Encoder, Sees


class Cells(Encoder):
    """Look at pictures [N, H, W, 3] in [−1, 1] through a frozen backbone: [N, K, grid, grid].

    `weights` says where the backbone's come from: "published", the path of a file in the published layout, "saved"
    where this encoder's own are loaded next, or None for random ones.
    """

    sees: ClassVar[Sees] = "pictures"
    mode: ClassVar[str] = "frozen"

    def __init__(
        self,
        *,
        context: Sequence[int],
        edges: Edges = "clamp",
        rate: float | None = None,
        backbone: str,
        weights: str | None,
        size: Sequence[int],
        grid: int,
    ) -> None:
        """Build the backbone."""
        super().__init__(context=context, edges=edges, rate=rate)
        if len(size) != 2 or min(size) < 32:
            raise ValueError(f"size must be (height, width) of at least 32 pixels, got {tuple(size)}")
        if grid < 1:
            raise ValueError(f"grid must be at least 1 cell each way, got {grid}")
        self.config |= {
            "backbone": backbone,
            "weights": None if weights is None else "saved",
            "size": list(size),
            "grid": grid,
        }
        self.shape, self.grid = (size[0], size[1], 3), grid
        self.backbone, self.channels = build_backbone(backbone, weights=None if weights == "saved" else weights)
        self.backbone.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """Enter training or evaluation; the backbone stays in evaluation."""
        super().train(mode)
        self.backbone.eval()
        return self

    def prepare(self, frames: Tensor) -> Tensor:
        """Turn pixels 0 … 255 into [−1, 1]."""
        return super().prepare(frames).div_(255).sub_(0.5).div_(0.5)

    def features(self, frames: Tensor) -> Tensor:
        """Average the backbone's maps over the cells of the grid."""
        with torch.no_grad():
            return F.adaptive_avg_pool2d(self.backbone(frames.movedim(-1, 1)), self.grid)
