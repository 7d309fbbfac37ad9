"""The image encoder of GTA and TCC: a backbone for each frame, and an embedder for a frame and its context."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from inphase.media.sampling import Edges
from inphase.models.backbone import build_backbone
from inphase.models.encoder import Encoder, Modality, compute_maps, finish, glorot_uniform, he_normal
from inphase.storage.settings import Offsets, Pixels, Width, Widths

Mode = Literal["scratch", "train_all", "only_bn", "frozen"]
MODES = ("scratch", "train_all", "only_bn", "frozen")


class ImageEncoder(Encoder):
    """Embed images [B, T, C, H, W, 3] in [−1, 1].

    `weights` is the source of the backbone's weights: "published", the path of a file in the published layout, or
    "saved" if this encoder's own weights are loaded next; mode "scratch" reads none. The paper's network is
    ImageEncoder(backbone="resnet50v2", mode="only_bn", weights="…notop.h5"); a smaller one has a small backbone and
    narrow `convolutions` and `hidden`.
    """

    modality: ClassVar[Modality] = "image"

    def __init__(
        self,
        *,
        context: Offsets = (-15, 0),
        edges: Edges = "clamp",
        rate: float | None = None,
        backbone: str = "efficientnet_lite0",
        mode: Mode = "frozen",
        weights: str | None = "published",
        size: Sequence[Pixels] = (224, 224),
        convolutions: Widths = (512, 512),
        hidden: Widths = (512, 512),
        dimension: Width = 128,
        dropout: float = 0.1,
        normalize: bool = True,
    ) -> None:
        """Build both parts and select the parameters to train."""
        super().__init__(context=context, edges=edges, rate=rate, normalize=normalize)
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if mode == "scratch" and weights == "published":
            weights = None  # the default of other modes
        if (mode == "scratch") != (weights is None):
            fix = "mode 'scratch' reads no weights" if mode == "scratch" else "name the source of its weights"
            raise ValueError(f"{mode=} does not fit {weights=}: {fix}")
        if len(size) != 2 or min(size) < 32:
            raise ValueError(f"size must be (height, width) of at least 32 pixels, got {tuple(size)}")
        self.config |= {
            "backbone": backbone,
            "mode": mode,
            "weights": None if weights is None else "saved",
            "size": list(size),
            "convolutions": list(convolutions),
            "hidden": list(hidden),
            "dimension": dimension,
            "dropout": dropout,
        }
        self.mode, self.shape = mode, (size[0], size[1], 3)
        self.backbone, channels = build_backbone(backbone, weights=None if weights == "saved" else weights)
        self.head = Embedder(
            channels,
            convolutions=convolutions,
            hidden=hidden,
            dimension=dimension,
            dropout=dropout,
            normalize=normalize,
        )
        self._select_trained()

    def _select_trained(self) -> None:
        """Let `mode` decide which parameters of the backbone train."""
        self.backbone.requires_grad_(self.mode in ("scratch", "train_all"))
        if self.mode == "only_bn":
            norms = [part for part in self.backbone.modules() if isinstance(part, _BatchNorm)]
            if not norms:
                raise ValueError(f"{self.config['backbone']} has no batch norm to train: choose another mode")
            for norm in norms:
                norm.requires_grad_(True)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; a frozen backbone stays in evaluation mode."""
        super().train(mode)
        if self.mode == "frozen":
            self.backbone.eval()
        return self

    def prepare(self, frames: Tensor) -> Tensor:
        """Scale pixels 0 … 255 to [−1, 1]."""
        return super().prepare(frames).div_(255).sub_(0.5).div_(0.5)

    def features(self, frames: Tensor) -> Tensor:
        """Compute the backbone's maps of images [N, H, W, 3]."""
        if self.mode == "frozen":
            return compute_maps(self.backbone, frames)
        maps: Tensor = self.backbone(frames.movedim(-1, 1))
        return maps

    def combine(self, features: Tensor) -> Tensor:
        """Embed the maps of frames and their context: [N, C, K, H/16, W/16] → [N, D]."""
        vectors: Tensor = self.head(features)
        return vectors

    def heat_maps(self, features: Tensor) -> Tensor:
        """Average the last convolution's maps over channels, as the paper shows: [N, C, K, h, w] → [N, C, h, w].

        The released code shows context slot 0, scaled to between 0 and 1 in each frame.
        """
        head = self.head
        assert isinstance(head, Embedder)
        return head.maps(features).mean(1)


class Embedder(nn.Module):
    """Embed stacked feature maps [N, C, K, H, W] of C context frames as unit vectors [N, D].

    [3×3×3 convolution, batch norm, ReLU] for each of `convolutions` channels, maximum over time and space,
    [dropout, linear, ReLU] for each of `hidden` widths, linear, L2. With 1024 input channels the defaults are the
    released network: 21,827,712 parameters. TCC omits the L2 normalization: `normalize=False`.
    """

    def __init__(
        self,
        channels: int,
        *,
        convolutions: Widths = (512, 512),
        hidden: Widths = (512, 512),
        dimension: Width = 128,
        dropout: float = 0.1,
        normalize: bool = True,
    ) -> None:
        """Build the layers, initialized as in Keras."""
        super().__init__()
        self.normalizes = normalize
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
        """Compute the rectified maps of the last convolution: [N, C, K, H, W] → [N, K', C, H, W]."""
        stacked: Tensor = self.convolutions(features.transpose(1, 2))
        return stacked

    def forward(self, features: Tensor) -> Tensor:
        """Embed [N, C, K, H, W] as vectors [N, D]."""
        return finish(self.layers(_spatial_maximum(self.maps(features))), normalize=self.normalizes)


def _spatial_maximum(maps: Tensor) -> Tensor:
    """Take the maximum of maps [N, K, C, H, W] over time and space, [N, K].

    The gradient of `amax` compares the maps with their maximum. Compiled code recomputes the maps in half precision
    with other rounding, finds no equal one and divides by 0, so there the gradient uses the index of the maximum.
    """
    if torch.compiler.is_compiling():
        return maps.flatten(2).max(2).values
    return maps.amax((2, 3, 4))
