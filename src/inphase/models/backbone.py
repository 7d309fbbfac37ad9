"""Networks that look at one picture, by name: pictures [N, 3, H, W] in [−1, 1] in, maps of stride 16 out."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from inphase.models.efficientnet import EfficientNetLite0, load_lite0
from inphase.models.resnet import ResNet50V2, load_keras

STRIDE = 16


def build_backbone(name: str, *, weights: str | None) -> tuple[nn.Module, int]:
    """Build a network and say how many channels its maps have.

    `name` is "resnet50v2", "efficientnet_lite0", or "timm:" and the name of a network of timm, where that is installed.
    `weights` is None for random ones, "published", or the path of a file in the published layout.
    """
    match name:
        case "resnet50v2":
            resnet = ResNet50V2()
            if weights == "published":
                raise ValueError(
                    "ResNet50V2's weights are not on PyPI: download Keras' "
                    "resnet50v2_weights_tf_dim_ordering_tf_kernels_notop.h5 and give its path as weights"
                )
            if weights is not None:
                load_keras(resnet, weights)
            return resnet, resnet.channels
        case "efficientnet_lite0":
            lite = EfficientNetLite0()
            if weights is not None:
                load_lite0(lite, None if weights == "published" else weights)
            return lite, lite.channels
        case _ if name.startswith("timm:"):
            if weights not in (None, "published"):
                raise ValueError(f"timm finds its weights by itself: weights is 'published' or None, got {weights!r}")
            timm = Timm(name.removeprefix("timm:"), pretrained=weights is not None)
            return timm, timm.channels
    raise ValueError(f"backbone must be 'resnet50v2', 'efficientnet_lite0' or 'timm:<name>', got {name!r}")


class Timm(nn.Module):
    """A network of timm, cut where its maps have stride 16."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, name: str, *, pretrained: bool) -> None:
        """Build it, with the weights timm finds for it where `pretrained`."""
        super().__init__()
        try:
            timm: Any = import_module("timm")
        except ImportError as error:
            raise ImportError(
                f"timm does not import here ({error}): install it, or use 'efficientnet_lite0'"
            ) from error
        reductions = timm.create_model(name, features_only=True).feature_info.reduction()
        if STRIDE not in reductions:
            raise ValueError(f"{name} has no maps of stride {STRIDE}, but of {reductions}: choose another network")
        last = len(reductions) - 1 - reductions[::-1].index(STRIDE)
        self.network = timm.create_model(name, features_only=True, out_indices=(last,), pretrained=pretrained)
        self.channels: int = self.network.feature_info.channels()[-1]
        mean, deviation = (torch.tensor(self.network.default_cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute the maps of pictures in [−1, 1], normalised as the network was trained."""
        maps: Tensor = self.network((pictures / 2 + 0.5 - self.mean) / self.deviation)[-1]
        return maps
