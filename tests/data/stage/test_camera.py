"""Cameras project as pinholes do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.data.stage.camera import UP, frame
from inphase.data.stage.figure import Solids, view
from inphase.pose.camera import NEAR, place_camera


def test_projection_by_hand() -> None:
    # Four metres in front of the performer, one metre up, looking back at the performer: left is on the right.
    camera = place_camera(np.array([4.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0]), up=UP, focal=2.0)
    np.testing.assert_allclose(camera.project(np.array([0.0, 0.0, 1.0])), [0.5, 0.5, 4.0])
    np.testing.assert_allclose(camera.project(np.array([0.0, 0.5, 1.0])), [0.5 + 2 * 0.5 / 4, 0.5, 4.0])
    np.testing.assert_allclose(camera.project(np.array([2.0, 0.0, 1.4])), [0.5, 0.5 - 2 * 0.4 / 2, 2.0])


@given(st.floats(-180, 180), st.floats(0, 40), st.integers(0, 2**31))
def test_a_ray_leads_back_to_its_point(azimuth: float, elevation: float, seed: int) -> None:
    points = np.random.default_rng(seed).uniform([-1, -1, 0], [1, 1, 2], (20, 3))
    camera = frame(points, azimuth=azimuth, elevation=elevation, distance=6.0, fill=0.8)
    seen = camera.project(points)
    back = camera.position + camera.rays(seen[:, 0], seen[:, 1]) * seen[:, 2:]
    np.testing.assert_allclose(back, points, atol=1e-9)


@given(st.floats(-180, 180), st.floats(0, 40), st.floats(0.3, 0.9), st.integers(0, 2**31))
def test_framing_fills_the_picture_as_asked(azimuth: float, elevation: float, fill: float, seed: int) -> None:
    points = np.random.default_rng(seed).uniform([-1, -1, 0], [1, 1, 2], (20, 3))
    camera = frame(points, azimuth=azimuth, elevation=elevation, distance=6.0, fill=fill)
    assert np.abs(camera.project(points)[:, :2] - 0.5).max() == pytest.approx(fill / 2)
    np.testing.assert_allclose(camera.axes @ camera.axes.T, np.eye(3), atol=1e-9)


def test_azimuth_0_is_in_front_and_90_to_the_left() -> None:
    points = np.random.default_rng(0).uniform([-1, -1, 0], [1, 1, 2], (20, 3))
    assert frame(points, azimuth=0, elevation=5, distance=6, fill=0.8).position[0] > 4
    assert frame(points, azimuth=90, elevation=5, distance=6, fill=0.8).position[1] > 4


def test_what_comes_too_near_is_drawn_before_the_camera() -> None:
    camera = place_camera(np.array([4.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0]), up=UP, focal=2.0)
    near, far = np.array([[5.0, 0.0, 1.0]]), np.array([[0.0, 0.0, 1.0]])
    solids = Solids()
    solids.capsule(near, far, 0.1, 0.1, np.ones(3))
    solids.disc(near, 0.1 * far, far, np.ones(3))
    solids.box(near, (0.1, 0.1, 0.1), np.ones(3))
    shapes = view(solids, camera, frames=1)
    assert np.isfinite(shapes.points).all()
    corners = [shapes.points[0, kinds, :2, 2] for kinds in range(len(shapes.kinds))]
    assert min(depth.min() for depth in corners) == pytest.approx(NEAR)
    assert shapes.points[0, 0, 1, 2] == pytest.approx(4.0)
    assert (shapes.points[0, 0, 2, :2] > 0).all(), "radii stay positive"
