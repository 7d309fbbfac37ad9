from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from inphase.media.audio import Sound, log_mel_windows
from inphase.media.sampling import Context
from inphase.models.audio_encoder import AudioEncoder, load_vggish
from inphase.models.embedding import embed
from inphase.models.weights import load_encoder, save_encoder
from inphase.storage.errors import UnverifiedWeightsWarning


def build() -> AudioEncoder:
    torch.manual_seed(0)
    return AudioEncoder(hidden=(32, 16)).eval()


def test_it_has_vggish_s_parameters() -> None:
    with torch.device("meta"):
        assert sum(weight.numel() for weight in AudioEncoder().parameters()) == 72_141_184


def test_sounds_become_unit_vectors() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 16000 * 4).astype(np.float32)
    patches = log_mel_windows(Sound(noise, 16000), np.linspace(0, 2.88, 4))
    found = embed(build(), (patches, np.linspace(0, 2.88, 4)), context=Context((-1, 0)))
    assert found.values.shape == (4, 128)
    np.testing.assert_allclose(np.linalg.norm(found.values, axis=-1), 1, atol=1e-6)
    assert np.ptp(found.values, axis=0).max() > 1e-4


def test_weights_are_loaded_by_key_and_laid_out_as_vggish_has_them() -> None:
    encoder, source = build(), torch.Generator().manual_seed(3)
    layers = [(0, 1, 64), (3, 64, 128), (6, 128, 256), (8, 256, 256), (11, 256, 512), (13, 512, 512)]
    weights = {f"features.{place}.weight": torch.zeros(after, before, 3, 3) for place, before, after in layers}
    weights |= {f"features.{place}.bias": torch.rand(after, generator=source) for place, _, after in layers}
    for place, (before, after) in {0: (12288, 32), 2: (32, 16), 4: (16, 128)}.items():
        weights[f"embeddings.{place}.weight"] = torch.randn(after, before, generator=source) / before**0.5
        weights[f"embeddings.{place}.bias"] = torch.rand(after, generator=source)
    load_vggish(encoder, weights)
    # Convolutions of nothing but biases give each channel its bias; flattened, the channel runs fastest.
    values = weights["features.13.bias"].repeat(6 * 4)
    for place in (0, 2, 4):
        values = weights[f"embeddings.{place}.weight"] @ values + weights[f"embeddings.{place}.bias"]
        values = values.relu() if place < 4 else values
    with torch.no_grad():
        found = encoder(torch.rand(1, 1, 1, 96, 64, generator=source))[0, 0]
    torch.testing.assert_close(found, values / values.norm())
    with pytest.raises(ValueError, match=r"embeddings\.0\.weight is \[32, 12288\], this encoder has \[8, 12288\]"):
        load_vggish(AudioEncoder(hidden=(8, 8)), weights)
    with pytest.raises(ValueError, match=r"no features\.0\.weight"):
        load_vggish(encoder, {"conv1": torch.zeros(1)})


def test_a_narrow_one_is_built_again_from_its_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = AudioEncoder(convolutions=[[2], [3, 4]], norm=True, hidden=(8,), dimension=5)
    patches = torch.randn(1, 3, 1, 96, 64)
    encoder(patches)  # moves the running statistics of the norms
    save_encoder(tmp_path / "ears.safetensors", encoder)
    again = load_encoder(tmp_path / "ears.safetensors")
    with torch.no_grad():
        torch.testing.assert_close(again(patches), encoder.eval()(patches))
    assert again(patches).shape == (1, 3, 5)
    assert encoder.features(patches[0, :, 0]).shape == (3, 4, 24, 16)
    for wrong in ([], [[8], []], [[0]], [[4]] * 6):
        with pytest.raises(ValueError, match="convolutions must be 1 to 5 groups of channels"):
            AudioEncoder(convolutions=wrong)


def test_vggish_s_weights_are_read_from_a_file(tmp_path: Path) -> None:
    source = build()
    names = {"features": source.convolutions, "embeddings": source.head}
    weights = {f"{group}.{name}": value for group, part in names.items() for name, value in part.state_dict().items()}
    save_file(weights, tmp_path / "vggish.safetensors")
    with pytest.warns(UnverifiedWeightsWarning, match=r"vggish\.safetensors are unverified"):
        loaded = AudioEncoder(hidden=(32, 16), weights=str(tmp_path / "vggish.safetensors"))
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), source.parameters(), strict=True))
    assert loaded.config["weights"] is None, "what was saved later does not need that file"


def test_another_spectrogram_is_refused() -> None:
    with pytest.raises(ValueError, match=r"audio frames of shape \(96, 64\), got \(96, 128\)"):
        build()(torch.zeros(1, 1, 1, 96, 128))
