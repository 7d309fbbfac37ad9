"""Props follow their tracks, and shapes project in front of the camera."""

import numpy as np
import pytest

from inphase.pose.pose import MIN_DEPTH, place_camera
from inphase.stage.figure import Ball, Crate, Slab, Solids, Waypoint, follow_track, project_solids
from inphase.stage.scene import find_places, static_solids
from inphase.stage.take import GRID, UP, Slate, Take, sample_take

HAND = np.stack([GRID, np.zeros_like(GRID), np.ones_like(GRID)], axis=-1)  # moves forward with time, one meter up


def along(*track: Waypoint) -> np.ndarray:
    return follow_track(track, GRID, now={"right": HAND}, grid=GRID, places={"right": HAND})


def at(where: np.ndarray, time: float) -> np.ndarray:
    return np.asarray(where[np.abs(GRID - time).argmin()])


def test_a_ball_is_held_and_then_flies_in_an_arc() -> None:
    where = along(Waypoint(0, "right"), Waypoint(0.5, "right"), Waypoint(0.9, (4.0, 0.0, 0.0), rise=0.6))
    np.testing.assert_allclose(at(where, 0.3), [0.3, 0, 1])
    np.testing.assert_allclose(at(where, 0.7), [0.5 + 2.0, 0, 1 + 0.6], atol=1e-9)
    np.testing.assert_allclose(at(where, 1.0), [4.5, 0, 1], atol=1e-9)


def test_a_prop_waits_where_it_is_picked_up_and_stays_where_it_is_put_down() -> None:
    where = along(
        Waypoint(0, "right", when=0.25),
        Waypoint(0.25, "right"),
        Waypoint(0.75, "right"),
        Waypoint(1.0, "right", when=0.75),
    )
    np.testing.assert_allclose(at(where, 0.1), [0.25, 0, 1], atol=1e-9)
    np.testing.assert_allclose(at(where, 0.5), [0.5, 0, 1], atol=1e-9)
    np.testing.assert_allclose(at(where, 0.95), [0.75, 0, 1], atol=1e-9)


def tracked(take: Take) -> np.ndarray:
    prop = next(prop for prop in take.action.props if isinstance(prop, Ball | Crate))
    now, places = find_places(take, take.posture, take.progress), find_places(take, take.grid_posture, GRID)
    return follow_track(prop.track, take.progress, now=now, grid=GRID, places=places)


@pytest.mark.parametrize(("action", "place"), [("pitch", "right"), ("bowl", "right"), ("shot_put", "right")])
def test_a_thrown_ball_leaves_the_hand_at_the_release(action: str, place: str) -> None:
    for index in range(4):
        take = sample_take(Slate(action, "train", index))
        gap = np.linalg.norm(tracked(take) - find_places(take, take.posture, take.progress)[place], axis=-1)
        release = take.action.event
        assert gap[take.progress < release].max() < 1e-9
        assert gap[take.progress > release + 0.1].min() > 0.5


@pytest.mark.parametrize(("action", "place"), [("golf_swing", "tip"), ("kick", "foot"), ("serve", "tip")])
def test_a_ball_is_hit_at_the_impact(action: str, place: str) -> None:
    for index in range(4):
        take = sample_take(Slate(action, "train", index))
        places = find_places(take, take.grid_posture, GRID)
        ball = next(prop for prop in take.action.props if isinstance(prop, Ball))
        gap = np.linalg.norm(
            follow_track(ball.track, GRID, now=places, grid=GRID, places=places) - places[place], axis=-1
        )
        assert gap[np.abs(GRID - take.action.event).argmin()] < 0.1
        assert gap[np.abs(GRID - take.action.event - 0.1).argmin()] > 0.5


def test_the_shelf_is_under_the_box_and_the_box_in_the_hands() -> None:
    take = sample_take(Slate("shelf_lift", "train", 0))
    box, shelf = (next(prop for prop in take.action.props if isinstance(prop, kind)) for kind in (Crate, Slab))
    assert isinstance(box, Crate)
    assert isinstance(shelf, Slab)
    top = max(points[0, :, 2].max() for points in static_solids(take).points)
    assert tracked(take)[-1, 2] - box.half_size[2] == pytest.approx(top, abs=1e-9)
    carried = (take.progress > 0.25) & (take.progress < 0.75)
    hands = find_places(take, take.posture, take.progress)["hands"]
    np.testing.assert_allclose(tracked(take)[carried], hands[carried])


def test_shapes_too_near_are_projected_in_front_of_the_camera() -> None:
    camera = place_camera(np.array([4.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0]), up=UP, focal=2.0)
    near, far = np.array([[5.0, 0.0, 1.0]]), np.array([[0.0, 0.0, 1.0]])
    solids = Solids()
    solids.add_capsule(near, far, 0.1, 0.1, np.ones(3))
    solids.add_disc(near, 0.1 * far, far, np.ones(3))
    solids.add_box(near, (0.1, 0.1, 0.1), np.ones(3))
    shapes = project_solids(solids, camera, frames=1)
    assert np.isfinite(shapes.points).all()
    corners = [shapes.points[0, kinds, :2, 2] for kinds in range(len(shapes.kinds))]
    assert min(depth.min() for depth in corners) == pytest.approx(MIN_DEPTH)
    assert shapes.points[0, 0, 1, 2] == pytest.approx(4.0)
    assert (shapes.points[0, 0, 2, :2] > 0).all(), "radii stay positive"
