"""What is filmed is where the truth says it is, and can be told from what is behind."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.data.stage import ACTIONS, LEVELS
from inphase.data.stage.camera import UP
from inphase.data.stage.figure import CAPSULE, Solids
from inphase.data.stage.film import shoot, visible
from inphase.data.stage.scene import cast, furnish
from inphase.data.stage.sight_numba import OWN, see
from inphase.data.stage.take import Slate, Take, draw_take
from inphase.pose.camera import place_camera


def takes(level: str, count: int = 1) -> Iterator[Take]:
    for action in ACTIONS:
        for index in range(count):
            yield draw_take(Slate(action, "val", index, level=level))


def at_joints(take: Take, pictures: NDArray[np.float64]) -> NDArray[np.float64]:
    size = pictures.shape[1]
    x, y = np.moveaxis(np.clip((take.pixels * size).astype(int), 0, size - 1), -1, 0)
    return np.asarray(pictures[np.arange(len(pictures))[:, None], y, x])


@pytest.mark.parametrize("level", LEVELS)
def test_every_visible_joint_is_drawn_where_it_is_and_stands_out(level: str) -> None:
    for take in takes(level):
        seen = visible(take)
        difference = shoot(take).frames.astype(float) - shoot(take, performer=False).frames
        contrast = at_joints(take, np.linalg.norm(difference, axis=-1) / 255)[seen]
        assert (contrast > 0.03).mean() > 0.97, take.slate.id
        assert np.median(contrast) > 0.2, take.slate.id


def test_the_performer_stays_in_the_picture() -> None:
    for take in takes("hard", count=3):
        inside = ((take.pixels > 0) & (take.pixels < 1)).all(-1)
        assert inside.mean() > 0.99, take.slate.id


def test_the_truth_moves_with_the_camera() -> None:
    take = draw_take(Slate("kick", "train", 3, level="plain"))
    still, moved = (replace(take, shake=np.full((len(take.progress), 2), shift)) for shift in (0.0, 0.03))
    np.testing.assert_allclose((moved.pixels - still.pixels) * 100, 3.0, atol=1e-9)
    pictures = [shoot(one, size=100).frames.astype(float) for one in (still, moved)]
    # Three pixels to the right and down, all of it: performer, shadows and background.
    assert np.abs(pictures[1][:, 3:, 3:] - pictures[0][:, :-3, :-3]).mean() < 3
    assert np.abs(pictures[1] - pictures[0]).mean() > 4


def test_a_larger_picture_shows_the_same() -> None:
    take = draw_take(Slate("kick", "train", 3, level="plain"))
    small, large = shoot(take, size=48).frames, shoot(take, size=144).frames
    halved = large.reshape(len(large), 48, 3, 48, 3, 3).mean((2, 4))
    assert np.abs(halved - small).mean() < 4


def test_pictures_are_on_the_clock() -> None:
    take = draw_take(Slate("squat", "train", 0))
    clip = shoot(take, size=16)
    assert clip.frames.shape == (len(take.progress), 16, 16, 3)
    np.testing.assert_allclose(np.diff(clip.times), 1 / 30)


def test_a_picture_must_have_pixels() -> None:
    with pytest.raises(ValueError, match="at least 8 pixels a side, got 4"):
        shoot(draw_take(Slate("squat", "train", 0)), size=4)


def sight(joint: list[float], start: list[float], end: list[float], radius: float) -> bool:
    solids = Solids()
    solids.capsule(np.array([start]), np.array([end]), radius, radius, np.ones(3))
    seen = np.empty((1, 1), np.bool_)
    see(seen, np.array([5.0, 0.0, 1.0]), np.array([[joint]]), np.array(solids.kinds), solids.world)
    return bool(seen[0, 0])


def test_a_joint_is_hidden_by_what_is_before_it_only() -> None:
    joint = [0.0, 0.0, 1.0]
    assert not sight(joint, [1.0, -1.0, 1.0], [1.0, 1.0, 1.0], 0.05)  # a bar across the view
    assert sight(joint, [-1.0, -1.0, 1.0], [-1.0, 1.0, 1.0], 0.05)  # behind
    assert sight(joint, [1.0, -1.0, 1.1], [1.0, 1.0, 1.1], 0.05)  # above
    assert sight(joint, [0.0, 0.0, 0.5], [0.0, 0.0, 1.5], 0.1)  # its own limb
    assert not sight(joint, [1.0, 0.0, 1.0], [1.0, 0.0, 1.0], 0.05)  # a ball


def test_visibility_against_points_along_the_ray() -> None:
    for take in takes("hard"):
        solids = furnish(take).join(cast(take))
        kinds = np.array(solids.kinds)
        rods = solids.world[:, kinds == CAPSULE]
        frame = len(take.progress) // 2
        seen = np.empty((1, 17), np.bool_)
        joints = take.posture.joints[frame]
        eye = take.camera.position
        see(seen, eye, joints[None], np.zeros(rods.shape[1], np.int64), rods[frame, None])
        for j, joint in enumerate(joints):
            distance = np.linalg.norm(joint - eye)
            walk = eye + np.linspace(0, 1 - OWN / distance, 4000)[:, None] * (joint - eye)
            depth = min(_clearance(walk, rod) for rod in rods[frame])
            if abs(depth) > 2e-3:
                # The nearest approach must be before OWN, so a rod that only begins there may differ by its radius.
                end = min(_clearance(walk[-1:], rod) for rod in rods[frame])
                assert bool(seen[0, j]) == (depth > 0) or end < 0, f"{take.slate.id} joint {j}"


def _clearance(points: NDArray[np.float64], rod: NDArray[np.float64]) -> float:
    """Measure how far points stay from a tapered rod."""
    axis = rod[1] - rod[0]
    t = np.clip((points - rod[0]) @ axis / max(axis @ axis, 1e-12), 0, 1)
    radius = rod[2, 0] + t * (rod[2, 1] - rod[2, 0])
    return float((np.linalg.norm(points - rod[0] - t[:, None] * axis, axis=-1) - radius).min())


def test_from_the_right_the_left_hip_is_hidden_and_the_right_one_seen() -> None:
    take = draw_take(Slate("squat", "train", 0, level="plain"))
    middle = take.posture.joints[:, 0].mean(0)
    side = place_camera(middle + np.array([0.0, -6.0, 0.2]), middle, up=UP, focal=1.5)
    seen = visible(replace(take, camera=side))
    assert not seen[:, 11].any()
    assert seen[:, 12].mean() > 0.5
