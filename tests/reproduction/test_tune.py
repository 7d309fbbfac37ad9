"""Methods are tuned alike: as many trials each, the best chosen by its mean over seeds; a stopped search resumes."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tune
from benchmarks.tune import METHODS, RATES, SEEDS, Trial, change, first_round, rank, run_all, score, second_round
from inphase.reproduction.study import LABELS, LOSS_TABLES
from inphase.training import read_recipe
from inphase.training.build import build_encoder_with_loss


def row(method: str, seed: int, error: float, **settings: Any) -> dict[str, Any]:
    return {"method": method, "seed": seed, "changes": {"loss": settings}, "mean, dtw": error + 1, "tau": 0.5} | {
        "mean, contrastive": error
    }


def test_every_unsupervised_method_has_as_many_trials() -> None:
    assert set(METHODS) == set(LABELS) - {"soft_dtw", "supervised"}
    counts = Counter(trial.method for trial in first_round(METHODS))
    assert set(counts.values()) == {2 * len(RATES)}
    assert len({trial.key for trial in first_round(METHODS)}) == counts.total()
    rows = [row(trial.method, 0, number, number=number) for number, trial in enumerate(first_round(METHODS))]
    again = Counter(trial.method for trial in second_round(rows, methods=METHODS))
    assert set(again.values()) == {2 * (SEEDS - 1)}
    assert set(again) == set(METHODS)


def test_every_setting_builds_a_network_and_names_its_methods_loss() -> None:
    base = read_recipe("penn_pose")
    for trial in first_round(METHODS):
        recipe = change(base, trial)
        assert recipe.loss["name"] == LOSS_TABLES.get(trial.method, {"name": trial.method})["name"]
        assert recipe.optimizer["lr"] == trial.changes["optimizer"]["lr"]
        network = build_encoder_with_loss(recipe)
        assert network.encoder.normalizes == (trial.changes.get("encoder") is None)


def test_the_best_has_the_least_mean_over_seeds() -> None:
    rows = [
        row("gta", seed, error, beta=beta)
        for beta, errors in ((1, (2, 5, 5)), (2, (3, 3, 3)))
        for seed, error in enumerate(errors)
    ]
    single = row("gta", 0, 1, beta=3)  # lucky, and not trained again
    assert [found["loss"]["beta"] for found in rank([*rows, single])] == [2, 1, 3]
    assert [found["loss"]["beta"] for found in rank([each for each in [*rows, single] if each["seed"] == 0])] == [
        3,
        1,
        2,
    ]


def test_the_score_is_the_better_event_error_or_tau() -> None:
    assert score({"mean, dtw": 3.0, "mean, contrastive": 2.0, "tau": 0.9}) == 2.0
    assert score({"mean, dtw": 1.5, "mean, contrastive": 2.0, "tau": 0.9}) == 1.5
    assert score({"tau": 0.9}) == -0.9
    assert score({"error": "NaN", "tau": 0.9}) == float("inf")


def test_a_stopped_search_resumes_and_failed_trials_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [Trial("gta", {"loss": {"name": "gta"}}, seed) for seed in range(3)]
    known = {"key": trials[0].key, "method": "gta", "changes": trials[0].changes, "seed": 0, "tau": 0.25}
    out = tmp_path / "out.jsonl"
    lines = [
        json.dumps(known),
        json.dumps({**known, "key": trials[1].key, "seed": 1, "error": "killed"}),
        '{"key": "cut o',
    ]
    out.write_text("\n".join(lines) + "\n")
    ran = []

    class Pool:
        """Runs what is submitted at once, in this process."""

        def __init__(self, processes: int) -> None:
            assert processes == 2

        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def submit(self, function: Any, base: Any, trial: Trial, features: Any) -> Any:
            from concurrent.futures import Future

            future: Future[dict[str, float]] = Future()
            ran.append(trial.seed)
            if trial.seed == 1:
                future.set_result({"tau": 0.75})
            else:
                future.set_exception(ValueError("NaN"))
            return future

    monkeypatch.setattr(tune, "ProcessPoolExecutor", Pool)
    rows = run_all(read_recipe("penn_pose"), trials, out=out, processes=2, features=None)
    assert ran == [1, 2]
    assert [found.get("tau") for found in rows] == [0.25, 0.75, None]
    assert rows[2]["error"] == "ValueError: NaN"
    assert [found["seed"] for found in tune.read_rows(out)] == [0, 1]
