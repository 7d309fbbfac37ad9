import multiprocessing.reduction
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.data import stage_videos
from inphase.data.audio_visual import AudioVisualStream, read_video_sound
from inphase.data.batches import augment_poses
from inphase.data.frame_source import add_poses, read_stored, select_joints, sources
from inphase.data.stream import GroupStream
from inphase.data.video import (
    RenderedFrames,
    Video,
    annotated_length,
    file_length,
    measure,
    measured_length,
    read_images,
    read_pose,
    with_visibility,
)
from inphase.media.audio import Sound, cut_sound
from inphase.media.frame_store import FrameStore, fill_store
from inphase.media.frames import Clip
from inphase.media.sampling import Context
from inphase.pose import pose_store as pose_cache
from inphase.pose.pose import JOINTS13
from inphase.pose.pose_store import PoseStore, fill_poses
from inphase.stage import JOINTS
from inphase.storage.errors import MediaError
from tests.media.recordings import numbers_of, write_images, write_video
from tests.pose.people import make_pose

pytestmark = pytest.mark.slow


def test_a_pose_is_read_like_frames_with_its_seconds() -> None:
    points = np.arange(4 * 13 * 2, dtype=np.float32).reshape(4, 13, 2)
    values, times = read_pose(Video("a", "wave", "train", keypoints=points, joints=JOINTS13, rate=20), np.array([1, 3]))
    assert values.shape == (2, 13, 3)
    assert values[0, 0].tolist() == [26, 27, 1]
    assert times.tolist() == [0.05, 0.15]
    with pytest.raises(ValueError, match="no keypoints"):
        read_pose(Video("b", "wave", "train"), np.array([0]))


def test_a_length_is_what_the_annotation_or_the_labels_say() -> None:
    assert annotated_length(Video("a", "wave", "train", length=7)) == 7
    assert annotated_length(Video("a", "wave", "train", phases=np.zeros(5, np.int64))) == 5
    with pytest.raises(ValueError, match="the length of a is not annotated"):
        annotated_length(Video("a", "wave", "train"))


def test_looking_at_a_collection_does_not_wait_for_torch_or_compilers() -> None:
    code = "import sys, inphase.cli; sys.exit(bool({'torch', 'numba', 'scipy.interpolate'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_images_are_read_from_files_folders_and_drawings(tmp_path: Path) -> None:
    file, folder = write_video(tmp_path / "a.mp4", count=30, rate=10), tmp_path / "b"
    write_images(folder, range(12))
    frames = np.array([2, 3, 11])
    for path, rate, step in ((file, None, 0.1), (folder, 20.0, 0.05), (folder, None, 1.0)):
        images, times = read_images(Video("a", "wave", "train", path=path, rate=rate), frames)
        assert numbers_of(images) == [2, 3, 11]
        assert times == pytest.approx(frames * step)
    drawn = Clip(np.arange(12 * 4 * 4 * 3, dtype=np.uint8).reshape(12, 4, 4, 3), np.arange(12) / 5)
    images, times = read_images(Video("a", "wave", "train", render=lambda: drawn), frames)
    assert np.array_equal(images, drawn.frames[frames])
    assert times.tolist() == drawn.times[frames].tolist()
    assert read_images(Video("a", "wave", "train", path=file), frames, size=(8, 10))[0].shape == (3, 8, 10, 3)
    with pytest.raises(ValueError, match="no images: read its pose"):
        read_images(Video("a", "wave", "train"), frames)


def test_spans_are_counted_shown_and_labelled_in_their_order(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", count=30, rate=10)
    intervals = ((0.0, 0.5, 7), (0.5, 0.8, 3))
    video = Video("a", "wave", "train", path=path, spans=((2.0, 2.5), (0.4, 0.7)), intervals=intervals)
    assert measured_length(video) == file_length(video) == 8
    images, times = read_images(video, np.arange(8))
    assert numbers_of(images) == [20, 21, 22, 23, 24, 4, 5, 6]
    assert times == pytest.approx(np.arange(8) / 10)
    assert video.phases_at(times).tolist() == [7] * 5 + [3] * 3
    fill_store(tmp_path / "store", sources([video, Video("b", "wave", "train", length=9)]), size=(64, 96))
    store = FrameStore(tmp_path / "store")
    assert list(store) == ["a 2.000 to 2.500", "a 0.400 to 0.700"]
    images, times = read_stored(video, np.array([1, 6]), store=store)
    assert (numbers_of(images), times.tolist()) == ([21, 5], pytest.approx([0.1, 0.6]))
    assert numbers_of(read_images(video, np.array([4, 5]))[0]) == [24, 4]


def test_lengths_are_believed_or_measured(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", count=30, rate=10)
    assert measured_length(Video("a", "wave", "train", path=path)) == 30
    assert measured_length(Video("a", "wave", "train", path=path, length=31)) == 31
    assert file_length(Video("a", "wave", "train", path=path, length=31)) == 30
    assert measure(Video("a", "wave", "train", path=path)) == pytest.approx((30, 3.0))
    with pytest.raises(ValueError, match="no file to open"):
        file_length(Video("a", "wave", "train", length=31))


def test_groups_of_real_files_are_the_same_from_a_store(tmp_path: Path) -> None:
    """From files through the cache to training: the frames drawn are the frames seen, with and without a codec."""
    paths = [write_video(tmp_path / f"{i}.mp4", count=20 + i, rate=10) for i in range(3)]
    (tmp_path / "broken.mp4").write_bytes(b"nonsense")
    videos = [Video(path.stem, "wave", "train", path=path) for path in (*paths, tmp_path / "broken.mp4")]
    filled = fill_store(tmp_path / "store", sources(videos), size=(64, 96))
    assert (filled.written, list(filled.broken)) == (3, ["broken"])
    store = FrameStore(tmp_path / "store")
    how = {"videos": 3, "frames": 6, "context": Context((-3, 0))}
    decoded = GroupStream(videos, read=read_images, frame_count=measured_length, **how)  # type: ignore[arg-type]
    stored = GroupStream(
        videos,
        read=partial(read_stored, store=store),
        frame_count=lambda video: store.frames(video.id),
        **how,  # type: ignore[arg-type]
    )
    skipped = set()
    for step in range(6):
        (one,), (other,) = decoded[step].groups, stored[step].groups
        skipped |= {skip.id for skip in decoded[step].skipped}
        assert one.ids == other.ids
        for group in (one, other):
            for row, frames in zip(group.values.numpy(), group.frames.numpy(), strict=True):
                assert numbers_of(row[:, 1]) == frames.tolist()
                assert numbers_of(row[:, 0]) == np.maximum(frames - 3, 0).tolist()
            assert group.times.numpy() == pytest.approx(group.frames.numpy() / 10)
    assert skipped == {"broken"}


def test_groups_draw_poses_from_a_store_as_from_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pose_cache, "estimate_recording", lambda recording, **_: make_pose(len(recording.times)))
    monkeypatch.setattr(pose_cache, "require_estimator", lambda name: None)
    paths = [write_video(tmp_path / f"{i}.mp4", count=20 + i, rate=10) for i in range(3)]
    videos = [Video(path.stem, "wave", "train", path=path) for path in (*paths, tmp_path / "absent.mp4")]
    fill_poses(tmp_path / "store", sources(videos))
    store = PoseStore(tmp_path / "store")
    posed = add_poses(videos, store=store)
    assert [video.length for video in posed] == [20, 21, 22, None]
    assert (posed[0].joints, posed[0].size) == (JOINTS13, (90, 120))
    values, times = read_pose(posed[1], np.array([2, 7]))
    points, visible = store["1"].joints13()
    np.testing.assert_array_equal(values, with_visibility(points[[2, 7]], visible[[2, 7]]))
    assert values.shape == (2, 13, 3)
    assert times.tolist() == [2, 7]  # frames, since no rate is known
    batch = GroupStream(posed, read=read_pose, prepare=augment_poses, videos=3, frames=6)[0]
    assert batch.groups[0].values.shape == (3, 6, 2, 13, 3)
    assert sorted(batch.groups[0].ids) == ["0", "1", "2"]


def read_sounds(video: Video, starts: NDArray[np.float64], seconds: float, *, rate: int = 16000) -> NDArray[np.float32]:
    """Read windows of a video's sound as waveforms [N, samples]."""
    sound = read_video_sound(video, rate=rate)
    return np.stack([cut_sound(sound, start=start, end=start + seconds).samples for start in starts.tolist()])


def test_sound_is_read_on_the_clock_of_the_images(tmp_path: Path) -> None:
    loud = np.zeros(44100 * 3, np.float32)
    loud[44100 : 2 * 44100] = 0.5 * np.sin(np.arange(44100) / 44100 * 2 * np.pi * 440)
    path = write_video(tmp_path / "a.mp4", count=30, rate=10, sound=loud)
    video = Video("a", "bell", "train", path=path, sound=path)
    waves = read_sounds(video, np.array([0.0, 1.0, 2.0]), 0.9)
    assert waves.shape == (3, 14400)
    assert (np.abs(waves).mean(1) > 0.1).tolist() == [False, True, False]
    (group,) = AudioVisualStream(
        [video], read=read_images, read_sound=read_sounds, measure=measure, actions=1, frames=5
    )[0].groups
    assert group.sound is not None
    assert group.sound.shape == (1, 3, 16000)
    assert group.values.shape == (1, 5, 2, 64, 96, 3)
    with pytest.raises(ValueError, match="has no sound"):
        read_sounds(Video("b", "bell", "train"), np.array([0.0]), 1.0)
    silent = write_video(tmp_path / "b.mp4", count=10, rate=10)
    with pytest.raises(MediaError):
        read_sounds(Video("b", "bell", "train", sound=silent), np.array([0.0]), 1.0)


def test_the_stage_is_read_like_any_collection(tmp_path: Path) -> None:
    """Drawn or from its files: images, poses of 17 and 13 joints, sound and canonical time of the frames drawn."""
    how: dict[str, Any] = {"split": "train", "actions": ["kick"], "size": 32, "videos": 2}
    stage_videos.write(tmp_path, **how)
    drawn, written = stage_videos.load(**how), stage_videos.load(tmp_path, split="train")
    for videos, read in ((drawn, RenderedFrames()), (written, read_images)):
        (group,) = GroupStream(videos, read=read, videos=2, frames=6)[0].groups
        for video in videos:
            row = group.ids.index(video.id)
            frames = group.frames[row].numpy()
            true = drawn[[other.id for other in drawn].index(video.id)]
            assert true.render is not None
            assert np.abs(group.values[row, :, 1].numpy().astype(float) - true.render().frames[frames]).mean() < 10
            assert group.times[row].numpy() == pytest.approx(frames / 30, abs=1e-6)
            assert video.progress is not None
            assert (np.diff(video.progress[frames]) > 0).all()
        (sounds,) = AudioVisualStream(
            videos, read=read, read_sound=read_sounds, measure=measure, actions=1, frames=5, seconds=0.5
        )[0].groups
        assert sounds.sound is not None
        assert sounds.sound.shape[2] == 8000
        assert sounds.sound.abs().max() > 0.01
    for joints in (JOINTS, JOINTS13):
        posed = [select_joints(video, joints) for video in drawn]
        (poses,) = GroupStream(posed, read=read_pose, prepare=augment_poses, videos=2, frames=6)[0].groups
        assert poses.values.shape == (2, 6, 2, len(joints), 3)


def test_the_stage_needs_no_codec() -> None:
    code = """
import sys
sys.modules["av"] = None
from inphase.data import stage_videos
from inphase.data.stream import GroupStream
from inphase.data.stream import prefetch
from inphase.data.video import RenderedFrames
videos = stage_videos.load(split="train", actions=["kick"], videos=2, size=16)
(batch,) = prefetch(GroupStream(videos, read=RenderedFrames(), frames=3), range(1))
print(tuple(batch.groups[0].values.shape))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "(4, 3, 2, 16, 16, 3)\n"


def test_what_is_drawn_is_kept_within_bounds() -> None:
    drawn: list[str] = []

    def draw(name: str) -> Clip:
        drawn.append(name)
        return Clip(np.zeros((4, 5, 5, 3), np.uint8), np.arange(4.0))

    videos = {name: Video(name, "wave", "train", render=partial(draw, name)) for name in "abc"}
    read = RenderedFrames(max_bytes=2 * 4 * 5 * 5 * 3)
    for name in "abab":
        images, times = read(videos[name], np.array([1, 3]))
        assert (images.shape, times.tolist()) == ((2, 5, 5, 3), [1, 3])
    assert drawn == ["a", "b"]
    for name in "cbabc":  # c drives out a, a drives out c, c drives out a
        read(videos[name], np.array([0]))
    assert drawn == ["a", "b", "c", "a", "c"]
    assert multiprocessing.reduction.ForkingPickler.dumps(read).nbytes < 500, "workers get no clips"
    with pytest.raises(ValueError, match="is not rendered"):
        read(Video("d", "wave", "train"), np.array([0]))


def test_a_sound_that_is_made_has_its_own_rate() -> None:
    video = Video("a", "bell", "train", synthesize=lambda: Sound(np.ones(16000, np.float32), 16000))
    assert read_sounds(video, np.array([0.25, 0.75]), 0.5).mean(1).tolist() == [1.0, 0.5]
    with pytest.raises(ValueError, match="has 16000 samples per second, not 8000"):
        read_sounds(video, np.array([0.0]), 0.5, rate=8000)
