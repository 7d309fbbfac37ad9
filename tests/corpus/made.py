"""Corpora for tests: small videos with a small encoder, and stores of embeddings that were never videos."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch

from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.shards import ShardRow, write_shard
from inphase.models import Embedding, ImageEncoder, save_encoder
from tests.media.recordings import write_video


def small_encoder(path: Path, *, seed: int = 0) -> Path:
    """Write an encoder of small images."""
    torch.manual_seed(seed)
    sizes = {"size": (32, 32), "convolutions": (8,), "hidden": (8,), "dimension": 8}
    save_encoder(path, ImageEncoder(context=(-2, 0), mode="scratch", weights=None, **sizes).eval())  # type: ignore[arg-type]
    return path


def small_corpus(root: Path, *, actions: Mapping[str, int], frames: int = 12) -> Path:
    """Write videos of actions."""
    for action, count in actions.items():
        (root / action).mkdir(parents=True)
        for number in range(count):
            write_video(root / action / f"{number:02d}.mp4", count=frames + number)
    return root


def walk(rng: np.random.Generator, *, frames: int = 30, dimension: int = 16) -> Embedding:
    """Draw unit vectors that wander."""
    values = rng.standard_normal((frames, dimension)).cumsum(0) + rng.standard_normal(dimension)
    values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return Embedding(values, np.arange(frames) / 25)


def row(id: str, embedding: Embedding | None, *, action: str = "squat", model: str = "m", reason: str = "") -> ShardRow:
    return ShardRow(id, f"/nowhere/{id}.mp4", action, f"content {id}", "stamp", model, embedding, reason)


def made_store(folder: Path, shards: Mapping[str, Iterable[ShardRow]]) -> Path:
    """Write a store of given shards."""
    with EmbeddingStore(folder, create=True):
        pass
    for name, rows in shards.items():
        write_shard(folder / "shards", name, rows)
    return folder
