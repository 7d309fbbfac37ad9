from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inphase.data.audio_visual import AudioVisualStream
from inphase.data.batches import ImageAugmentation
from inphase.data.stream import Batch
from inphase.data.video import Video
from inphase.media.sampling import Context


def clips(*, length: int = 250, rate: float | None = 25.0) -> list[Video]:
    return [
        Video(f"{action}{i}", action, "train", length=length, rate=rate, sound=Path("x.mp4"))
        for action in ("cannon", "bell")
        for i in range(3)
    ]


def read(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return frames.astype(np.float32)[:, None], frames / 25.0


def read_sound(video: Video, starts: np.ndarray, seconds: float) -> np.ndarray:
    """Read a sound that says which second each sample belongs to."""
    return starts[:, None] + np.arange(8) / 8 * seconds


def stream(videos: list[Video] | None = None, **how: Any) -> AudioVisualStream:
    return AudioVisualStream(clips() if videos is None else videos, read=read, read_sound=read_sound, **how)


def test_consecutive_sounds_stand_against_drawn_frames_of_the_same_stretch() -> None:
    group = stream(sounds=4)[0].groups[0]
    assert group.sound is not None
    assert group.values.shape == (1, 20, 2, 1)
    assert group.sound.shape == (1, 4, 8)
    assert group.ids[0] == group.ids[1]
    assert group.lengths.tolist() == [20, 4]
    flat = group.sound[0].flatten()
    assert torch.allclose(flat.diff(), torch.full((31,), 1 / 8, dtype=torch.float64))
    begin, end = float(flat[0]), float(flat[-1]) + 1 / 8
    seconds = group.times[0]
    assert begin <= seconds.min() <= seconds.max() < end
    assert torch.allclose(group.times[1, :4], group.sound[0, :, 4])
    assert group.frames[1, :4].tolist() == [0, 1, 2, 3]
    assert group.totals[1] == 4


def test_all_that_fits_is_read_by_default() -> None:
    groups = stream()[0].groups
    assert len(groups) == 4
    assert all(group.lengths.tolist() == [20, 10] for group in groups)
    assert stream(seconds=0.96)[0].groups[0].lengths.tolist() == [20, 10]
    assert stream(clips(length=60))[0].groups[0].lengths.tolist() == [20, 2]


def test_stretches_begin_anywhere_and_both_ends_are_reached() -> None:
    begins = [float(stream(sounds=4)[step].groups[0].sound[0, 0, 0]) for step in range(60)]  # type: ignore[index]
    assert 0 <= min(begins) < 0.5
    assert 5.5 < max(begins) <= 6


def test_a_step_is_repeatable_and_ranks_differ() -> None:
    def flat(batch: Batch) -> list[float]:
        return [float(time) for group in batch.groups for time in group.times.flatten()]

    assert flat(stream()[7]) == flat(stream()[7])
    assert flat(stream(rank=0, world=2)[7]) != flat(stream(rank=1, world=2)[7])


def test_a_silent_or_broken_clip_is_skipped() -> None:
    def patchy(video: Video, starts: np.ndarray, seconds: float) -> np.ndarray:
        if video.id == "bell1":
            raise OSError("no sound stream")
        return read_sound(video, starts, seconds)

    skipping = AudioVisualStream(clips(), read=read, read_sound=patchy, actions=2)
    skipped = [skip.id for step in range(20) for skip in skipping[step].skipped]
    assert set(skipped) == {"bell1"}
    with pytest.raises(RuntimeError, match=r"no action has enough videos.*too short for a sound window"):
        stream(clips(length=10))[0]
    with pytest.raises(RuntimeError, match=r"length and rate of .* not annotated"):
        stream(clips(rate=None))[0]
    measured = AudioVisualStream(clips(rate=None), read=read, read_sound=read_sound, measure=lambda video: (250, 10.0))
    assert measured[0].groups[0].lengths.tolist() == [20, 10]


def test_impossible_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="a has none"):
        stream([Video("a", "bell", "train")])
    with pytest.raises(ValueError, match="sounds=0"):
        stream(sounds=0)


def test_context_is_taken_from_the_whole_clip() -> None:
    group = stream(sounds=2, context=Context((-5, 0), "valid"))[0].groups[0]
    assert torch.equal(group.values[0, :, 0, 0], group.frames[0].float() - 5)


def test_clips_of_other_actions_are_laid_end_to_end_on_one_clock() -> None:
    group = stream(clips=2, frames=5, sounds=3)[0].groups[0]
    assert group.sound is not None
    one, other = group.ids[0].split(" + ")
    assert {one[:-1], other[:-1]} == {"cannon", "bell"}
    assert one.startswith(group.action)
    assert group.lengths.tolist() == [10, 6]
    assert group.values.shape == (1, 10, 2, 1)
    assert group.sound.shape == (1, 6, 8)
    assert (group.frames[0].diff() > 0).all()
    assert group.times[0, 4] < 10 <= group.times[0, 5]
    assert group.times[1, 2] < 10 <= group.times[1, 3]
    # The second clip's own seconds go on after the ten of the first.
    assert torch.allclose(group.times[1, 3:6] - 10, group.sound[0, 3:, 4])
    assert torch.allclose(group.times[0], group.frames[0].double() / 25)


def test_a_clip_that_cannot_be_read_leaves_the_others_of_its_group() -> None:
    def patchy(video: Video, starts: np.ndarray, seconds: float) -> np.ndarray:
        if video.action == "bell":
            raise OSError("no sound stream")
        return read_sound(video, starts, seconds)

    skipping = AudioVisualStream(clips(), read=read, read_sound=patchy, actions=1, clips=2, frames=5)
    batches = [skipping[step] for step in range(6)]
    assert {group.lengths[0].item() for batch in batches for group in batch.groups} == {5}
    assert any(batch.skipped for batch in batches)


def test_an_augmentation_is_sampled_for_a_group() -> None:
    groups = stream(augmentation=lambda *, rng: ImageAugmentation(brightness=float(rng.random())), clips=2)[3].groups
    looks = [look for group in groups for look in group.augmentations]
    assert len(looks) == len(groups) == 4
    assert len(set(looks)) == 4
