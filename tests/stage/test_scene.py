"""Rendered images match the ground truth, and the performer stands out from the background."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.pose.pose import place_camera
from inphase.stage import ACTIONS, LEVELS
from inphase.stage.figure import CAPSULE
from inphase.stage.raster_numba import OCCLUSION_MARGIN, mark_visible
from inphase.stage.scene import moving_solids, render, static_solids, visible_joints
from inphase.stage.take import UP, Slate, Take, sample_take

pytestmark = pytest.mark.slow


def takes(level: str, count: int = 1) -> Iterator[Take]:
    for action in ACTIONS:
        for index in range(count):
            yield sample_take(Slate(action, "val", index, level=level))


def at_joints(take: Take, images: NDArray[np.float64]) -> NDArray[np.float64]:
    size = images.shape[1]
    x, y = np.moveaxis(np.clip((take.keypoints * size).astype(int), 0, size - 1), -1, 0)
    return np.asarray(images[np.arange(len(images))[:, None], y, x])


@pytest.mark.parametrize("level", LEVELS)
def test_every_visible_joint_is_drawn_where_it_is_and_stands_out(level: str) -> None:
    for take in takes(level):
        seen = visible_joints(take)
        difference = render(take).frames.astype(float) - render(take, performer=False).frames
        contrast = at_joints(take, np.linalg.norm(difference, axis=-1) / 255)[seen]
        assert (contrast > 0.03).mean() > 0.97, take.slate.id
        assert np.median(contrast) > 0.2, take.slate.id


def test_the_performer_stays_in_the_image() -> None:
    for take in takes("hard", count=3):
        inside = ((take.keypoints > 0) & (take.keypoints < 1)).all(-1)
        assert inside.mean() > 0.99, take.slate.id


def test_keypoints_move_with_the_camera() -> None:
    take = sample_take(Slate("kick", "train", 3, level="plain"))
    still, moved = (replace(take, shake=np.full((len(take.progress), 2), shift)) for shift in (0.0, 0.03))
    np.testing.assert_allclose((moved.keypoints - still.keypoints) * 100, 3.0, atol=1e-9)
    images = [render(one, size=100).frames.astype(float) for one in (still, moved)]
    # Three pixels to the right and down, all of it: performer, shadows and background.
    assert np.abs(images[1][:, 3:, 3:] - images[0][:, :-3, :-3]).mean() < 3
    assert np.abs(images[1] - images[0]).mean() > 4


def test_a_larger_image_shows_the_same_scene() -> None:
    take = sample_take(Slate("kick", "train", 3, level="plain"))
    small, large = render(take, size=48).frames, render(take, size=144).frames
    halved = large.reshape(len(large), 48, 3, 48, 3, 3).mean((2, 4))
    assert np.abs(halved - small).mean() < 4


def test_images_come_at_30_fps() -> None:
    take = sample_take(Slate("squat", "train", 0))
    clip = render(take, size=16)
    assert clip.frames.shape == (len(take.progress), 16, 16, 3)
    np.testing.assert_allclose(np.diff(clip.times), 1 / 30)


def test_an_image_needs_8_pixels() -> None:
    with pytest.raises(ValueError, match="at least 8 pixels per side, got 4"):
        render(sample_take(Slate("squat", "train", 0)), size=4)


def test_visibility_against_points_along_the_ray() -> None:
    for take in takes("hard"):
        solids = static_solids(take).join(moving_solids(take))
        kinds = np.array(solids.kinds)
        rods = solids.world[:, kinds == CAPSULE]
        frame = len(take.progress) // 2
        seen = np.empty((1, 17), np.bool_)
        joints = take.posture.joints[frame]
        eye = take.camera.position
        mark_visible(seen, eye, joints[None], np.zeros(rods.shape[1], np.int64), rods[frame, None])
        for j, joint in enumerate(joints):
            distance = np.linalg.norm(joint - eye)
            walk = eye + np.linspace(0, 1 - OCCLUSION_MARGIN / distance, 1000)[:, None] * (joint - eye)
            depth = min(_clearance(walk, rod) for rod in rods[frame])
            if abs(depth) > 2e-3:
                # The nearest approach must be before OCCLUSION_MARGIN, so a rod that begins there may differ by its
                # radius.
                end = min(_clearance(walk[-1:], rod) for rod in rods[frame])
                assert bool(seen[0, j]) == (depth > 0) or end < 0, f"{take.slate.id} joint {j}"


def _clearance(points: NDArray[np.float64], rod: NDArray[np.float64]) -> float:
    """Measure how far points stay from a tapered rod."""
    axis = rod[1] - rod[0]
    t = np.clip((points - rod[0]) @ axis / max(axis @ axis, 1e-12), 0, 1)
    radius = rod[2, 0] + t * (rod[2, 1] - rod[2, 0])
    return float((np.linalg.norm(points - rod[0] - t[:, None] * axis, axis=-1) - radius).min())


def test_from_the_right_the_left_hip_is_hidden_and_the_right_one_seen() -> None:
    take = sample_take(Slate("squat", "train", 0, level="plain"))
    middle = take.posture.joints[:, 0].mean(0)
    side = place_camera(middle + np.array([0.0, -6.0, 0.2]), middle, up=UP, focal=1.5)
    seen = visible_joints(replace(take, camera=side))
    assert not seen[:, 11].any()
    assert seen[:, 12].mean() > 0.5
