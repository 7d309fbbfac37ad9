import numpy as np
import pytest
import torch
from torch import Tensor, nn

from inphase.data.batches import apply_image_augmentation
from inphase.media.frames import Clip
from inphase.media.sampling import Context
from inphase.models.embedding import embed
from inphase.models.image_encoder import Embedder, ImageEncoder, Mode

pytestmark = pytest.mark.slow

NORM_BIASES = ("convolutions.1.bias", "convolutions.4.bias")
MODES: tuple[Mode, ...] = ("scratch", "train_all", "only_bn", "frozen")


def build(mode: Mode = "frozen", backbone: str = "efficientnet_lite0") -> ImageEncoder:
    torch.manual_seed(0)
    weights = None if mode == "scratch" else "saved"
    return ImageEncoder(
        backbone=backbone, mode=mode, weights=weights, size=(32, 48), convolutions=(8,), hidden=(8,), dimension=5
    )


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, 32, 48, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1


def train_a_step(encoder: ImageEncoder) -> None:
    encoder.train()
    optimizer = torch.optim.SGD([weight for weight in encoder.parameters() if weight.requires_grad], lr=1.0)
    encoder(images(1, 2, 2)).mul(torch.arange(5.0)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("mode", MODES)
def test_a_step_changes_what_the_mode_says_and_nothing_else(mode: Mode) -> None:
    encoder = build(mode, "resnet50v2")
    before = {name: value.clone() for name, value in encoder.backbone.state_dict().items()}
    train_a_step(encoder)
    changed = {name for name, value in encoder.backbone.state_dict().items() if not torch.equal(value, before[name])}
    statistics = {name for name in before if "running" in name or "num_batches" in name}
    norms = {name for name in before if "bn" in name} - statistics
    expected = {"frozen": set(), "only_bn": norms | statistics}.get(mode, set(before))
    assert changed == expected


def test_the_paper_s_network_trains_as_many_parameters_as_the_released_one() -> None:
    with torch.device("meta"):
        counts = {
            mode: sum(weight.numel() for weight in encoder.parameters() if weight.requires_grad)
            for mode in MODES
            for encoder in [
                ImageEncoder(backbone="resnet50v2", mode=mode, weights=None if mode == "scratch" else "saved")
            ]
        }
    head, whole = 21_827_712, 5_193_856
    assert counts == {"scratch": head + whole, "train_all": head + whole, "only_bn": head + 15_744, "frozen": head}


@pytest.mark.parametrize("mode", MODES)
def test_batch_statistics_are_used_in_training_unless_frozen(mode: Mode) -> None:
    encoder, shown = build(mode, "resnet50v2").train(), images(4)
    with torch.no_grad():
        alone, together = encoder.features(shown[:1]), encoder.features(shown)[:1]
    assert torch.allclose(alone, together, atol=1e-4) == (mode == "frozen")
    assert not encoder.eval().backbone.training
    assert encoder.train().head.training


def test_the_regularizer_is_the_mean_of_the_head_s_kernels_and_biases() -> None:
    encoder = build()
    encoder.head = Embedder(6, convolutions=(8, 8), hidden=(8, 8))
    for part in encoder.head.modules():
        if isinstance(part, nn.BatchNorm3d):
            nn.init.constant_(part.weight, 1e6)
    state = {name: value for name, value in encoder.head.state_dict().items() if value.ndim > 1 or "bias" in name}
    terms = [float(value.square().sum()) for name, value in state.items() if name not in NORM_BIASES]
    assert len(terms) == 10
    assert float(encoder.regularizer().detach()) == pytest.approx(1e-5 * sum(terms) / 10, rel=1e-5)


def test_the_whole_is_its_two_steps_and_a_frozen_backbone_s_features_can_be_kept() -> None:
    encoder, shown = build().eval(), images(2, 3, 2)
    found = encoder(shown)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(2, 3))
    kept = encoder.features(shown.flatten(0, 2))
    assert not kept.requires_grad
    again = encoder.embed_features(kept.view(2, 3, 2, *kept.shape[1:]))
    torch.testing.assert_close(again, found)
    assert again.requires_grad
    heat = encoder.heat_maps(kept.view(6, 2, *kept.shape[1:]))
    assert heat.shape == (6, 2, 2, 3)
    assert heat.std() > 0


def test_a_clip_is_seen_as_training_sees_it_whatever_the_batch() -> None:
    encoder = build()
    frames = np.random.default_rng(0).integers(0, 256, (11, 32, 48, 3), dtype=np.uint8)
    assert torch.equal(encoder.prepare(torch.from_numpy(frames)), apply_image_augmentation(frames))
    clip = Clip(frames, np.arange(11) / 25)
    found = [embed(encoder, clip, context=Context(), batch=batch).values for batch in (1, 4, 64)]
    # Some processors sum in another order for another batch: a few units of the last digit.
    np.testing.assert_allclose(found[1], found[0], atol=5e-6)
    np.testing.assert_allclose(found[2], found[0], atol=5e-6)
    assert np.ptp(found[0], axis=0).max() > 1e-3


def test_vectors_have_length_one_in_half_precision_too() -> None:
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        found = build().eval()(images(1, 3, 2))
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(1, 3))


def test_the_published_weights_are_the_default() -> None:
    stem = ImageEncoder(convolutions=(4,), hidden=()).backbone.state_dict()["stem_norm.running_mean"]
    assert stem.abs().max() > 0.1


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mode='scratch' does not fit weights='some\.h5'"):
        ImageEncoder(mode="scratch", weights="some.h5")
    assert ImageEncoder(mode="scratch", size=(32, 32), convolutions=[4]).config["weights"] is None
    with pytest.raises(ValueError, match="name the source of its weights"):
        ImageEncoder(mode="only_bn", weights=None)
    with pytest.raises(ValueError, match="mode must be one of"):
        ImageEncoder(mode="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"got \(8, 8\)"):
        ImageEncoder(size=(8, 8))
