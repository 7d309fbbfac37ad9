import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inphase.data.batches import (
    ImageAugmentation,
    PoseAugmentation,
    apply_image_augmentation,
    apply_pose_augmentation,
    sample_image_augmentation,
    sample_pose_augmentation,
)
from inphase.pose.pose import JOINTS13

LOOKS = st.builds(ImageAugmentation, st.booleans(), st.floats(-0.2, 0.2), st.floats(0.5, 1.5))


def images(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size=(*shape, 3), dtype=np.uint8)


def poses(length: int = 5, *, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    points = rng.uniform(20, 200, size=(length, 13, 2))
    return np.concatenate([points, rng.random((length, 13, 1)) < 0.8], axis=-1).astype(np.float32)


def slowly(frames: np.ndarray, look: ImageAugmentation) -> np.ndarray:
    """Change one pixel after the other, as the protocol words it."""
    out = np.zeros(frames.shape)
    length, height, width, _ = frames.shape
    for t in range(length):
        for channel in range(3):
            plane = np.zeros((height, width))
            for i in range(height):
                for j in range(width):
                    plane[i, j] = frames[t, i, width - 1 - j if look.flip else j, channel] / 255 + look.brightness
            mean = plane.sum() / (height * width)
            for i in range(height):
                for j in range(width):
                    value = (plane[i, j] - mean) * look.contrast + mean
                    out[t, i, j, channel] = (min(max(value, 0), 1) - 0.5) / 0.5
    return out


@given(LOOKS)
def test_images_change_as_the_released_code_changes_them(look: ImageAugmentation) -> None:
    frames = images(2, 3, 4)
    assert np.allclose(apply_image_augmentation(frames, augmentation=look).numpy(), slowly(frames, look), atol=1e-5)


def test_brightness_comes_before_contrast_and_nothing_is_clipped_between() -> None:
    frames = np.array([[[[255, 255, 255], [0, 0, 0]]]], dtype=np.uint8)
    out = apply_image_augmentation(frames, augmentation=ImageAugmentation(brightness=0.5, contrast=0.5))
    # 1.5 and .5, mean 1, halved about it: 1.25 (clipped to 1) and .75.
    assert out[0, 0, :, 0].tolist() == [1.0, 0.5]


def test_without_augmentation_images_only_change_their_range() -> None:
    frames = images(2, 4, 4)
    out = apply_image_augmentation(frames)
    assert out.dtype == torch.float32
    assert torch.allclose(out, torch.from_numpy(frames).float() / 127.5 - 1, atol=1e-6)


def test_numpy_and_torch_agree_and_the_input_stays() -> None:
    frames = images(2, 5, 4)
    kept = frames.copy()
    look = ImageAugmentation(flip=True, brightness=0.1, contrast=1.3)
    assert torch.equal(
        apply_image_augmentation(frames, augmentation=look),
        apply_image_augmentation(torch.from_numpy(frames), augmentation=look),
    )
    assert np.array_equal(frames, kept)
    with pytest.raises(ValueError, match=r"\[2, 5, 4, 3\] torch.float64"):
        apply_image_augmentation(torch.zeros(2, 5, 4, 3, dtype=torch.float64))


def test_frames_share_one_augmentation() -> None:
    one = images(1, 6, 6)
    out = apply_image_augmentation(
        np.repeat(one, 3, axis=0), augmentation=sample_image_augmentation(rng=np.random.default_rng(3))
    )
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], out[2])


def test_augmentations_are_sampled_from_the_published_ranges() -> None:
    rng = np.random.default_rng(0)
    looks = [sample_image_augmentation(rng=rng) for _ in range(4000)]
    assert np.mean([look.flip for look in looks]) == pytest.approx(0.5, abs=0.04)
    brightness, contrast = (np.array([getattr(look, name) for look in looks]) for name in ("brightness", "contrast"))
    assert np.abs(brightness).max() <= 32 / 255
    assert brightness.std() == pytest.approx(64 / 255 / math.sqrt(12), rel=0.05)
    assert (contrast.min(), contrast.max()) == (pytest.approx(0.5, abs=0.01), pytest.approx(1.5, abs=0.01))


def test_a_flipped_pose_swaps_left_and_right_and_keeps_its_visibility() -> None:
    before = poses()
    after = apply_pose_augmentation(before, augmentation=PoseAugmentation(flip=True), joints=JOINTS13, width=240)
    left, right = JOINTS13.index("left_knee"), JOINTS13.index("right_knee")
    assert np.allclose(after[:, left, 0], 239 - before[:, right, 0])
    assert np.allclose(after[:, left, 1:], before[:, right, 1:])
    assert np.allclose(after[:, 0, 0], 239 - before[:, 0, 0])
    again = apply_pose_augmentation(after, augmentation=PoseAugmentation(flip=True), joints=JOINTS13, width=240)
    assert np.allclose(again, before, atol=1e-4)


@given(st.floats(0.5, 2), st.floats(-3, 3))
def test_scale_and_rotation_are_one_similarity_of_the_whole_video(scale: float, rotation: float) -> None:
    before = poses()
    after = apply_pose_augmentation(
        before, augmentation=PoseAugmentation(scale=scale, rotation=rotation), joints=JOINTS13, width=240
    )
    flat = [moved[..., :2].reshape(-1, 2) for moved in (before, after)]
    apart = [np.linalg.norm(points[:, None] - points, axis=-1) for points in flat]
    assert np.allclose(apart[1], scale * apart[0], rtol=1e-3, atol=1e-2)
    arms = [points[1] - points[0] for points in flat]
    turned = math.atan2(arms[1][1], arms[1][0]) - math.atan2(arms[0][1], arms[0][0])
    assert math.cos(turned - rotation) == pytest.approx(1, abs=1e-4)


def test_jitter_is_as_large_as_asked_and_repeatable() -> None:
    before = poses(200)
    augmentation = PoseAugmentation(jitter=0.01, seed=5)
    after, again = (
        apply_pose_augmentation(before, augmentation=augmentation, joints=JOINTS13, width=240) for _ in range(2)
    )
    assert np.array_equal(after, again)
    assert (after - before)[..., :2].std() == pytest.approx(0.01 * 180, rel=0.05)
    assert np.array_equal(after[..., 2], before[..., 2])


def test_an_augmentation_is_sampled_once_and_none_is_none() -> None:
    before = poses()
    assert np.array_equal(
        apply_pose_augmentation(before, augmentation=PoseAugmentation(), joints=JOINTS13, width=240), before
    )
    rng = np.random.default_rng(0)
    drawn = [sample_pose_augmentation(rng=rng, scale=0.2, rotation=0.1) for _ in range(2000)]
    assert np.mean([augmentation.flip for augmentation in drawn]) == pytest.approx(0.5, abs=0.05)
    assert max(abs(augmentation.rotation) for augmentation in drawn) <= 0.1
    assert {augmentation.scale for augmentation in (sample_pose_augmentation(rng=rng) for _ in range(5))} == {1.0}
    with pytest.raises(ValueError, match=r"\[T, 13, 3\]"):
        apply_pose_augmentation(before[..., :2], augmentation=PoseAugmentation(), joints=JOINTS13, width=240)


def test_a_video_in_which_nobody_is_seen_is_left_alone() -> None:
    hidden = poses() * np.array([1, 1, 0], dtype=np.float32)
    out = apply_pose_augmentation(
        hidden, augmentation=PoseAugmentation(scale=2.0, jitter=0.1), joints=JOINTS13, width=240
    )
    assert np.array_equal(out, hidden)
