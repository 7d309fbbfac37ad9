from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.apps.activation_maps import activation_maps, overlay
from inphase.media.frames import read_clip
from inphase.media.recording import probe
from inphase.models import MotionEncoder, PoseEncoder
from inphase.playback import read_playback
from inphase.pose.pose import JOINTS13
from tests.media.recordings import clicks, write_video
from tests.models.test_embed_videos import small


def test_maps_are_those_of_the_encoder_at_the_frame_itself(tmp_path: Path) -> None:
    video = write_video(tmp_path / "a.mp4", count=20)
    encoder = small()
    found = activation_maps(video, encoder)
    maps = found.maps
    assert found.grid == (2, 2)
    assert len(found.to_dict()["maps"]) == len(found.to_dict()["times"]) == 20
    images = torch.from_numpy(read_clip(video, size=(32, 32)).frames)
    with torch.inference_mode():
        features = encoder.features(encoder.prepare(images))
        truth = encoder.heat_maps(torch.stack([features[:-2], features[2:]], dim=1))[:, 1]
    np.testing.assert_allclose(maps.values[2:], truth.flatten(1).numpy(), atol=1e-5)


def test_an_encoder_of_motion_shows_which_cells_move_it(tmp_path: Path) -> None:
    video = write_video(tmp_path / "a.mp4", count=12)
    encoder = MotionEncoder(context=(-2, 0, 2), size=(32, 32), grid=2, hidden=(8,)).eval()
    found = activation_maps(video, encoder)
    maps = found.maps
    assert (found.grid, maps.values.shape) == ((2, 2), (12, 4))
    images = torch.from_numpy(read_clip(video, size=(32, 32)).frames)
    with torch.inference_mode():
        features = encoder.features(encoder.prepare(images))
        truth = encoder.heat_maps(torch.stack([features[:-4], features[2:-2], features[4:]], dim=1))[:, 1]
    np.testing.assert_allclose(maps.values[2:-2], truth.flatten(1).numpy(), atol=1e-4)
    assert maps.values.std() > 1e-3


def test_video_and_playback_show_the_heat(tmp_path: Path) -> None:
    source = write_video(tmp_path / "a.mp4", count=20, sound=clicks([0.3], length=0.66))
    out = tmp_path / "out"
    stages: dict[str, tuple[int, int]] = {}

    def progress(stage: str, done: int, total: int) -> None:
        stages[stage] = (done, total)

    activation_maps(source, small(), height=64, progress=progress).write(out, progress=progress)
    assert stages["embedding a.mp4"] == stages["rendering activations.mp4"] == (20, 20)
    found = probe(out / "activations.mp4")
    assert (found.frames, found.size, found.has_sound) == (20, (64, 96), True)
    (track,) = read_playback(out).tracks
    assert track.overlay is not None
    heat = read_clip(out / track.overlay)
    np.testing.assert_allclose(heat.times, read_clip(source).times, atol=1e-3)
    assert heat.frames.std() > 10
    assert np.abs(read_clip(out / "activations.mp4").frames.astype(int) - read_clip(source).frames).mean() > 5


def test_no_heat_hides_nothing_and_much_shows_its_color() -> None:
    image = np.full((4, 4, 3), 100, np.uint8)
    np.testing.assert_array_equal(overlay(image, np.zeros((4, 4), np.float32)), image)
    np.testing.assert_allclose(overlay(image, np.ones((4, 4), np.float32))[0, 0], [199, 201, 142], atol=1)


def test_an_encoder_of_poses_has_no_maps(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="embeds pose and has no activation maps"):
        activation_maps(write_video(tmp_path / "a.mp4", count=2), PoseEncoder(joints=JOINTS13))
