import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.apps.verdict import equalize_tempo, measure_tempo
from inphase.models import load_shipped
from inphase.models.embed_videos import EmbeddedVideos, change_density
from inphase.models.embedding import Embedding
from inphase.models.joint_encoder import JointEncoder, has_route
from inphase.models.modality import embed_pose
from inphase.models.motion_encoder import PooledFeatures
from inphase.pose.pose import JOINTS13, Pose

ENCODER = load_shipped("pose")


def person(slow: int = 1) -> Pose:
    """Draw a person who raises the arms, lowers them and bends the knees, `slow` times slower than life."""
    places = np.arange(75 * slow - slow + 1) / slow
    phase = np.clip((places - 10) / 50, 0, 1)
    lift, bend = np.sin(np.pi * np.clip(phase * 1.6, 0, 1)), np.sin(np.pi * np.clip(phase * 1.6 - 0.6, 0, 1))
    across = np.array([0, -8, 8, -12, 12, -12, 12, -6, 6, -6, 6, -6, 6], float)
    up = np.array([66, 58, 58, 46, 46, 34, 34, 34, 34, 18, 18, 0, 0], float)
    points = np.stack([np.tile(across, (len(places), 1)), np.tile(up, (len(places), 1))], axis=-1)
    points[:, 3:7, 1] += np.outer(lift, [14, 14, 40, 40])
    points[:, :9, 1] -= bend[:, None] * 9
    points[:, 9:11, 0] += bend[:, None] * [-7, 7]
    points = np.float32(100) + points.astype(np.float32) * np.array([1, -1], np.float32)
    return Pose(
        JOINTS13,
        points,
        np.ones(points.shape[:2], np.float32),
        np.ones(len(points), bool),
        np.arange(len(points)) / 30,
        (200, 200),
    )


def embedded(*poses: Pose) -> EmbeddedVideos:
    return EmbeddedVideos([embed_pose(ENCODER, each) for each in poses], ENCODER, "Using body pose.")


def test_slow_motion_is_recognized_and_embedded_at_the_tempo_of_the_reference() -> None:
    given = embedded(person(), person(slow=3))
    found = equalize_tempo(given, ["life", "slow"], reference=0)
    x, y = found.embeddings
    assert x is given.embeddings[0]
    assert likeness(x, given.embeddings[1].values[::3]) < 0.9
    np.testing.assert_allclose(y.times, given.embeddings[1].times[::3])
    assert likeness(x, y.values) > 0.999
    assert found.why.startswith("Using body pose. slow runs ")
    assert found.why.endswith("times slower than life: they are compared at equal tempo.")


def test_frames_are_interpolated_where_the_reference_is_slow() -> None:
    given = embedded(person(slow=3), person())
    found = equalize_tempo(given, ["slow", "life"], reference=0)
    x, y = found.embeddings
    assert x is given.embeddings[0]
    assert len(y) == len(x)
    assert (y.times[0], y.times[-1]) == (given.embeddings[1].times[0], given.embeddings[1].times[-1])
    # The context of the slow reference stays that of its frames.
    slow = change_density(ENCODER, given.embeddings[0], 1 / 3)
    assert likeness(slow, y.values[::3]) > 0.99
    assert "times faster than slow" in found.why


def likeness(x: Embedding, others: NDArray[np.float32]) -> float:
    """Take the mean cosine of frames and others."""
    return float((x.values * others).sum(1).mean())


def test_videos_of_about_the_same_tempo_stay_as_they_are() -> None:
    given = embedded(person(), person(), person())
    assert equalize_tempo(given, ["a", "b", "c"], reference=1) is given


def test_the_tempo_is_that_of_the_moving_part() -> None:
    x = embed_pose(ENCODER, person())
    # The second video stands still at first: its frames pass twice as slowly only where the first one moves.
    frames = np.interp(np.arange(75), [0, 2, 68, 74], [0, 40, 172, 175])
    assert measure_tempo(x, frames, (30.0, 30.0)) == pytest.approx(2.0, abs=0.25)
    assert measure_tempo(x, frames, (30.0, 60.0)) == pytest.approx(1.0, abs=0.15)


def test_images_keep_their_part_and_a_video_without_a_pose_has_images_alone() -> None:
    joint = JointEncoder(pose=ENCODER, image=PooledFeatures(weights=None))
    pose = embed_pose(ENCODER, person(slow=2))
    noise = np.random.default_rng(0).normal(size=(len(pose), joint.routes[1].width)).astype(np.float32)
    image = Embedding(noise / np.linalg.norm(noise, axis=1, keepdims=True), pose.times, "image")
    x = joint.join(image, pose, visible=person(slow=2).joints13()[1])
    slow = change_density(joint, x, 1 / 2)
    width = joint.routes[0].width
    np.testing.assert_allclose(slow.values[:, width:], x.values[::2, width:], atol=1e-5)
    assert np.abs(slow.values[:, :width] - x.values[::2, :width]).max() > 0.01
    assert not has_route(change_density(joint, joint.join(None, pose), 1 / 2), 1)
    alone = change_density(joint, joint.join(image, None), 2.0)
    assert not has_route(alone, 0)
    assert len(alone) == 2 * len(x) - 1
    assert change_density(PooledFeatures(weights=None), image, 1 / 2).values.shape == (len(slow), noise.shape[1])
