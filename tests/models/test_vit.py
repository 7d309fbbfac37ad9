"""Vision transformers against a per-head loop in numpy, and weights in the layouts that are released."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from scipy.special import erf
from torch import Tensor

from inphase.models import ImageEncoder, load_encoder, save_encoder
from inphase.models.backbone import build_backbone
from inphase.models.vit import VisionTransformer, build_vit, load_vit

pytestmark = pytest.mark.filterwarnings("ignore::inphase.storage.errors.UnverifiedWeightsWarning")


def small(registers: int = 0, *, grid: int = 3) -> VisionTransformer:
    """Build a network of two blocks whose every weight is random."""
    torch.manual_seed(registers)
    network = VisionTransformer(width=12, heads=3, depth=2, patch=4, grid=grid, registers=registers).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return network


def released(network: VisionTransformer) -> dict[str, Tensor]:
    """Name the weights as DINOv2's files do, which have a mask token as well and no empty registers."""
    state = {name: value.float() for name, value in network.state_dict().items() if value.numel()}
    return {**state, "mask_token": torch.zeros(1, network.channels)}


def layer_norm(x: NDArray[np.float64], name: str, w: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    centered = x - x.mean(-1, keepdims=True)
    normed = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
    return np.asarray(normed * w[f"{name}.weight"] + w[f"{name}.bias"])


def linear(x: NDArray[np.float64], name: str, w: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.asarray(x @ w[f"{name}.weight"].T + w[f"{name}.bias"])


def by_hand(image: NDArray[np.float64], network: VisionTransformer, heads: int = 3) -> NDArray[np.float64]:
    """Compute the features of one image [3, 12, 12], whose 3 × 3 patches have the stored positions."""
    w = {name: value.double().numpy() for name, value in network.state_dict().items()}
    mean, deviation = (np.array(each)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    pixels = ((image + 1) / 2 - mean) / deviation
    tokens = [w["cls_token"][0, 0] + w["pos_embed"][0, 0]]
    kernel, bias = w["patch_embed.proj.weight"], w["patch_embed.proj.bias"]
    patches = []
    for row in range(3):
        for column in range(3):
            patch = pixels[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            patches.append((kernel * patch).sum((1, 2, 3)) + bias + w["pos_embed"][0, 1 + 3 * row + column])
    x = np.stack([*tokens, *w["register_tokens"][0], *patches])
    for block in ("blocks.0", "blocks.1"):
        q, k, v = np.split(linear(layer_norm(x, f"{block}.norm1", w), f"{block}.attn.qkv", w), 3, axis=1)
        mixed = []
        for head in range(heads):
            part = slice(4 * head, 4 * head + 4)
            scores = np.exp(q[:, part] @ k[:, part].T / 2.0)  # √4
            mixed.append(scores / scores.sum(1, keepdims=True) @ v[:, part])
        x = x + w[f"{block}.ls1.gamma"] * linear(np.concatenate(mixed, 1), f"{block}.attn.proj", w)
        hidden = linear(layer_norm(x, f"{block}.norm2", w), f"{block}.mlp.fc1", w)
        hidden = hidden * 0.5 * (1 + erf(hidden / np.sqrt(2)))
        x = x + w[f"{block}.ls2.gamma"] * linear(hidden, f"{block}.mlp.fc2", w)
    found = layer_norm(x, "norm", w)[1 + network.registers :]
    return np.asarray(found.T.reshape(12, 3, 3))


@pytest.mark.parametrize("registers", [0, 2])
def test_it_equals_a_loop_over_heads(registers: int) -> None:
    network = small(registers)
    image = torch.rand(1, 3, 12, 12, dtype=torch.float64) * 2 - 1
    # ImageNet's mean is stored in single precision.
    np.testing.assert_allclose(network(image)[0].detach().numpy(), by_hand(image[0].numpy(), network), atol=1e-5)


def cubic(x: float, a: float) -> float:
    """Evaluate the kernel of cubic convolution (Keys, 1981)."""
    x = abs(x)
    if x >= 2:
        return 0.0
    return (a + 2) * x**3 - (a + 3) * x**2 + 1 if x <= 1 else a * (x**3 - 5 * x**2 + 8 * x - 4)


@pytest.mark.parametrize("registers", [0, 4])
def test_positions_are_interpolated_to_the_grid_of_the_image(registers: int) -> None:
    network = small(registers, grid=9)
    with torch.no_grad():  # the position of a patch is its row, and its column
        rows, columns = torch.meshgrid(torch.arange(9.0), torch.arange(9.0), indexing="ij")
        network.pos_embed.zero_()
        network.pos_embed[0, 1:, 0], network.pos_embed[0, 1:, 1] = rows.flatten(), columns.flatten()
        found = network.positions(18, 9)[0, 1:, :2].view(18, 9, 2)
    assert torch.equal(network.positions(9, 9), network.pos_embed)
    # Of twice as many rows each is half a row high; DINOv2's offset without registers makes that 9 / 18.1. The kernel
    # with antialiasing has another constant.
    scale, sharpness = (0.5, -0.5) if registers else (9 / 18.1, -0.75)
    places = (np.arange(6, 12) + 0.5) * scale - 0.5  # where no border is in reach of the kernel
    expected = [sum(cubic(place - row, sharpness) * row for row in range(9)) for place in places]
    np.testing.assert_allclose(found[6:12, 4, 0], expected, atol=1e-4)
    assert network(torch.zeros(2, 3, 40, 20, dtype=torch.float64)).shape == (2, 12, 10, 5)
    with pytest.raises(ValueError, match="a multiple of 4 pixels, got 42 × 20"):
        network(torch.zeros(2, 3, 42, 20, dtype=torch.float64))


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_in_the_layout_of_dinov2_are_loaded(suffix: str, tmp_path: Path) -> None:
    network, file = small(4), tmp_path / f"some{suffix}"
    save = torch.save if suffix == ".pth" else save_file
    save({name.replace("register_tokens", "reg_token"): value for name, value in released(network).items()}, file)
    copy = VisionTransformer(width=12, heads=3, depth=2, patch=4, grid=3, registers=4).eval()
    load_vit(copy, file)
    image = torch.rand(1, 3, 8, 12)
    torch.testing.assert_close(copy(image), network.float()(image))
    wider = VisionTransformer(width=12, heads=3, depth=2, patch=4, grid=6, registers=4).eval()
    load_vit(wider, file)  # positions of another grid are resampled
    torch.testing.assert_close(wider(image), copy(image), atol=0.6, rtol=0.5)
    with pytest.raises(ValueError, match="register_tokens is"):
        load_vit(VisionTransformer(width=12, heads=3, depth=2, patch=4, grid=3), file)
    with pytest.raises(ValueError, match=r"has no blocks\.2\.norm1\.weight"):
        load_vit(VisionTransformer(width=12, heads=3, depth=3, patch=4, grid=3, registers=4), file)


def test_a_file_without_layer_scale_has_none(tmp_path: Path) -> None:
    network = small()
    plain = {name: value for name, value in released(network).items() if not name.endswith("gamma")}
    save_file(plain, tmp_path / "plain.safetensors")
    load_vit(network, tmp_path / "plain.safetensors")
    assert all((value == 1).all() for name, value in network.state_dict().items() if name.endswith("gamma"))


def test_backbones_are_found_by_name_and_saved(tmp_path: Path) -> None:
    parameters = {name: sum(p.numel() for p in build_vit(name, weights=None).parameters())
                  for name in ("vit_small_patch14", "vit_small_patch14_reg4")}  # fmt: skip
    # DINOv2's ViT-S/14 has 22,056,576 parameters, of which 384 are its mask token; registers add 4 × 384.
    assert parameters == {"vit_small_patch14": 22_056_192, "vit_small_patch14_reg4": 22_057_728}
    network, channels = build_backbone("vit_small_patch14", weights=None)
    assert network(torch.zeros(1, 3, 28, 42)).shape == (1, channels, 2, 3)
    encoder = ImageEncoder(backbone="vit_small_patch14", weights="saved", size=(42, 42), convolutions=[4], hidden=[4])
    save_encoder(tmp_path / "encoder.safetensors", encoder)
    frames = torch.rand(1, 1, 2, 42, 42, 3)
    found = load_encoder(tmp_path / "encoder.safetensors")
    with torch.no_grad():
        torch.testing.assert_close(found.eval()(frames), encoder.eval()(frames))
    with pytest.raises(ValueError, match="are not on PyPI: download"):
        build_backbone("vit_base_patch14", weights="published")
    with pytest.raises(ValueError, match="no transformer 'vit_tiny_patch14'"):
        build_backbone("vit_tiny_patch14", weights=None)
