"""Image encoders on frozen ImageNet features, averaged over the cells of a coarse grid.

`PooledFeatures` embeds images without training; `MotionEncoder` trains a head on differences between context frames,
`TransformerEncoder` one that attends to them. The paper's maximum over the image loses where something moved.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inphase.media.sampling import Edges
from inphase.models.backbone import build_backbone
from inphase.models.embedding import Embedding, Route, subtract_mean
from inphase.models.encoder import Encoder, Modality, compute_maps, finish, unit
from inphase.storage.settings import Grid, Offsets, Pixels, Width, Widths


class GridFeatures(Encoder):
    """Compute features of images [N, H, W, 3] in [−1, 1] by a frozen backbone: [N, K, grid, grid].

    `weights` is the source of the backbone's weights: "published", the path of a file in the published layout, "saved"
    if this encoder's own weights are loaded next, or None for random ones.
    """

    modality: ClassVar[Modality] = "image"
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
        normalize: bool = True,
    ) -> None:
        """Build the backbone."""
        super().__init__(context=context, edges=edges, rate=rate, normalize=normalize)
        if len(size) != 2 or min(size) < 32:
            raise ValueError(f"size must be (height, width) of at least 32 pixels, got {tuple(size)}")
        if grid < 1:
            raise ValueError(f"grid must be at least 1 cell per side, got {grid}")
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
        """Set training or evaluation mode; the backbone stays in evaluation mode."""
        super().train(mode)
        self.backbone.eval()
        return self

    def prepare(self, frames: Tensor) -> Tensor:
        """Scale pixels 0 … 255 to [−1, 1]."""
        return super().prepare(frames).div_(255).sub_(0.5).div_(0.5)

    def features(self, frames: Tensor) -> Tensor:
        """Average the backbone's maps over the cells of the grid."""
        return F.adaptive_avg_pool2d(compute_maps(self.backbone, frames), self.grid)

    def _require_context(self, features: Tensor) -> None:
        if features.shape[1] != len(self.context.offsets):
            raise ValueError(f"this encoder takes {len(self.context.offsets)} context frames, got {features.shape[1]}")


class PooledFeatures(GridFeatures):
    """Embed images [B, T, 1, H, W, 3] in [−1, 1] by EfficientNet-Lite0, averaged over `grid` × `grid` cells."""

    # Cosines of what is left without the mean are small (docs/lab/transfer.md).
    beta: ClassVar[float] = 0.05

    def __init__(self, *, size: int = 112, grid: int = 3, weights: str | None = "published") -> None:
        """Load the published weights; if `weights` is None, none."""
        super().__init__(context=(0,), backbone="efficientnet_lite0", weights=weights, size=(size, size), grid=grid)
        self.config = {"size": size, "grid": grid, "weights": self.config["weights"]}
        self.head = nn.Identity()

    def combine(self, features: Tensor) -> Tensor:
        """Return the features of the frame itself, which `center` normalizes: [N, 1, …] → [N, D]."""
        return features[:, 0].flatten(1)

    def center(self, embedding: Embedding) -> Embedding:
        """Subtract the mean over the recording from its frames and normalize the rest to unit length."""
        return replace(embedding, values=subtract_mean(embedding.values), routes=self.routes)

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its only route, for the temperature."""
        return (Route(self.channels * self.grid**2, self.beta),)


class MotionEncoder(GridFeatures):
    """Embed images [B, T, C, H, W, 3] in [−1, 1] by the differences between each context frame and the next.

    Dropout, [linear, batch norm, ReLU] for each of `hidden` widths, linear, L2. Only the head trains.
    """

    appearance_weight: ClassVar[float | None] = None  # of the features themselves, where they are a second route

    def __init__(
        self,
        *,
        context: Offsets = (-8, -4, 0, 4, 8),
        edges: Edges = "clamp",
        rate: float | None = None,
        backbone: str = "efficientnet_lite0",
        weights: str | None = "published",
        size: Sequence[Pixels] = (112, 112),
        grid: Grid = 3,
        hidden: Widths = (256, 256),
        dimension: Width = 128,
        dropout: float = 0.3,
        normalize: bool = True,
    ) -> None:
        """Build both parts."""
        images: dict[str, Any] = {"backbone": backbone, "weights": weights, "size": size, "grid": grid}
        super().__init__(context=context, edges=edges, rate=rate, normalize=normalize, **images)
        if len(context) < 2:
            raise ValueError(f"motion needs at least two context frames, got {tuple(context)}")
        if self.appearance_weight is not None:
            if 0 not in context or not normalize:
                raise ValueError(f"appearance needs normalize and the offset 0 in the context, got {tuple(context)}")
            self.register_buffer("appearance", torch.tensor(self.appearance_weight))  # kept with the weights
        self.config |= {"hidden": list(hidden), "dimension": dimension, "dropout": dropout}
        width = (len(context) - 1) * self.channels * grid * grid
        layers: list[nn.Module] = [nn.Dropout(dropout)]
        for after in hidden:
            layers += [nn.Linear(width, after, bias=False), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
            width = after
        self.head = nn.Sequential(*layers, nn.Linear(width, dimension))

    def combine(self, features: Tensor) -> Tensor:
        """Embed the motion in the features of frames and their context: [N, C, K, grid, grid] → [N, D]."""
        return finish(self.head(self.motion(features).flatten(1)), normalize=self.normalizes)

    def heat_maps(self, features: Tensor) -> Tensor:
        """Measure how much each cell contributes to the first layer, the same for all of C: [N, C, grid, grid]."""
        motion = self.motion(features)
        first = next(layer for layer in self.head.modules() if isinstance(layer, nn.Linear))
        given: Tensor = torch.einsum("nckyx,dckyx->ndyx", motion, first.weight.view(-1, *motion.shape[1:]))
        heat: Tensor = given.norm(dim=1)[:, None]
        return heat.expand(-1, features.shape[1], -1, -1)

    def motion(self, features: Tensor) -> Tensor:
        """Subtract each context frame from the next: [N, C, K, grid, grid] → [N, C − 1, K, grid, grid]."""
        self._require_context(features)
        return features[:, 1:] - features[:, :-1]


class TransformerEncoder(GridFeatures):
    """Embed images [B, T, C, H, W, 3] in [−1, 1] by a small transformer over the features of the context frames.

    The network of CARL (CVPR 2022): [linear 512, batch norm, ReLU] twice on the features of each frame, a linear map to
    `width`, a sinusoidal code of its place, `layers` of attention with layer norms first; linear, L2. There a frame
    attends to its whole video and the code holds its position in it, which by itself earns a high τ. Here it attends to
    its context, and the code holds the offset in it: an embedding does not depend on how the clip was cut.
    """

    def __init__(
        self,
        *,
        context: Sequence[int] = (-16, -12, -8, -4, 0, 4, 8, 12, 16),
        edges: Edges = "clamp",
        rate: float | None = None,
        backbone: str = "efficientnet_lite0",
        weights: str | None = "published",
        size: Sequence[int] = (112, 112),
        grid: int = 3,
        width: int = 256,
        layers: int = 3,
        heads: int = 8,
        dimension: int = 128,
        dropout: float = 0.1,
    ) -> None:
        """Build both parts; the feed-forward layers are four times as wide."""
        super().__init__(
            context=context, edges=edges, rate=rate, backbone=backbone, weights=weights, size=size, grid=grid
        )
        if 0 not in context:
            raise ValueError(f"the context must hold the frame itself, offset 0; got {tuple(context)}")
        if width % (2 * heads):
            raise ValueError(f"width must be a multiple of twice the heads, got {width} and {heads}")
        self.config |= {"width": width, "layers": layers, "heads": heads, "dimension": dimension, "dropout": dropout}
        self._own = list(context).index(0)
        parts: list[nn.Module] = []
        before = self.channels * grid * grid
        for _ in range(2):
            parts += [nn.Dropout(dropout), nn.Linear(before, 512), nn.BatchNorm1d(512), nn.ReLU(inplace=True)]
            before = 512
        attention = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, norm_first=True, batch_first=True)
        self.head = nn.ModuleDict(
            {
                "frame": nn.Sequential(*parts, nn.Linear(before, width)),
                "attention": nn.TransformerEncoder(attention, layers, enable_nested_tensor=False),
                "embedding": nn.Linear(width, dimension),
            }
        )
        angles = torch.tensor(context)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1), persistent=False)  # [C, width]

    def combine(self, features: Tensor) -> Tensor:
        """Attend to the context of each frame: [N, C, K, grid, grid] → [N, D]."""
        self._require_context(features)
        head = cast("nn.ModuleDict", self.head)
        tokens: Tensor = head["frame"](features.flatten(0, 1).flatten(1)).view(*features.shape[:2], -1)
        attended = head["attention"](tokens + self.get_buffer("places").to(tokens))
        return unit(head["embedding"](attended[:, self._own]))
