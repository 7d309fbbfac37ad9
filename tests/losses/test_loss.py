"""Groups as objectives see them: lengths, blocks, pairs, and what is refused."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from inphase.losses.loss import Loss, Sequences, draw_distinct, pair_up
from inphase.media.sampling import sample
from tests.losses.groups import make_group, random_group

NAN = float("nan")


def test_padding_is_marked_and_cleaned() -> None:
    group = random_group([3, 1], d=2, filling=NAN)
    assert group.mask.tolist() == [[True] * 3, [True, False, False]]
    assert not group.unpadded
    assert group.clean[1, 1:].tolist() == [[0, 0], [0, 0]]
    assert torch.equal(group.clean[0], group.values[0])
    assert random_group([3, 3]).unpadded


def test_moments_are_frames_over_totals() -> None:
    group = make_group([torch.ones(2, 1), torch.ones(1, 1)], frames=[torch.tensor([2, 6]), torch.tensor([3])],
                       totals=torch.tensor([8, 4]))  # fmt: skip
    assert group.positions.tolist() == [[0.25, 0.75], [0.75, 0]]


def test_blocks_follow_one_another_within_each_length() -> None:
    values = torch.arange(6.0)[:, None]
    group = make_group([values, values[:4] + 10], labels=torch.arange(12).view(2, 6), filling=NAN)
    first, second = group.blocks(2)
    assert first.lengths.tolist() == second.lengths.tolist() == [3, 2]
    assert first.clean[..., 0].tolist() == [[0, 1, 2], [10, 11, 0]]
    assert second.clean[..., 0].tolist() == [[3, 4, 5], [12, 13, 0]]
    assert second.frames[0].tolist() == [3, 4, 5]
    assert second.labels is not None
    assert second.labels[1, :2].tolist() == [8, 9]
    assert group.blocks(1) == (group,)
    whole = first.join(second)
    assert torch.equal(whole.clean, group.clean)
    assert torch.equal(whole.frames[group.mask], group.frames[group.mask])
    assert whole.lengths.tolist() == [6, 4]
    with pytest.raises(ValueError, match=r"multiples of 4, one for each block; got \[6, 4\]"):
        group.blocks(4)


@pytest.mark.parametrize(
    ("pairs", "ordered", "expected"),
    [
        ("anchor", False, {(0, 1), (0, 2)}),
        ("anchor", True, {(0, 1), (0, 2), (1, 0), (2, 0)}),
        ("all", False, {(0, 1), (0, 2), (1, 2)}),
        ("all", True, {(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)}),
    ],
)
def test_pairs(pairs: Any, ordered: bool, expected: set[tuple[int, int]]) -> None:
    first, second = pair_up(random_group([2, 2, 2]), pairs, ordered=ordered)
    assert len(first) == len(expected)
    assert set(zip(first, second, strict=True)) == expected


def test_one_sequence_forms_no_pair() -> None:
    with pytest.raises(ValueError, match="two sequences to form a pair, got 1"):
        pair_up(random_group([4]), "all")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.ones(2, 3)}, r"values must be \[K, T, D\]"),
        ({"lengths": torch.tensor([3, 4])}, "between 1 and the padded length 3, got 3 to 4"),
        ({"lengths": torch.tensor([0, 3])}, "between 1 and the padded length 3, got 0 to 3"),
        ({"lengths": torch.tensor([3])}, r"lengths must be \[2\] integers"),
        ({"frames": torch.zeros(2, 3)}, r"frames must be \[2, 3\] integers, got torch.float32"),
        ({"totals": torch.tensor([[9, 9]])}, r"totals must be \[2\] integers"),
        ({"labels": torch.zeros(2, 2).long()}, r"labels must be \[2, 3\] integers"),
        ({"progress": torch.zeros(2, 3)}, r"progress must be \[2, 3, E\], got \[2, 3\]"),
    ],
)
def test_contradictions_are_named(change: dict[str, Any], message: str) -> None:
    good = {
        "values": torch.ones(2, 3, 4),
        "lengths": torch.tensor([3, 2]),
        "frames": torch.zeros(2, 3, dtype=torch.int64),
        "totals": torch.tensor([9, 9]),
    }
    Sequences(**good)
    with pytest.raises(ValueError, match=message):
        Sequences(**{**good, **change})


def test_the_plain_draw_is_distinct_sorted_and_even() -> None:
    rng = np.random.default_rng(0)
    seen = np.zeros(30)
    for _ in range(300):
        frames = Loss().frames(30, count=10, rng=rng)
        assert frames.dtype == np.int64
        assert (np.diff(frames) > 0).all()
        seen[frames] += 1
    assert seen.min() > 60  # each is expected 100 times
    assert draw_distinct(3, count=7, rng=rng).tolist() in ([0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, 2, 2],
                                                          [0, 0, 1, 1, 2, 2, 2])  # fmt: skip


def test_another_draw_takes_its_place() -> None:
    def last(total: int, /, *, count: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.arange(total - count, total)

    assert Loss().frames(9, count=2, rng=np.random.default_rng(0), draw=last).tolist() == [7, 8]


@pytest.mark.parametrize("rule", ["random", "released"])
def test_the_rules_of_data_are_draws(rule: Any) -> None:
    draw = partial(sample, rule=rule)
    frames = Loss().frames(50, count=20, rng=np.random.default_rng(0), draw=draw)
    assert frames.tolist() == sample(50, rule=rule, count=20, rng=np.random.default_rng(0)).tolist()
