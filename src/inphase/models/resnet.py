"""ResNet50V2 (He et al., 2016b) as Keras builds it, up to the third block of its fourth stage.

It differs from other ResNets: batch norm and ReLU come before the convolutions; the stride is in the *last* block of
a stage; the stem has a bias and no batch norm; its pool pads with zeros, not −∞; a first block's shortcut
convolves the pre-activated tensor. The output is the raw sum of the block that Keras calls `conv4_block3_out`: stride
16, 1024 channels, neither normalized nor rectified.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from inphase.models.encoder import glorot_uniform
from inphase.storage.files import check_own_weights

if TYPE_CHECKING:
    import h5py

# Stage, its width, the blocks kept of it, and which of them has stride 2: conv4_block6, which would, is cut off.
STAGES = ((2, 64, 3, 3), (3, 128, 4, 4), (4, 256, 3, None))


class ResNet50V2(nn.Module):
    """Map images [N, 3, H, W] in [−1, 1] to features [N, 1024, H/16, W/16].

    5,193,856 parameters, of which 15,744 are batch norm's.
    """

    channels = 1024

    def __init__(self) -> None:
        """Build the layers, initialized as in Keras."""
        super().__init__()
        self.stem = glorot_uniform(nn.Conv2d(3, 64, 7, stride=2, padding=3))
        self.blocks = nn.ModuleDict()
        before = 64
        for stage, width, count, strided in STAGES:
            for number in range(1, count + 1):
                stride = 2 if number == strided else 1
                self.blocks[f"conv{stage}_block{number}"] = PreActivationBlock(
                    before, width, stride=stride, first=number == 1
                )
                before = 4 * width

    def forward(self, images: Tensor) -> Tensor:
        """Compute the maps of images [N, 3, H, W]."""
        # Padding with zeros by hand: max_pool2d itself pads with −∞, and before the first ReLU that is not the same.
        values = F.max_pool2d(F.pad(self.stem(images), (1, 1, 1, 1)), 3, stride=2)
        for block in self.blocks.values():
            values = block(values)
        return values


class PreActivationBlock(nn.Module):
    """A pre-activated bottleneck: 1×1, 3×3 and 1×1 convolutions, the first two followed by batch norm and ReLU."""

    def __init__(self, before: int, width: int, *, stride: int, first: bool) -> None:
        """Build the layers; the first block of a stage widens its shortcut."""
        super().__init__()
        self.stride = stride
        self.preact_bn = norm(before)
        self.shortcut = glorot_uniform(nn.Conv2d(before, 4 * width, 1, stride=stride)) if first else None
        self.conv1 = glorot_uniform(nn.Conv2d(before, width, 1, bias=False))
        self.bn1 = norm(width)
        self.conv2 = glorot_uniform(nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False))
        self.bn2 = norm(width)
        self.conv3 = glorot_uniform(nn.Conv2d(width, 4 * width, 1))

    def forward(self, values: Tensor) -> Tensor:
        """Add the output of the convolutions to the values, or to every second one if the block has a stride."""
        active = F.relu(self.preact_bn(values))
        if self.shortcut is not None:
            values = pointwise(self.shortcut, active)
        elif self.stride > 1:
            # A slice would do, but its gradient loses the channels-last layout, and everything before it is copied.
            values = F.avg_pool2d(values, 1, self.stride)
        found: Tensor = F.relu(self.bn1(self.conv1(active)))
        return values + pointwise(self.conv3, F.relu(self.bn2(self.conv2(found))))


def pointwise(layer: nn.Conv2d, values: Tensor) -> Tensor:
    """Convolve 1×1; in half precision, channels last, as a matrix product, which adds the bias on its way.

    After a convolution the bias takes as long as the convolution itself. In float32 products are exact by default and
    convolutions are not, so that these stay the faster ones.
    """
    half = values.dtype in (torch.float16, torch.bfloat16)
    if not half or not values.is_contiguous(memory_format=torch.channels_last):
        found: Tensor = layer(values)
        return found
    rows = values.movedim(1, -1)
    return F.linear(rows.flatten(0, 2), layer.weight.flatten(1), layer.bias).view(*rows.shape[:3], -1).movedim(-1, 1)


def norm(channels: int) -> nn.BatchNorm2d:
    """Make a batch norm with the constants of Keras' ResNets."""
    return nn.BatchNorm2d(channels, eps=1.001e-5, momentum=0.01)


def load_keras(network: ResNet50V2, path: Path | str) -> None:
    """Load weights that Keras saved as .h5: the published file, or one of `model.save_weights`.

    Weights of layers beyond the cut are not read. The published file is Keras'
    `resnet50v2_weights_tf_dim_ordering_tf_kernels_notop.h5`.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError("Keras' weights are read with h5py: pip install 'inphase[keras]'") from error
    path = check_own_weights(path)
    try:
        with h5py.File(path, "r") as file:
            saved = _arrays_by_layer(file, path)
    except (OSError, KeyError) as error:
        raise ValueError(f"{path} holds no weights that Keras saved ({error}): name another file") from error
    for name, module in keras_layers(network):
        arrays = [torch.from_numpy(np.asarray(array, np.float32)) for array in saved.get(name, [])]
        targets = [target for target in _targets(module) if target is not None]
        # Keras keeps a kernel as [H, W, in, out].
        arrays = [array.permute(3, 2, 0, 1) if array.ndim == 4 else array for array in arrays]
        shapes, wanted = [list(array.shape) for array in arrays], [list(target.shape) for target in targets]
        if shapes != wanted:
            raise ValueError(f"{path}: layer {name} has shapes {shapes}, ResNet50V2 has {wanted}: give its weights")
        with torch.no_grad():
            for target, array in zip(targets, arrays, strict=True):
                target.copy_(array)


def keras_layers(network: ResNet50V2) -> Iterator[tuple[str, nn.Module]]:
    """List the layers that have weights by the names Keras gives them."""
    yield "conv1_conv", network.stem
    for block_name, block in network.blocks.items():
        assert isinstance(block, PreActivationBlock)
        parts = {
            "preact_bn": block.preact_bn,
            "0_conv": block.shortcut,
            "1_conv": block.conv1,
            "1_bn": block.bn1,
            "2_conv": block.conv2,
            "2_bn": block.bn2,
            "3_conv": block.conv3,
        }
        for part, module in parts.items():
            if module is not None:
                yield f"{block_name}_{part}", module


def _targets(module: nn.Module) -> list[Tensor | None]:
    """List a layer's tensors in the order in which Keras keeps them."""
    if isinstance(module, nn.BatchNorm2d):
        return [module.weight, module.bias, module.running_mean, module.running_var]
    assert isinstance(module, nn.Conv2d)
    return [module.weight, module.bias]


def _arrays_by_layer(file: "h5py.File", path: Path | str) -> dict[str, list[NDArray[np.float32]]]:
    """Read each layer's arrays, in Keras' order, from either of its two layouts."""
    if "layers" in file:  # Keras 3: numbered, in groups named by their kind and noting the layer's name
        stores = [group["vars"] for group in file["layers"].values() if "name" in group["vars"].attrs]
        return {store.attrs["name"]: [store[str(index)][()] for index in range(len(store))] for store in stores}
    if "layer_names" in file.attrs:  # as published: each layer lists its weights by name
        listed = {name: group.attrs["weight_names"] for name, group in file.items()}
        return {name: [file[name][weight][()] for weight in weights] for name, weights in listed.items()}
    raise ValueError(f"{path} holds no weights that Keras saved: give a file written by `model.save_weights`")
