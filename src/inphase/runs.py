"""The run folder: training writes it, and every other command takes it as a model.

RUN/recipe.toml           the resolved recipe
RUN/encoder.safetensors   the encoder, with the configuration that builds it
RUN/audio.safetensors     the audio encoder, where the recipe has a table [audio]
RUN/state.safetensors     weights, optimizer and RNG state, from which training resumes
RUN/metrics.jsonl         metrics by step; the same for TensorBoard in RUN/tensorboard
RUN/store/                frames or poses that `fit` extracted
RUN/features/             cached features of a frozen backbone
RUN/embeddings/           cached embeddings of evaluations
RUN/evaluation/           the report of the last evaluation

The checkpoint, state.safetensors, is the truth of a run. It describes the encoders whose weights it holds, and the rows
of metrics up to its step: encoder files that do not agree with it are replaced.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from inphase.models import Encoder, load_encoder
from inphase.models.weights import (
    ENCODER_FILE,
    STATE_FILE,
    STATE_KEY,
    describe_encoder,
    describe_state_encoders,
    load_tensors,
    save_tensors,
)

__all__ = ["ENCODER_FILE", "Run"]


@dataclass(frozen=True, init=False)
class Run:
    """A run folder, and the names of the files in it; functions that take a path take a `Run` as well."""

    folder: Path

    def __init__(self, folder: PathLike[str] | str) -> None:
        """Take a folder, which need not exist yet."""
        object.__setattr__(self, "folder", Path(folder))

    def __fspath__(self) -> str:
        """Return the folder as text, for `Path` and `open`."""
        return str(self.folder)

    @property
    def recipe(self) -> dict[str, dict[str, Any]]:
        """The tables of the recipe."""
        if not self.recipe_file.is_file():
            raise ValueError(f"{self.folder} holds no {self.recipe_file.name}: name the folder of a run")
        try:
            return tomllib.loads(self.recipe_file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.recipe_file} cannot be read ({error}): correct it, or restore it") from error

    def encoder(self, *, device: torch.device | str = "cpu") -> Encoder:
        """Load the encoder of video, in evaluation mode."""
        return load_encoder(self.folder, device=device)

    def audio_encoder(self, *, device: torch.device | str = "cpu") -> Encoder:
        """Load the audio encoder, in evaluation mode."""
        if not self.audio_file.is_file() and self.audio_file.name not in describe_state_encoders(self.state):
            raise ValueError(
                f"{self.folder} holds no {self.audio_file.name}: "
                "name the folder of a run whose recipe has a table [audio]"
            )
        return load_encoder(self.audio_file, device=device)

    @property
    def recipe_file(self) -> Path:
        """The resolved recipe."""
        return self.folder / "recipe.toml"

    @property
    def encoder_file(self) -> Path:
        """The weights of the encoder."""
        return self.folder / ENCODER_FILE

    @property
    def audio_file(self) -> Path:
        """The weights of the audio encoder."""
        return self.folder / "audio.safetensors"

    @property
    def state(self) -> Path:
        """The state from which training resumes."""
        return self.folder / STATE_FILE

    @property
    def metrics(self) -> Path:
        """The metrics, one JSON object per line."""
        return self.folder / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The same metrics for TensorBoard."""
        return self.folder / "tensorboard"

    @property
    def store(self) -> Path:
        """The frames or poses that `fit` extracted."""
        return self.folder / "store"

    @property
    def features(self) -> Path:
        """The cache of a frozen backbone's features."""
        return self.folder / "features"

    @property
    def embeddings(self) -> Path:
        """The cache of embeddings."""
        return self.folder / "embeddings"

    @property
    def evaluation(self) -> Path:
        """The report of the last evaluation."""
        return self.folder / "evaluation"


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


def save_checkpoint(
    file: Path,
    *,
    step: int,
    network: nn.Module,
    optimizer: Optimizer,
    rng_states: Tensor,
    encoders: Mapping[str, Encoder] | None = None,
    metrics: Path | None = None,
) -> None:
    """Write the state after `step` steps; `rng_states` [ranks, …] holds the RNG state of every process.

    `encoders` are the parts of the network that have files of their own, by file name: the part `audio` has the file
    audio.safetensors. `metrics` is the file of metrics, whose length and hash are recorded.
    """
    packed = optimizer.state_dict()
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for index, values in packed["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
    tensors["rng_state"] = rng_states
    described = {
        "step": step,
        "groups": packed["param_groups"],
        "encoders": {name: describe_encoder(encoder) for name, encoder in (encoders or {}).items()},
        "metrics": hash_beginning(metrics) if metrics is not None and metrics.exists() else None,
    }
    save_tensors(
        file,
        {name: value.detach().cpu().contiguous() for name, value in tensors.items()},
        key=STATE_KEY,
        description=described,
    )


def hash_beginning(file: Path, length: int | None = None) -> tuple[int, str]:
    """Return a number of bytes and the BLAKE2 hash of so many bytes at the beginning of a file; None: all of them."""
    content = file.read_bytes()[:length]
    return len(content), hashlib.blake2b(content, digest_size=32).hexdigest()


def load_checkpoint(file: Path) -> Checkpoint | None:
    """Read a checkpoint, or return None where the file does not exist."""
    if not file.exists():
        return None
    try:
        tensors, metadata = load_tensors(file)
        described = json.loads(metadata[STATE_KEY])
        return Checkpoint(described["step"], tensors, described["groups"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"{file} is damaged ({error}): remove it to start over, or use another folder") from error


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
