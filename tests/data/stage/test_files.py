"""What is written as mp4 comes back through the codec with its labels and its event where it was."""

import json
from pathlib import Path

import numpy as np
import pytest

from inphase.data.stage import stage, stage_sound, write_stage
from inphase.media.audio import read_sound
from inphase.media.frames import read_clip

ACTIONS = ("golf_swing", "squat")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    assert write_stage(folder, actions=ACTIONS, videos=1, size=48) == 6
    return folder


def test_labels_come_back_bit_for_bit(root: Path) -> None:
    written, drawn = stage(root, split="val"), stage(split="val", actions=ACTIONS, videos=1, size=48)
    assert [video.id for video in written] == [video.id for video in drawn]
    for there, here in zip(written, drawn, strict=True):
        for name in ("action", "split", "length", "rate", "events", "notes"):
            assert getattr(there, name) == getattr(here, name), name
        for name in ("progress", "phases", "keypoints", "joints3d", "visibility"):
            assert getattr(there, name).dtype == getattr(here, name).dtype, name
            np.testing.assert_array_equal(getattr(there, name), getattr(here, name))


def test_pictures_come_back_through_the_codec(root: Path) -> None:
    for video in stage(root, split="test"):
        assert video.path is not None
        clip = read_clip(video.path)
        drawn = next(v for v in stage(split="test", actions=[video.action], videos=1, size=48) if v.id == video.id)
        assert drawn.draw is not None
        true = drawn.draw()
        np.testing.assert_allclose(clip.times, true.times, atol=1e-6)
        error = np.abs(clip.frames.astype(float) - true.frames).mean((1, 2, 3))
        assert error.max() < 10
        # Each frame is nearer to its own original than to that of ten frames before.
        assert (error[10:] < np.abs(clip.frames[10:].astype(float) - true.frames[:-10]).mean((1, 2, 3))).mean() > 0.95


def test_the_event_is_heard_on_its_frame_in_the_file(root: Path) -> None:
    for video in stage(root, split="all"):
        assert video.sound is not None
        sound = read_sound(video.sound)
        event = next(iter(video.events.values())) / 30
        block = sound.rate // 30
        energy = np.convolve(sound.samples.astype(np.float64) ** 2, np.ones(block), mode="valid")
        loudest = sound.start + int(energy.argmax()) / sound.rate
        assert abs(loudest - event) < 1.5 / 30, video.id
        assert abs(len(sound) / sound.rate - len(stage_sound(video.id)) / 16000) < 0.1


def test_actions_can_be_chosen_from_what_was_written(root: Path) -> None:
    assert {video.action for video in stage(root, split="all", actions=["squat"])} == {"squat"}
    assert len(stage(root, split="all")) == 6


def test_a_split_that_does_not_exist_is_named(root: Path) -> None:
    with pytest.raises(ValueError, match="no split 'validation' on the stage; choose one of train, val, test, all"):
        stage(root, split="validation")


def test_a_folder_without_a_stage_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no stage.json in .*: write one with write_stage, or leave"):
        stage(tmp_path, split="train")


def test_a_stage_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stage.json").write_text(json.dumps({"version": 9, "videos": []}))
    with pytest.raises(ValueError, match=r"version 9, this release reads 1: write it again"):
        stage(tmp_path, split="train")
