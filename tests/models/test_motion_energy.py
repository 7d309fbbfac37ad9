from dataclasses import replace

import numpy as np
import pytest
import torch

from inphase.align.matching import match, pair_cost
from inphase.models import PoseEncoder
from inphase.models.embedding import Embedding, subtract_mean, unit_rows
from inphase.models.joint_encoder import (
    ENERGY_BESIDE_POSE,
    ENERGY_BETA,
    JointEncoder,
    MotionAppearanceEncoder,
    add_motion_energy,
    measure_motion,
    split_routes,
)
from inphase.models.motion_encoder import MotionEncoder, PooledFeatures

CELLS = 4


@pytest.fixture(scope="module")
def image() -> PooledFeatures:
    return PooledFeatures(size=32, grid=2, weights=None).eval()


def random_embedding(length: int, width: int, *, seed: int) -> Embedding:
    values = np.random.default_rng(seed).normal(size=(length, width)).astype(np.float32)
    return Embedding(subtract_mean(values), np.arange(length) / 30)


def images_of(image: PooledFeatures, *lengths: int) -> list[Embedding]:
    found = [random_embedding(length, image.routes[0].width, seed=length) for length in lengths]
    return [Embedding(each.values, each.times, "image", routes=image.routes) for each in found]


def cost_of(x: Embedding, y: Embedding) -> np.ndarray:
    found = match(x, y).cost_matrix
    assert found is not None
    return found


def test_motion_is_measured_in_the_cell_in_which_features_change() -> None:
    values = np.zeros((40, 3, CELLS), np.float32)
    values[20:, :, 2] = 1.0
    energy = measure_motion(values.reshape(40, -1), cells=CELLS)
    assert energy.shape == (40, CELLS)
    assert (energy[:, [0, 1, 3]] == 0).all()
    assert set(np.argsort(energy[:, 2])[-2:].tolist()) == {19, 20}
    np.testing.assert_allclose(energy[:, 2].sum(), 2, rtol=1e-5)


@pytest.mark.parametrize("cells", [4, 9, 16])
def test_what_changes_everywhere_is_no_motion(cells: int) -> None:
    values = np.zeros((40, 4, cells), np.float32)
    values[:, :3, 0] = np.random.default_rng(4).normal(size=(40, 3)).cumsum(0)
    plain = measure_motion(values.reshape(40, -1), cells=cells)
    assert plain[:, 0].min() > 0
    assert (plain[:, 1:] == 0).all()
    values[17, 3] = 10.0  # in every cell, in a channel of its own
    np.testing.assert_allclose(measure_motion(values.reshape(40, -1), cells=cells), plain, atol=1e-5)


def test_one_cell_has_all_of_the_motion() -> None:
    values = np.zeros((40, 3), np.float32)
    values[20:] = 1.0
    np.testing.assert_allclose(measure_motion(values, cells=1).sum(), 2, rtol=1e-5)


def test_the_cost_of_images_alone_is_that_of_the_features_and_of_the_motion_energy(image: PooledFeatures) -> None:
    plain = images_of(image, 30, 24)
    added = add_motion_energy(image, plain)
    assert [route.width for route in added[0].routes] == [image.routes[0].width, CELLS]
    np.testing.assert_allclose(np.linalg.norm(added[0].values, axis=1), 1, atol=1e-5)
    energies = [torch.from_numpy(subtract_mean(measure_motion(each.values, cells=CELLS))) for each in plain]
    expected = cost_of(*plain) + pair_cost(*energies, beta=ENERGY_BETA).numpy()
    np.testing.assert_allclose(cost_of(*added), expected, atol=1e-3)


def test_beside_a_pose_it_has_half_of_the_weight(image: PooledFeatures) -> None:
    joint = JointEncoder(pose=PoseEncoder(hidden=(8,), dimension=6), image=image)
    shown = images_of(image, 30, 24, 20)
    poses = [random_embedding(30, 6, seed=1), random_embedding(24, 6, seed=2), None]
    plain = [joint.join(a, b) for a, b in zip(shown, poses, strict=True)]
    added = add_motion_energy(joint, plain)
    columns = [joint.image_columns(each.values) for each in plain]
    energies = [torch.from_numpy(subtract_mean(measure_motion(each, cells=CELLS))) for each in columns]
    for a, b, weight in ((0, 1, ENERGY_BESIDE_POSE), (0, 2, ENERGY_BESIDE_POSE**0.5)):
        expected = cost_of(plain[a], plain[b]) + weight * pair_cost(energies[a], energies[b], beta=ENERGY_BETA).numpy()
        np.testing.assert_allclose(cost_of(added[a], added[b]), expected, atol=1e-3)
    np.testing.assert_allclose(
        cost_of(added[2], added[2]), cost_of(*add_motion_energy(image, shown[2:] * 2)), atol=1e-3
    )


def test_a_trained_encoder_measures_it_on_the_untrained_features_that_it_keeps() -> None:
    trained = MotionAppearanceEncoder(size=(32, 32), grid=2, weights=None, hidden=(8,), dimension=6)
    plain = random_embedding(30, sum(route.width for route in trained.routes), seed=0)
    (added,) = add_motion_energy(trained, [replace(plain, routes=trained.routes)])
    expected = subtract_mean(measure_motion(plain.values[:, 6:], cells=CELLS))
    np.testing.assert_allclose(unit_rows(added.values[:, -CELLS:]), expected, atol=1e-5)
    (*others, energy) = split_routes(added.values, added.routes)
    lengths = np.max([np.linalg.norm(part, axis=1) for part in others], axis=0)
    np.testing.assert_allclose(np.linalg.norm(energy, axis=1), lengths * 0.5**0.25, rtol=1e-4)


def test_embeddings_without_untrained_features_stay_as_they_are() -> None:
    for encoder in (
        MotionEncoder(size=(32, 32), weights=None, hidden=(8,), dimension=6),
        PoseEncoder(hidden=(8,), dimension=6),
    ):
        plain = random_embedding(20, 6, seed=1)
        assert add_motion_energy(encoder, [plain])[0] is plain


def test_a_still_video_has_no_motion_energy(image: PooledFeatures) -> None:
    joint = JointEncoder(pose=PoseEncoder(hidden=(8,), dimension=6), image=image)
    width = image.routes[0].width
    still = Embedding(np.full((9, width), 1 / np.sqrt(width), np.float32), np.arange(9) / 30, routes=image.routes)
    assert np.isfinite(add_motion_energy(image, [still])[0].values).all()
    assert not add_motion_energy(joint, [joint.join(still, None)])[0].values.any()
