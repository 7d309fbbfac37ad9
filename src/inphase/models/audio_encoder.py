"""An encoder of sounds in the shape of VGGish (Hershey et al., 2017): patches of 0.96 s in, unit vectors out."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from inphase.media.context import Edges
from inphase.media.log_mel import BANDS, PATCH
from inphase.models.embedder import glorot_uniform
from inphase.models.encoder import Encoder, Sees, unit

# Channels of the 3×3 convolutions, a 2×2 maximum after each group.
GROUPS = ((64,), (128,), (256, 256), (512, 512))
POOLED = (PATCH // 16) * (BANDS // 16) * GROUPS[-1][-1]


class AudioEncoder(Encoder):
    """Embed log-mel patches [B, T, C, 96, 64], as `media.log_mel` computes them.

    With the default widths VGGish's 72,141,184 parameters. Its last layer is not rectified here, as in its later
    releases: half the sphere would be lost. The vectors of C context patches are averaged, then L2-normalised.
    """

    sees: ClassVar[Sees] = "sounds"

    def __init__(
        self,
        *,
        context: Sequence[int] = (0,),
        edges: Edges = "clamp",
        rate: float | None = None,
        hidden: Sequence[int] = (4096, 4096),
        dimension: int = 128,
    ) -> None:
        """Build the layers, their weights drawn from glorot_uniform."""
        super().__init__(context=context, edges=edges, rate=rate)
        self.config |= {"hidden": list(hidden), "dimension": dimension}
        self.shape = (PATCH, BANDS)
        layers: list[nn.Module] = []
        before = 1
        for group in GROUPS:
            for after in group:
                layers += [glorot_uniform(nn.Conv2d(before, after, 3, padding=1)), nn.ReLU(inplace=True)]
                before = after
            layers.append(nn.MaxPool2d(2))
        self.convolutions = nn.Sequential(*layers)
        dense: list[nn.Module] = []
        width = POOLED
        for after in hidden:
            dense += [glorot_uniform(nn.Linear(width, after)), nn.ReLU(inplace=True)]
            width = after
        self.head = nn.Sequential(*dense, glorot_uniform(nn.Linear(width, dimension)))

    def features(self, frames: Tensor) -> Tensor:
        """Compute the last convolution's maps, pooled: [N, 96, 64] → [N, 512, 6, 4]."""
        maps: Tensor = self.convolutions(frames[:, None])
        return maps

    def combine(self, features: Tensor) -> Tensor:
        """Embed the maps of patches and their context: [N, C, 512, 6, 4] → [N, D]."""
        # VGGish flattens time, band, channel.
        flat = features.movedim(2, -1).flatten(2)
        return unit(self.head(flat).mean(1))


def load_vggish(encoder: AudioEncoder, weights: Mapping[str, Tensor]) -> None:
    """Load VGGish's weights, converted to torch, by key: `features.0.weight` … and `embeddings.0.weight` ….

    That is the layout of the conversions in circulation: [out, in, 3, 3] convolutions and [out, in] linear maps, each
    numbered in a row with its ReLUs and pools. Read a file of them with `safetensors.torch.load_file`, or with
    `torch.load(path, weights_only=True)`.
    """
    ours = {"features": encoder.convolutions, "embeddings": encoder.head}
    with torch.no_grad():
        for group, module in ours.items():
            for name, target in module.named_parameters():
                key = f"{group}.{name}"
                if key not in weights:
                    raise ValueError(
                        f"no {key} among the weights ({', '.join(sorted(weights)[:3])} …): convert the keys"
                    )
                if weights[key].shape != target.shape:
                    found, wanted = list(weights[key].shape), list(target.shape)
                    raise ValueError(f"{key} is {found}, this encoder has {wanted}: build it with VGGish's widths")
                target.copy_(weights[key])
