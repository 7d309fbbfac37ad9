from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.align.cost import support_of
from inphase.align.matching import match, pair_cost
from inphase.models import ImageEncoder, PoseEncoder, load_encoder, save_encoder
from inphase.models.embedding import Embedding
from inphase.models.joint_encoder import JointEncoder, MotionAppearanceEncoder, has_route, join_routes
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.weights import fingerprint


@pytest.fixture(scope="module")
def encoder() -> JointEncoder:
    torch.manual_seed(0)
    return JointEncoder(
        pose=PoseEncoder(hidden=(8,), dimension=6), image=PooledFeatures(size=32, grid=1, weights=None)
    ).eval()


def units(rng: np.random.Generator, length: int, width: int) -> Embedding:
    values = rng.normal(size=(length, width)).astype(np.float32)
    return Embedding(values / np.linalg.norm(values, axis=1, keepdims=True), np.arange(length) / 30)


def test_the_cost_is_the_sum_of_the_routes_weighted_by_visible_joints(encoder: JointEncoder) -> None:
    rng = np.random.default_rng(0)
    width = encoder.routes[1].width
    images, poses = ([units(rng, length, size) for length in (9, 7)] for size in (width, 6))
    visible = np.ones((7, 4), np.bool_)
    visible[:, 0] = False
    x = encoder.join(images[0], poses[0])
    y = encoder.join(images[1], poses[1], visible=visible)
    np.testing.assert_allclose(np.linalg.norm(x.values, axis=1), 1, atol=1e-6)
    by_image, by_pose = (
        pair_cost(*(torch.from_numpy(each.values) for each in pair), beta=beta)
        for pair, beta in ((images, 0.05), (poses, 0.1))
    )
    found = match(x, y).cost_matrix
    assert found is not None
    np.testing.assert_allclose(found, by_image + 0.75 * by_pose, atol=1e-4)


def test_a_part_without_normalization_has_the_weight_of_one_with_it(encoder: JointEncoder) -> None:
    rng = np.random.default_rng(3)
    image, pose = units(rng, 6, encoder.routes[1].width), units(rng, 6, 6)
    raw = JointEncoder(pose=PoseEncoder(hidden=(8,), dimension=6, normalize=False), image=encoder.image)
    long = Embedding(3 * pose.values, pose.times)
    np.testing.assert_allclose(raw.join(image, long).values, encoder.join(image, pose).values, atol=1e-6)


def test_a_clip_without_a_person_is_aligned_by_its_images(encoder: JointEncoder) -> None:
    rng = np.random.default_rng(1)
    images = [units(rng, length, encoder.routes[1].width) for length in (8, 5)]
    x, y = encoder.join(images[0], units(rng, 8, 6)), encoder.join(images[1], None)
    assert (has_route(x, 0), has_route(y, 0)) == (True, False)
    found = match(x, y).cost_matrix
    by_image = pair_cost(*(torch.from_numpy(each.values) for each in images), beta=0.05)
    assert found is not None
    np.testing.assert_allclose(found, by_image, atol=1e-4)


def test_a_clip_in_which_nothing_moves_is_aligned_by_pose(encoder: JointEncoder) -> None:
    rng = np.random.default_rng(2)
    width = encoder.routes[1].width
    still = Embedding(np.full((5, width), width**-0.5, np.float32), np.arange(5) / 30)
    joined = encoder.join(still, units(rng, 5, 6))
    support = support_of(torch.from_numpy(joined.values)[None], joined.routes)
    np.testing.assert_allclose(support, [[1, 0]], atol=1e-6)


def test_a_joint_encoder_is_one_file(encoder: JointEncoder, tmp_path: Path) -> None:
    save_encoder(tmp_path / "both.safetensors", encoder)
    loaded = load_encoder(tmp_path / "both.safetensors")
    assert isinstance(loaded, JointEncoder)
    assert fingerprint(loaded) == fingerprint(encoder)
    assert loaded.routes == encoder.routes


def test_parts_of_the_wrong_kind_are_refused(encoder: JointEncoder) -> None:
    with pytest.raises(ValueError, match="pose must be an encoder of that modality, got one that embeds image"):
        JointEncoder(pose=encoder.image, image=encoder.image)
    with pytest.raises(ValueError, match="embed with each, then join"):
        encoder(torch.zeros(1, 1, 1, *encoder.shape))
    rng = np.random.default_rng(3)
    image, pose = units(rng, 8, encoder.routes[1].width), units(rng, 5, 6)
    with pytest.raises(ValueError, match="5 frames by pose and 8 by image"):
        encoder.join(image, pose)
    joined = encoder.join(None, pose)
    with pytest.raises(ValueError, match="embed both with one encoder"):
        match(joined, joined.values)


def test_batches_of_different_lengths_cost_what_pairs_do(encoder: JointEncoder) -> None:
    from inphase.align.matching import match_many

    rng = np.random.default_rng(5)
    clips = [encoder.join(units(rng, n, encoder.routes[1].width), units(rng, n, 6)) for n in (5, 9, 12)]
    clips.append(encoder.join(units(rng, 7, encoder.routes[1].width), None))
    pairs = [(a, b) for a in clips for b in clips]
    for one, (a, b) in zip(match_many(pairs, keep_cost=True), pairs, strict=True):
        other = match(a, b)
        assert one.cost_matrix is not None
        assert other.cost_matrix is not None
        np.testing.assert_allclose(one.cost_matrix, other.cost_matrix, atol=1e-4)
        np.testing.assert_array_equal(one.path, other.path)


def test_an_image_encoder_that_was_trained_is_a_part_too() -> None:
    image = ImageEncoder(size=(32, 32), mode="scratch", weights=None, convolutions=(8,), hidden=(8,), dimension=8)
    joint = JointEncoder(pose=PoseEncoder(), image=image)
    assert [route.beta for route in joint.routes] == [0.1, 0.1]
    assert joint.config["image"]["name"] == "image"


def test_a_part_of_two_routes_adds_both(encoder: JointEncoder) -> None:
    rng = np.random.default_rng(5)
    image = MotionAppearanceEncoder(size=(32, 32), grid=1, dimension=4, weights=None)
    joint = JointEncoder(pose=encoder.pose, image=image)
    assert [route.width for route in joint.routes] == [6, 4, image.channels]
    motion, shown, pose = units(rng, 5, 4), units(rng, 5, image.channels), units(rng, 5, 6)
    both = Embedding(join_routes([motion.values, shown.values * np.float32(0.5)], image.routes), motion.times)
    found = joint.join(both, pose)
    cost = match(found, found).cost_matrix
    assert cost is not None
    alone = ((pose, 0.1), (motion, 0.1), (shown, 0.05))
    parts = [pair_cost(*[torch.from_numpy(each.values)] * 2, beta=beta) for each, beta in alone]
    np.testing.assert_allclose(cost, parts[0] + parts[1] + parts[2] / 16, atol=1e-4)
    assert not joint.join(None, pose).values[:, 6:].any()
