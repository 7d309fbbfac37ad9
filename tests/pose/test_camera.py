import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.pose.pose import orbit_camera, project_joints, sample_camera

ANGLES = st.floats(-3.1, 3.1)
TRUNK = ("head", "shoulder_center", "spine", "hip_center", "left_wrist")


def standing() -> np.ndarray:
    """Build a body that faces −z: [1, 5, 3]."""
    return np.array([[[0, 1.7, 3], [0, 1.4, 3], [0, 1.1, 3], [0, 0.9, 3], [-0.3, 1.1, 3]]])


def parted(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Part places on the image from depths."""
    return seen[..., :2], seen[..., 2]


def test_a_camera_in_front_sees_left_on_the_right_and_up_above() -> None:
    camera = orbit_camera(np.array([0, 1.1, 3]), azimuth=0, elevation=0, distance=2, focal=100, size=(100, 200))
    pixels, depth = parted(camera.project(standing()[0]))
    assert camera.position == pytest.approx([0, 1.1, 1])
    assert depth == pytest.approx(np.full(5, 2.0))
    assert pixels[2] == pytest.approx([100, 50])
    assert pixels[0] == pytest.approx([100, 50 - 100 * 0.6 / 2])
    assert pixels[4] == pytest.approx([100 + 100 * 0.3 / 2, 50])


@given(ANGLES, st.floats(-1.2, 1.2), st.floats(1, 9))
def test_a_camera_is_a_rotation_that_centers_its_target(azimuth: float, elevation: float, distance: float) -> None:
    target = np.array([0.3, 1.0, -2.0])
    camera = orbit_camera(target, azimuth=azimuth, elevation=elevation, distance=distance)
    assert camera.axes @ camera.axes.T == pytest.approx(np.eye(3), abs=1e-9)
    assert np.linalg.det(camera.axes) == pytest.approx(1)
    pixels, depth = parted(camera.project(np.stack([target, target + np.array([0, 0.1, 0])])))
    assert pixels[0] == pytest.approx([160, 120])
    assert depth[0] == pytest.approx(distance)
    assert pixels[1, 1] < 120
    assert camera.position[1] == pytest.approx(1.0 + distance * np.sin(elevation))


def test_a_wrist_behind_the_trunk_is_hidden_and_one_in_front_is_not() -> None:
    body = np.repeat(standing(), 3, axis=0)
    body[:, 4] = [[0.02, 1.15, 2.7], [0.02, 1.15, 3.3], [0.4, 1.15, 3.3]]
    camera = orbit_camera(np.array([0, 1.1, 3]), azimuth=0, elevation=0, distance=3)
    _, visible = project_joints(camera, body, joints=TRUNK)
    assert visible[:, 4].tolist() == [True, False, True]
    assert visible[2].all()
    _, from_behind = project_joints(
        orbit_camera(np.array([0, 1.1, 3]), azimuth=np.pi, elevation=0, distance=3), body, joints=TRUNK
    )
    assert from_behind[:, 4].tolist() == [False, True, True]


def test_what_lies_outside_the_image_or_behind_the_camera_is_not_seen() -> None:
    camera = orbit_camera(np.array([0, 1.1, 3]), azimuth=0, elevation=0, distance=1, focal=100, size=(100, 100))
    body = standing()
    body[0, 4] = [0, 1.1, 0.5]
    _, visible = project_joints(camera, body, joints=TRUNK)
    assert visible[0].tolist() == [False, True, True, True, False]


def test_points_behind_have_negative_depth_and_a_place() -> None:
    camera = orbit_camera(np.array([0, 1.0, 3]), azimuth=0, elevation=0, distance=2, focal=100, size=(100, 200))
    pixels, depth = parted(camera.project(np.array([[0.01, 1.0, 0.0], [0.0, 1.0, 1.0], [0.01, 1.0, 1.05]])))
    assert depth == pytest.approx([-1, 0, 0.05])
    assert pixels[0] == pytest.approx(pixels[2])
    assert pixels[1] == pytest.approx([100, 50])


def test_a_ray_leads_through_its_pixel_also_where_the_image_is_wide() -> None:
    camera = orbit_camera(np.array([0.3, 1.0, 3]), azimuth=0.4, elevation=0.2, distance=2, focal=100, size=(100, 200))
    pixels, depth = parted(camera.project(standing()[0]))
    back = camera.position + camera.rays(*pixels.T) * depth[:, None]
    assert back == pytest.approx(standing()[0])


def test_a_drawn_camera_has_everything_in_view() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        body = rng.normal(size=(4, 5, 3))
        camera = sample_camera(body, rng=rng)
        pixels, depth = parted(camera.project(body))
        assert (depth > 0).all()
        assert (pixels >= 0).all()
        assert (pixels < np.array(camera.size[::-1])).all()
