from dataclasses import replace

import numpy as np
import pytest

from inphase.align.matching import align_with_itself, match
from inphase.align.path import soft_posterior
from inphase.apps import verdict
from inphase.apps.alignment_files import add_certainty
from inphase.apps.verdict import (
    COST_NUMBERS,
    FITTED,
    MOMENT_NUMBERS,
    WHOLE_NUMBERS,
    Verdict,
    gather,
    judge,
)
from inphase.models.embedding import Embedding, Route
from inphase.playback import VideoTrack
from inphase.pose.body import MOTION_NUMBERS, compare_motion
from inphase.pose.pose import JOINTS13, Pose
from tests.apps.curves import on_curve

ROUTES = (Route(6, 0.1), Route(6, 0.05))


def both(moments: np.ndarray, *, noise: float = 0.0, seed: int = 0) -> Embedding:
    """Embed a curve twice, as by two encoders."""
    parts = [on_curve(moments, noise=noise, seed=seed + k).values / np.sqrt(beta) for k, (_, beta) in enumerate(ROUTES)]
    rows = np.concatenate(parts, axis=1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Embedding(rows.astype(np.float32), np.arange(len(moments)) / 30, "both", routes=ROUTES)


def other_action(like: Embedding) -> Embedding:
    noise = np.random.default_rng(0).normal(size=like.values.shape).astype(np.float32)
    return replace(like, values=noise / np.linalg.norm(noise, axis=1, keepdims=True))


def person(frames: int) -> Pose:
    """Move the joints of a person on a curve."""
    phase = np.linspace(0, 1, frames)[:, None, None]
    rest = np.random.default_rng(0).normal(size=(1, 13, 2)) * 5 + np.array([50, 50])
    points = rest + 8 * np.sin(3 * phase + np.arange(26).reshape(13, 2))
    shown = np.ones((frames, 13), np.float32)
    times = np.arange(frames) / 30
    return Pose(JOINTS13, points.astype(np.float32), shown, np.ones(frames, bool), times, (100, 100))


X, Y = both(np.linspace(0, 1, 60)), both(np.linspace(0, 1, 80) ** 1.3)


def test_the_same_action_is_good_and_another_is_not_trusted() -> None:
    good = judge(X, Y, match(X, Y))
    assert (good.judgment, good.reasons, good.stretches) == ("good", (), ())
    assert good.moments.shape == (60,)
    assert good.moments.mean() > 0.8
    wrong = judge(X, other_action(Y), match(X, other_action(Y)))
    assert wrong.judgment == "do_not_trust"
    assert wrong.moments.max() < 0.3
    assert any("hardly more alike than others" in reason for reason in wrong.reasons)
    assert good.probability is not None
    assert wrong.probability is not None
    assert wrong.probability < 0.3 < 0.7 <= good.probability


def test_a_reversed_video_is_not_trusted_and_named() -> None:
    backwards = replace(Y, values=np.ascontiguousarray(Y.values[::-1]))
    found = judge(X, backwards, match(X, backwards))
    assert found.judgment == "do_not_trust"
    assert "One video fits the other better if it is played backwards." in found.reasons


@pytest.mark.parametrize("modality", ["pose", "image"])
def test_one_modality_has_a_verdict_of_its_own(modality: str) -> None:
    x, y = (replace(on_curve(np.linspace(0, 1, n)), modality=modality) for n in (50, 70))
    evidence = gather(x, y, match(x, y))
    assert evidence is not None
    assert evidence.kind == modality
    right, wrong = judge(x, y, match(x, y)), judge(x, other_action(y), match(x, other_action(y)))
    assert right.probability is not None
    assert wrong.probability is not None
    assert right.probability > 0.5 > wrong.probability


def test_a_second_route_of_a_modality_is_not_taken_for_another() -> None:
    """The arms of a pose encoder that was trained with them are no images."""
    x, y = (replace(each, modality="pose") for each in (X, Y))
    evidence = gather(x, y, match(x, y))
    assert evidence is not None
    assert evidence.kind == "pose"


def test_a_stretch_that_differs_is_named_by_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of y shows something else: its moments are improbable, those far from it are not."""
    monkeypatch.setitem(verdict.FITTED["pose_image"], "moment", (-3.0, 6.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.5))
    values = Y.values.copy()
    values[20:65] = other_action(Y).values[20:65]
    y = replace(Y, values=values)
    found = judge(X, y, match(X, y))
    times = match(X, Y).time_map(X.times, Y.times)
    inside = (times > 22 / 30) & (times < 60 / 30)
    assert found.moments[inside].mean() < found.moments[:12].mean() - 0.1
    assert found.judgment == "check"
    start, end = found.stretches[0]
    assert X.times[inside].min() - 0.3 <= start < end <= X.times[inside].max() + 0.3
    assert f"Check these moments of the reference: {start:.1f} to {end:.1f} s" in found.reasons[-1]


def test_moments_of_rest_are_less_probable_than_those_of_motion_and_not_named() -> None:
    """Where somebody waits, one frame is as good as the next: address and finish of a golf swing, for example."""
    x, y = (
        both(np.concatenate([np.linspace(0, 0.5, 30), np.full(rest, 0.5), np.linspace(0.5, 1, 30)]))
        for rest in (30, 45)
    )
    found, evidence = judge(x, y, match(x, y)), gather(x, y, match(x, y))
    assert evidence is not None
    motion = evidence.moments[:, MOMENT_NUMBERS.index("motion")]
    np.testing.assert_allclose(motion[36:54], np.log(0.02), atol=1e-6)
    assert motion[5:25].min() > np.log(0.5)
    assert found.moments[36:54].max() < found.moments[5:25].min() - 0.3
    assert found.stretches == ()


def test_there_are_as_many_weights_as_numbers() -> None:
    assert set(FITTED) == {"pose_image", "pose_image_joints", "pose", "pose_joints", "image"}
    for kind, fitted in FITTED.items():
        modalities = kind.removesuffix("_joints").split("_")
        costs = 1 + (len(modalities) if len(modalities) > 1 else 0)
        joints = len(MOTION_NUMBERS) if kind.endswith("_joints") else 0
        assert len(fitted["whole"]) == 1 + costs * len(COST_NUMBERS) + len(WHOLE_NUMBERS) + joints
        assert len(fitted["moment"]) == 1 + len(MOMENT_NUMBERS)
        assert 0 < fitted["doubtful"] < verdict.GOOD


def test_joints_are_compared_where_both_videos_have_a_pose() -> None:
    poses = [person(60), person(80)]
    x, y = (replace(each, pose=pose) for each, pose in zip((X, Y), poses, strict=True))
    found = match(x, y)
    evidence = gather(x, y, found)
    without = gather(X, Y, found)
    assert evidence is not None
    assert without is not None
    assert (evidence.kind, without.kind) == ("pose_image_joints", "pose_image")
    count = len(without.whole)
    np.testing.assert_allclose(evidence.whole[:count], without.whole)
    joints = [each.joints13() for each in poses]
    expected = compare_motion(joints[0], joints[1], found.path, frames=found.frame_map(), reach=6)
    np.testing.assert_allclose(evidence.whole[count:], expected)
    # Fewer frames than the pose has: each takes the joints of its own second.
    thin = replace(y, values=y.values[::2], times=y.times[::2])
    fewer = gather(x, thin, match(x, thin))
    assert fewer is not None
    assert fewer.whole[count] == pytest.approx(evidence.whole[count], abs=0.05)
    assert judge(x, y, found).judgment in ("good", "check", "do_not_trust")


def test_a_person_upside_down_is_not_trusted_beside_one_who_is_not() -> None:
    upright = person(60)
    upright.keypoints[:, [1, 2], 1] -= 200
    hanging = replace(upright, keypoints=upright.keypoints * np.array([1, -1], np.float32))
    for poses, judged in (((upright, hanging), True), ((hanging, hanging), False), ((upright, upright), False)):
        x, y = (replace(X, pose=pose) for pose in poses)
        found = judge(x, y, match(x, y))
        assert ("One of the two people is upside down." in found.reasons) == judged
        assert (found.judgment == "do_not_trust") or not judged


def test_a_straight_path_is_straight() -> None:
    straight = verdict._path_numbers(np.stack([np.arange(50)] * 2, 1), np.arange(50.0), (30.0, 30.0))
    np.testing.assert_allclose(straight, [1, 0, 0, 0, 0, 0, 0], atol=1e-9)
    path = np.array([[k, 0] for k in range(30)] + [[29 + k, k] for k in range(1, 21)])
    frames = np.concatenate([np.zeros(30), np.arange(1.0, 21)])
    diagonal, stall, off, _, _, flat, steep = verdict._path_numbers(path, frames, (30.0, 30.0))
    np.testing.assert_allclose([diagonal, stall, steep], [20 / 49, 29 / 21, 0])
    assert off > 0.2
    assert 0.4 < flat < 0.6


def test_the_numbers_of_a_cost_are_what_they_are_called() -> None:
    found = match(X, Y)
    evidence = gather(X, Y, found)
    assert evidence is not None
    assert found.cost_matrix is not None
    cost = np.asarray(found.cost_matrix, np.float64)
    on_path = [cost[i, j] for i, j in found.path.tolist()]
    assert evidence.cost["ratio"] == pytest.approx(np.mean(on_path) / cost.mean(), rel=1e-5)
    ranks = [(np.mean(cost[i] < cost[i, j]) + np.mean(cost[:, j] < cost[i, j])) / 2 for i, j in found.path.tolist()]
    assert evidence.cost["rank"] == pytest.approx(np.mean(ranks))
    backwards = match(X, replace(Y, values=np.ascontiguousarray(Y.values[::-1])))
    step = (backwards.cost / len(backwards.path) - found.cost / len(found.path)) / cost.mean()
    assert evidence.cost["reversal"] == pytest.approx(step, rel=1e-4)
    assert evidence.cost["motion"] > 0.95
    assert evidence.cost["nearest"] > 0.9


def test_a_long_pair_is_judged_on_fewer_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = judge(X, Y, match(X, Y))
    monkeypatch.setattr(verdict, "MAX_CELLS", 60 * 80 // 4)
    thin = judge(X, Y, match(X, Y))
    assert thin.moments.shape == whole.moments.shape
    assert thin.judgment == whole.judgment


def test_without_costs_there_is_no_verdict_and_stillness_is_a_reason() -> None:
    assert judge(X, X, align_with_itself(60)).judgment is None
    assert judge(X, Y, match(X, Y, keep_cost=False)).judgment is None
    assert judge(X, Y, match(X, Y, subsequence=True)).to_dict()["verdict"] is None
    still = replace(Y, values=np.zeros_like(Y.values))
    assert judge(X, still, match(X, still)).reasons == ("Nothing moves in one of the videos.",)
    described = Verdict().to_dict()
    assert described == {"verdict": None, "probability": None, "reasons": [], "moments": [], "check": []}


def test_tracks_get_the_certainty_of_their_verdicts() -> None:
    track = VideoTrack("a", 2.0, 30.0, (9, 9), media="a.mp4")
    found = judge(X, Y, match(X, Y))
    reference, other = add_certainty([track, track], [Verdict(), found], X.times)
    assert reference.certainty is None
    assert other.certainty is not None
    assert other.certainty.judgment == "good"
    np.testing.assert_allclose(other.certainty.probability, found.moments, atol=1e-6)


def test_an_action_that_repeats_is_to_be_checked_and_its_period_named() -> None:
    periods = np.concatenate([np.linspace(0, 0.9, 15, endpoint=False)] * 6)
    x, y = both(periods, noise=0.05), both(np.roll(periods, 3), noise=0.05, seed=5)
    found = judge(x, y, match(x, y))
    assert found.judgment in ("check", "do_not_trust")
    assert "The action repeats every 0.5 s: the videos may be off by a repetition." in found.reasons
    evidence = gather(x, y, match(x, y))
    assert evidence is not None
    assert evidence.periods == pytest.approx((0.5, 0.5), abs=0.04)
    once = gather(X, Y, match(X, Y))
    assert once is not None
    assert once.periods == (None, None)


def test_repetitions_alone_turn_good_into_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of a path that is off by a whole repetition are as good as those of the right one."""
    certain = [3.0, *np.zeros(len(verdict.FITTED["pose_image"]["whole"]) - 1)]
    monkeypatch.setitem(verdict.FITTED["pose_image"], "whole", certain)
    monkeypatch.setitem(verdict.FITTED["pose_image"], "moment", [3.0, *np.zeros(len(MOMENT_NUMBERS))])
    periods = np.concatenate([np.linspace(0, 0.9, 15, endpoint=False)] * 6)
    x, y = both(periods), both(periods)
    found = judge(x, y, match(x, y))
    assert found.probability is not None
    assert found.probability >= verdict.GOOD
    assert (found.judgment, len(found.reasons)) == ("check", 1)


@pytest.mark.parametrize(("swap", "which"), [(False, "The video"), (True, "The reference")])
def test_a_session_beside_a_clip_is_named_with_the_option_that_cuts_it(swap: bool, which: str) -> None:
    clip = np.linspace(0, 0.9, 45, endpoint=False)
    pair = both(clip), both(np.concatenate([clip] * 3), noise=0.05)
    x, y = pair[::-1] if swap else pair
    reason = (
        f"{which} shows the action again every 1.5 s: cut it into repetitions (--session, or session=True in Python)."
    )
    assert reason in judge(x, y, match(x, y)).reasons


def test_slow_motion_is_measured_and_named_among_the_reasons() -> None:
    slow = both(np.linspace(0, 1, 241))
    evidence = gather(X, slow, match(X, slow))
    assert evidence is not None
    assert evidence.tempo == pytest.approx(4.0, abs=0.4)
    reasons = list(verdict._reasons(evidence))
    assert reasons[0] == (
        f"The video runs {evidence.tempo:.1f} times slower than the other: it may be slow motion, or a session of "
        "several repetitions (--session, or session=True in Python)."
    )


def soft_table(cost: np.ndarray) -> np.ndarray:
    """Accumulate a cost [M, N] by soft-DTW, cell by cell."""
    table = np.full((cost.shape[0] + 1, cost.shape[1] + 1), np.inf)
    table[0, 0] = 0.0
    for i, j in np.ndindex(cost.shape):
        before = -np.array([table[i, j], table[i, j + 1], table[i + 1, j]]) / verdict.TEMPERATURE
        table[i + 1, j + 1] = cost[i, j] - verdict.TEMPERATURE * np.logaddexp.reduce(before)
    return table[1:, 1:]


def test_the_posterior_is_that_of_soft_dtw() -> None:
    cost = np.random.default_rng(0).uniform(0, 5, (13, 17))
    through = soft_table(cost) + soft_table(cost[::-1, ::-1])[::-1, ::-1] - cost
    weights = np.exp(-(through - through.min()) / verdict.TEMPERATURE)
    found = soft_posterior(cost, gamma=verdict.TEMPERATURE)
    np.testing.assert_allclose(found / found.sum(1, keepdims=True), weights / weights.sum(1, keepdims=True), atol=1e-9)
