"""What is written as mp4 comes back through the codec with its labels and its event where it was."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.data.check import check
from inphase.data.reading import file_length
from inphase.data.stage import load, write
from inphase.data.stage.take import Slate
from inphase.data.video import Problem
from inphase.media.audio import read_sound
from inphase.media.frames import read_clip
from inphase.storage.errors import MediaError, StoreError
from inphase.storage.files import DRAFT_SUFFIX

ACTIONS = ("golf_swing", "squat")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    assert write(folder, actions=ACTIONS, videos=1, size=48) == (6, 0)
    return folder


def test_labels_come_back_bit_for_bit(root: Path) -> None:
    written, drawn = load(root, split="val"), load(split="val", actions=ACTIONS, videos=1, size=48)
    assert [video.id for video in written] == [video.id for video in drawn]
    for there, here in zip(written, drawn, strict=True):
        for name in ("action", "split", "length", "rate", "size", "joints", "phase_names", "events", "notes"):
            assert getattr(there, name) == getattr(here, name), name
        for name in ("progress", "phases", "keypoints", "joints3d", "visibility"):
            assert getattr(there, name).dtype == getattr(here, name).dtype, name
            np.testing.assert_array_equal(getattr(there, name), getattr(here, name))


def test_pictures_come_back_through_the_codec(root: Path) -> None:
    for video in load(root, split="test"):
        assert video.path is not None
        clip = read_clip(video.path)
        drawn = next(v for v in load(split="test", actions=[video.action], videos=1, size=48) if v.id == video.id)
        assert drawn.draw is not None
        true = drawn.draw()
        np.testing.assert_allclose(clip.times, true.times, atol=1e-6)
        error = np.abs(clip.frames.astype(float) - true.frames).mean((1, 2, 3))
        assert error.max() < 10
        # Each frame is nearer to its own original than to that of ten frames before.
        assert (error[10:] < np.abs(clip.frames[10:].astype(float) - true.frames[:-10]).mean((1, 2, 3))).mean() > 0.95


def test_the_event_is_heard_on_its_frame_in_the_file(root: Path) -> None:
    for video in load(root, split="all"):
        assert video.sound is not None
        sound = read_sound(video.sound)
        event = next(iter(video.events.values())) / 30
        block = sound.rate // 30
        energy = np.convolve(sound.samples.astype(np.float64) ** 2, np.ones(block), mode="valid")
        loudest = sound.start + int(energy.argmax()) / sound.rate
        assert abs(loudest - event) < 1.5 / 30, video.id
        assert abs(len(sound) / sound.rate - (video.length or 0) / 30) < 0.1


def test_actions_can_be_chosen_from_what_was_written(root: Path) -> None:
    assert {video.action for video in load(root, split="all", actions=["squat"])} == {"squat"}
    assert len(load(root, split="all")) == 6


def test_a_split_that_does_not_exist_is_named(root: Path) -> None:
    with pytest.raises(ValueError, match="split 'validation' does not exist here: choose one of train, val, test, all"):
        load(root, split="validation")


def test_a_folder_without_a_stage_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no stage.json in .*: write one with `inphase data stage`, or leave"):
        load(tmp_path, split="train")


def test_a_stage_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stage.json").write_text(json.dumps({"version": 9, "size": 64}))
    with pytest.raises(ValueError, match=r"version 9, this release reads 2: write the stage again"):
        load(tmp_path, split="train")


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    for content in ("{", "[]", "{}"):
        (tmp_path / "stage.json").write_text(content)
        with pytest.raises(ValueError, match=r"stage.json is damaged .*: remove it and write the stage again"):
            load(tmp_path, split="train")


def test_what_is_whole_is_kept_and_what_is_missing_written(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "it's a stage"
    shutil.copytree(root, folder)
    labels = sorted((folder / "labels").iterdir())
    labels[0].unlink()
    (folder / "videos" / f"{labels[1].stem}.mp4").unlink()
    before = (folder / "videos" / f"{labels[2].stem}.mp4").stat().st_mtime_ns
    seen: list[tuple[int, int]] = []
    assert write(folder, actions=ACTIONS, videos=1, size=48, progress=lambda *at: seen.append(at)) == (2, 4)
    assert seen == [(done, 6) for done in range(1, 7)]
    assert (folder / "videos" / f"{labels[2].stem}.mp4").stat().st_mtime_ns == before
    assert [video.id for video in load(folder, split="all")] == [video.id for video in load(root, split="all")]
    with pytest.raises(ValueError, match="holds pictures of 48 pixels, not 64: use another folder"):
        write(folder, size=64)


def test_interrupted_writing_leaves_whole_recordings_and_goes_on(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"split": "train", "actions": ["squat"], "videos": 3, "size": 16}
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, **how, progress=stop)
    draft = tmp_path / "videos" / f".{Slate('squat', 'train', 2).id}.mp4{DRAFT_SUFFIX}"
    draft.mkdir()
    (draft / "x.mp4").write_bytes(b"killed half-way")
    assert len(load(tmp_path, split="all")) == 2
    assert write(tmp_path, **how) == (1, 2)
    assert check(load, tmp_path, name="stage", frame_count=file_length).whole
    assert not list(tmp_path.rglob(".*"))


def test_damaged_labels_are_reported_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, split="train", actions=["squat"], videos=3, size=16)
    first, second, third = sorted((tmp_path / "labels").iterdir())
    first.write_bytes(first.read_bytes()[:300])
    second.write_bytes(b"")
    with pytest.warns(Problem, match="unreadable labels") as caught:
        assert [video.id for video in load(tmp_path, split="train")] == [third.stem]
    assert len(caught) == 2


def test_a_disk_that_refuses_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(MediaError, match=r"\.npz cannot be written: the disk is full; make room"):
        write(tmp_path, split="train", actions=["squat"], videos=1, size=16)
    assert load(tmp_path, split="train") == []


def test_two_processes_do_not_write_into_one_folder(tmp_path: Path) -> None:
    def meanwhile(done: int, total: int) -> None:
        with pytest.raises(StoreError, match=r"another process is filling .*: wait for it, or use another folder"):
            write(tmp_path, split="train", actions=["squat"], videos=1, size=16)

    assert write(tmp_path, split="train", actions=["squat"], videos=1, size=16, progress=meanwhile) == (1, 0)
