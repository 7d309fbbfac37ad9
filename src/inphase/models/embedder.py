"""The embedder of GTA and TCC: what the feature maps of a frame and its context say together, as one unit vector."""

import math
from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor, nn

from inphase.models.encoder import unit

# The standard deviation of a standard normal cut off at ±2; Keras divides by it, so that what is left has variance 1.
TRUNCATED = 0.87962566103423978

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class Embedder(nn.Module):
    """Embed stacked feature maps [N, C, K, H, W] of C context frames as unit vectors [N, D].

    [3×3×3 convolution, batch norm, ReLU] for each of `convolutions` channels, maximum over time and space,
    [dropout, linear, ReLU] for each of `hidden` widths, linear, L2. With 1024 input channels the defaults are the
    released network: 21,827,712 parameters. TCC leaves out the L2 normalisation.
    """

    def __init__(
        self,
        channels: int,
        *,
        convolutions: Sequence[int] = (512, 512),
        hidden: Sequence[int] = (512, 512),
        dimension: int = 128,
        dropout: float = 0.1,
    ) -> None:
        """Build the layers, their weights drawn as Keras draws them."""
        super().__init__()
        if min(channels, dimension, *convolutions, *hidden) < 1 or not convolutions:
            raise ValueError(
                "widths must be at least 1, with one convolution or more; "
                f"got {channels=}, {convolutions=}, {hidden=}, {dimension=}"
            )
        maps: list[nn.Module] = []
        for before, after in zip((channels, *convolutions), convolutions, strict=False):
            maps += [
                he_normal(nn.Conv3d(before, after, 3, padding=1)),
                nn.BatchNorm3d(after, eps=1e-3, momentum=0.01),
                nn.ReLU(inplace=True),
            ]
        layers: list[nn.Module] = []
        width = convolutions[-1]
        for after in hidden:
            layers += [nn.Dropout(dropout), glorot_uniform(nn.Linear(width, after)), nn.ReLU(inplace=True)]
            width = after
        self.convolutions = nn.Sequential(*maps)
        self.layers = nn.Sequential(*layers, glorot_uniform(nn.Linear(width, dimension)))

    def maps(self, features: Tensor) -> Tensor:
        """Give the last convolution's maps, rectified: [N, C, K, H, W] → [N, K', C, H, W]."""
        stacked: Tensor = self.convolutions(features.transpose(1, 2))
        return stacked

    def forward(self, features: Tensor) -> Tensor:
        """Embed [N, C, K, H, W] as unit vectors [N, D]."""
        return unit(self.layers(self.maps(features).amax((2, 3, 4))))


def he_normal(layer: nn.Conv3d) -> nn.Conv3d:
    """Draw a kernel from Keras' he_normal, a normal distribution cut off at two standard deviations; bias 0."""
    deviation = math.sqrt(2 / layer.weight[0].numel()) / TRUNCATED
    nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def glorot_uniform(layer: Layer) -> Layer:
    """Draw a kernel from glorot_uniform, Keras' default; bias 0."""
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
