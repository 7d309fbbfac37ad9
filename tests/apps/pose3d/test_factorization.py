import numpy as np
import pytest

from inphase.apps.pose3d.factorization import Factors, factorize, orthonormalize, procrustes, residuals, upgrade
from tests.apps.pose3d.scenes import distance, film


def test_a_third_missing_is_recovered_exactly() -> None:
    scene = film(views=8, missing=0.3)
    weights = scene.seen.astype(np.float64)
    factors = factorize(scene.points, weights, rounds=3000, tolerance=1e-14)
    left = weights[..., None] * residuals(scene.points, weights, factors.cameras, factors.shape)
    assert np.abs(left).max() < 1e-7
    metric, definite = upgrade(factors)
    assert definite
    hips = metric.shape[:, [7, 8]].mean(1, keepdims=True)
    assert distance(metric.shape - hips, scene.body, reflection=True) < 1e-6


def test_without_holes_it_is_the_svd() -> None:
    scene = film(views=5, noise=0.1)
    weights = np.ones(scene.seen.shape)
    factors = factorize(scene.points, weights, rounds=2000, tolerance=1e-13)
    centered = scene.points - scene.points.mean(2, keepdims=True)
    values = np.linalg.svd(centered.transpose(0, 3, 1, 2).reshape(10, -1), compute_uv=False)
    left = residuals(scene.points, weights, factors.cameras, factors.shape)
    assert (left**2).sum() == pytest.approx((values[3:] ** 2).sum(), rel=1e-6)


def test_the_upgrade_recovers_cameras_up_to_turn_and_reflection() -> None:
    scene = film(views=6)
    rng = np.random.default_rng(3)
    distortion = np.eye(3) + 0.3 * rng.normal(size=(3, 3))
    true = scene.scales[:, None, None] * scene.rotations[:, :2]
    metric, definite = upgrade(Factors(true @ distortion, scene.body @ np.linalg.inv(distortion).T))
    assert definite
    rotations, scales = orthonormalize(metric.cameras)
    np.testing.assert_allclose(scales / scales[0], scene.scales / scene.scales[0], rtol=1e-5)
    # What is left is one orthogonal matrix: products of a camera's rows with another's are those of the truth.
    rows, true_rows = rotations[:, :2].reshape(-1, 3), scene.rotations[:, :2].reshape(-1, 3)
    np.testing.assert_allclose(rows @ rows.T, true_rows @ true_rows.T, atol=1e-5)


def test_a_gram_matrix_without_root_still_gives_a_body() -> None:
    rng = np.random.default_rng(1)
    indefinite = 0
    for _ in range(20):
        factors = Factors(rng.normal(size=(4, 2, 3)), rng.normal(size=(5, 13, 3)))
        metric, definite = upgrade(factors)
        indefinite += not definite
        assert np.isfinite(metric.shape).all()
        assert np.linalg.matrix_rank(metric.shape.reshape(-1, 3), tol=1e-4) == 3
    assert indefinite > 0


def test_procrustes_by_hand() -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(size=(20, 3))
    turned = 2.5 * target[:, [1, 2, 0]] + 4
    np.testing.assert_allclose(procrustes(turned, target), target, atol=1e-9)
    mirrored = turned * (1, -1, 1)
    np.testing.assert_allclose(procrustes(mirrored, target, reflection=True), target, atol=1e-9)
    assert np.abs(procrustes(mirrored, target) - target).max() > 0.1
