"""The run folder, its checkpoints and cached features: training writes it, other commands take it as a model.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from inphase.data.frame_source import FrameSource
from inphase.data.video import Video
from inphase.media.sampling import Frames
from inphase.models import Encoder, load_encoder
from inphase.models.encoder import image_precision
from inphase.models.weights import (
    ENCODER_FILE,
    STATE_FILE,
    STATE_KEY,
    describe_encoder,
    describe_state_encoders,
    fingerprint,
    load_tensors,
    save_tensors,
)
from inphase.storage.files import atomic_write, sweep_drafts, write_checksum
from inphase.storage.settings import check_value, parse_json, read_toml

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
        tables = read_toml(self.recipe_file)
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ValueError(f"{self.recipe_file}: {name} must be a table [{name}], got {table!r:.80}")
        return tables

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
        "groups": [{key: _plain(value) for key, value in group.items()} for group in packed["param_groups"]],
        "encoders": {name: describe_encoder(encoder) for name, encoder in (encoders or {}).items()},
        "metrics": hash_beginning(metrics) if metrics is not None and metrics.exists() else None,
    }
    save_tensors(
        file,
        {name: value.detach().cpu().contiguous() for name, value in tensors.items()},
        key=STATE_KEY,
        description=described,
    )


def _plain(value: object) -> object:
    """Convert a learning rate that is a tensor, as CUDA graphs need it, to a float."""
    return value.item() if isinstance(value, Tensor) else value


def hash_beginning(file: Path, length: int | None = None) -> tuple[int, str]:
    """Return a number of bytes and the BLAKE2 hash of that many bytes at the start of a file; None: all of them."""
    content = file.read_bytes()[:length]
    return len(content), hashlib.blake2b(content, digest_size=32).hexdigest()


def load_checkpoint(file: Path) -> Checkpoint | None:
    """Read a checkpoint, or return None where the file does not exist."""
    if not file.exists():
        return None
    try:
        tensors, metadata = load_tensors(file)
        described = msgspec.convert(parse_json(metadata.get(STATE_KEY, "")), CheckpointDescription)
    except ValueError as error:
        raise _damaged(file, error) from error
    state = tensors.get("rng_state")
    if state is None or state.dtype is not torch.uint8 or state.ndim != 2 or 0 in state.shape:
        raise _damaged(file, "it holds no RNG states")
    return Checkpoint(described.step, tensors, described.groups)


class CheckpointDescription(msgspec.Struct):
    """The training state in the header of a checkpoint, which also describes the encoders and the metrics."""

    step: Annotated[int, msgspec.Meta(ge=0)]
    groups: list[dict[str, Any]]


def _damaged(file: Path, reason: object) -> ValueError:
    line = next(iter(str(reason).splitlines()), "")
    return ValueError(f"{file} is damaged ({line}): remove it to start over, or use another folder")


def restore_checkpoint(file: Path, checkpoint: Checkpoint, *, network: nn.Module, optimizer: Optimizer) -> None:
    """Load the checkpoint of a file into the network and the optimizer; raise if it is not theirs."""
    prefix = "network."
    weights = {
        name.removeprefix(prefix): value for name, value in checkpoint.tensors.items() if name.startswith(prefix)
    }
    moments: dict[int, dict[str, Tensor]] = {}
    try:
        for name, value in checkpoint.tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".", 2)
                moments.setdefault(int(index), {})[key] = value
        _check_optimizer(optimizer, moments, checkpoint.groups)
        network.load_state_dict(weights)
        groups = [_adapt(*both) for both in zip(optimizer.param_groups, checkpoint.groups, strict=True)]
        optimizer.load_state_dict({"state": moments, "param_groups": groups})
    except (ValueError, RuntimeError) as error:
        raise _damaged(file, error) from error


def _adapt(own: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """Convert a saved group to that of an optimizer of another device: where its rate is a tensor, or its kernels."""
    kernels = {key: own[key] for key in ("foreach", "fused", "capturable") if key in own}
    tensors = {key: value.new_tensor(saved[key]) for key, value in own.items() if isinstance(value, Tensor)}
    return saved | kernels | tensors


def _check_optimizer(optimizer: Optimizer, moments: dict[int, dict[str, Tensor]], groups: list[dict[str, Any]]) -> None:
    """Raise if the moments and the groups of a checkpoint do not fit an optimizer."""
    own = optimizer.state_dict()["param_groups"]
    fits = len(own) == len(groups) and all(mine.keys() == group.keys() for mine, group in zip(own, groups, strict=True))
    if not fits or any(mine["params"] != group["params"] for mine, group in zip(own, groups, strict=True)):
        raise ValueError("its optimizer is of another network")
    for mine, group in zip(own, groups, strict=True):
        for key, value in mine.items():
            check_value(f"the optimizer's {key}", group[key], float if isinstance(value, float | Tensor) else Any)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    kinds = {frozenset(values) for values in moments.values()}
    if not moments.keys() <= set(range(len(parameters))) or len(kinds) > 1:
        raise ValueError("the moments of its optimizer are incomplete")
    for index, values in moments.items():
        for key, value in values.items():
            if value.ndim and value.shape != parameters[index].shape:
                raise ValueError(f"the optimizer's {key} of parameter {index} is {list(value.shape)}")


def rng_state(device: torch.device) -> Tensor:
    """Return the state of torch's generators of this process: the CPU's, then its CUDA device's."""
    cpu = torch.get_rng_state()
    return torch.cat([cpu, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else cpu


def set_rng_state(state: Tensor, *, device: torch.device) -> None:
    """Restore the generators to a state returned by `rng_state`; raise `ValueError` if it is none."""
    size = len(torch.get_rng_state())
    # torch reads a state from the beginning of its storage, wherever a view begins: each part needs its own copy.
    try:
        torch.set_rng_state(state[:size].cpu().clone())
        if device.type == "cuda" and len(state) > size:
            torch.cuda.set_rng_state(state[size:].cpu().clone(), device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"the RNG state of the checkpoint is damaged ({error}): remove the checkpoint to start over"
        ) from error


class CachedFeatures:
    """A `Read` of half-precision features, memory-mapped from one file per video.

    The file name is a hash of the network's weights, the video's id and its number of frames, so other weights or
    another cut of a video never match a cached file.
    """

    def __init__(self, encoder: Encoder, source: FrameSource, *, folder: Path, batch: int = 32) -> None:
        """Cache the features of a source's videos in `folder`."""
        self._encoder, self._source, self._folder, self._batch = encoder, source, folder, batch
        self._network = fingerprint(encoder, source=image_precision(), head=False)
        self._open: dict[str, tuple[NDArray[np.float16], NDArray[np.float64]]] = {}

    @property
    def source(self) -> FrameSource:
        """The same videos, read as features."""
        return replace(self._source, read=self, source=f"{self._source.source} as features", precomputed=True)

    def __call__(self, video: Video, frames: Frames) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
        """Return the features of some frames, and their times in seconds."""
        if video.id not in self._open:
            self.load(video)
        values, times = self._open[video.id]
        return values[frames], times[frames]

    def compute_all(self, report: Callable[[int, int], None] | None = None) -> None:
        """Compute all missing features; a video that cannot be read is skipped, and training reports it.

        `report` is called with (done, total) videos. A lock serializes runs that share the folder: one computes and the
        others wait.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        videos = self._source.videos
        with FileLock(self._folder / "lock"):
            sweep_drafts(self._folder)
            for done, video in enumerate(videos, start=1):
                try:
                    self.load(video)
                # Training skips a video that cannot be read and reports the reason when it is drawn.
                except Exception:
                    continue
                finally:
                    if report is not None:
                        report(done, len(videos))

    def load(self, video: Video) -> None:
        """Map the features of one video, computing them first where they are not cached."""
        length = self._source.frame_count(video)
        file = self._folder / feature_file_name(self._network, video, length)
        times_file = file.with_suffix(".times.npy")
        if not (file.exists() and times_file.exists()):
            self._folder.mkdir(parents=True, exist_ok=True)
            features, times = self._compute(video, length=length)
            for path, array in ((file, features), (times_file, times)):
                with atomic_write(path) as part:
                    np.save(part, array, allow_pickle=False)
                    write_checksum(part, append=True)  # numpy reads no further than the array
        self._open[video.id] = np.load(file, mmap_mode="r", allow_pickle=False), np.load(times_file, allow_pickle=False)

    def _compute(self, video: Video, *, length: int) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
        parts, seconds = [], []
        device = next(self._encoder.parameters()).device
        for begin in range(0, length, self._batch):
            frames, times = self._source.read(video, np.arange(begin, min(length, begin + self._batch)))
            self._encoder.check(frames.shape[1:])
            with torch.inference_mode():
                features = self._encoder.features(
                    self._encoder.prepare(torch.from_numpy(np.ascontiguousarray(frames)).to(device))
                )
            parts.append(features.to(torch.float16).cpu().numpy())
            seconds.append(times)
        return np.concatenate(parts), np.concatenate(seconds)


def cache_features(encoder: Encoder, source: FrameSource, *, folder: Path) -> FrameSource:
    """Read the cached features of a frozen encoder in place of frames; missing ones are computed when they are read."""
    return CachedFeatures(encoder, source, folder=folder).source


def feature_file_name(network: str, video: Video, length: int) -> str:
    """Name the file of a video's features, by the fingerprint of the network and the number of frames."""
    return hashlib.sha256(f"{network} {video.id} {length}".encode(errors="surrogatepass")).hexdigest()[:24] + ".npy"
