import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.align.cost import cosine_cost
from inphase.align.matching import align_coarse_to_fine, average_blocks
from inphase.align.path import shortest_path
from tests.oracles import is_monotone

Warped = tuple[NDArray[np.float64], NDArray[np.float64]]


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return cosine_cost(x[None], y[None])[0]


def spiral(moments: NDArray[np.float64]) -> Tensor:
    """Embed moments from 0 to 399 on a curve that never comes near itself."""
    waves = np.stack([wave(k * np.pi * moments / 399) for k in (1, 2, 5) for wave in (np.sin, np.cos)], axis=1)
    return torch.from_numpy(waves.astype(np.float32))


@pytest.fixture
def warped() -> Warped:
    """Give the moments of two sequences from 0 to 1, in frames of the first, the second one warped."""
    return np.linspace(0, 399, 400), np.linspace(0, 1, 600) ** 1.7 * 399


def error(warped: Warped, path: NDArray[np.int64], *, first: int = 0) -> float:
    """Measure how far apart the moments are that a path matches, at worst."""
    i, j = path.T
    return float(np.abs(warped[0][i + first] - warped[1][j]).max())


def test_what_fits_is_exact(warped: Warped) -> None:
    x, y = map(spiral, warped)
    np.testing.assert_array_equal(align_coarse_to_fine(x, y, cost=cosine).path, shortest_path(cosine(x, y)).path)


@pytest.mark.parametrize("cells", [60_000, 15_000, 5_000])
def test_what_does_not_fit_is_found_in_pieces(warped: Warped, cells: int) -> None:
    x, y = map(spiral, warped)
    largest = 0

    def counted(a: Tensor, b: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, len(a) * len(b))
        return cosine(a, b)

    path = align_coarse_to_fine(x, y, cost=counted, max_cells=cells).path
    assert largest <= 1.2 * cells
    assert is_monotone([(i, j) for i, j in path.tolist()])
    assert path[0].tolist() == [0, 0]
    assert path[-1].tolist() == [399, 599]
    # As good as the exact one; a coarse path alone is off by a block of frames.
    assert error(warped, path) <= error(warped, shortest_path(cosine(x, y)).path) + 0.5


def test_a_short_sequence_is_found_inside_a_long_one(warped: Warped) -> None:
    x, y = map(spiral, warped)
    path = align_coarse_to_fine(x[150:250], y, cost=cosine, subsequence=True, max_cells=6_000).path
    assert error(warped, path, first=150) <= 2.5
    assert path[0, 0] == 0
    assert path[-1, 0] == 99


def test_blocks_are_averaged_and_the_last_may_be_shorter() -> None:
    assert average_blocks(torch.arange(5.0)[:, None], 2).flatten().tolist() == [0.5, 2.5, 4.0]
