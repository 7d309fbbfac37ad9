from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from inphase.apps.pose3d.adjustment import Bundle, Mirror, Priors, _Problem, adjust
from inphase.apps.pose3d.factorization import typical_lengths
from inphase.pose.pose import JOINTS13, bones, mirrored
from tests.apps.pose3d.scenes import Array, Scene, distance, film

BONES = bones(JOINTS13)
USUAL = typical_lengths(JOINTS13, BONES)


def disturbed(scene: Scene, *, by: float, seed: int = 0) -> Bundle:
    rng = np.random.default_rng(seed)
    turns = Rotation.from_rotvec(
        by * rng.normal(size=(len(scene.scales), 3)) * (np.arange(len(scene.scales)) > 0)[:, None]
    )
    joints = scene.body + by * rng.normal(size=scene.body.shape)
    bundle = Bundle(turns.as_matrix() @ scene.rotations, scene.scales, np.zeros((*scene.points.shape[:2], 2)), joints)
    left = scene.seen[..., None] * (scene.points - bundle.project())
    positions = left.sum(2) / np.maximum(scene.seen.sum(-1), 1)[..., None]
    return Bundle(bundle.rotations, bundle.scales, positions, joints)


def misfit(scene: Scene, bundle: Bundle) -> float:
    return float(np.abs((scene.points - bundle.project())[scene.seen]).mean())


def bone_spread(joints: Array) -> float:
    lengths = np.stack([np.linalg.norm(joints[:, a] - joints[:, b], axis=-1) for a, b in BONES])
    return float((lengths.std(1) / lengths.mean(1)).mean())


def test_the_jacobian_is_that_of_the_residuals() -> None:
    scene = film(views=3, every=30, missing=0.2)
    rng = np.random.default_rng(0)
    mirror = Mirror(rng.normal(size=(len(scene.body), 3)), rng.uniform(0.1, 1, len(JOINTS13)))
    problem = _Problem(
        disturbed(scene, by=0.1), scene.points, scene.seen * rng.random(scene.seen.shape), bones=BONES,
        usual=USUAL, sides=mirrored(JOINTS13), hips=(7, 8), priors=Priors(), mirror=mirror,
    )  # fmt: skip
    values = problem.start + 0.1 * rng.normal(size=problem.start.shape)
    steps = 1e-6 * np.eye(len(values))
    numeric = (
        np.stack([problem.residuals(values + step) - problem.residuals(values - step) for step in steps], 1) / 2e-6
    )
    np.testing.assert_allclose(problem.jacobian(values).toarray(), numeric, atol=1e-5)


def test_it_explains_the_views_better_and_bones_keep_their_lengths() -> None:
    scene = film(views=6, every=10, missing=0.2, noise=0.02)
    start = disturbed(scene, by=0.1)
    reported: list[int] = []
    found = adjust(
        start, scene.points, scene.seen.astype(np.float64), bones=BONES, usual=USUAL, sides=mirrored(JOINTS13),
        hips=(7, 8), priors=Priors(nearness=0.0, acceleration=1.0), progress=reported.append,
    )  # fmt: skip
    assert misfit(scene, found) < 0.5 * misfit(scene, start)
    assert bone_spread(found.joints) < 0.5 * bone_spread(start.joints)
    assert distance(found.joints, scene.body) < 0.5 * distance(start.joints, scene.body)
    np.testing.assert_allclose(found.rotations[0], np.eye(3), atol=1e-12)
    assert reported == list(range(1, len(reported) + 1))
    assert reported


def test_one_wild_joint_does_not_pull_the_body_along() -> None:
    scene = film(views=6, every=20)
    points = scene.points.copy()
    points[3, 2, 6] += 5.0
    found = adjust(
        disturbed(scene, by=0.02), points, scene.seen.astype(np.float64), bones=BONES, usual=USUAL,
        sides=mirrored(JOINTS13), hips=(7, 8), priors=Priors(nearness=0.0, acceleration=1.0),
    )  # fmt: skip
    hips = found.joints[:, [7, 8]].mean(1, keepdims=True)
    assert np.linalg.norm((found.joints - hips)[2, 6] - scene.body[2, 6]) < 0.1


def test_a_wrist_that_no_view_shows_is_found_from_the_other_one() -> None:
    scene = film(views=6, every=20)
    across = scene.body[:, [1, 7]].sum(1) - scene.body[:, [2, 8]].sum(1)
    normals = across / np.linalg.norm(across, axis=-1, keepdims=True)
    mirror = Mirror(normals, np.full(len(JOINTS13), 0.02))
    body = scene.body - mirror.asymmetry(scene.body, mirrored(JOINTS13), (7, 8))
    np.testing.assert_allclose(mirror.asymmetry(body, mirrored(JOINTS13), (7, 8)), 0, atol=1e-12)
    points = scene.scales[:, None, None, None] * np.einsum("vca,tja->vtjc", scene.rotations[:, :2], body)
    seen = scene.seen & (np.arange(len(JOINTS13)) != 5)
    scene = replace(scene, body=body, points=points, seen=seen)
    errors = []
    for plane in (mirror, None):
        found = adjust(
            disturbed(scene, by=0.1), points, seen.astype(np.float64), bones=BONES, usual=USUAL,
            sides=mirrored(JOINTS13), hips=(7, 8), priors=Priors(nearness=0.0, acceleration=1.0), mirror=plane,
        )  # fmt: skip
        about = found.joints - found.joints[:, [7, 8]].mean(1, keepdims=True)
        errors.append(np.linalg.norm(about - body, axis=-1)[:, 5].mean())
    assert errors[0] < 0.1
    assert errors[0] < 0.5 * errors[1]


def test_a_body_that_walks_towards_cameras_off_their_axes_is_found() -> None:
    scene = film(views=6, every=10)
    rng, nearness = np.random.default_rng(1), 0.13
    # Each camera sees the body walk half a torso length towards it or away, and sideways.
    way = np.linspace(-1, 1, len(scene.body))[None, :, None]
    walk = 0.5 * way * rng.choice([-1.0, 1.0], size=(6, 1, 3))
    seen = np.einsum("vca,tja->vtjc", scene.rotations, scene.body) + walk[:, :, None]
    points = scene.scales[:, None, None, None] * seen[..., :2] / (1 + nearness * seen[..., 2:])
    filmed = replace(scene, points=points)
    start = disturbed(filmed, by=0.05)

    def error(approach: float) -> float:
        found = adjust(
            start, points, scene.seen.astype(np.float64), bones=BONES, usual=USUAL, sides=mirrored(JOINTS13),
            hips=(7, 8), priors=Priors(approach=approach, build=1.0, acceleration=1.0),
        )  # fmt: skip
        return distance(found.joints - found.joints[:, [7, 8]].mean(1, keepdims=True), scene.body)

    print(error(0.1), error(1e-4))
    assert error(0.1) < 0.5 * error(1e-4)


def test_tolerances_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Priors(stretch=0)
