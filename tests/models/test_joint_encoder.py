from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.align.cost import support_of
from inphase.align.matching import match, pair_cost
from inphase.models import ImageEncoder, PoseEncoder, load_encoder, save_encoder
from inphase.models.embedding import Embedding, embed, unit_rows
from inphase.models.joint_encoder import (
    JointEncoder,
    MotionAppearanceEncoder,
    has_route,
    join_routes,
    split_routes,
)
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.pose_encoder import FineTunedPoseEncoder, PoseArmsEncoder
from inphase.models.weights import fingerprint
from inphase.pose.pose import JOINTS13


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


def signer(frames: int = 40, *, scale: float = 1.0, shift: float = 0.0, start: int = 15) -> np.ndarray:
    """Pose a person [T, 13, 3] whose right wrist rises from frame `start` on, within ten frames."""
    body = np.zeros((frames, 13, 3), np.float32)
    body[..., 2] = 1
    still = {"left_shoulder": (30, 100), "right_shoulder": (-30, 100), "left_hip": (20, 0), "right_hip": (-20, 0)}
    still |= {"left_elbow": (40, 50), "right_elbow": (-40, 50), "left_wrist": (45, 10), "right_wrist": (-45, 10)}
    for name, place in still.items():
        body[:, JOINTS13.index(name), :2] = place
    body[:, JOINTS13.index("right_wrist"), 1] += 80 * np.clip((np.arange(frames) - start) / 10, 0, 1)
    body[..., :2] = body[..., :2] * scale + shift
    return body


def embed_arms(encoder: PoseArmsEncoder, poses: np.ndarray) -> np.ndarray:
    embedding = embed(encoder, (poses, np.arange(len(poses)) / 30))
    assert embedding.routes == encoder.routes
    return split_routes(embedding.values, embedding.routes)[1]


@pytest.fixture(scope="module")
def arms() -> PoseArmsEncoder:
    torch.manual_seed(1)
    return PoseArmsEncoder(hidden=(8,), dimension=6).eval()


def test_arms_are_the_same_at_any_size_and_place(arms: PoseArmsEncoder) -> None:
    near = embed_arms(arms, signer())
    np.testing.assert_allclose(embed_arms(arms, signer(scale=3.0, shift=500.0)), near, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(near, axis=1), 1, atol=1e-5)
    # In the middle of the rise the wrist is where it is on average, and all there is to see is its speed.
    right = 2 * ["left_elbow", "right_elbow", "left_wrist", "right_wrist"].index("right_wrist") + 1
    assert near[5, right] < -0.9
    assert near[35, right] > 0.9
    assert near[18:22, 8 + right].max() > 0.5


def test_arms_align_what_an_untrained_head_does_not(arms: PoseArmsEncoder) -> None:
    early, late = (embed(arms, (signer(start=start), np.arange(40) / 30)) for start in (8, 22))
    found = match(early, late).frame_map()
    assert np.abs(found[[8, 13, 18]] - [22, 27, 32]).max() <= 1


def test_hidden_arms_are_interpolated_and_absent_ones_do_no_harm(arms: PoseArmsEncoder) -> None:
    whole, hidden, absent = signer(), signer(), signer()
    wrist, elbow = JOINTS13.index("right_wrist"), JOINTS13.index("left_elbow")
    hidden[18:21, wrist] = np.nan, np.nan, 0
    found = embed_arms(arms, hidden)
    np.testing.assert_allclose(unit_rows(found), embed_arms(arms, whole), atol=0.02)
    np.testing.assert_allclose((found**2).sum(1), np.where(np.isin(np.arange(40), [18, 19, 20]), 0.75, 1), atol=1e-4)
    absent[:, elbow] = np.nan, np.nan, 0
    assert np.isfinite(embed_arms(arms, absent)).all()
    assert np.isfinite(embed_arms(arms, signer()[:1])).all()


def test_both_heads_of_a_fine_tuned_encoder_are_weighted_by_visible_joints(encoder: JointEncoder) -> None:
    torch.manual_seed(2)
    started = PoseEncoder(hidden=(8,), dimension=6)
    tuned = FineTunedPoseEncoder.from_encoder(started).eval()
    torch.nn.init.normal_(list(tuned.head.parameters())[-2])
    poses, times, width = signer(), np.arange(40) / 30, encoder.routes[1].width
    pose, image = embed(tuned, (poses, times)), units(np.random.default_rng(7), 40, width)
    new, before, arms = (torch.from_numpy(part) for part in split_routes(pose.values, tuned.routes))
    np.testing.assert_allclose(before, embed(started.eval(), (poses, times)).values, atol=1e-5)
    assert (new - before).abs().max() > 0.1
    joint = JointEncoder(pose=tuned, image=encoder.image)
    assert [route.width for route in joint.routes] == [6, width, 6, 16]
    found = joint.join(image, pose, visible=np.tile(np.arange(13) < 9, (40, 1)))
    cost = match(found, found).cost_matrix
    assert cost is not None
    costs = [pair_cost(each, each, beta=beta) for each, beta in ((new, 0.1), (before, 0.1), (arms, 0.05))]
    by_image = pair_cost(*[torch.from_numpy(image.values)] * 2, beta=0.05)
    np.testing.assert_allclose(cost, (9 / 13) ** 2 * (costs[0] / 4 + costs[1]) + by_image + costs[2] / 4, atol=1e-3)


def test_the_arms_come_last_in_a_joint_encoder(arms: PoseArmsEncoder, encoder: JointEncoder) -> None:
    joint = JointEncoder(pose=arms, image=encoder.image)
    width = encoder.routes[1].width
    assert [route.width for route in joint.routes] == [6, width, 16]
    rng = np.random.default_rng(6)
    image, pose = units(rng, 40, width), embed(arms, (signer(), np.arange(40) / 30))
    legs = np.arange(13) < 9
    found = joint.join(image, pose, visible=np.tile(legs, (40, 1)))
    cost = match(found, found).cost_matrix
    assert cost is not None
    head, shown = (torch.from_numpy(part) for part in split_routes(pose.values, arms.routes))
    alone = ((head, 0.1), (torch.from_numpy(image.values), 0.05), (shown, 0.05))
    # Hidden legs count against the head, which takes them, and not against the arms.
    costs = [pair_cost(each, each, beta=beta) for each, beta in alone]
    np.testing.assert_allclose(cost, (9 / 13) ** 2 * costs[0] + costs[1] + costs[2], atol=1e-3)
    shares = joint.image_columns(found.values) / image.values
    np.testing.assert_allclose(shares, np.broadcast_to(shares[:, :1], shares.shape), rtol=1e-3)


def test_arms_need_elbows_wrists_and_the_frame_itself() -> None:
    with pytest.raises(ValueError, match="arms need left_elbow, right_elbow, left_wrist, right_wrist"):
        PoseArmsEncoder(joints=("left_hip", "right_hip", "left_shoulder", "right_shoulder"))
    with pytest.raises(ValueError, match="offset 0"):
        PoseArmsEncoder(context=(-4, 4))
