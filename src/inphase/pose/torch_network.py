"""Convert a network from OpenVINO's graph to torch, to run it on a GPU in batches.

The graph becomes a list of nodes and a dictionary of weights, which is written to one safetensors file and read again
without OpenVINO. Images and activations keep their channels last: transpositions in the graph cost nothing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn


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
