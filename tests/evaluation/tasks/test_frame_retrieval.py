from importlib import import_module

import numpy as np
import pytest
import torch

from inphase.evaluation.embedded_videos import NotApplicableError
from inphase.evaluation.scores import value_of
from inphase.evaluation.tasks.phases import frame_retrieval
from tests.evaluation.embeddings import constant, embedded, noisy, performances


def test_phases_that_are_points_are_retrieved_perfectly() -> None:
    phases = np.repeat(np.arange(3), 6)
    test = [embedded(np.eye(3, dtype=np.float32)[phases], name=name, phases=phases) for name in "ab"]
    assert value_of(frame_retrieval([], test, ks=(5,)), "ap@5") == 1
    turned = embedded(np.eye(3, dtype=np.float32)[(phases + 1) % 3], name="c", phases=phases)
    assert value_of(frame_retrieval([], [test[0], turned], ks=(5,)), "ap@5") == 0


@pytest.mark.parametrize("stride", [1, 3])
def test_the_numbers_are_those_of_a_literal_loop(stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("inphase.evaluation.tasks.phases"), "RETRIEVAL_CELLS", 500)
    test = noisy(performances(4), noise=0.5)
    unlabelled = test[0].phases.copy()
    unlabelled[5:9] = -1
    test[0] = embedded(test[0].values, name="a", phases=unlabelled)
    means, averages = [], []
    for item in test:
        others = [other for other in test if other is not item]
        values = np.concatenate([other.values[other.phases >= 0] for other in others])
        labels = np.concatenate([other.phases[other.phases >= 0] for other in others])
        precisions, ranked = [], []
        for frame in np.flatnonzero(item.phases >= 0)[::stride]:
            nearest = np.square(values - item.values[frame]).sum(1).argsort()[:10]
            right = labels[nearest] == item.phases[frame]
            precisions.append(np.mean(right))
            at_ranks = [np.mean(right[: rank + 1]) for rank in np.flatnonzero(right)]
            ranked.append(np.mean(at_ranks) if at_ranks else 0.0)
        means.append(np.mean(precisions))
        averages.append(np.mean(ranked))
    scores = frame_retrieval([], test, stride=stride)
    assert value_of(scores, "ap@10") == pytest.approx(np.mean(means))
    assert value_of(scores, "map@10") == pytest.approx(np.mean(averages))


def test_a_constant_embedding_is_undefined_and_missing_labels_not_applicable() -> None:
    assert np.isnan(value_of(frame_retrieval([], constant(performances(3))), "ap@5"))
    with pytest.raises(NotApplicableError, match="none of 2 test videos has phases"):
        frame_retrieval([], [embedded(item.values) for item in performances(2)])
    with pytest.raises(NotApplicableError, match="two labeled videos"):
        frame_retrieval([], performances(1))
    with pytest.raises(ValueError, match="every k ≥ 1"):
        frame_retrieval([], performances(2), ks=(0,))


def test_other_devices_retrieve_the_same(device: torch.device) -> None:
    test = noisy(performances(4), noise=0.5)
    ours, theirs = (frame_retrieval([], test, device=place) for place in (device, "cpu"))
    assert [score.label for score in ours] == [score.label for score in theirs]
    assert [score.value for score in ours] == pytest.approx([score.value for score in theirs], abs=0.01)
