import numpy as np
import pytest

from inphase.align.consensus import (
    agree,
    align_from,
    align_pairwise,
    barycenter,
    consensus_alignment,
    posterior,
    transpose,
)
from inphase.align.matching import match
from tests.apps.curves import on_curve

LENGTHS = (30, 41, 36, 52, 33)


def speeds(number: int, length: int) -> np.ndarray:
    return np.linspace(0, 1, length) ** (0.7 + 0.2 * number)


@pytest.fixture(scope="module")
def sequences() -> list[np.ndarray]:
    """Five performances of one curve at different speeds."""
    return [on_curve(speeds(k, n), noise=0.05, seed=k).values for k, n in enumerate(LENGTHS)]


def test_every_pair_is_mapped_both_ways_like_by_itself(sequences: list[np.ndarray]) -> None:
    found = align_pairwise(sequences)
    assert len(found.maps) == 20
    for (a, b), frames in found.maps.items():
        direct = match(sequences[min(a, b)], sequences[max(a, b)])
        np.testing.assert_array_equal(frames, (direct if a < b else transpose(direct)).frame_map())
        assert found.distances[a, b] == pytest.approx(direct.distance, abs=1e-5)


def test_paths_through_others_outvote_a_wrong_one(sequences: list[np.ndarray]) -> None:
    found = align_pairwise(sequences)
    broken = {**found.maps, (0, 1): np.zeros(LENGTHS[0])}
    frames = np.arange(LENGTHS[0], dtype=np.float64)
    truth = np.interp(speeds(0, LENGTHS[0]), speeds(1, LENGTHS[1]), np.arange(LENGTHS[1]))
    votes = type(found)(broken, found.distances).votes(0, 1, frames)
    assert votes.shape == (4, LENGTHS[0])
    together = agree(votes)
    assert np.abs(together.frames - truth).mean() < 1.5
    assert np.abs(votes[0] - truth).mean() > 10
    assert (np.diff(together.frames) >= 0).all()
    assert together.spread[20] > agree(found.votes(0, 1, frames)).spread[20]
    np.testing.assert_array_equal(agree(votes[:1]).spread, 0)


def test_the_nearest_vote(sequences: list[np.ndarray]) -> None:
    found = align_pairwise(sequences)
    ranked = [c for c in np.argsort(found.distances[3]).tolist() if c not in (0, 3)]
    assert found.nearest(0, 3) == ranked
    assert found.nearest(0, 3, neighbors=1) == ranked[:1]
    assert found.nearest(0, 3, voters=ranked[1:]) == ranked[1:]
    frames = np.arange(4.0)
    np.testing.assert_array_equal(found.votes(0, 3, frames, voters=()), found.at(0, 3, frames)[None])
    np.testing.assert_array_equal(found.votes(0, 3, np.arange(5.0), neighbors=0), [found.maps[0, 3][:5]])


def test_of_many_the_nearest_to_the_sources_vote(sequences: list[np.ndarray]) -> None:
    reported: list[tuple[int, int]] = []
    few = align_from(sequences, [0], max_voters=2, progress=lambda *news: reported.append(news))
    assert reported[-1][0] == reported[-1][1]
    voters = set(np.argsort(few.distances[0])[1:3].tolist())
    assert {pair for pair in few.maps if 0 not in pair} == {
        (a, b) for a in range(1, 5) for b in range(1, 5) if a != b and {a, b} & voters
    }
    for target in range(1, 5):
        assert set(few.nearest(0, target)) >= voters - {target}
        assert target in voters or set(few.nearest(0, target)) == voters
    whole = align_pairwise(sequences)
    assert align_from(sequences, [0]).maps.keys() == whole.maps.keys()


def test_a_consensus_is_a_path(sequences: list[np.ndarray]) -> None:
    direct = match(sequences[0], sequences[1])
    assert direct.cost_matrix is not None
    agreed = agree(align_pairwise(sequences).votes(0, 1, np.arange(LENGTHS[0], dtype=np.float64)))
    path = consensus_alignment(direct, agreed).path
    assert path[0].tolist() == [0, 0]
    assert path[-1].tolist() == [LENGTHS[0] - 1, LENGTHS[1] - 1]
    steps = np.diff(path, axis=0)
    assert ((steps >= 0) & (steps <= 1)).all()
    assert (steps.sum(1) > 0).all()
    assert np.abs(consensus_alignment(direct, agreed).frame_map() - agreed.frames).max() <= 3
    again = consensus_alignment(direct, agree(direct.frame_map()[None]))
    assert np.abs(again.frame_map() - direct.frame_map()).mean() < 1


def test_a_barycenter_is_nearer_to_all_than_one_of_them(sequences: list[np.ndarray]) -> None:
    template = barycenter(sequences, start=2)
    assert template.values.shape == sequences[2].shape
    np.testing.assert_allclose(np.linalg.norm(template.values, axis=1), 1, atol=1e-4)
    others = [each for k, each in enumerate(sequences) if k != 2]
    distance = np.mean([match(template, each).distance for each in others])
    assert distance < np.mean([match(sequences[2], each).distance for each in others])


def test_all_paths_give_the_posterior_of_a_frame(sequences: list[np.ndarray]) -> None:
    mass = posterior(sequences[0], sequences[1], np.array([0, 15]), alignment=match(*sequences[:2]), gamma=0.5)
    np.testing.assert_allclose(mass.sum(1), 1)
    assert mass[0].argmax() < 3
