"""A toy modality from outside the package: one reader and one line in the registry."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from inphase.models import Encoder, embed
from inphase.models.embed_videos import embed_each, embed_videos
from inphase.models.embedding import Embedding
from inphase.models.encoder import unit
from inphase.models.modality import MODALITIES, FrameProgress, ModalityReader, find_modality
from inphase.storage.cache import Cache


class DepthEncoder(Encoder):
    """Embed depth maps [N, 4, 4]."""

    modality: ClassVar[str] = "depth"

    def __init__(self) -> None:
        super().__init__(context=(0,))
        self.shape, self.head = (4, 4), nn.Linear(16, 3)

    def features(self, frames: Tensor) -> Tensor:
        return frames.flatten(1)

    def combine(self, features: Tensor) -> Tensor:
        return unit(self.head(features[:, 0]))


def embed_depth(
    encoder: Encoder, path: Path | str, cache: Cache, fps: float | None, progress: FrameProgress | None, estimator: str
) -> Embedding:
    maps = np.load(path)
    return embed(encoder, (maps, np.arange(len(maps)) / (fps or 10)))


@pytest.fixture
def depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODALITIES, "depth", ModalityReader(embed_depth, lambda _: None, batch=8))


@pytest.mark.usefixtures("depth")
def test_a_modality_from_outside_is_one_reader_and_one_line(tmp_path: Path) -> None:
    torch.manual_seed(0)
    maps = np.random.default_rng(0).random((7, 4, 4), np.float32)
    np.save(tmp_path / "a.npy", maps)
    embedded = embed_videos([tmp_path / "a.npy"], model=DepthEncoder(), fps=5)
    (embedding,) = embedded.embeddings
    assert (embedding.modality, embedding.values.shape, embedding.times[-1]) == ("depth", (7, 3), 6 / 5)
    assert "depth encoder" in embedded.why
    found, failed = embed_each([tmp_path / "a.npy"], encoder=DepthEncoder())
    assert list(found) == [tmp_path / "a.npy"]
    assert not failed


def test_a_modality_that_nobody_registered_is_named() -> None:
    with pytest.raises(ValueError, match="DepthEncoder has the modality 'depth'"):
        find_modality(DepthEncoder())
