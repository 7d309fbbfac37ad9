import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from inphase.models.backbone import BATCH, BatchedBackbone, build_backbone
from inphase.models.encoder import compute_maps


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
    with pytest.raises(ValueError, match=r"no maps of stride 16, but of \[4, 8\].*timm:flat@8"):
        build_backbone("timm:flat", weights=None)
    coarse, _ = build_backbone("timm:pyramid@32", weights=None)
    assert coarse(torch.zeros(1, 3, 64, 32)).shape == (1, 3, 2, 1)
    assert build_backbone("timm:flat@8", weights=None)[0](torch.zeros(1, 3, 64, 32)).shape == (1, 3, 8, 4)
    with pytest.raises(ValueError, match="stride of timm:flat@fine must be a whole number"):
        build_backbone("timm:flat@fine", weights=None)


@pytest.mark.filterwarnings("ignore::inphase.storage.errors.UnverifiedWeightsWarning")
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_a_network_of_timm_takes_weights_from_a_file(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[dict[str, Tensor]] = []

    def create_model(
        name: str, *, out_indices: tuple[int, ...] | None = None, pretrained_cfg_overlay: Any = None, **_: object
    ) -> nn.Module:
        if pretrained_cfg_overlay:
            read.append(load_file(pretrained_cfg_overlay["file"]))  # as timm does for this ending
        return Pyramid([4, 8, 16], out_indices)

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    file = tmp_path / f"own{suffix}"
    weights = {"stem.weight": torch.arange(6.0).view(2, 3)}
    if suffix == ".pth":
        torch.save({"state_dict": weights}, file)
    else:
        save_file(weights, file)
    build_backbone("timm:pyramid", weights=str(file))
    (found,) = read
    assert torch.equal(found["stem.weight"], weights["stem.weight"])
    torch.save({"stem.weight": print}, tmp_path / "code.pth")
    with pytest.raises(ValueError, match=r"code\.pth holds no weights of torch"):
        build_backbone("timm:pyramid", weights=str(tmp_path / "code.pth"))
    with pytest.raises(ValueError, match="is not a file of weights"):
        build_backbone("timm:pyramid", weights=str(tmp_path / "absent.pth"))


def test_what_cannot_be_had_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match="timm does not import here"):
        build_backbone("timm:resnet18", weights=None)
    with pytest.raises(ValueError, match="got 'resnet101'"):
        build_backbone("resnet101", weights=None)
    with pytest.raises(ValueError, match="download Keras' resnet50v2_weights"):
        build_backbone("resnet50v2", weights="published")


class SummingGraph:
    """Stands in for a CUDA graph: the map of an image is the sum of its pixels."""

    def __init__(self, network: BatchedBackbone) -> None:
        self.network, self.batches, self.broken = network, 0, 0

    def replay(self) -> None:
        if self.broken:
            self.broken -= 1
            raise RuntimeError("out of memory")
        self.batches += 1
        self.network._maps = self.network._images.sum((1, 2, 3)).view(-1, 1, 1, 1)

    def synchronize(self) -> None:
        time.sleep(0.005)

    def record(self) -> None:
        pass


def shared_batches() -> tuple[Any, SummingGraph]:
    network: Any = object.__new__(BatchedBackbone)
    graph = SummingGraph(network)
    network._images, network._waiting = torch.zeros(BATCH, 4, 4, 3), deque()
    network._turn, network._graph, network._done = threading.Lock(), graph, graph
    return network, graph


def test_threads_fill_batches_together() -> None:
    network, graph = shared_batches()
    sizes = [1, 40, 256, 300, 600, 90, 17, 128]
    failed: list[int] = []

    def work(number: int) -> None:
        for _ in range(4):
            images = torch.rand(number, 4, 4, 3, generator=torch.Generator().manual_seed(number))
            if not torch.allclose(network(images).flatten(), images.sum((1, 2, 3))):
                failed.append(number)

    threads = [threading.Thread(target=work, args=(size,)) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    # Alone, they would take a batch for each 256 images or part of them.
    assert graph.batches < 4 * sum(-(-size // BATCH) for size in sizes)
    assert not network._waiting


def test_a_batch_that_fails_stops_its_thread_alone() -> None:
    network, graph = shared_batches()
    graph.broken = 1
    with pytest.raises(RuntimeError, match="out of memory"):
        network(torch.ones(2, 4, 4, 3))
    assert network(torch.ones(3, 4, 4, 3)).flatten().tolist() == [48.0] * 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_a_gpu_computes_in_half_precision_without_gradients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INPHASE_IMAGE_RUNTIME")
    backbone = build_backbone("efficientnet_lite0", weights=None)[0].eval().cuda()
    images = torch.rand(40, 64, 64, 3, generator=torch.Generator().manual_seed(0)).cuda() * 2 - 1
    with torch.no_grad():
        expected = backbone(images.movedim(-1, 1))
    with torch.inference_mode():
        found = compute_maps(backbone, images)
    assert 0 < float((found - expected).abs().max() / expected.abs().max()) < 0.02
    assert torch.equal(compute_maps(backbone, images), expected)  # as training does
