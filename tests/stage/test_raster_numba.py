"""The kernels against areas, depths, averages and occlusions computed by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.stage.figure import CAPSULE, DISC, QUAD, Solids
from inphase.stage.raster_numba import mark_visible, rasterize

WHITE = np.ones(3)


def image(
    *shapes: tuple[int, list[list[float]], NDArray[np.float64]],
    size: int = 32,
    background: NDArray[np.float32] | None = None,
    shift: tuple[float, float] = (0.0, 0.0),
    noise: float = 0.0,
    frames: int = 1,
    shadow: list[float] | None = None,
    ambient: float = 1.0,
) -> NDArray[np.uint8]:
    margin = 3
    if background is None:
        background = np.zeros((size + 2 * margin, size + 2 * margin, 3), np.float32)
    points = np.zeros((frames, len(shapes), 4, 3))
    for index, (_, rows, _) in enumerate(shapes):
        points[:, index, : len(rows)] = rows
    images = np.empty((frames, size, size, 3), np.uint8)
    rasterize(
        images,
        background,
        margin,
        np.array([kind for kind, _, _ in shapes], dtype=np.int64),
        points,
        np.full(len(shapes), 0.1),
        np.array([color for _, _, color in shapes]).reshape(-1, 3),
        np.zeros((frames, 0, 5)) if shadow is None else np.array([[shadow]] * frames),
        np.array([shift] * frames),
        np.array([0.0, 0.0, -1.0]),
        ambient,
        np.ones(frames),
        noise,
        np.uint64(5),
    )
    return images


def rod(ax: float, ay: float, bx: float, by: float, radius: float, *, depth: float = 5.0) -> list[list[float]]:
    return [[ax, ay, depth], [bx, by, depth], [radius, radius, 0.0]]


def square(x: float, y: float, side: float, *, depth: float = 5.0) -> list[list[float]]:
    return [[x, y, depth], [x + side, y, depth], [x + side, y + side, depth], [x, y + side, depth]]


@pytest.mark.parametrize("x", [4.0, 4.25, 4.6, 4.9])
def test_a_square_covers_its_area_wherever_it_lies(x: float) -> None:
    drawn = image((QUAD, square(x, 5.3, 10.0), WHITE))[0, :, :, 0] / 255
    assert drawn.sum() == pytest.approx(100, rel=0.02)
    assert drawn[10, 10] == 1
    assert drawn[10, 20] == 0


@pytest.mark.parametrize("turned", [False, True])
def test_corners_may_go_round_either_way(turned: bool) -> None:
    corners = square(4, 5, 10.0)
    drawn = image((QUAD, corners[::-1] if turned else corners, WHITE))
    assert (drawn[0, :, :, 0] / 255).sum() == pytest.approx(100, rel=0.02)


def test_a_disc_covers_the_area_of_its_ellipse() -> None:
    drawn = image((DISC, [[16, 16, 5], [26, 16, 5], [16, 10, 5]], WHITE))[0, :, :, 0] > 100
    assert drawn.sum() == pytest.approx(np.pi * 10 * 6, rel=0.05)


def test_a_capsule_reaches_as_far_as_its_radius() -> None:
    drawn = image((CAPSULE, rod(8, 16, 24, 16, 4), WHITE))[0, :, :, 0] > 60
    rows, columns = np.nonzero(drawn)
    assert (rows.min(), rows.max() + 1) == (12, 20)
    assert (columns.min(), columns.max() + 1) == (4, 28)
    assert drawn.sum() == pytest.approx(16 * 8 + np.pi * 16, rel=0.05)


def test_the_edge_of_a_capsule_is_soft() -> None:
    middles = []
    for step in np.linspace(0.0, 1.0, 11):
        drawn = image((CAPSULE, rod(10, 16 + step, 22, 16 + step, 1.3), WHITE))[0, :, :, 0].astype(float)
        middles.append((drawn.sum(1) @ (np.arange(32) + 0.5)) / drawn.sum())
    np.testing.assert_allclose(middles, 16 + np.linspace(0.0, 1.0, 11), atol=0.05)


def test_a_capsule_is_lit_from_the_light_side() -> None:
    drawn = image((CAPSULE, rod(8, 16, 24, 16, 6), WHITE), ambient=0.3)[0, :, 16, 0].astype(int)
    assert drawn[16] > drawn[11] + 30  # the light is at the camera: the middle is bright, the rim dark
    assert abs(drawn[11] - drawn[20]) <= 2


@pytest.mark.parametrize("order", [1, -1])
def test_the_nearer_shape_is_visible_in_any_order(order: int) -> None:
    red, blue = np.array([1.0, 0, 0]), np.array([0, 0, 1.0])
    near = (QUAD, square(4, 4, 16, depth=2.0), red)
    far = (QUAD, square(8, 8, 16, depth=6.0), blue)
    drawn = image(*(near, far)[::order])[0]
    assert drawn[12, 12].tolist() == [255, 0, 0]
    assert drawn[22, 22].tolist() == [0, 0, 255]


def test_crossing_planes_are_visible_on_their_own_sides() -> None:
    slanted = [[4, 4, 2.0], [28, 4, 8.0], [28, 28, 8.0], [4, 28, 2.0]]
    flat = square(4, 4, 24, depth=4.0)
    drawn = image((QUAD, slanted, np.array([1.0, 0, 0])), (QUAD, flat, np.array([0, 0, 1.0])))[0]
    assert drawn[16, 8].tolist() == [255, 0, 0]
    assert drawn[16, 25].tolist() == [0, 0, 255]


def test_shapes_outside_the_image_do_no_harm() -> None:
    drawn = image(
        (CAPSULE, rod(-50, -50, -40, -45, 3), WHITE),
        (QUAD, square(100, 5, 30), WHITE),
        (DISC, [[-30, 5, 5], [-25, 5, 5], [-30, 10, 5]], WHITE),
    )
    assert drawn.max() == 0


def test_the_background_moves_with_the_camera() -> None:
    background = np.random.default_rng(0).random((38, 38, 3)).astype(np.float32)
    still = image(background=background)
    moved = image(background=background, shift=(2.0, -1.0))
    np.testing.assert_array_equal(moved[0, :-1, 2:], still[0, 1:, :-2])
    half = image(background=background, shift=(0.5, 0.0)).astype(float)
    np.testing.assert_allclose(half[0, :, 1:], (still[0, :, 1:].astype(float) + still[0, :, :-1]) / 2, atol=1.0)


def test_noise_has_the_given_deviation_and_no_pattern() -> None:
    gray = np.full((70, 70, 3), 0.5, np.float32)
    drawn = image(size=64, background=gray, noise=0.04, frames=8).astype(float) / 255
    assert drawn.mean() == pytest.approx(0.5, abs=0.001)
    assert drawn.std() == pytest.approx(0.04, rel=0.03)
    residue = (drawn - 0.5).reshape(8, -1)
    assert np.abs(np.corrcoef(residue) - np.eye(8)).max() < 0.04
    across = drawn - 0.5
    assert abs(np.mean(across[:, :, 1:] * across[:, :, :-1])) < 0.02 * 0.04**2
    assert abs(np.mean(across[..., 0] * across[..., 1])) < 0.02 * 0.04**2


def test_a_shadow_darkens_the_floor_softly() -> None:
    gray = np.full((38, 38, 3), 0.5, np.float32)
    drawn = image(background=gray, shadow=[16.0, 20.0, 8.0, 4.0, 0.6])[0, :, :, 0].astype(int)
    assert drawn[20, 16] < 0.5 * drawn[2, 2]
    assert drawn[20, 16] < drawn[20, 21] < drawn[20, 26]
    assert drawn[26, 16] == drawn[2, 2]


def is_visible(joint: list[float], start: list[float], end: list[float], radius: float) -> bool:
    solids = Solids()
    solids.add_capsule(np.array([start]), np.array([end]), radius, radius, np.ones(3))
    seen = np.empty((1, 1), np.bool_)
    mark_visible(seen, np.array([5.0, 0.0, 1.0]), np.array([[joint]]), np.array(solids.kinds), solids.world)
    return bool(seen[0, 0])


def test_only_solids_in_front_of_a_joint_hide_it() -> None:
    joint = [0.0, 0.0, 1.0]
    assert not is_visible(joint, [1.0, -1.0, 1.0], [1.0, 1.0, 1.0], 0.05)  # a bar across the view
    assert is_visible(joint, [-1.0, -1.0, 1.0], [-1.0, 1.0, 1.0], 0.05)  # behind
    assert is_visible(joint, [1.0, -1.0, 1.1], [1.0, 1.0, 1.1], 0.05)  # above
    assert is_visible(joint, [0.0, 0.0, 0.5], [0.0, 0.0, 1.5], 0.1)  # its own limb
    assert not is_visible(joint, [1.0, 0.0, 1.0], [1.0, 0.0, 1.0], 0.05)  # a ball
