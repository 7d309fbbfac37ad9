"""The state of a run in one file: weights, optimiser, chance. It is there whole or not at all; nothing is unpickled."""

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

STATE_FILE = "state.safetensors"
KEY = "inphase_state"


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands after `step` steps."""

    step: int
    tensors: dict[str, Tensor]
    groups: list[dict[str, Any]]  # the optimiser's settings


def save_state(folder: Path, *, step: int, method: nn.Module, optimiser: Optimizer, chance: Tensor) -> None:
    """Write the state after `step` steps; `chance` [ranks, …] is every process' generator."""
    packed = optimiser.state_dict()
    tensors = {f"method.{name}": value for name, value in method.state_dict().items()}
    for index, values in packed["state"].items():
        tensors |= {f"optimiser.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
    tensors["chance"] = chance
    metadata = {KEY: json.dumps({"step": step, "groups": packed["param_groups"]})}
    with atomic_write(folder / STATE_FILE) as part:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, part, metadata=metadata)


def load_state(folder: Path) -> State | None:
    """Read the state a run was left in, where there is one."""
    file = folder / STATE_FILE
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            described = json.loads((opened.metadata() or {})[KEY])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - the file is no mapping
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{file} is damaged ({error}): remove it to begin again, or use another folder") from error
    return State(described["step"], tensors, described["groups"])


def restore(state: State, *, method: nn.Module, optimiser: Optimizer) -> None:
    """Bring network and optimiser to where they were."""
    prefix = "method."
    weights = {name.removeprefix(prefix): value for name, value in state.tensors.items() if name.startswith(prefix)}
    method.load_state_dict(weights)
    values: dict[int, dict[str, Tensor]] = {}
    for name, value in state.tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            values.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({"state": values, "param_groups": state.groups})


def rng_state(device: torch.device) -> Tensor:
    """Give the state of the generators a process draws from: the CPU's, and its device's."""
    own = torch.get_rng_state()
    return torch.cat([own, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else own


def set_rng_state(chance: Tensor, *, device: torch.device) -> None:
    """Set the generators back to what `rng_state` gave."""
    size = len(torch.get_rng_state())
    # torch reads a state from the beginning of its memory, wherever a view of it begins: each part gets its own.
    torch.set_rng_state(chance[:size].cpu().clone())
    if device.type == "cuda" and len(chance) > size:
        torch.cuda.set_rng_state(chance[size:].cpu().clone(), device)
