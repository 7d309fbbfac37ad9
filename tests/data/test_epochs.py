from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inphase.data.batches import Epochs
from inphase.data.stream import Batch, GroupStream
from inphase.data.video import Video

Counts = st.lists(st.integers(2, 23), min_size=1, max_size=6)


def videos(counts: list[int]) -> list[Video]:
    return [Video(f"{a}-{n}", f"action{a}", "train", length=30) for a, count in enumerate(counts) for n in range(count)]


def read(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return frames.astype(np.float32)[:, None], frames / 20.0


def read_all_but(*broken: str) -> object:
    def reader(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if video.id in broken:
            raise OSError(f"{video.id} is damaged")
        return read(video, frames)

    return reader


def ids(batches: list[Batch]) -> list[str]:
    return [id for batch in batches for group in batch.groups for id in group.ids]


@given(Counts, st.integers(2, 7), st.integers(0, 3), st.integers(0, 50))
def test_every_video_is_in_one_group_of_an_epoch(counts: list[int], size: int, seed: int, epoch: int) -> None:
    epochs = Epochs(counts, size=size, seed=seed)
    first = epoch * epochs.groups
    planned = [epochs.group(slot) for slot in range(first, first + epochs.groups)]
    held = sorted((action, int(number)) for action, numbers in planned for number in numbers)
    assert held == [(action, number) for action, count in enumerate(counts) for number in range(count)]
    sizes = [len(numbers) for _, numbers in planned]
    assert min(sizes) >= 2
    assert max(sizes) <= max(size, 3 if size == 2 else 0)


@given(Counts, st.integers(2, 5), st.sampled_from([1, 2, 3]), st.integers(0, 5))
def test_ranks_share_what_one_process_would_read(counts: list[int], size: int, world: int, step: int) -> None:
    """Together they read the same groups in the same order, and in an epoch none reads another's videos."""
    how = {"read": read, "videos": size, "actions": 6, "frames": 4, "epochs": True, "seed": 3}
    whole = GroupStream(videos(counts), **how)  # type: ignore[arg-type]
    shares = [GroupStream(videos(counts), **how, rank=rank, world=world) for rank in range(world)]  # type: ignore[arg-type]
    alone = whole[step].groups
    for place, group in enumerate(alone):
        shared = shares[place % world][step].groups[place // world]
        assert shared.ids == group.ids
        assert torch.equal(shared.values, group.values)


@pytest.mark.parametrize(("world", "broken"), [(2, ()), (3, ()), (2, ("0-0", "0-1", "0-2", "0-3", "1-4"))])
def test_no_rank_reads_anothers_videos_in_an_epoch(world: int, broken: tuple[str, ...]) -> None:
    counts = [7, 12, 5]
    epochs = Epochs(counts, size=4, seed=0)
    steps = 30
    owners: dict[int, dict[str, set[int]]] = {}
    for rank in range(world):
        stream = GroupStream(
            videos(counts),
            read=read_all_but(*broken),  # type: ignore[arg-type]
            videos=4,
            actions=6,
            frames=4,
            epochs=True,
            rank=rank,
            world=world,
        )
        for step in range(steps):
            for place, group in enumerate(stream[step].groups):
                epoch = (step * 6 + place * world + rank) // epochs.groups
                for id in group.ids:
                    assert id not in broken
                    owners.setdefault(epoch, {}).setdefault(id, set()).add(rank)
    assert len(owners) > 10
    for epoch, owner in owners.items():
        assert all(len(ranks) == 1 for ranks in owner.values())
        if epoch < max(owners):
            alone = {video.id for video in videos(counts)} - owner.keys() - set(broken)
            # A video is lost to an epoch only where the others of its group cannot be read.
            assert not alone or broken
    # Over epochs it changes who reads what.
    assert len({frozenset(owner["1-1"]) for owner in owners.values() if "1-1" in owner}) == world


def test_epochs_differ_and_a_run_resumes_anywhere() -> None:
    how = {"read": read, "videos": 3, "actions": 2, "frames": 4, "epochs": True}
    stream = GroupStream(videos([9, 6]), **how)  # type: ignore[arg-type]
    batches = [stream[step] for step in range(10)]
    again = GroupStream(videos([9, 6]), **how)  # type: ignore[arg-type]
    assert ids([again[7]]) == ids([batches[7]])
    assert torch.equal(again[7].groups[0].values, batches[7].groups[0].values)
    # Five groups an epoch, two a step: two epochs are five steps.
    counted = Counter(ids(batches[:5]))
    assert set(counted.values()) == {2}
    assert len(counted) == 15
    assert ids(batches[:5]) != ids(batches[5:])
    with pytest.raises(IndexError, match="steps count from 0"):
        stream[-1]


def test_neighbors_are_of_different_actions() -> None:
    epochs = Epochs([40, 40, 40, 40], size=4, seed=0)
    actions = [epochs.group(slot)[0] for slot in range(epochs.groups)]
    assert all(sorted(actions[k : k + 4]) == [0, 1, 2, 3] for k in range(0, 40, 4))


def test_nothing_that_can_be_read_ends_with_the_reason() -> None:
    every = [video.id for video in videos([3])]
    stream = GroupStream(videos([3]), read=read_all_but(*every), epochs=True, frames=4)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"no group of this process .*0-0.* is damaged"):
        stream[0]
