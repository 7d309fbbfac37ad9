"""The embedder of GTA and TCC: what the feature maps of a frame and its context say together, as one unit vector."""
# MERGED: The encoder of pictures: a backbone that looks at each frame, and an embedder that looks at frame and context.

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from inphase.media.sampling import Edges
from inphase.models.backbone import build_backbone
from inphase.models.embedder import Embedder
from inphase.models.encoder import Encoder, Modality

Mode = Literal["scratch", "train_all", "only_bn", "frozen"]
MODES = ("scratch", "train_all", "only_bn", "frozen")


class ImageEncoder(Encoder):
    """Embed pictures [B, T, C, H, W, 3] in [−1, 1].

    `weights` is None for mode "scratch", and otherwise says where the backbone's come from: "published", the path of a
    file in the published layout, or "saved" where this encoder's own are loaded next. The paper's network is
    ImageEncoder(backbone="resnet50v2", mode="only_bn", weights="…notop.h5"); for less, give a small backbone and narrow
    `convolutions` and `hidden`.
    """

    modality: ClassVar[Modality] = "image"

    def __init__(
        self,
        *,
        context: Sequence[int] = (-15, 0),
        edges: Edges = "clamp",
        rate: float | None = None,
        backbone: str = "efficientnet_lite0",
        mode: Mode = "frozen",
        weights: str | None = "published",
        size: Sequence[int] = (224, 224),
        convolutions: Sequence[int] = (512, 512),
        hidden: Sequence[int] = (512, 512),
        dimension: int = 128,
        dropout: float = 0.1,
    ) -> None:
        """Build both parts and choose what trains."""
        super().__init__(context=context, edges=edges, rate=rate)
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if (mode == "scratch") != (weights is None):
            fix = "mode 'scratch' starts from weights=None" if mode == "scratch" else "say where its weights come from"
            raise ValueError(f"{mode=} does not go with {weights=}: {fix}")
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
        self.head = Embedder(channels, convolutions=convolutions, hidden=hidden, dimension=dimension, dropout=dropout)
        self._choose_what_trains()

    def _choose_what_trains(self) -> None:
        """Let the backbone's parameters train that `mode` says."""
        self.backbone.requires_grad_(self.mode in ("scratch", "train_all"))
        if self.mode == "only_bn":
            norms = [part for part in self.backbone.modules() if isinstance(part, _BatchNorm)]
            if not norms:
                raise ValueError(f"{self.config['backbone']} has no batch norm to train: choose another mode")
            for norm in norms:
                norm.requires_grad_(True)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Enter training or evaluation; a frozen backbone stays in evaluation."""
        super().train(mode)
        if self.mode == "frozen":
            self.backbone.eval()
        return self

    def prepare(self, frames: Tensor) -> Tensor:
        """Turn pixels 0 … 255 into [−1, 1]."""
        return super().prepare(frames).div_(255).sub_(0.5).div_(0.5)

    def features(self, frames: Tensor) -> Tensor:
        """Compute the backbone's maps of pictures [N, H, W, 3]; where it is frozen they can be kept."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.mode != "frozen"):
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
