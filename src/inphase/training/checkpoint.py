"""Checkpoints: weights, optimizer and RNG states in one safetensors file, written atomically and never pickled."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from inphase.storage.files import atomic_write

KEY = "inphase_state"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after `step` steps."""

    step: int
    tensors: dict[str, Tensor]
    groups: list[dict[str, Any]]  # the optimizer's parameter groups

    @property
    def rng_states(self) -> Tensor:
        """The RNG state of every process, [ranks, …]."""
        return self.tensors["rng_state"]


def save_checkpoint(file: Path, *, step: int, network: nn.Module, optimizer: Optimizer, rng_states: Tensor) -> None:
    """Write the state after `step` steps; `rng_states` [ranks, …] holds the RNG state of every process."""
    packed = optimizer.state_dict()
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for index, values in packed["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
    tensors["rng_state"] = rng_states
    metadata = {KEY: json.dumps({"step": step, "groups": packed["param_groups"]})}
    with atomic_write(file) as part:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, part, metadata=metadata)


def load_checkpoint(file: Path) -> Checkpoint | None:
    """Read a checkpoint, or return None where the file does not exist."""
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            described = json.loads((opened.metadata() or {})[KEY])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - the file is no mapping
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{file} is damaged ({error}): remove it to start over, or use another folder") from error
    return Checkpoint(described["step"], tensors, described["groups"])


def restore_checkpoint(checkpoint: Checkpoint, *, network: nn.Module, optimizer: Optimizer) -> None:
    """Load a checkpoint into the network and the optimizer."""
    prefix = "network."
    weights = {
        name.removeprefix(prefix): value for name, value in checkpoint.tensors.items() if name.startswith(prefix)
    }
    network.load_state_dict(weights)
    values: dict[int, dict[str, Tensor]] = {}
    for name, value in checkpoint.tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            values.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": values, "param_groups": checkpoint.groups})


def rng_state(device: torch.device) -> Tensor:
    """Return the state of torch's generators of this process: the CPU's, then its CUDA device's."""
    cpu = torch.get_rng_state()
    return torch.cat([cpu, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else cpu


def set_rng_state(state: Tensor, *, device: torch.device) -> None:
    """Restore the generators to a state returned by `rng_state`."""
    size = len(torch.get_rng_state())
    # torch reads a state from the beginning of its storage, wherever a view begins: each part needs its own copy.
    torch.set_rng_state(state[:size].cpu().clone())
    if device.type == "cuda" and len(state) > size:
        torch.cuda.set_rng_state(state[size:].cpu().clone(), device)
