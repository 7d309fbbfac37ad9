"""Recordings carry consistent labels, splits share nothing, and written files return the same."""

import errno
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.data.check import check
from inphase.data.stage_videos import WrittenStage, load, write
from inphase.data.video import SPLITS, Problem, file_length
from inphase.media.audio import read_sound
from inphase.media.frames import read_clip
from inphase.stage import ACTIONS, JOINTS
from inphase.stage.take import Slate, sample_take, stretch_error
from inphase.storage.errors import MediaError, StoreError
from inphase.storage.files import DRAFT_SUFFIX

pytestmark = pytest.mark.slow


def test_a_video_has_all_labels() -> None:
    for video in load(split="train", videos=1, size=32):
        assert video.render is not None
        clip = video.render()
        frames = len(clip)
        assert clip.frames.shape == (frames, 32, 32, 3)
        assert video.length == frames
        assert video.rate == 30
        assert video.size == (32, 32)
        assert video.joints == JOINTS
        assert video.phase_names == tuple(ACTIONS[video.action].phases)
        for array, shape in (
            (video.progress, (frames,)),
            (video.phases, (frames,)),
            (video.keypoints, (frames, 17, 2)),
            (video.joints3d, (frames, 17, 3)),
            (video.visibility, (frames, 17)),
        ):
            assert array is not None
            assert array.shape == shape
        assert video.phases is not None
        assert set(video.phases.tolist()) == set(range(len(ACTIONS[video.action].phases)))
        assert (np.diff(video.phases) >= 0).all()


def test_an_event_is_the_frame_nearest_to_it() -> None:
    for video in load(split="val", videos=2):
        assert video.progress is not None
        for name, time in ACTIONS[video.action].events.items():
            frame = video.events[name]
            distances = [abs(progress - time) for progress in video.progress.tolist()]
            assert distances[frame] == min(distances)


def test_canonical_time_means_the_same_in_every_recording() -> None:
    # The event's pose is nearer to the event's pose of others than to what they do a quarter of the action away.
    for action in ("golf_swing", "kick", "clean_and_jerk"):
        time = ACTIONS[action].event
        poses = {s: [_pose_at(action, i, s) for i in range(6)] for s in (time - 0.25, time, time + 0.2)}
        alike = np.mean([np.abs(a - b).mean() for a in poses[time] for b in poses[time] if a is not b])
        for other in (time - 0.25, time + 0.2):
            unlike = np.mean([np.abs(a - b).mean() for a in poses[time] for b in poses[other]])
            assert alike < 0.75 * unlike, action


def _pose_at(action: str, index: int, time: float) -> np.ndarray:
    take = sample_take(Slate(action, "train", index))
    joints = take.posture.joints[np.abs(take.progress - time).argmin()]
    return np.asarray(joints - joints[0])


def test_the_true_poses_align_far_better_than_linear_stretch() -> None:
    warped, stretched = [], []
    for action in ("pitch", "serve", "shelf_lift", "squat"):
        first, second = (sample_take(Slate(action, "val", index)) for index in (0, 1))
        x, y = (take.posture.joints - take.posture.joints[:, :1] for take in (first, second))
        matched = _matches(np.abs(x[:, None] - y[None]).mean((2, 3))) / (len(y) - 1)
        true = np.interp(first.progress, second.progress, np.linspace(0, 1, len(y)))
        warped.append(np.abs(matched - true).mean())
        stretched.append(stretch_error(first.progress, second.progress))
    assert np.mean(warped) < 0.06
    assert np.mean(warped) < np.mean(stretched) / 2


def _matches(cost: np.ndarray) -> np.ndarray:
    """Find by plain dynamic time warping the frame of the second sequence that each frame of the first goes with."""
    m, n = cost.shape
    table = np.full((m + 1, n + 1), np.inf)
    table[0, 0] = 0
    for i, j in np.ndindex(m, n):
        table[i + 1, j + 1] = cost[i, j] + min(table[i, j], table[i, j + 1], table[i + 1, j])
    i, j, found = m, n, np.zeros(m)
    while i > 0:
        found[i - 1] = j - 1
        i, j = min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda cell: table[cell])
    return found


def test_no_two_splits_share_a_body_or_an_appearance() -> None:
    bodies: dict[tuple[float, ...], str] = {}
    appearances: dict[bytes, str] = {}
    for split in SPLITS:
        for action in ACTIONS:
            for index in range(8):
                take = sample_take(Slate(action, split, index))
                measures = tuple(np.round(list(vars(take.body).values()), 9))
                colors = np.concatenate(
                    [take.appearance.skin, take.appearance.shirt, take.appearance.wall, take.appearance.light]
                ).tobytes()
                assert bodies.setdefault(measures, split) == split
                assert appearances.setdefault(colors, split) == split
    assert len(bodies) == len(appearances) == 3 * len(ACTIONS) * 8, "nor do two recordings of one split"


_DIGEST = """
import hashlib
from inphase.data.stage_videos import WrittenStage, load
total = hashlib.sha256()
for video in load(split="test", videos=1, actions=["serve", "shelf_lift", "clean_and_jerk"], level="hard"):
    for array in (video.render().frames, video.keypoints, video.joints3d, video.visibility, video.synthesize().samples):
        total.update(array.tobytes())
print(total.hexdigest())
"""


def test_another_process_makes_the_same_bits() -> None:
    run = subprocess.run([sys.executable, "-c", _DIGEST], capture_output=True, text=True, check=True)
    total = hashlib.sha256()
    for video in load(split="test", videos=1, actions=["serve", "shelf_lift", "clean_and_jerk"], level="hard"):
        assert video.render is not None
        assert video.synthesize is not None
        assert video.keypoints is not None
        assert video.joints3d is not None
        assert video.visibility is not None
        sound = video.synthesize().samples
        for array in (video.render().frames, video.keypoints, video.joints3d, video.visibility, sound):
            total.update(array.tobytes())
    assert run.stdout.strip() == total.hexdigest()


def test_all_is_every_split() -> None:
    found = [video.id for video in load(split="all", videos=1, actions=["squat"])]
    assert found == [Slate("squat", split, 0).id for split in SPLITS]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"split": "tset"}, "split 'tset' does not exist here: choose one of train, val, test, all"),
        ({"split": "train", "level": "easy"}, "unknown level 'easy': choose one of plain, medium, hard"),
        ({"split": "train", "actions": ["dance"]}, "unknown action 'dance': choose one of golf_swing"),
    ],
)
def test_errors_name_unknown_values_and_the_choices(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(**wrong)  # type: ignore[arg-type]


WRITTEN = ("golf_swing", "squat")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    assert write(folder, actions=WRITTEN, videos=1, size=48) == WrittenStage(folder, 6, 0)
    return folder


def test_labels_are_read_back_bit_for_bit(root: Path) -> None:
    written, drawn = load(root, split="val"), load(split="val", actions=WRITTEN, videos=1, size=48)
    assert [video.id for video in written] == [video.id for video in drawn]
    for there, here in zip(written, drawn, strict=True):
        for name in ("action", "split", "length", "rate", "size", "joints", "phase_names", "events", "notes"):
            assert getattr(there, name) == getattr(here, name), name
        for name in ("progress", "phases", "keypoints", "joints3d", "visibility"):
            assert getattr(there, name).dtype == getattr(here, name).dtype, name
            np.testing.assert_array_equal(getattr(there, name), getattr(here, name))


def test_images_survive_the_codec(root: Path) -> None:
    for video in load(root, split="test"):
        assert video.path is not None
        clip = read_clip(video.path)
        drawn = next(v for v in load(split="test", actions=[video.action], videos=1, size=48) if v.id == video.id)
        assert drawn.render is not None
        true = drawn.render()
        np.testing.assert_allclose(clip.times, true.times, atol=1e-6)
        error = np.abs(clip.frames.astype(float) - true.frames).mean((1, 2, 3))
        assert error.max() < 10
        # Each frame is nearer to its own original than to that of ten frames before.
        assert (error[10:] < np.abs(clip.frames[10:].astype(float) - true.frames[:-10]).mean((1, 2, 3))).mean() > 0.95


def test_the_file_is_loudest_at_the_event(root: Path) -> None:
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


def test_a_folder_without_an_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no stage.json in .*: write the stage there with `inphase data stage`, or omit"
    ):
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


def test_complete_recordings_are_kept_and_missing_ones_written(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "it's a stage"
    shutil.copytree(root, folder)
    labels = sorted((folder / "labels").iterdir())
    labels[0].unlink()
    (folder / "videos" / f"{labels[1].stem}.mp4").unlink()
    before = (folder / "videos" / f"{labels[2].stem}.mp4").stat().st_mtime_ns
    reports: list[tuple[str, int, int]] = []
    again = write(folder, actions=WRITTEN, videos=1, size=48, progress=lambda *at: reports.append(at))
    assert again == WrittenStage(folder, 2, 4)
    assert reports == [("rendering videos", done, 6) for done in range(1, 7)]
    assert (folder / "videos" / f"{labels[2].stem}.mp4").stat().st_mtime_ns == before
    assert [video.id for video in load(folder, split="all")] == [video.id for video in load(root, split="all")]
    with pytest.raises(ValueError, match="holds images of 48 pixels, not 64: use another folder"):
        write(folder, size=64)


def test_interrupted_writing_leaves_complete_recordings_and_resumes(tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"split": "train", "actions": ["squat"], "videos": 3, "size": 16}
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, **how, progress=stop)
    draft = tmp_path / "videos" / f".{Slate('squat', 'train', 2).id}.mp4{DRAFT_SUFFIX}"
    draft.mkdir()
    (draft / "x.mp4").write_bytes(b"killed half-way")
    assert len(load(tmp_path, split="all")) == 2
    assert write(tmp_path, **how) == WrittenStage(tmp_path, 1, 2)
    assert check(load, tmp_path, name="stage", frame_count=file_length).whole
    assert not list(tmp_path.rglob(".*"))


def test_damaged_labels_are_reported_and_omitted(tmp_path: Path) -> None:
    write(tmp_path, split="train", actions=["squat"], videos=3, size=16)
    first, second, third = sorted((tmp_path / "labels").iterdir())
    first.write_bytes(first.read_bytes()[:300])
    second.write_bytes(b"")
    with pytest.warns(Problem, match="unreadable labels") as caught:
        assert [video.id for video in load(tmp_path, split="train")] == [third.stem]
    assert len(caught) == 2


def test_a_full_disk_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(MediaError, match=r"\.npz cannot be written: the disk is full; make room"):
        write(tmp_path, split="train", actions=["squat"], videos=1, size=16)
    assert load(tmp_path, split="train") == []


def test_two_processes_do_not_write_into_one_folder(tmp_path: Path) -> None:
    def meanwhile(stage: str, done: int, total: int) -> None:
        with pytest.raises(StoreError, match=r"another process is filling .*: wait for it, or use another folder"):
            write(tmp_path, split="train", actions=["squat"], videos=1, size=16)

    written = write(tmp_path, split="train", actions=["squat"], videos=1, size=16, progress=meanwhile)
    assert written == WrittenStage(tmp_path, 1, 0)
