"""Groups as the losses receive them: lengths, blocks, pairs, and what is refused."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.losses import LOSSES
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


def whole_videos(*sequences: Tensor) -> Sequences:
    lengths = torch.tensor([len(each) for each in sequences])
    values = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True)
    return Sequences(values, lengths, torch.arange(values.shape[1]).expand(len(values), -1), lengths)


@pytest.mark.parametrize("name", ["gta", "soft_dtw", "lav", "tcc", "sal"])
def test_two_sequences_are_scored_as_a_group_of_two(name: str) -> None:
    torch.manual_seed(0)
    loss = LOSSES[name](**({"dimension": 4} if name == "sal" else {}))
    x, y, z = torch.randn(9, 4, requires_grad=True), torch.randn(7, 4), torch.randn(7, 4)

    def score(*given: Any, **options: Any) -> float:
        torch.manual_seed(1)  # SaL draws its triplets
        return float(loss(*given, **options)["loss"].detach())

    assert score(x, y) == pytest.approx(score(whole_videos(x, y)), rel=1e-5)
    assert score(x.detach().numpy(), y.numpy()) == pytest.approx(score(x, y), rel=1e-5)
    padded = torch.cat([x[None, :7], x[None, 2:]]), torch.stack([y, z])
    assert score(*padded, x_lengths=[7, 5]) == pytest.approx(score([x[:7], x[2:7]], [y, z]), rel=1e-4)
    loss(x, y)["loss"].backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


def test_a_loss_says_what_it_needs_in_place_of_a_pair() -> None:
    x, y = torch.rand(6, 4), torch.rand(6, 4)
    for name in ("tcn", "speednet"):
        with pytest.raises(ValueError, match="scores frames that it samples itself"):
            LOSSES[name]()(x, y)
    with pytest.raises(ValueError, match="give a second sequence y"):
        LOSSES["gta"]()(x)
    with pytest.raises(ValueError, match="a group of Sequences holds all sequences"):
        LOSSES["gta"]()(whole_videos(x, y), y)
    nan = whole_videos(x, torch.full((3, 4), float("nan")))
    with pytest.raises(ValueError, match=r"sequences\[1\] is NaN at frame 0"):
        LOSSES["gta"]()(nan, check=True)
