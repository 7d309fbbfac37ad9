from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from inphase.align.cost import find_period
from inphase.media.frames import Clip
from inphase.media.sampling import Context, context_frames
from inphase.models.embedding import Embedding, embed
from inphase.models.encoder import Encoder, Modality
from tests.apps.curves import on_curve

OFFSETS = [(0,), (-15, 0), (-8, -4, 0, 4, 8), (3,), (-40, 40)]


class Toy(Encoder):
    """Sees images of 2×3 and counts how many."""

    modality: ClassVar[Modality] = "image"

    def __init__(self, *, context: int) -> None:
        super().__init__(context=range(context))
        torch.manual_seed(0)
        self.shape, self.config, self.looked = (2, 3, 3), {"context": context}, 0
        self.head = nn.Sequential(nn.Linear(18 * context, 5), nn.BatchNorm1d(5))

    def features(self, frames: Tensor) -> Tensor:
        self.looked += len(frames)
        return frames.flatten(1)

    def combine(self, features: Tensor) -> Tensor:
        return nn.functional.normalize(self.head(features.flatten(1)), dim=-1)


def clip(length: int) -> Clip:
    frames = np.random.default_rng(0).integers(0, 256, (length, 2, 3, 3), dtype=np.uint8)
    return Clip(frames, np.cumsum(np.full(length, 1 / 29.97)))


def expected(encoder: Toy, shown: Clip, frames: NDArray[np.int64], context: Context) -> Tensor:
    rows = context_frames(frames, length=len(shown), context=context)
    with torch.no_grad():
        found: Tensor = encoder.eval()(torch.from_numpy(shown.frames)[rows][None].float())
    return found[0]


@pytest.mark.parametrize("edges", ["clamp", "mirror"])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("length", [1, 2, 9, 50])
def test_every_frame_is_embedded_as_the_encoder_does_and_once(
    offsets: tuple[int, ...], edges: str, length: int
) -> None:
    shown, context = clip(length), Context(offsets, edges)  # type: ignore[arg-type]
    truth = expected(Toy(context=len(offsets)), shown, np.arange(length), context)
    for batch in (1, 7, 64):
        encoder = Toy(context=len(offsets))
        found = embed(encoder, shown, context=context, batch=batch)
        np.testing.assert_allclose(found.values, truth, atol=1e-6)
        np.testing.assert_array_equal(found.times, shown.times)
        assert encoder.looked == length


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_frames_without_a_whole_context_are_left_out_where_edges_are_valid(batch: int) -> None:
    shown, context = clip(50), Context((-8, 0, 4), "valid")
    found = embed(Toy(context=3), shown, context=context, batch=batch)
    np.testing.assert_array_equal(found.times, shown.times[8:46])
    truth = expected(Toy(context=3), shown, np.arange(8, 46), context)
    np.testing.assert_allclose(found.values, truth, atol=1e-6)
    with pytest.raises(ValueError, match="none of 10 frames has its full context"):
        embed(Toy(context=3), clip(10), context=context, batch=batch)


def test_a_stream_gives_what_the_whole_does_and_is_read_as_it_is_needed() -> None:
    shown, context, pulled, reported = clip(90), Context((-4, 0, 4)), [0], list[int]()

    def stream() -> Iterator[Clip]:
        for begin in range(0, 90, 20):
            pulled[0] += 1
            yield Clip(shown.frames[begin : begin + 20], shown.times[begin : begin + 20])

    def progress(count: int) -> None:
        reported.append(count)
        assert count >= 20 * pulled[0] - 20 - 4  # all but the last stretch and its context is done

    found = embed(Toy(context=3), stream(), context=context, batch=20, progress=progress)
    np.testing.assert_allclose(found.values, embed(Toy(context=3), shown, context=context).values, atol=1e-6)
    np.testing.assert_array_equal(found.times, shown.times)
    assert reported == sorted(reported)
    assert reported[-1] == 90


def test_no_more_features_are_kept_than_a_window_and_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    join = torch.cat

    def cat(parts: list[Tensor]) -> Tensor:
        kept.append(sum(map(len, parts)))
        return join(parts)

    monkeypatch.setattr(torch, "cat", cat)
    embed(Toy(context=2), clip(500), context=Context((-15, 0)), batch=10)
    assert max(kept) <= 10 + 2 * 15


def test_the_work_is_done_where_the_encoder_lives(device: torch.device) -> None:
    encoder = Toy(context=2).to(device)
    found = embed(encoder, clip(30), context=Context((-3, 0)), batch=8)
    truth = embed(encoder.cpu(), clip(30), context=Context((-3, 0)), batch=8)
    np.testing.assert_allclose(found.values, truth.values, atol=1e-5)


def test_poses_come_with_their_times_and_the_mode_is_put_back() -> None:
    encoder, shown = Toy(context=1).train(), clip(12)
    found = embed(encoder, (shown.frames.astype(np.float32), shown.times), context=Context((0,)))
    np.testing.assert_array_equal(found.values, embed(encoder, shown, context=Context((0,))).values)
    assert encoder.training


def test_what_does_not_fit_is_named() -> None:
    wide = Clip(np.zeros((4, 2, 5, 3), np.uint8), np.arange(4.0))
    with pytest.raises(ValueError, match=r"got \(2, 5, 3\): read them with size=\(2, 3\)"):
        embed(Toy(context=1), wide, context=Context((0,)))
    with pytest.raises(ValueError, match="batch must be at least 1"):
        embed(Toy(context=1), clip(3), context=Context((0,)), batch=0)
    with pytest.raises(ValueError, match="4 frames need as many times, got 3"):
        embed(Toy(context=1), (np.zeros((4, 2, 3, 3)), np.arange(3.0)), context=Context((0,)))
    with pytest.raises(ValueError, match="3 vectors need as many times"):
        Embedding(np.zeros((3, 2), np.float32), np.arange(4.0))


def test_the_context_reaches_equally_far_in_seconds() -> None:
    encoder, shown = Toy(context=2), clip(40)
    encoder.context = Context((-4, 0))
    frames = embed(encoder, shown, context=Context((-4, 0))).values
    np.testing.assert_array_equal(embed(encoder, shown).values, frames)
    encoder.rate = 29.97 / 2  # trained at half the rate: the same second lies twice as many frames away
    twice = embed(encoder, shown, context=Context((-8, 0))).values
    np.testing.assert_array_equal(embed(encoder, shown).values, twice)
    single = embed(encoder, clip(1))
    assert len(single) == 1


@pytest.mark.parametrize("cycles", [1.8, 3.0, 6.5])
def test_a_motion_that_repeats_has_a_period(cycles: float) -> None:
    moments = np.arange(round(40 * cycles)) / 40 % 1
    assert find_period(on_curve(0.9 * moments, noise=0.3).values, rate=30) == pytest.approx(40 / 30, abs=0.05)


@pytest.mark.parametrize(
    "moments",
    [
        np.linspace(0, 1, 90),
        np.concatenate([np.zeros(30), np.linspace(0, 1, 45), np.ones(30)]),  # rests before and after
        np.concatenate([np.linspace(0, 1, 40), np.linspace(1, 0, 40)]),  # there and back
        np.zeros(60),
    ],
)
def test_an_action_shown_once_has_no_period(moments: NDArray[np.float64]) -> None:
    assert find_period(on_curve(moments).values, rate=30) is None


def test_the_period_of_a_long_recording_is_found_on_fewer_frames() -> None:
    moments = np.arange(9000) / 60 % 1
    assert find_period(on_curve(0.9 * moments).values, rate=30) == pytest.approx(2.0, abs=0.1)
