"""What to see pictures with where nothing was trained: features of a network that knows ImageNet.

Its maps are averaged over the cells of a coarse grid, the mean over the video is taken off, which is most of what the
background and the clothes say, and what is left is brought to unit length. How well this aligns is measured in
docs/apps.md: it is meant for scenes without people, until somebody trains on them.
"""

import numpy as np
from torch import Tensor, nn

from inphase.models.cells import Cells
from inphase.models.embed import Embedding


class PooledFeatures(Cells):
    """Embed pictures [B, T, 1, H, W, 3] in [−1, 1] by EfficientNet-Lite0, averaged over `grid` × `grid` cells."""

    def __init__(self, *, size: int = 112, grid: int = 3, weights: str | None = "published") -> None:
        """Load the published weights, none where `weights` is None."""
        super().__init__(context=(0,), backbone="efficientnet_lite0", weights=weights, size=(size, size), grid=grid)
        self.head = nn.Identity()

    def combine(self, features: Tensor) -> Tensor:
        """Pass on the features of the frame itself, which `settle` makes unit vectors: [N, 1, …] → [N, D]."""
        return features[:, 0].flatten(1)

    def settle(self, seen: Embedding) -> Embedding:
        """Take the mean over the video off its frames and bring what is left to unit length."""
        rest = seen.values - seen.values.mean(0)
        length = np.linalg.norm(rest, axis=1, keepdims=True)
        # One frame, or a still picture, has nothing left: any unit vector will do, the same for all.
        still = np.full_like(rest, 1 / np.sqrt(rest.shape[1]))
        return Embedding(np.where(length > 1e-6, rest / np.maximum(length, 1e-6), still), seen.times)
