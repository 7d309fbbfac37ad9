from dataclasses import replace

import numpy as np
import pytest

from inphase.align.matching import align_with_itself, match
from inphase.apps.verdict import Verdict, cost_ratio, judge
from inphase.models.embedding import Embedding, Route
from tests.apps.curves import on_curve

ROUTES = (Route(6, 0.1), Route(6, 0.05))


def both(moments: np.ndarray, *, noise: float = 0.0, seed: int = 0) -> Embedding:
    """Embed a curve twice, as by two encoders."""
    parts = [on_curve(moments, noise=noise, seed=seed + k).values / np.sqrt(beta) for k, (_, beta) in enumerate(ROUTES)]
    rows = np.concatenate(parts, axis=1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Embedding(rows.astype(np.float32), np.arange(len(moments)) / 30, "both", routes=ROUTES)


def test_the_same_action_is_good_and_another_is_not_trusted() -> None:
    x = both(np.linspace(0, 1, 60))
    good = judge(x, y := both(np.linspace(0, 1, 80) ** 1.3), match(x, y))
    assert (good.judgment, good.reasons) == ("good", ())
    noise = np.random.default_rng(0).normal(size=y.values.shape).astype(np.float32)
    other = replace(y, values=noise / np.linalg.norm(noise, axis=1, keepdims=True))
    wrong = judge(x, other, match(x, other))
    assert wrong.judgment == "do_not_trust"
    assert "hardly more alike than others" in wrong.reasons[0]
    assert good.probability is not None
    assert wrong.probability is not None
    assert wrong.probability < 0.3 < 0.7 <= good.probability


def test_without_costs_or_with_one_modality_there_is_no_verdict() -> None:
    x, y = both(np.linspace(0, 1, 20)), both(np.linspace(0, 1, 30))
    assert judge(x, x, align_with_itself(20)) == Verdict()
    assert judge(x, y, match(x, y, keep_cost=False)) == Verdict()
    one = Embedding(x.values, x.times)
    assert judge(one, one, match(one, one)) == Verdict()
    assert Verdict().to_dict() == {"verdict": None, "probability": None, "reasons": []}


def test_the_ratio_is_that_of_the_path_to_all() -> None:
    found = match(both(np.linspace(0, 1, 5)), both(np.linspace(0, 1, 7)))
    assert found.cost_matrix is not None
    on_path = [found.cost_matrix[i, j] for i, j in found.path.tolist()]
    assert cost_ratio(found) == pytest.approx(np.mean(on_path) / found.cost_matrix.mean(), rel=1e-5)
    assert cost_ratio(replace(found, cost_matrix=np.zeros((5, 7)))) == 1.0
