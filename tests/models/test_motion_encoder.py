from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from inphase.align.matching import match, pair_cost
from inphase.media.frames import Clip
from inphase.media.sampling import context_frames
from inphase.models import MotionEncoder, embed, load_encoder, save_encoder
from inphase.models.joint_encoder import MotionAppearanceEncoder
from inphase.models.motion_encoder import PooledFeatures, TransformerEncoder
from inphase.models.weights import fingerprint


def build(**changes: object) -> MotionEncoder:
    torch.manual_seed(0)
    settings = {"context": (-2, 0, 3), "size": (32, 48), "grid": 2, "hidden": (8,), "dimension": 5}
    return MotionEncoder(**{**settings, **changes}).eval()  # type: ignore[arg-type]


def build_shown(**changes: object) -> MotionAppearanceEncoder:
    encoder = MotionAppearanceEncoder(**{**build().config, "weights": "saved", **changes})
    encoder.load_state_dict(build().state_dict(), strict=False)  # the weight of appearance is its own
    return encoder.eval()


def film(count: int = 11) -> Clip:
    frames = np.random.default_rng(0).integers(0, 256, (count, 32, 48, 3), dtype=np.uint8)
    return Clip(frames, np.arange(count) / 25)


def test_vectors_are_of_the_differences_between_the_cells_of_context_frames() -> None:
    encoder, clip = build(), film()
    found = embed(encoder, clip).values
    with torch.no_grad():
        maps = encoder.backbone(encoder.prepare(torch.from_numpy(clip.frames)).movedim(-1, 1))  # [T, 112, 2, 3]
        for frame, context in enumerate(context_frames(np.arange(11), length=11, context=encoder.context)):
            seen = []
            for before, after in pairwise(context):
                change = maps[after] - maps[before]
                # Two cells over three columns: the middle one belongs to both.
                seen.append(torch.stack([change[:, :, :2].mean(-1), change[:, :, 1:].mean(-1)], -1))
            truth = F.normalize(encoder.head(torch.cat([part.flatten() for part in seen])[None]), dim=-1)
            np.testing.assert_allclose(found[frame], truth[0], atol=1e-5)


def test_what_stands_still_changes_nothing_and_what_moves_does() -> None:
    encoder = build()
    features = torch.randn(4, 3, 112, 2, 2, generator=torch.Generator().manual_seed(1))
    still = torch.randn(4, 1, 112, 2, 2, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found = encoder.combine(features)
        torch.testing.assert_close(encoder.combine(features + still), found, atol=1e-5, rtol=0)
        assert (encoder.combine(features.flip(1)) - found).abs().max() > 1e-2
        assert (encoder.combine(features.flip(-1)) - found).abs().max() > 1e-2


def test_the_batch_changes_nothing() -> None:
    encoder, clip = build(), film()
    found = [embed(encoder, clip, batch=batch).values for batch in (1, 4, 64)]
    np.testing.assert_allclose(found[1], found[0], atol=3e-5)
    np.testing.assert_allclose(found[2], found[0], atol=3e-5)
    assert np.ptp(found[0], axis=0).max() > 1e-3


def test_the_head_alone_trains_and_the_backbone_keeps_its_statistics() -> None:
    encoder = build(dropout=0.5).train()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    optimizer = torch.optim.SGD([weight for weight in encoder.parameters() if weight.requires_grad], lr=1.0)
    shown = torch.rand(2, 3, 3, 32, 48, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    encoder(shown).mul(torch.arange(5.0)).sum().backward()
    optimizer.step()
    changed = {name for name, value in encoder.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.startswith("head.")}


def test_heat_is_where_the_first_layer_sees_motion() -> None:
    encoder = build()
    features = torch.zeros(1, 3, 112, 2, 2)
    features[0, 2, :, 1, 0] = 1
    with torch.no_grad():
        heat: Tensor = encoder.heat_maps(features)
    assert heat.shape == (1, 3, 2, 2)
    assert (heat[0, 1] > 0).tolist() == [[False, False], [True, False]]


def test_what_is_kept_of_one_grid_is_not_found_by_another() -> None:
    kept = fingerprint(build(), head=False)
    assert fingerprint(build(hidden=(4,)), head=False) == kept
    assert fingerprint(build(grid=1), head=False) != kept


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs at least two context frames, got \(0,\)"):
        build(context=(0,))
    with pytest.raises(ValueError, match="grid must be at least 1"):
        build(grid=0)
    with pytest.raises(ValueError, match=r"got \(8, 8\)"):
        build(size=(8, 8))
    with pytest.raises(ValueError, match="takes 3 context frames, got 2"):
        build().combine(torch.zeros(1, 2, 112, 2, 2))


def test_pooled_features_are_saved_and_loaded(tmp_path: Path) -> None:
    encoder = PooledFeatures(size=64, grid=2, weights=None)
    save_encoder(tmp_path / "pooled.safetensors", encoder)
    loaded = load_encoder(tmp_path / "pooled.safetensors")
    assert isinstance(loaded, PooledFeatures)
    assert (loaded.shape, fingerprint(loaded)) == (encoder.shape, fingerprint(encoder))


def build_transformer(**changes: object) -> TransformerEncoder:
    torch.manual_seed(0)
    settings = {"context": (-2, 0, 3), "size": (32, 48), "grid": 2, "width": 32, "heads": 4, "layers": 2}
    return TransformerEncoder(**{**settings, "dimension": 5, **changes}).eval()  # type: ignore[arg-type]


def test_a_transformer_attends_to_the_context_in_its_order(tmp_path: Path) -> None:
    encoder, clip = build_transformer(), film()
    found = embed(encoder, clip).values
    assert found.shape == (11, 5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(embed(encoder, clip, batch=4).values, found, atol=3e-5)
    features = torch.randn(4, 3, 112, 2, 2, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        here = encoder.combine(features)
        swapped = encoder.combine(features[:, [2, 1, 0]])  # the frame itself stays in the middle
        assert (here - swapped).abs().max() > 1e-3
        encoder.get_buffer(
            "places"
        ).zero_()  # without the code of their places, the order of the others does not matter
        torch.testing.assert_close(encoder.combine(features), encoder.combine(features[:, [2, 1, 0]]))
    save_encoder(tmp_path / "encoder.safetensors", build_transformer())
    np.testing.assert_allclose(embed(load_encoder(tmp_path), clip).values, found, atol=1e-6)


def test_a_transformer_trains_its_head_alone_and_needs_the_frame_itself() -> None:
    encoder = build_transformer().train()
    encoder(torch.rand(2, 3, 3, 32, 48, 3) * 2 - 1).mul(torch.arange(5.0)).sum().backward()
    assert all((weight.grad is not None) == name.startswith("head.") for name, weight in encoder.named_parameters())
    with pytest.raises(ValueError, match="offset 0"):
        build_transformer(context=(-2, 3))
    with pytest.raises(ValueError, match="multiple of twice the heads"):
        build_transformer(width=20, heads=8)


def test_appearance_is_a_second_route_of_the_frames_own_features() -> None:
    clip, plain = film(), build()
    encoder = build_shown()
    found, motion = embed(encoder, clip), embed(plain, clip)
    assert [tuple(route) for route in found.routes] == [(5, 0.1), (112 * 4, 0.05)]
    np.testing.assert_allclose(np.linalg.norm(found.values, axis=1), 1, atol=1e-5)
    with torch.no_grad():
        shown = encoder.features(encoder.prepare(torch.from_numpy(clip.frames))).flatten(1).numpy()
    rest = shown - shown.mean(0)
    rest /= np.linalg.norm(rest, axis=1, keepdims=True)
    # A share of the squared length is support / β; the weight of a pair is the product of both sides' support.
    shares = np.array([1 / 0.1, np.sqrt(0.5) / 0.05])
    for part, vectors, share in zip(np.split(found.values, [5], axis=1), (motion.values, rest), shares, strict=True):
        np.testing.assert_allclose(part, vectors * np.sqrt(share / shares.sum()), atol=1e-5)
    cost = match(found, found).cost_matrix
    assert cost is not None
    parts = [pair_cost(*[torch.from_numpy(part)] * 2, beta=beta) for part, beta in ((motion.values, 0.1), (rest, 0.05))]
    np.testing.assert_allclose(cost, parts[0] + parts[1] / 2, atol=1e-4)


def test_appearance_is_not_trained_and_is_kept_in_the_file(tmp_path: Path) -> None:
    encoder = build_shown()
    assert encoder(torch.zeros(1, 2, 3, 32, 48, 3)).shape == (1, 2, 5)
    save_encoder(tmp_path / "encoder.safetensors", encoder)
    loaded = load_encoder(tmp_path / "encoder.safetensors")
    assert loaded.routes == encoder.routes
    heavier = build_shown()
    heavier.get_buffer("appearance").fill_(1.0)
    assert fingerprint(heavier) != fingerprint(loaded), "embeddings of another weight must not come from the cache"
    assert fingerprint(loaded) != fingerprint(build())
    for wrong in ({"context": (-1, 1)}, {"normalize": False}):
        with pytest.raises(ValueError, match="appearance needs"):
            build_shown(**wrong)
