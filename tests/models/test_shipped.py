"""The encoder that ships: its size, what made it, and that it aligns better than a stretch."""

import numpy as np
import torch

from inphase.align import dtw
from inphase.data import stage_videos
from inphase.data.frame_source import open_frame_source
from inphase.models import embed, load_shipped
from inphase.models.embed_videos import load_joint_encoder
from inphase.models.weights import SHIPPED
from inphase.training import read_recipe


def test_what_ships_is_small_and_made_by_its_recipe() -> None:
    assert (SHIPPED / "pose.safetensors").stat().st_size < 1_000_000
    assert sum(file.stat().st_size for file in SHIPPED.glob("*.safetensors")) < 10_000_000
    encoder, recipe = load_shipped("pose"), read_recipe("general_pose")
    for name, value in recipe.encoder.items():
        if name != "name":
            assert encoder.config[name] == value, name


def test_beside_images_it_has_the_arms_as_a_further_route() -> None:
    joint, alone = load_joint_encoder(), load_shipped("pose")
    assert [route.width for route in joint.routes] == [128, 1008, 16]
    assert float(joint.pose.get_buffer("arms")) == 0.25
    poses = torch.rand(2, 3, 5, 13, 3)
    with torch.no_grad():
        torch.testing.assert_close(joint.pose(poses), alone(poses))


def test_it_aligns_people_it_never_saw_better_than_a_stretch() -> None:
    encoder = load_shipped("pose")
    frame_source = open_frame_source(
        encoder, stage_videos.load(split="test", actions=["serve", "golf_swing"], videos=3, seed=5)
    )
    ours, linear = [], []
    for action in ("serve", "golf_swing"):
        x, *others = [video for video in frame_source.videos if video.action == action]
        seen = embed(encoder, frame_source.read(x, np.arange(frame_source.frame_count(x))))
        for y in others:
            other = embed(encoder, frame_source.read(y, np.arange(frame_source.frame_count(y))))
            places = np.arange(len(other), dtype=np.float64)
            alignment = dtw(torch.from_numpy(seen.values), torch.from_numpy(other.values))
            frames = alignment.time_map(np.arange(len(seen), dtype=np.float64), places)
            assert x.progress is not None
            assert y.progress is not None
            ours.append(np.abs(np.interp(frames, places, y.progress) - x.progress).mean())
            stretched = np.linspace(0, len(other) - 1, len(seen))
            linear.append(np.abs(np.interp(stretched, places, y.progress) - x.progress).mean())
    assert np.mean(ours) < 0.5 * np.mean(linear)
