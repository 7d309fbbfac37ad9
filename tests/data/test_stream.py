from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.utils.data import DataLoader

from inphase.data.batches import (
    apply_augmentations,
    apply_image_augmentation,
    augment_images,
    augment_poses,
    pad,
    sample_image_augmentation,
)
from inphase.data.stream import Batch, Group, GroupStream, prefetch
from inphase.data.video import Video, read_pose
from inphase.media.sampling import Context
from inphase.pose.pose import JOINTS13
from tests.processes import FORK_SERVER

ACTIONS = ("bowl", "pitch", "serve")


def videos(*, each: int = 6, length: int = 40) -> list[Video]:
    return [
        Video(f"{action}{i}", action, "train", length=length + i, rate=20) for action in ACTIONS for i in range(each)
    ]


def read(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read values that say where they come from: the frame's number, and the video's."""
    assert (np.diff(frames) > 0).all()
    number = float(video.id[-1])
    return np.stack([frames.astype(np.float32), np.full(len(frames), number, np.float32)], axis=-1), frames / 20.0


def read_all_but(*broken: str) -> Any:
    def reader(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if video.id in broken:
            raise OSError(f"{video.id} is damaged")
        return read(video, frames)

    return reader


def same(one: Batch, other: Batch) -> bool:
    return one.step == other.step and all(
        a.ids == b.ids and torch.equal(a.values, b.values) and torch.equal(a.frames, b.frames)
        for a, b in zip(one.groups, other.groups, strict=True)
    )


def test_a_group_is_k_videos_of_one_action_with_frames_context_and_times() -> None:
    (group,) = GroupStream(videos(), read=read, rule="random", frames=8)[0].groups
    assert group.values.shape == (4, 8, 2, 2)
    assert len(set(group.ids)) == 4
    assert all(name.startswith(group.action) for name in group.ids)
    assert group.lengths.tolist() == [8] * 4
    assert torch.equal(group.values[:, :, 1, 0], group.frames.float())
    assert torch.equal(group.values[:, :, 0, 0], (group.frames - 15).clamp(min=0).float())
    assert torch.equal(group.times, group.frames.double() / 20)
    assert group.times.dtype == torch.float64
    assert [f"{group.action}{int(row[0, 0, 1])}" for row in group.values] == list(group.ids)


def test_longer_and_shorter_videos_are_padded_with_their_last_frame() -> None:
    (group,) = GroupStream(videos(each=4), read=read, rule="strided", stride=10, context=Context((0,)))[3].groups
    lengths = group.lengths.tolist()
    assert sorted(lengths) == [4, 5, 5, 5]
    short = lengths.index(4)
    assert group.frames[short].tolist() == [0, 10, 20, 30, 30]
    assert group.values[short, :, 0, 0].tolist() == [0, 10, 20, 30, 30]
    assert pad([torch.tensor([1, 2]), torch.tensor([3])]).tolist() == [[1, 2], [3, 3]]


def test_a_stream_is_a_function_of_seed_rank_world_and_step() -> None:
    def stream(**how: int) -> GroupStream:
        return GroupStream(videos(), read=read, actions=2, **how)  # type: ignore[arg-type]

    whole = stream()
    batches = [whole[step] for step in range(5)]
    assert same(stream()[3], batches[3])
    assert same(whole[3], batches[3])
    assert not same(stream(seed=1)[3], batches[3])
    shares = [stream(rank=rank, world=2)[3].groups[0] for rank in (0, 1)]
    for share, group in zip(shares, batches[3].groups, strict=True):
        assert share.ids == group.ids
        assert torch.equal(share.values, group.values)
    with pytest.raises(ValueError, match="shared evenly by 4"):
        stream(world=4)
    assert len({tuple(group.ids for group in batch.groups) for batch in batches}) == 5
    # One group per step: each of two processes reads its own, as if a step had two.
    for rank, group in enumerate(batches[3].groups):
        (alone,) = GroupStream(videos(), read=read, actions=1, rank=rank, world=2)[3].groups
        assert torch.equal(alone.values, group.values)
    golf = [video for video in videos() if video.action == ACTIONS[0]]
    pair = [GroupStream(golf, read=read, actions=1, rank=rank, world=2)[3].groups[0] for rank in (0, 1)]
    assert pair[0].ids != pair[1].ids or not torch.equal(pair[0].frames, pair[1].frames)


def test_workers_change_nothing_and_a_run_resumes_anywhere() -> None:
    stream = GroupStream(videos(), read=read, actions=2, frames=4)
    expected = [stream[step] for step in range(4, 9)]
    for workers, start in ((0, None), (2, FORK_SERVER)):
        loader = DataLoader(
            stream, sampler=range(4, 9), batch_size=None, num_workers=workers, multiprocessing_context=start
        )
        for batch, wanted in zip(loader, expected, strict=True):
            assert same(batch, wanted)


def test_actions_and_videos_are_drawn_uniformly() -> None:
    stream = GroupStream(videos(), read=read, frames=1, context=Context((0,)))
    groups = [stream[step].groups[0] for step in range(1500)]
    assert chisquare(list(Counter(group.action for group in groups).values())).pvalue > 0.01
    names = Counter(name for group in groups for name in group.ids)
    assert len(names) == 18
    assert chisquare(list(names.values())).pvalue > 0.01


def test_the_actions_of_a_step_are_distinct_while_there_are_enough() -> None:
    assert {group.action for group in GroupStream(videos(), read=read, actions=3)[0].groups} == set(ACTIONS)
    many = Counter(group.action for group in GroupStream(videos(), read=read, actions=6)[0].groups)
    assert set(many.values()) == {2}


def test_few_videos_are_shown_again_at_other_frames() -> None:
    (group,) = GroupStream(videos(each=2), read=read, videos=4)[0].groups
    assert Counter(group.ids).most_common()[0][1] == 2
    again = [i for i, name in enumerate(group.ids) if name == group.ids[0]]
    assert not torch.equal(group.frames[again[0]], group.frames[again[1]])


def test_broken_videos_are_skipped_counted_and_replaced() -> None:
    whole = GroupStream(videos(each=5), read=read, actions=3)
    patchy = GroupStream(videos(each=5), read=read_all_but("bowl1", "serve4"), actions=3)
    skipped: Counter[str] = Counter()
    for step in range(12):
        batch, reference = patchy[step], whole[step]
        skipped.update(skip.id for skip in batch.skipped)
        for group, wanted in zip(batch.groups, reference.groups, strict=True):
            assert len(group.ids) == 4
            assert not {"bowl1", "serve4"} & set(group.ids)
            for row, name in enumerate(group.ids):
                if name in wanted.ids and "bowl1" not in wanted.ids and "serve4" not in wanted.ids:
                    assert torch.equal(group.frames[row], wanted.frames[wanted.ids.index(name)])
    assert set(skipped) == {"bowl1", "serve4"}
    assert skipped["bowl1"] > 3
    fresh = GroupStream(videos(each=5), read=read_all_but("bowl1", "serve4"), actions=3)
    assert same(fresh[11], patchy[11])


def test_an_action_of_which_too_little_can_be_read_gives_way_to_others() -> None:
    stream = GroupStream(videos(each=2), read=read_all_but("pitch0"), actions=2)
    batches = [stream[step] for step in range(10)]
    assert {tuple(sorted(group.action for group in batch.groups)) for batch in batches} == {("bowl", "serve")}
    assert {skip.id for batch in batches for skip in batch.skipped} == {"pitch0"}
    assert same(GroupStream(videos(each=2), read=read_all_but("pitch0"), actions=2)[9], batches[9])


def test_a_run_without_anything_to_read_ends_with_the_reason() -> None:
    stream = GroupStream(videos(each=2), read=read_all_but("pitch0", "bowl0", "serve1"))
    with pytest.raises(RuntimeError, match=r"no action has enough videos that can be read .*: OSError: .* is damaged"):
        stream[0]


def test_a_reader_that_gives_too_little_is_noticed() -> None:
    def short(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, times = read(video, frames)
        return values[:-1], times[:-1]

    with pytest.raises(RuntimeError, match="frames requested"):
        GroupStream(videos(), read=short)[0]


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (2, 3), (3, 99)])
def test_threads_read_ahead_and_change_nothing(threads: int, ahead: int) -> None:
    stream = GroupStream(videos(), read=read, actions=2, frames=4)
    expected = [stream[step] for step in range(4, 9)]
    for batch, wanted in zip(prefetch(stream, range(4, 9), threads=threads, ahead=ahead), expected, strict=True):
        assert same(batch, wanted)


def test_reading_ahead_stops_with_its_reader_and_passes_errors_on() -> None:
    seen: list[int] = []

    class Counted(GroupStream):
        def __getitem__(self, step: int) -> Batch:
            seen.append(step)
            return super().__getitem__(step)

    for ahead in (2, 500):
        seen.clear()
        batches = prefetch(Counted(videos(), read=read), iter(range(1000)), threads=1, ahead=ahead)
        assert next(batches).step == 0
        batches.close()
        assert len(seen) < max(ahead, 10)  # not all that were asked for
    with pytest.raises(RuntimeError, match="no action has enough videos"):
        next(prefetch(GroupStream(videos(each=2), read=read_all_but("pitch0", "bowl0", "serve1")), range(3)))
    with pytest.raises(ValueError, match="at least 0 threads"):
        prefetch(stream=GroupStream(videos(), read=read), steps=range(3), threads=-1)


def test_augmentations_sampled_with_a_group_are_those_of_preparing_at_once() -> None:
    def images(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        noise = np.random.default_rng(int(video.id[-1])).integers(0, 256, (60, 6, 6, 3), dtype=np.uint8)
        return noise[frames], frames / 20.0

    (at_once,) = GroupStream(videos(), read=images, prepare=augment_images)[3].groups
    (later,) = GroupStream(videos(), read=images, augmentation=sample_image_augmentation)[3].groups
    assert later.values.dtype == torch.uint8
    assert len(set(later.augmentations)) == 4
    torch.testing.assert_close(apply_augmentations(later.values, augmentations=later.augmentations), at_once.values)
    assert at_once.augmentations == ()
    torch.testing.assert_close(apply_image_augmentation(later.values), later.values / 127.5 - 1)
    with pytest.raises(ValueError, match="4 sequences need as many augmentations, got 1"):
        apply_augmentations(later.values, augmentations=later.augmentations[:1])


def test_images_and_poses_are_prepared_once_per_video() -> None:
    def still(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        one = np.random.default_rng(7).integers(0, 256, (1, 6, 6, 3), dtype=np.uint8)
        return np.repeat(one, len(frames), axis=0), frames / 20.0

    (group,) = GroupStream(videos(), read=still, prepare=augment_images)[0].groups
    assert group.values.shape == (4, 20, 2, 6, 6, 3)
    assert group.values.abs().max() <= 1
    assert (group.values == group.values[:, :1, :1]).all()
    assert not torch.equal(group.values[0, 0], group.values[1, 0])
    points = np.random.default_rng(0).uniform(0, 99, (40, 13, 2)).astype(np.float32)
    posed = [Video(f"p{i}", "pose", "train", keypoints=points, joints=JOINTS13, size=(90, 100)) for i in range(4)]
    (poses,) = GroupStream(posed, read=read_pose, prepare=augment_poses)[0].groups
    assert poses.values.shape == (4, 20, 2, 13, 3)
    unsized = [Video(f"p{i}", "pose", "train", keypoints=points, joints=JOINTS13) for i in range(4)]
    with pytest.raises(RuntimeError, match=r"set Video\.size"):
        GroupStream(unsized, read=read_pose, prepare=partial(augment_poses, flip=1.0))[0]


def test_lengths_can_be_measured_and_have_to_be_known() -> None:
    unknown = [Video(f"a{i}", "a", "train") for i in range(3)]
    with pytest.raises(RuntimeError, match=r"the length of a. is not annotated"):
        GroupStream(unknown, read=read)[0]
    assert GroupStream(unknown, read=read, frame_count=lambda video: 25)[0].groups[0].frames.max() <= 24


def test_videos_too_short_for_a_valid_context_are_skipped() -> None:
    mixed = [Video(f"a{i}", "a", "train", length=10 if i == 0 else 40) for i in range(4)]
    batch = GroupStream(mixed, read=read, context=Context(edges="valid"))[0]
    assert [skip.id for skip in batch.skipped][:1] == ["a0"]
    assert "full context" in batch.skipped[0].reason
    assert int(batch.groups[0].frames.min()) >= 15


def test_impossible_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="no videos to sample from"):
        GroupStream([], read=read)
    with pytest.raises(ValueError, match="needs two videos of an action; bowl has one"):
        GroupStream(videos()[:1] + videos()[6:], read=read)
    with pytest.raises(ValueError, match="rank=2, world=2"):
        GroupStream(videos(), read=read, rank=2, world=2)
    with pytest.raises(ValueError, match="videos ≥ 2 of each action, got 1"):
        GroupStream(videos(), read=read, videos=1)
    with pytest.raises(IndexError, match="steps count from 0"):
        GroupStream(videos(), read=read)[-1]


def test_everything_of_a_batch_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.to("meta"))
    (batch,) = prefetch(GroupStream(videos(), read=read, actions=2, frames=2), range(1), pin=True)
    for group in batch.groups:
        assert all(value.is_meta for value in vars(group).values() if isinstance(value, torch.Tensor))
        assert group.values.shape == (4, 2, 2, 2)


def test_a_group_moves_between_devices() -> None:
    (group,) = GroupStream(videos(), read=read, frames=2)[0].groups
    moved = group.to("meta")
    assert isinstance(moved, Group)
    assert moved.values.device.type == moved.times.device.type == "meta"
    assert moved.ids == group.ids
    assert moved.lengths is group.lengths  # looked at without waiting for the device


def test_a_method_chooses_the_frames_and_the_context_follows_the_rate() -> None:
    def choose(total: int, *, count: int, rng: np.random.Generator, draw: Any) -> np.ndarray:
        plain = draw(total, count=count, rng=rng)
        return np.concatenate([plain, np.full(2, total - 1)])

    def context(video: Video) -> Context:
        return Context((-2 * int(video.id[-1]), 0), "valid")

    (group,) = GroupStream(videos(), read=read, frames=5, choose=choose, context=context)[0].groups
    for row, name, total in zip(group.values, group.ids, group.totals, strict=True):
        number = int(name[-1])
        assert row.shape == (7, 2, 2)
        assert (row[:, 1, 0] - row[:, 0, 0]).tolist() == [2 * number] * 7
        assert total == 40 + number - 2 * number  # what has its full context
        assert row[-1, 1, 0] == 40 + number - 1


def test_labels_and_progress_come_along_numbered_through_over_actions() -> None:
    phases = np.array([-1, *[0] * 20, *[1] * 25])
    known = [
        Video(f"{action}{i}", action, "train", length=46, rate=20, phases=phases, events={"top": 21, "end": 40})
        for action in ACTIONS
        for i in range(3)
    ]
    stream = GroupStream(known, read=read, actions=3, frames=46, videos=2)
    assert stream.phases == 6
    for group in stream[0].groups:
        first = 2 * ACTIONS.index(group.action)
        assert group.labels is not None
        assert group.labels[0].tolist() == [-1, *[first] * 20, *[first + 1] * 25]
        assert group.progress is not None
        torch.testing.assert_close(group.progress[0, :, 0], (torch.arange(46) - 21) / 46)
    timed = [Video(f"serve{i}", "serve", "train", length=46, intervals=((0.0, 1.0, 3),)) for i in range(2)]
    (group,) = GroupStream(timed, read=read, frames=46)[0].groups
    assert group.labels is not None
    assert group.labels[0].tolist() == [3] * 20 + [-1] * 26
    (plain,) = GroupStream(videos(), read=read)[0].groups
    assert plain.labels is None
    assert plain.progress is None


def test_views_of_a_video_are_augmented_apart() -> None:
    def images(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full((len(frames), 2, 3, 3), 100, np.uint8), frames / 25

    twice = partial(GroupStream, videos(), read=images, frames=4, choose=choose_twice)
    (whole,) = twice(prepare=augment_images)[0].groups
    (apart,) = twice(prepare=augment_images, views=2)[0].groups
    assert whole.values.shape == apart.values.shape
    assert torch.equal(whole.frames, apart.frames)
    assert torch.equal(whole.times, apart.times)
    assert torch.equal(whole.values[:, :4], whole.values[:, 4:])  # one frame repeated, one augmentation
    assert not torch.equal(apart.values[:, :4], apart.values[:, 4:])
    (later,) = twice(augmentation=sample_image_augmentation, views=2)[0].groups
    assert all(len(each.parts) == 2 for each in later.augmentations)  # type: ignore[attr-defined]
    found = apply_augmentations(later.values, augmentations=later.augmentations)
    assert (found[:, :4] != found[:, 4:]).any((1, 2, 3, 4, 5)).all()


def choose_twice(total: int, *, count: int, rng: np.random.Generator, draw: Any) -> np.ndarray:
    """Choose the same frames for two views."""
    return np.tile(draw(total, count=count, rng=rng), 2)
