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
"""

import tomllib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from inphase.models import Encoder, load_encoder
from inphase.models.weights import ENCODER_FILE

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
        if not self.audio_file.is_file():
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
        return self.folder / "state.safetensors"

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
