"""Runtimes of frozen backbones: OpenVINO on CPUs, batches of one size on GPUs; torch where neither can run.

OpenVINO computes the maps of EfficientNet-Lite0 in a third of torch's time, in batches of one image a thread: a network
for batches of any size takes a tenth to a half longer. A network is converted once per machine: the converted and the
compiled model are cached, so that a later process starts in milliseconds.

On a GPU the images of threads that embed videos side by side share batches of 256, which a CUDA graph computes in half
precision with channels last: small batches take much longer per image.

Before a network is used, its maps of one image are compared with those of torch.
"""

import hashlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from inphase.models.backbone import BatchedBackbone
from inphase.storage.cache import CPU_OPTIONS, compile_cached
from inphase.storage.errors import import_extra

# The largest difference from torch, as a fraction of the largest value, with which a network is used.
TOLERANCES = {"f32": 1e-5, "half": 0.02, "bf16": 0.1}
MAX_BATCH = 16  # images at a time by OpenVINO, one a thread

_log = logging.getLogger("inphase")
_converting = threading.Lock()
_batched = WeakKeyDictionary[nn.Module, tuple[object, BatchedBackbone]]()  # networks on a GPU, shared by threads
_failed = WeakKeyDictionary[nn.Module, None]()  # backbones that run in torch since their conversion failed


class _Networks(threading.local):
    """The compiled networks of one thread: recordings are embedded side by side, each by networks of its own."""

    def __init__(self) -> None:
        self.by_backbone = WeakKeyDictionary[nn.Module, tuple[object, "CompiledBackbone"]]()


_networks = _Networks()


def find_network(backbone: nn.Module, images: Tensor, *, precision: str) -> "Callable[[Tensor], Tensor] | None":
    """Return the compiled network of a backbone in this thread; None where torch runs it.

    `precision`, on a CPU, is "f32" or "bf16", for which OpenVINO must be installed.
    """
    if images.is_cuda:
        return _find_batched(backbone, images)
    if precision == "bf16":
        import_extra("openvino", extra="fast")
    if not len(images) or not _is_convertible(backbone, images) or backbone in _failed:
        return None
    size = (images.shape[1], images.shape[2])
    state = (_state(backbone), size, precision, torch.get_num_threads(), os.getpid())
    found = _networks.by_backbone.get(backbone)
    if found is not None and found[0] == state:
        return found[1]
    try:
        network = _open_network(backbone, size, precision)
    except Exception as error:  # OpenVINO raises RuntimeError and errors of its own for what it cannot convert
        line = next(iter(str(error).splitlines()), type(error).__name__)
        _log.warning("OpenVINO cannot run this image network (%s): torch runs it, more slowly.", line[:200])
        _failed[backbone] = None
        return None
    _networks.by_backbone[backbone] = (state, network)
    return network


def _find_batched(backbone: nn.Module, images: Tensor) -> BatchedBackbone | None:
    """Return the network of a backbone on a GPU; None while gradients may be needed, or a graph is recorded."""
    plain = torch.is_inference_mode_enabled() and not backbone.training and images.dtype == torch.float32
    if not plain or not len(images) or torch.compiler.is_compiling() or torch.is_autocast_enabled("cuda"):
        return None
    with _converting:
        state = (_state(backbone), images.shape[1:], images.device)
        found = _batched.get(backbone)
        if backbone in _failed or (found is not None and found[0] == state):
            return None if found is None or backbone in _failed else found[1]
        try:
            network = BatchedBackbone(backbone, (images.shape[1], images.shape[2]), images.device)
            _require_equal(network, backbone, (images.shape[1], images.shape[2]), "half", device=images.device)
        except (RuntimeError, ValueError) as error:
            line = next(iter(str(error).splitlines()), type(error).__name__)
            _log.warning("this image network cannot run in half precision (%s): it runs more slowly.", line[:200])
            _failed[backbone] = None
            return None
        _batched[backbone] = (state, network)
        return network


def _is_convertible(backbone: nn.Module, images: Tensor) -> bool:
    """Report whether OpenVINO may run a backbone: installed, on a CPU, in single precision, nothing trained."""
    if images.device.type != "cpu" or images.dtype != torch.float32 or backbone.training:
        return False
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    tensors = [each for _, each in _weights(backbone)]
    plain = all(each.device.type == "cpu" for each in tensors)
    floats = all(each.dtype == torch.float32 for each in tensors if each.is_floating_point())
    return plain and floats and find_spec("openvino") is not None


def _state(backbone: nn.Module) -> tuple[tuple[int, int], ...]:
    """Identify the weights within this process: any change in place counts a tensor's version up."""
    return tuple((each.data_ptr(), 0 if each.is_inference() else each._version) for _, each in _weights(backbone))


def _weights(backbone: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """List all parameters and buffers, including non-persistent buffers."""
    yield from backbone.named_parameters()
    yield from backbone.named_buffers()


class CompiledBackbone:
    """A compiled network in one thread, on as many cores as torch uses there."""

    def __init__(self, compiled: Any) -> None:
        """Use a model that OpenVINO compiled for batches of one size."""
        self._request, self._batch = compiled.create_infer_request(), compiled.inputs[0].shape[0]

    def __call__(self, images: Tensor) -> Tensor:
        """Compute the maps of images [N, H, W, 3]."""
        maps = []
        for some in torch.split(images.detach().contiguous(), self._batch):
            filled = some if len(some) == self._batch else some[torch.arange(self._batch).clamp_max(len(some) - 1)]
            self._request.infer({0: filled.numpy()}, share_inputs=True)
            maps.append(torch.tensor(self._request.get_output_tensor(0).data[: len(some)]))
        return torch.cat(maps)


def _open_network(backbone: nn.Module, size: tuple[int, int], precision: str) -> CompiledBackbone:
    """Load the cached network of a backbone, or convert it; raise if its maps are not those of torch."""
    openvino = import_extra("openvino", extra="fast")
    threads = torch.get_num_threads()
    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
    shape = (min(threads, MAX_BATCH), *size, 3)
    name, build = _name(backbone, shape, openvino.__version__), partial(_convert, openvino, backbone, shape)
    with _converting:  # threads that embed other recordings wait for one conversion
        network = CompiledBackbone(compile_cached(openvino, name, build, {**CPU_OPTIONS, **options}))
    _require_equal(network, backbone, size, precision)
    return network


def _name(backbone: nn.Module, shape: tuple[int, ...], version: str) -> str:
    """Hash what decides a converted network: structure, weights, the shape of a batch and the version of OpenVINO."""
    digest = hashlib.blake2b(f"{backbone} {shape} {version}".encode(), digest_size=16)
    for name, tensor in _weights(backbone):
        digest.update(name.encode())
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _convert(openvino: Any, backbone: nn.Module, shape: tuple[int, ...]) -> Any:
    """Convert a backbone to a model of OpenVINO for batches of one shape [N, H, W, 3].

    The frontend is called directly, since `openvino.convert_model` reports its use to the publisher.
    """
    decoders = import_module("openvino.frontend.pytorch.ts_decoder")
    example = torch.zeros(1, *shape[1:])
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")  # sizes become constants, as they should
        # A function is traced five times as fast as a module of many; OpenVINO computes with channels last.
        trace: Any = torch.jit.trace
        traced = trace(lambda images: backbone(images.permute(0, 3, 1, 2)), example, check_trace=False)
        decoder = decoders.TorchScriptPythonDecoder(traced, example_input=example)  # must outlive the conversion
        frontend = openvino.frontend.FrontEndManager().load_by_framework("pytorch")
        model = frontend.convert(frontend.load(decoder))
    model.inputs[0].get_node().set_partial_shape(openvino.PartialShape([*shape]))
    model.validate_nodes_and_infer_types()
    return model


def _require_equal(
    network: Callable[[Tensor], Tensor],
    backbone: nn.Module,
    size: tuple[int, int],
    precision: str,
    *,
    device: torch.device | None = None,
) -> None:
    """Raise if a network's maps of one image are not those of torch."""
    # A smooth image with fine noise on it: neither saturates the activations.
    noise = torch.rand(1, *size, 3, generator=torch.Generator().manual_seed(0))
    image = (torch.linspace(-1, 1, size[1])[None, None, :, None] + 0.5 * (noise - 0.5)).clamp(-1, 1).to(device)
    with torch.no_grad():
        expected = backbone(image.movedim(-1, 1))
    found = network(image)
    if found.shape != expected.shape:
        raise ValueError(f"its maps have the shape {tuple(found.shape)} instead of {tuple(expected.shape)}")
    error = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-12))
    if not error <= TOLERANCES[precision]:
        raise ValueError(f"its maps differ by {error:.1g} of the largest value from those of torch")
