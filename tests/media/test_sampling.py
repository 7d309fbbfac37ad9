from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kendalltau

from inphase.media.sampling import Context, clamped, context_frames, sample, usable

LENGTHS = st.integers(1, 80)
EDGES: tuple[Literal["clamp", "mirror", "valid"], ...] = ("clamp", "mirror", "valid")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(LENGTHS, st.sampled_from(["random", "released"]), st.integers(0, 99))
def test_a_draw_is_sorted_inside_and_as_long_as_asked(
    length: int, rule: Literal["random", "released"], seed: int
) -> None:
    frames = sample(length, rule=rule, count=20, rng=generator(seed))
    assert len(frames) == 20
    assert (np.diff(frames) >= 0).all()
    assert frames[0] >= 0
    assert frames[-1] < length
    if length > 20:
        assert len(set(frames.tolist())) == 20


def test_the_paper_draws_every_frame_equally_often() -> None:
    rng = generator()
    drawn = np.concatenate([sample(30, rng=rng) for _ in range(3000)])
    counts = np.bincount(drawn, minlength=30)
    # Distinct draws vary less than independent ones, so the test is on the safe side.
    assert chisquare(counts).pvalue > 0.01
    assert len(counts) == 30


def test_the_released_rule_never_draws_frame_0_and_the_others_equally_often() -> None:
    rng = generator()
    drawn = np.concatenate([sample(30, rule="released", rng=rng) for _ in range(3000)])
    counts = np.bincount(drawn, minlength=30)
    assert counts[0] == 0
    assert chisquare(counts[1:]).pvalue > 0.01


def test_the_released_rule_at_its_boundary() -> None:
    assert sample(21, rule="released", rng=generator()).tolist() == list(range(1, 21))
    assert sample(20, rule="released").tolist() == list(range(20))
    assert sample(5, rule="released", count=8).tolist() == [0, 1, 2, 3, 4, 4, 4, 4]


def test_a_video_too_short_for_the_paper_repeats_its_frames_evenly() -> None:
    assert sample(20, rng=generator()).tolist() == list(range(20))
    assert sample(4, count=10).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]


def test_strided_and_all() -> None:
    assert sample(10, rule="strided", stride=4).tolist() == [0, 4, 8]
    assert sample(3, rule="all").tolist() == [0, 1, 2]
    assert sample(40, rule="strided", stride=10, context=Context(edges="valid")).tolist() == [15, 25, 35]


def test_a_stretch_limits_the_draw() -> None:
    assert sample(40, rule="all", within=range(10, 14)).tolist() == [10, 11, 12, 13]
    assert sample(40, rule="all", within=range(10, 17), context=Context(edges="valid")).tolist() == [15, 16]
    with pytest.raises(ValueError, match=r"within range\(50, 60\)"):
        sample(40, rule="all", within=range(50, 60))


def test_chance_needs_a_generator_and_a_rule_a_name() -> None:
    with pytest.raises(ValueError, match="pass rng="):
        sample(30)
    with pytest.raises(ValueError, match="got 'dense'"):
        sample(30, rule="dense")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one frame, got 0"):
        sample(0, rule="all")


def test_the_context_is_the_papers_by_default() -> None:
    assert Context() == Context((-15, 0), "clamp")


def test_clamped_context_by_hand() -> None:
    frames = np.array([0, 3, 14, 15, 20])
    assert context_frames(frames, length=21, context=Context()).tolist() == [[0, 0], [0, 3], [0, 14], [0, 15], [5, 20]]
    assert clamped(frames, length=21, context=Context()).tolist() == [True, True, True, False, False]
    assert (
        clamped(np.arange(20), length=20, context=Context((-8, -4, 0, 4, 8))).tolist()
        == [True] * 8 + [False] * 4 + [True] * 8
    )


def test_mirrored_context_by_hand() -> None:
    context = Context((-4, 0, 4), "mirror")
    assert context_frames(np.array([0, 2, 5, 8]), length=9, context=context).tolist() == [
        [4, 0, 4],
        [6, 2, 6],
        [1, 5, 1],
        [4, 8, 4],
    ]
    # Too short on either side: 1 + 4 = 5 folds back at 2 to −1 and then at 0 to 1.
    assert context_frames(np.array([1]), length=3, context=context).tolist() == [[1, 1, 1]]
    assert context_frames(np.array([0]), length=1, context=context).tolist() == [[0, 0, 0]]


@given(st.integers(31, 90))
def test_a_mirrored_context_is_as_far_away_as_ever(length: int) -> None:
    frames = np.arange(length)
    distance = np.abs(context_frames(frames, length=length, context=Context(edges="mirror")) - frames[:, None])
    assert (distance == [15, 0]).all()
    leaking = np.abs(context_frames(frames, length=length, context=Context(edges="clamp")) - frames[:, None])
    assert kendalltau(leaking[:, 0], frames).statistic > 0.4


@given(LENGTHS, st.sampled_from(EDGES), st.lists(st.integers(-20, 20), min_size=1, max_size=5))
def test_context_exists_and_is_exact_wherever_it_can_be(
    length: int, edges: Literal["clamp", "mirror", "valid"], offsets: list[int]
) -> None:
    context = Context(tuple(offsets), edges)
    frames = np.arange(length)
    mask = clamped(frames, length=length, context=context)
    if edges == "valid":
        if mask.all():
            with pytest.raises(ValueError, match="has its full context"):
                usable(length, context=context)
            return
        frames, mask = frames[~mask], mask[~mask]
        assert frames.tolist() == list(usable(length, context=context))
    found = context_frames(frames, length=length, context=context)
    assert found.shape == (len(frames), len(offsets))
    assert ((found >= 0) & (found < length)).all()
    assert np.array_equal(found[~mask], (frames[:, None] + np.array(offsets))[~mask])


def test_valid_context_restricts_the_draw_and_refuses_other_frames() -> None:
    context = Context(edges="valid")
    rng = generator()
    drawn = np.concatenate([sample(40, context=context, rng=rng) for _ in range(200)])
    assert set(drawn.tolist()) == set(range(15, 40))
    with pytest.raises(ValueError, match="frame 3 of 40 has no full context"):
        context_frames(np.array([20, 3]), length=40, context=context)


def test_an_impossible_context_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one offset"):
        Context(())
    with pytest.raises(ValueError, match="got 'wrap'"):
        Context((0,), "wrap")  # type: ignore[arg-type]
