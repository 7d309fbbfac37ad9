import numpy as np
import pytest

from inphase.evaluation.embedded_videos import NotApplicableError
from inphase.evaluation.scores import value_of
from inphase.evaluation.tasks.matching_errors import alignment_error
from tests.evaluation.embeddings import constant, embedded, noisy, performance, performances


def test_a_perfect_embedding_errs_by_less_than_a_frame_and_linear_stretch_by_the_warp() -> None:
    straight, bent = np.linspace(0, 1, 60), np.linspace(0, 1, 60) ** 2
    scores = alignment_error([], [performance(straight), performance(bent, name="b")])
    step = np.diff(bent).max()
    assert value_of(scores, "error", setting="nearest") < step / 2
    assert value_of(scores, "error", setting="dtw") < step
    assert value_of(scores, "error", setting="contrastive") < step
    assert value_of(scores, "error", setting="linear") == pytest.approx(np.abs(straight - bent).mean())


def test_the_numbers_are_those_of_a_literal_loop() -> None:
    test = noisy([*performances(3, action="jump"), *performances(3, seed=3)], noise=0.5)
    means = []
    for action in ("jump", "throw"):
        pairs = []
        videos = [item for item in test if item.video.action == action]
        for x in videos:
            for y in videos:
                if x is not y:
                    assert x.progress is not None
                    assert y.progress is not None
                    found = [int(np.square(y.values - row).sum(1).argmin()) for row in x.values]
                    pairs.append(np.mean([abs(x.progress[i] - y.progress[j]) for i, j in enumerate(found)]))
        means.append(np.mean(pairs))
    scores = alignment_error([], test)
    assert value_of(scores, "error", setting="nearest", action="jump") == pytest.approx(means[0])
    assert value_of(scores, "error", setting="nearest") == pytest.approx(np.mean(means))


def test_a_constant_embedding_is_undefined_and_unknown_time_not_applicable() -> None:
    scores = alignment_error([], constant(performances(3)))
    assert np.isnan(value_of(scores, "error", setting="dtw"))
    assert value_of(scores, "error", setting="linear") > 0
    with pytest.raises(NotApplicableError, match="canonical time"):
        alignment_error([], [embedded(item.values) for item in performances(2)])
