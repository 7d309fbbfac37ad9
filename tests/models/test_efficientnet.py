from pathlib import Path

import pytest
import torch

from inphase.models.backbone import EfficientNetLite0, load_lite0, published_lite0


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
    with pytest.raises(ValueError, match=r"no _conv_stem\.weight; give the weights of efficientnet-lite0"):
        load_lite0(EfficientNetLite0(), tmp_path / "other.pth")
