"""What to see pictures with where nothing was trained: features of a network that knows ImageNet.

Its maps are averaged over the cells of a coarse grid, the mean over the video is taken off, which is most of what the
background and the clothes say, and what is left is brought to unit length. How well this aligns is measured in
docs/apps.md: it is meant for scenes without people, until somebody trains on them.
"""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from inphase.models.backbone import build_backbone
from inphase.models.embed import Embedding
from inphase.models.encoder import Encoder, Sees


class PooledFeatures(Encoder):
    """Embed pictures [B, T, 1, H, W, 3] in [−1, 1] by EfficientNet-Lite0, averaged over `grid` × `grid` cells."""

    sees: ClassVar[Sees] = "pictures"

    def __init__(self, *, size: int = 112, grid: int = 3, weights: str | None = "published") -> None:
        """Load the published weights, none where `weights` is None."""
        super().__init__(context=(0,))
        self.config |= {"size": size, "grid": grid, "weights": weights}
        self.shape, self._grid = (size, size, 3), grid
        self.head, _ = build_backbone("efficientnet_lite0", weights=weights)
        self.requires_grad_(False)

    def prepare(self, frames: Tensor) -> Tensor:
        """Turn pixels 0 … 255 into [−1, 1]."""
        return super().prepare(frames).div_(127.5).sub_(1)

    def features(self, frames: Tensor) -> Tensor:
        """Average the network's maps of pictures [N, H, W, 3] over the cells of the grid: [N, K · cells]."""
        with torch.no_grad():
            return F.adaptive_avg_pool2d(self.head(frames.movedim(-1, 1)), self._grid).flatten(1)

    def combine(self, features: Tensor) -> Tensor:
        """Pass on the features of the frame itself, which `settle` makes unit vectors: [N, 1, D] → [N, D]."""
        return features[:, 0]

    def settle(self, seen: Embedding) -> Embedding:
        """Take the mean over the video off its frames and bring what is left to unit length."""
        rest = seen.values - seen.values.mean(0)
        length = np.linalg.norm(rest, axis=1, keepdims=True)
        # One frame, or a still picture, has nothing left: any unit vector will do, the same for all.
        still = np.full_like(rest, 1 / np.sqrt(rest.shape[1]))
        return Embedding(np.where(length > 1e-6, rest / np.maximum(length, 1e-6), still), seen.times)
