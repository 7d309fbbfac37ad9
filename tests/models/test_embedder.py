import pytest
import torch

from inphase.models.image_encoder import Embedder


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def small() -> Embedder:
    return Embedder(6, convolutions=(8, 8), hidden=(16,), dimension=5)


def test_it_has_the_size_of_the_released_network() -> None:
    with torch.device("meta"):
        embedder = Embedder(1024)
    assert sum(weight.numel() for weight in embedder.parameters()) == 21_827_712
    statistics = [value.numel() for name, value in embedder.named_buffers() if "running" in name]
    assert sum(statistics) == 2048
    norms = [part for part in embedder.modules() if isinstance(part, torch.nn.BatchNorm3d)]
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}


def test_it_gives_unit_vectors() -> None:
    found = small()(torch.randn(7, 2, 6, 4, 5))
    assert found.shape == (7, 5)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(7))


def test_context_is_an_order_in_time() -> None:
    embedder, features = small().eval(), torch.randn(3, 2, 6, 4, 4)
    assert not torch.allclose(embedder(features), embedder(features.flip(1)), atol=1e-3)


def test_the_maps_cover_every_context_frame_and_are_what_is_pooled() -> None:
    embedder, features = small().eval(), torch.randn(3, 2, 6, 4, 5)
    maps = embedder.maps(features)
    assert maps.shape == (3, 8, 2, 4, 5)
    assert maps.min() == 0
    pooled = embedder.layers(maps.flatten(2).max(-1).values)
    torch.testing.assert_close(embedder(features), pooled / pooled.norm(dim=-1, keepdim=True))


def test_kernels_are_drawn_from_he_normal() -> None:
    kernel = Embedder(64, convolutions=(64,)).state_dict()["convolutions.0.weight"]
    deviation = (2 / (27 * 64)) ** 0.5
    assert abs(float(kernel.std()) / deviation - 1) < 0.01
    assert float(kernel.abs().max()) < 2 * deviation / 0.879


def test_a_width_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"convolutions=\(\)"):
        Embedder(4, convolutions=())
