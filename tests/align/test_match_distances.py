"""Distances of many pairs at once are those of the pairs, on every device."""

import numpy as np
import pytest
import torch

from inphase.align import consensus
from inphase.align.consensus import match_distances
from inphase.align.matching import match


def test_distances_are_those_of_the_pairs(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consensus, "GPU_CELLS", 10_000)  # several parts
    rng = np.random.default_rng(0)
    curve = rng.standard_normal((90, 16)).cumsum(0)
    sequences = []
    for length in (1, 2, 33, 40, 64, 90):
        values = curve[np.sort(rng.integers(0, 90, length))] + rng.normal(0, 0.3, (length, 16))
        sequences.append((values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32))
    pairs = [(i, j) for i in range(6) for j in range(6)]
    found = match_distances(sequences, sequences, pairs, device=str(device))
    expected = [match(sequences[i], sequences[j]).distance for i, j in pairs]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found[pairs.index((4, 4))] == pytest.approx(0, abs=1e-6)
