import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from inphase.align.consensus import PairwiseMaps
from inphase.apps.pose3d import (
    Performance,
    choose_partners,
    gather,
    read_reconstruction,
    reconstruct,
    write_reconstruction,
)
from inphase.apps.pose3d.adjustment import Bundle, Priors
from inphase.apps.pose3d.reconstruct import _Adjusted, _doubt, _facing, _mirror, _sharpen
from inphase.apps.pose3d.reconstruction_files import draw_reconstruction, make_pose_track, make_skeleton_playback
from inphase.apps.pose3d.views import Views
from inphase.data.video import Video
from inphase.models.embedding import Embedding
from inphase.playback import read_playback, write_playback
from inphase.pose.pose import JOINTS13, mirrored
from tests.apps.pose3d.scenes import about_hips, distance, film, videos

reconstruction = sys.modules["inphase.apps.pose3d.reconstruct"]  # the package's name of it is the function


def performance(video: Video) -> Performance:
    assert video.keypoints is not None
    assert video.visibility is not None
    times = np.arange(len(video.keypoints)) / 30
    return Performance(video.id, video.keypoints.astype(np.float64), video.visibility, times, JOINTS13)


@pytest.fixture(scope="module")
def kick() -> tuple[Video, Views]:
    """Nine people kick, seen at every fourth frame of the first; the alignment is the true one."""
    query, *others = videos("kick", count=9)
    assert query.progress is not None
    whole = performance(query)
    some = Performance(query.id, whole.points[::4], whole.seen[::4], whole.times[::4], JOINTS13)
    maps = [
        np.interp(query.progress[::4], other.progress, performance(other).times)
        for other in others
        if other.progress is not None
    ]
    return query, gather(some, list(map(performance, others)), maps)


def test_real_bodies_are_found_where_one_view_is_not_enough(kick: tuple[Video, Views]) -> None:
    query, views = kick
    true = about_hips(query)[::4]
    assert query.keypoints is not None
    flat = np.concatenate([query.keypoints[::4], np.zeros((len(true), 13, 1))], axis=-1)
    reported: list[int] = []
    found = reconstruct(views, progress=lambda done, total: reported.append(done))
    # Without reflection: front and back have to be right as well.
    assert distance(found.joints3d, true) < 0.16
    assert distance(flat - flat[:, [7, 8]].mean(1, keepdims=True), true, reflection=True) > 0.32
    assert reported == sorted(reported)
    assert reported[-1] == 100
    np.testing.assert_allclose(found.joints3d[:, [7, 8]].mean(1), 0, atol=1e-9)


def test_sides_do_not_change_over_time() -> None:
    found = reconstruct(film(views=6, every=4, noise=0.03).views())
    forward = np.cross(found.joints3d[:, 1] - found.joints3d[:, 2], -found.joints3d[:, [1, 2]].mean(1))
    assert ((forward[1:] * forward[:-1]).sum(-1) > 0).all()


def test_noiseless_cameras_far_away_are_found_exactly() -> None:
    scene = film(views=6, every=8)
    found = reconstruct(scene.views(), adjusts=False, flips=False)
    assert distance(found.joints3d, scene.body) < 0.02
    np.testing.assert_allclose(found.rotations, scene.rotations, atol=0.05)


def test_a_query_in_another_unit_gives_the_same_body(kick: tuple[Video, Views]) -> None:
    # The torso of a view that never shows hips and shoulders together is measured 2.5 times too long.
    _, views = kick
    points = views.points.copy()
    points[0] /= 2.5
    found, small = (reconstruct(each, flips=False) for each in (views, replace(views, points=points)))
    assert distance(small.joints3d, found.joints3d) < 0.02
    np.testing.assert_allclose(small.travel, found.travel, atol=0.05)


def test_a_steady_query_with_rigid_bones_is_trusted_more() -> None:
    scene = film(views=6, every=2)
    exact, noisy = scene.views(), film(views=6, every=2, noise=0.05).views()
    bundle = Bundle(scene.rotations, scene.scales, np.zeros((*scene.points.shape[:2], 2)), scene.body)
    still = replace(exact, points=np.repeat(exact.points[:, :1], len(scene.body), axis=1))
    priors, weight = _sharpen(still, bundle, Priors(), query_weight=10.0)
    assert priors.stretch == pytest.approx(Priors().stretch / 3)
    assert weight == pytest.approx(50.0)
    assert _sharpen(noisy, bundle, Priors(), query_weight=10.0)[1] == 10.0
    stretched = replace(bundle, joints=bundle.joints * np.linspace(0.9, 1.1, len(scene.body))[:, None, None])
    assert _sharpen(still, stretched, Priors(), query_weight=10.0) == (Priors(), 10.0)


def test_squats_are_held_near_symmetry_and_a_kick_is_not(kick: tuple[Video, Views]) -> None:
    usual = Priors().symmetry
    squat = _mirror(kick[1], about_hips(videos("squat", count=1)[0]), Priors())
    assert squat.deviations.max() < 3 * usual
    one_sided = _mirror(kick[1], about_hips(kick[0]), Priors())
    assert one_sided.deviations[JOINTS13.index("left_ankle")] > 10 * usual
    assert one_sided.deviations[JOINTS13.index("left_shoulder")] < 1.2 * usual


def test_legs_that_alternate_are_held_less_than_legs_that_stay_apart(kick: tuple[Video, Views]) -> None:
    standing = about_hips(videos("squat", count=1)[0])[:1].repeat(80, axis=0)
    ankle, forward = JOINTS13.index("left_ankle"), np.cross(standing[0, 1] - standing[0, 2], standing[0, 0])
    step = 0.3 * forward / np.linalg.norm(forward)
    gait, stance = standing.copy(), standing.copy()
    gait[:, ankle] += np.sin(np.arange(80) / 4)[:, None] * step
    stance[:, ankle] += step / np.sqrt(2)
    changing, constant = (_mirror(kick[1], body, Priors()).deviations[ankle] for body in (gait, stance))
    assert changing > 2 * Priors().symmetry
    assert constant < 1.2 * Priors().symmetry
    stance[:, ankle] += 3 * step
    assert _mirror(kick[1], stance, Priors()).deviations[ankle] > 2 * Priors().symmetry


def test_a_view_of_something_else_loses_its_say(kick: tuple[Video, Views]) -> None:
    _, views = kick
    rng = np.random.default_rng(0)
    points = views.points.copy()
    points[4] = points[4][rng.permutation(len(views.times))][:, rng.permutation(13)]
    found = reconstruct(replace(views, points=points, seen=np.ones_like(views.seen)), adjusts=False)
    others = np.delete(found.trust, [0, 4], axis=0)
    assert found.trust[4].mean() < 0.5 * others.mean()
    assert (found.views < 9).any()
    assert found.confidence.max() <= 1


def test_people_of_the_other_hand_are_turned_round() -> None:
    scene = film(views=8, every=6, noise=0.02)
    order = mirrored(JOINTS13)
    points, seen = scene.points.copy(), scene.seen.copy()
    points[5], seen[5] = points[5][:, order], seen[5][:, order]
    found = reconstruct(replace(scene.views(), points=points, seen=seen))
    assert found.flipped.nonzero()[0].tolist() == [5]
    assert distance(found.joints3d, scene.body) < 0.1


def test_files_keep_everything(kick: tuple[Video, Views], tmp_path: Path) -> None:
    query, views = kick
    found = reconstruct(views, adjusts=False)
    write_reconstruction(tmp_path / "pose3d.npz", found)
    again = read_reconstruction(tmp_path / "pose3d.npz")
    for name, value in vars(found).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    with np.load(tmp_path / "pose3d.npz") as archive:
        assert archive["joints"].shape == (len(views.times), 13, 3)
        assert archive["joint_names"].tolist() == list(JOINTS13)
    (tmp_path / "other.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="holds no reconstruction"):
        read_reconstruction(tmp_path / "other.npz")

    shown = performance(query)
    track = make_pose_track(shown, size=(32, 32))
    second = make_pose_track(shown, size=(32, 32), query=shown, seconds=shown.times)
    write_playback(tmp_path / "play", make_skeleton_playback("a kick", found, [track, second]))
    played = read_playback(tmp_path / "play")
    np.testing.assert_allclose(played.skeletons[0].points, found.joints3d, atol=1e-6)
    assert played.skeletons[0].up == "-y"
    image = draw_reconstruction(found, shown, columns=3, cell=40)
    assert len(image.convert("L").getcolors(256) or []) > 10


def test_wrong_input_is_named(kick: tuple[Video, Views]) -> None:
    query, _ = kick
    shown = performance(query)
    with pytest.raises(ValueError, match="at least 3 views"):
        gather(shown, [shown], [shown.times])
    with pytest.raises(ValueError, match="as many time maps"):
        gather(shown, [shown, shown], [shown.times])
    with pytest.raises(ValueError, match="a second for each"):
        gather(shown, [shown, shown], [shown.times[1:]] * 2)
    hidden = Performance("x", shown.points, np.zeros_like(shown.seen), shown.times, JOINTS13)
    with pytest.raises(ValueError, match="shows no body"):
        gather(shown, [hidden, hidden], [shown.times] * 2)
    with pytest.raises(ValueError, match="hips and shoulders"):
        Performance("x", shown.points[:, :3], shown.seen[:, :3], shown.times, JOINTS13[:3])
    with pytest.raises(ValueError, match="increase"):
        Performance("x", shown.points, shown.seen, shown.times[::-1], JOINTS13)


def test_between_frames_joints_lie_on_a_line() -> None:
    joints = ("left_shoulder", "right_shoulder", "left_hip", "right_hip")
    body = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    shown = Performance("x", np.stack([body, body + 2]), np.ones((2, 4), bool), np.array([0.0, 1.0]), joints)
    seen = shown.seen.copy()
    seen[1, 0] = False
    other = Performance("y", shown.points, seen, shown.times, joints)
    views = gather(shown, [other, other], [np.array([0.0, 0.5])] * 2)
    np.testing.assert_allclose(views.points[1, 1, 1:], body[1:] + 1)
    assert views.seen[1].tolist() == [[True] * 4, [False, True, True, True]]


def test_a_body_along_the_line_of_sight_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    # What factorisation makes of cameras on one side when people differ: seen small, and deep.
    scene = film(views=6, every=4, noise=0.02, around=0.15, lean=0.05)
    unit = scene.scales[:, None, None, None]
    views = replace(scene.views(), points=scene.points / unit)

    def lying(views: Views, *, query_weight: float) -> tuple[Bundle, np.ndarray]:
        upright = _facing(views)
        deep = upright.joints[..., [0, 2, 1]] * [0.1, 0.1, 2]
        return replace(upright, joints=deep, scales=10 * upright.scales), np.ones(views.points.shape[:2])

    monkeypatch.setattr(reconstruction, "_factorize", lying)
    found = reconstruct(views, flips=False)
    assert np.abs(found.joints3d[..., :2] - scene.body[..., :2]).mean() < 0.08
    assert found.spread < 15


def test_a_query_that_has_a_dimension_to_itself_is_weighed_like_the_others(
    kick: tuple[Video, Views], monkeypatch: pytest.MonkeyPatch
) -> None:
    query, views = kick
    factorize, weights = reconstruction._factorize, list[float]()

    def stretched(views: Views, *, query_weight: float) -> tuple[Bundle, np.ndarray]:
        bundle, trust = factorize(views, query_weight=query_weight)
        weights.append(query_weight)
        if query_weight > 1:
            bundle = replace(bundle, scales=bundle.scales * np.where(np.arange(len(bundle.scales)), 1, 15))
        return bundle, trust

    monkeypatch.setattr(reconstruction, "_factorize", stretched)
    monkeypatch.setattr(reconstruction, "_facing", None)  # is not needed
    assert distance(reconstruct(views, flips=False).joints3d, about_hips(query)[::4]) < 0.16
    assert weights == [10, 1]


def test_a_restart_that_explains_nothing_is_not_preferred() -> None:
    def adjusted(error: float, *, implausible: bool) -> _Adjusted:
        return _Adjusted(cast("Any", SimpleNamespace(error=np.full(3, error))), implausible)

    long, fair, lost = (
        adjusted(0.1, implausible=True),
        adjusted(0.2, implausible=False),
        adjusted(1.4, implausible=False),
    )
    assert min(long, fair, key=_doubt) is fair
    assert min(long, lost, key=_doubt) is long


def arc(frames: int, *, noise: float = 0.0) -> Embedding:
    """Embed a motion along half a circle, with that many frames at 30 fps."""
    angle = np.linspace(0, np.pi, frames)
    rows = np.stack([np.cos(angle), np.sin(angle), np.zeros(frames)], axis=1)
    rows += noise * np.random.default_rng(frames).normal(size=rows.shape)
    return Embedding((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), np.arange(frames) / 30)


def test_partners_are_ranked_by_distance_and_have_the_seconds_of_the_query() -> None:
    query, slow, strange, quick = arc(31), arc(61), arc(41, noise=2.0), arc(16)
    times = query.times[::2]
    chosen = choose_partners([query, slow, strange, quick], times, count=3)
    assert chosen[-1].index == 1, "the strange one comes last"
    seconds = {partner.index: partner.seconds for partner in chosen}
    np.testing.assert_allclose(seconds[0], 2 * times, atol=2 / 30)
    np.testing.assert_allclose(seconds[2], times / 2, atol=2 / 30)
    assert [partner.index for partner in choose_partners([query, slow, strange, quick], times, count=2)] == [
        partner.index for partner in chosen[:2]
    ]


def test_other_videos_outvote_an_alignment_that_slips_by_a_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    same = np.arange(31.0)
    maps = {(a, b): same for a in range(4) for b in range(4) if a != b}
    maps[0, 1] = np.minimum(same + 12, 30)
    found = PairwiseMaps(maps, 1.0 - np.eye(4))
    monkeypatch.setattr("inphase.apps.pose3d.views.align_from", lambda *_, **__: found)
    embeddings = [arc(31)] * 4
    for partner in choose_partners(embeddings, embeddings[0].times, count=3):
        np.testing.assert_allclose(partner.seconds, embeddings[0].times)


def test_deep_squats_of_other_people_give_the_depth_of_a_bent_body() -> None:
    """Seven drawn people, whose bones are rigid, squat; the true alignment and the true body are known."""
    query, *others = videos("squat", count=7)
    assert query.progress is not None
    whole, every = performance(query), 4
    some = Performance(query.id, whole.points[::every], whole.seen[::every], whole.times[::every], JOINTS13)
    maps = [
        np.interp(query.progress[::every], other.progress, performance(other).times)
        for other in others
        if other.progress is not None
    ]
    true = about_hips(query)[::every]
    trunk, thigh = true[:, [1, 2]].mean(1), true[:, [9, 10]].mean(1)
    cosine = (trunk * thigh).sum(-1) / np.linalg.norm(trunk, axis=-1) / np.linalg.norm(thigh, axis=-1)
    bent = np.degrees(np.arccos(cosine)) < 120
    assert bent.sum() >= 3
    found = reconstruct(gather(some, list(map(performance, others)), maps)).joints3d
    assert distance(found[bent], true[bent]) < 0.066
    lengths = np.linalg.norm(found[:, [9, 10, 11, 12]] - found[:, [7, 8, 9, 10]], axis=-1)
    assert (lengths.std(0) / lengths.mean(0)).max() < 0.012, "legs keep their lengths"
