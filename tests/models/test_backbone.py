import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from inphase.models.backbone import build_backbone


class Pyramid(nn.Module):
    """What timm's `features_only` gives: maps at several strides, those asked for."""

    default_cfg: ClassVar = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.1)}

    def __init__(self, reductions: list[int], out_indices: tuple[int, ...] | None) -> None:
        super().__init__()
        self.chosen = out_indices or range(len(reductions))
        self.feature_info = SimpleNamespace(
            reduction=lambda: [reductions[index] for index in self.chosen],
            channels=lambda: [3 for _ in self.chosen],
        )
        self.reductions = reductions

    def forward(self, images: Tensor) -> list[Tensor]:
        return [images[..., :: self.reductions[index], :: self.reductions[index]] for index in self.chosen]


def test_a_network_of_timm_is_cut_at_stride_16_and_sees_what_it_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def create_model(
        name: str, *, pretrained: bool = False, out_indices: tuple[int, ...] | None = None, **_: object
    ) -> nn.Module:
        asked.append(pretrained)
        return Pyramid([4, 8, 16, 32] if name == "pyramid" else [4, 8], out_indices)

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    network, channels = build_backbone("timm:pyramid", weights="published")
    found = network(torch.full((1, 3, 64, 32), 0.2))
    assert found.shape == (1, channels, 4, 2)
    torch.testing.assert_close(
        found[0, :, 0, 0], torch.tensor([(0.6 - 0.5) / 0.2, (0.6 - 0.4) / 0.2, (0.6 - 0.3) / 0.1])
    )
    assert asked == [False, True]
    with pytest.raises(ValueError, match="no maps of stride 16"):
        build_backbone("timm:flat", weights=None)


def test_what_cannot_be_had_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match="timm does not import here"):
        build_backbone("timm:resnet18", weights=None)
    with pytest.raises(ValueError, match="got 'resnet101'"):
        build_backbone("resnet101", weights=None)
    with pytest.raises(ValueError, match="download Keras' resnet50v2_weights"):
        build_backbone("resnet50v2", weights="published")
