"""An encoder of pictures that sees nothing but what changes: the motion between context frames, cell by cell.

What stands still, the background, the clothes, most of the body, is most of what a network sees of a picture, and
differs from video to video. It falls out of the difference between two frames. The mean over the whole video would take
it off as well, but a frame's embedding would then depend on how the clip was cut, and no stream could be embedded
before its end.

On real swings this aligns more accurately than poses do (docs/training.md). Where nothing moves there is nothing to
tell frames apart by.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from inphase.media.context import Edges
from inphase.models.cells import Cells
from inphase.models.encoder import unit


class MotionEncoder(Cells):
    """Embed pictures [B, T, C, H, W, 3] in [−1, 1] by the differences between each context frame and the next.

    Dropout, [linear, batch norm, ReLU] for each of `hidden` widths, linear, L2. The head alone trains.
    """

    def __init__(
        self,
        *,
        context: Sequence[int] = (-8, -4, 0, 4, 8),
        edges: Edges = "clamp",
        rate: float | None = None,
        backbone: str = "efficientnet_lite0",
        weights: str | None = "published",
        size: Sequence[int] = (112, 112),
        grid: int = 3,
        hidden: Sequence[int] = (256, 256),
        dimension: int = 128,
        dropout: float = 0.3,
    ) -> None:
        """Build both parts."""
        super().__init__(
            context=context, edges=edges, rate=rate, backbone=backbone, weights=weights, size=size, grid=grid
        )
        if len(context) < 2:
            raise ValueError(f"motion is between two context frames at least, got {tuple(context)}")
        self.config |= {"hidden": list(hidden), "dimension": dimension, "dropout": dropout}
        width = self.motion(torch.zeros(1, len(context), self.channels, grid, grid)).numel()
        layers: list[nn.Module] = [nn.Dropout(dropout)]
        for after in hidden:
            layers += [nn.Linear(width, after, bias=False), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
            width = after
        self.head = nn.Sequential(*layers, nn.Linear(width, dimension))

    def combine(self, features: Tensor) -> Tensor:
        """Embed the motion in the features of frames and their context: [N, C, K, grid, grid] → [N, D]."""
        return unit(self.head(self.motion(features).flatten(1)))

    def heat_maps(self, features: Tensor) -> Tensor:
        """Tell how much each cell moves the first layer, in all frames of a context alike: [N, C, grid, grid]."""
        motion = self.motion(features)
        first = next(layer for layer in self.head.modules() if isinstance(layer, nn.Linear))
        given: Tensor = torch.einsum("nckyx,dckyx->ndyx", motion, first.weight.view(-1, *motion.shape[1:]))
        heat: Tensor = given.norm(dim=1)[:, None]
        return heat.expand(-1, features.shape[1], -1, -1)

    def motion(self, features: Tensor) -> Tensor:
        """Subtract each context frame from the next: [N, C, K, grid, grid] → [N, C − 1, K, grid, grid]."""
        if features.shape[1] != len(self.context.offsets):
            raise ValueError(f"this encoder takes {len(self.context.offsets)} context frames, got {features.shape[1]}")
        return features[:, 1:] - features[:, :-1]
