from pathlib import Path

import pytest
import torch

from inphase.models.backbone import EfficientNetLite0, load_lite0, published_lite0
from inphase.storage.errors import UnverifiedWeightsWarning


@pytest.mark.parametrize("size", [(224, 224), (112, 160)])
def test_it_equals_the_network_its_weights_were_published_for(size: tuple[int, int]) -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="the network to compare with is not installed")
    theirs = package.EfficientNet.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(torch.load(published_lite0(), weights_only=True))
    ours = EfficientNetLite0().eval()
    load_lite0(ours)
    pixels = torch.randint(0, 256, (2, 3, *size), generator=torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        expected = torch.nn.functional.relu6(theirs._bn0(theirs._conv_stem((pixels - 127) / 128)))
        for block in theirs._blocks[:11]:
            expected = block(expected)
        found = ours(pixels / 127.5 - 1)
    assert found.shape == (2, 112, size[0] // 16, size[1] // 16)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert expected.std() > 0.5  # so that the tolerance means something


def test_the_weights_are_not_random() -> None:
    first, second = EfficientNetLite0(), EfficientNetLite0()
    load_lite0(first)
    load_lite0(second, published_lite0())
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_other_weights_are_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    with (
        pytest.raises(ValueError, match=r"no _conv_stem\.weight; give the weights of efficientnet-lite0"),
        pytest.warns(UnverifiedWeightsWarning, match=r"other\.pth are unverified"),
    ):
        load_lite0(EfficientNetLite0(), tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("no weights")
    with (
        pytest.raises(ValueError, match=r"text\.pth holds no weights of torch"),
        pytest.warns(UnverifiedWeightsWarning),
    ):
        load_lite0(EfficientNetLite0(), tmp_path / "text.pth")


def test_installed_weights_are_loaded_only_if_they_are_the_published_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = bytearray(published_lite0().read_bytes())
    changed[len(changed) // 2] ^= 1
    (tmp_path / "lite0.pth").write_bytes(changed)
    monkeypatch.setattr("inphase.models.backbone.published_lite0", lambda: tmp_path / "lite0.pth")
    with pytest.raises(
        ValueError, match=r"is not the published file: its SHA-256 is .*, not 57934424.*force-reinstall"
    ):
        load_lite0(EfficientNetLite0())
