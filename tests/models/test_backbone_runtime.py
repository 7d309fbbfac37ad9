"""Frozen backbones by OpenVINO: the maps of torch, converted once, and torch where anything is in the way."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from inphase.models import ImageEncoder
from inphase.models import backbone_runtime as ours
from inphase.models.backbone import MBConv, SameConv2d, build_backbone, norm
from inphase.models.encoder import compute_maps, image_precision
from inphase.models.motion_encoder import PooledFeatures
from inphase.storage.cache import default_cache_folder

pytest.importorskip("openvino")

SIZE = 64


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


def build_small(*, seed: int = 0) -> nn.Module:
    """Build a network of one block: its conversion is quick."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = (SameConv2d(3, 8, 3, stride=2), norm(8), MBConv(8, 8, kernel=3, stride=2, expansion=2))
        return nn.Sequential(*layers).requires_grad_(False).eval()


@pytest.fixture(scope="module")
def backbone() -> nn.Module:
    return build_small()


@pytest.fixture(autouse=True)
def openvino_runtime(monkeypatch: pytest.MonkeyPatch, cache_folder: Path, backbone: nn.Module) -> Iterator[None]:
    """Choose the runtime as a user does, who names none; the tests share one cache folder."""
    monkeypatch.delenv("INPHASE_IMAGE_RUNTIME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder))
    yield
    ours._networks.by_backbone.clear()
    ours._failed.clear()


def draw_images(number: int = 3, *, seed: int = 0) -> Tensor:
    return torch.rand(number, SIZE, SIZE, 3, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def run_torch(backbone: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        maps: Tensor = backbone(images.movedim(-1, 1))
    return maps


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def refuse(*_: object, **__: object) -> Any:
    raise RuntimeError("this operation is unknown\nsecond line")


def test_maps_equal_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = build_backbone("efficientnet_lite0", weights="published")[0].requires_grad_(False).eval()
    images = draw_images(5)
    expected = run_torch(backbone, images)
    assert difference(compute_maps(backbone, images), expected) < 1e-5
    # Torch is not needed any more: a batch of another size runs in the compiled network.
    monkeypatch.setattr(backbone, "forward", refuse)
    assert difference(compute_maps(backbone, images[:2]), expected[:2]) < 1e-5


def test_encoders_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    images = draw_images()
    for encoder in (PooledFeatures(size=SIZE), ImageEncoder(size=(SIZE, SIZE), mode="frozen")):
        encoder.eval()
        found = encoder.features(images)
        monkeypatch.setenv("INPHASE_IMAGE_RUNTIME", "torch")
        expected = encoder.features(images)
        monkeypatch.delenv("INPHASE_IMAGE_RUNTIME")
        assert 0 < difference(found, expected) < 1e-5  # equal bits would mean that torch ran twice


def test_a_backbone_that_trains_stays_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_open_network", refuse)
    encoder = ImageEncoder(size=(SIZE, SIZE), mode="only_bn")
    features = encoder.features(draw_images())
    assert features.requires_grad


def test_a_network_is_converted_once(backbone: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    images = draw_images()
    first = compute_maps(backbone, images)
    ours._networks.by_backbone.clear()  # as in another process
    monkeypatch.setattr(ours, "_convert", refuse)
    assert torch.equal(compute_maps(backbone, images), first)
    assert backbone not in ours._failed


def test_a_damaged_cache_is_replaced(backbone: nn.Module) -> None:
    images = draw_images()
    first = compute_maps(backbone, images)
    networks = [*(default_cache_folder() / "networks").glob("*/model.bin")]
    assert networks
    for file in networks:
        file.write_bytes(b"\0" * file.stat().st_size)
        for compiled in file.parent.glob("*.blob"):
            compiled.unlink()
    ours._networks.by_backbone.clear()
    assert torch.equal(compute_maps(backbone, images), first)
    assert backbone not in ours._failed


def test_changed_weights_are_noticed() -> None:
    backbone = build_small()
    images = draw_images()
    before = compute_maps(backbone, images)
    state = {name: value * 1.5 if name == "0.weight" else value for name, value in backbone.state_dict().items()}
    backbone.load_state_dict(state)
    after = compute_maps(backbone, images)
    assert difference(after, before) > 1e-3
    assert difference(after, run_torch(backbone, images)) < 1e-5


def test_a_network_that_cannot_be_converted_runs_in_torch(
    backbone: nn.Module, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ours, "_open_network", refuse)
    images = draw_images()
    with caplog.at_level(logging.WARNING, logger="inphase"):
        for _ in range(2):
            assert torch.equal(compute_maps(backbone, images), run_torch(backbone, images))
    assert [record.getMessage() for record in caplog.records] == [
        "OpenVINO cannot run this image network (this operation is unknown): torch runs it, more slowly."
    ]


def test_wrong_maps_are_refused(backbone: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    # The cached network would be right, so the conversion goes into a folder of its own.
    other = build_small(seed=1)
    convert = ours._convert
    monkeypatch.setattr(ours, "_convert", lambda openvino, _, size: convert(openvino, backbone, size))
    images = draw_images()
    assert torch.equal(compute_maps(other, images), run_torch(other, images))
    assert other in ours._failed


def test_a_cache_that_cannot_be_written_does_no_harm(
    backbone: nn.Module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    images = draw_images()
    assert difference(compute_maps(backbone, images), run_torch(backbone, images)) < 1e-5
    assert backbone not in ours._failed


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_images_fills_batches_of_one_image_a_thread(threads: int, backbone: nn.Module) -> None:
    images, before = draw_images(5), torch.get_num_threads()
    expected = run_torch(backbone, images)
    try:
        torch.set_num_threads(threads)
        for count in (1, 3, 4, 5):
            found = compute_maps(backbone, images[:count])
            assert found.shape == expected[:count].shape
            assert difference(found, expected[:count]) < 1e-5
    finally:
        torch.set_num_threads(before)


def test_threads_run_side_by_side(backbone: nn.Module) -> None:
    images = [draw_images(seed=seed) for seed in range(4)]
    expected = [run_torch(backbone, each) for each in images]
    found: dict[int, Tensor] = {}

    def work(number: int) -> None:
        for _ in range(5):
            found[number] = compute_maps(backbone, images[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(difference(found[number], expected[number]) < 1e-5 for number in range(4))


def test_half_precision_is_an_option(backbone: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    assert image_precision() == ""
    monkeypatch.setenv("INPHASE_IMAGE_RUNTIME", "bf16")
    assert image_precision() == "bf16"
    images = draw_images()
    found = compute_maps(backbone, images)
    assert backbone not in ours._failed
    assert difference(found, run_torch(backbone, images)) < 0.1


def test_an_unknown_runtime_is_refused(backbone: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INPHASE_IMAGE_RUNTIME", "onnx")
    with pytest.raises(ValueError, match="INPHASE_IMAGE_RUNTIME must be one of auto, torch, bf16, got 'onnx'"):
        compute_maps(backbone, draw_images())
