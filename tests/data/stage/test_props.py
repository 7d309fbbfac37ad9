"""Things are held, fly and lie where their tracks say."""

import numpy as np
import pytest

from inphase.data.stage.controls import COLUMN
from inphase.data.stage.props import Ball, Crate, Slab, Way, follow
from inphase.data.stage.scene import furnish, places
from inphase.data.stage.take import GRID, Slate, Take, draw_take

HAND = np.stack([GRID, np.zeros_like(GRID), np.ones_like(GRID)], axis=-1)  # moves forward with time, one metre up


def along(*track: Way) -> np.ndarray:
    return follow(track, GRID, now={"right": HAND}, grid=GRID, places={"right": HAND})


def at(where: np.ndarray, time: float) -> np.ndarray:
    return np.asarray(where[np.abs(GRID - time).argmin()])


def test_a_ball_is_held_and_then_flies_in_an_arc() -> None:
    where = along(Way(0, "right"), Way(0.5, "right"), Way(0.9, (4.0, 0.0, 0.0), rise=0.6))
    np.testing.assert_allclose(at(where, 0.3), [0.3, 0, 1])
    np.testing.assert_allclose(at(where, 0.7), [0.5 + 2.0, 0, 1 + 0.6], atol=1e-9)
    np.testing.assert_allclose(at(where, 1.0), [4.5, 0, 1], atol=1e-9)


def test_a_thing_waits_where_it_will_be_met_and_stays_where_it_was_left() -> None:
    where = along(Way(0, "right", when=0.25), Way(0.25, "right"), Way(0.75, "right"), Way(1.0, "right", when=0.75))
    np.testing.assert_allclose(at(where, 0.1), [0.25, 0, 1], atol=1e-9)
    np.testing.assert_allclose(at(where, 0.5), [0.5, 0, 1], atol=1e-9)
    np.testing.assert_allclose(at(where, 0.95), [0.75, 0, 1], atol=1e-9)


def tracked(take: Take) -> np.ndarray:
    prop = next(prop for prop in take.action.props if isinstance(prop, Ball | Crate))
    now, course = places(take, take.posture, take.progress), places(take, take.course, GRID)
    return follow(prop.track, take.progress, now=now, grid=GRID, places=course)


@pytest.mark.parametrize(("action", "place"), [("pitch", "right"), ("bowl", "right"), ("shot_put", "right")])
def test_what_is_thrown_leaves_the_hand_at_the_release(action: str, place: str) -> None:
    for index in range(4):
        take = draw_take(Slate(action, "train", index))
        gap = np.linalg.norm(tracked(take) - places(take, take.posture, take.progress)[place], axis=-1)
        release = take.action.event
        assert gap[take.progress < release].max() < 1e-9
        assert gap[take.progress > release + 0.1].min() > 0.5


@pytest.mark.parametrize(("action", "place"), [("golf_swing", "tip"), ("kick", "foot"), ("serve", "tip")])
def test_what_is_hit_is_met_at_the_impact(action: str, place: str) -> None:
    for index in range(4):
        take = draw_take(Slate(action, "train", index))
        course = places(take, take.course, GRID)
        ball = next(prop for prop in take.action.props if isinstance(prop, Ball))
        gap = np.linalg.norm(follow(ball.track, GRID, now=course, grid=GRID, places=course) - course[place], axis=-1)
        assert gap[np.abs(GRID - take.action.event).argmin()] < 0.1
        assert gap[np.abs(GRID - take.action.event - 0.1).argmin()] > 0.5


def test_the_shelf_is_under_the_box_and_the_box_in_the_hands() -> None:
    take = draw_take(Slate("shelf_lift", "train", 0))
    box, cache = (next(prop for prop in take.action.props if isinstance(prop, kind)) for kind in (Crate, Slab))
    assert isinstance(box, Crate)
    assert isinstance(cache, Slab)
    top = max(points[0, :, 2].max() for points in furnish(take).points)
    assert tracked(take)[-1, 2] - box.half[2] == pytest.approx(top, abs=1e-9)
    carried = (take.progress > 0.25) & (take.progress < 0.75)
    hands = places(take, take.posture, take.progress)["hands"]
    np.testing.assert_allclose(tracked(take)[carried], hands[carried])


def test_hands_on_one_club_stay_together_in_every_style() -> None:
    left, right = ([COLUMN[f"{side}{axis}"] for axis in "xyz"] for side in "lr")
    for index in range(5):
        take = draw_take(Slate("golf_swing", "train", index, level="hard"))
        np.testing.assert_array_equal(take.poses[:, left], take.poses[:, right])
        bar = draw_take(Slate("clean_and_jerk", "train", index, level="hard"))
        np.testing.assert_allclose(bar.poses[:, left], bar.poses[:, right] * np.array([1, -1, 1]))


def test_style_moves_no_event_and_keeps_repetitions_symmetric() -> None:
    for index in range(5):
        take = draw_take(Slate("serve", "train", index, level="hard"))
        fixed = np.isin(take.action.times, [*take.action.phases.values(), *take.action.events.values()])
        np.testing.assert_array_equal(take.times[fixed], take.action.times[fixed])
        assert (np.diff(take.times) > 0).all()
        assert np.abs(take.poses - take.action.poses).max() > 1
        joints = draw_take(Slate("squat", "train", index, level="hard")).course.joints
        np.testing.assert_allclose(joints, joints[::-1], atol=1e-9)
