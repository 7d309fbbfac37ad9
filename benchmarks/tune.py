"""Tune every method alike on videos held out of training: the same learning rates, and as many settings of its own.

    GIVEN="--set data.root=PennAction --set validation.fraction=0.2 --set validation.videos=40 --set run.steps=375"
    python -m benchmarks.tune penn_pose $GIVEN --out penn.jsonl --processes 16

    GIVEN="--set data.root=GolfDB --set data.held_out=0.2 --set validation.videos=150"
    python -m benchmarks.tune golf_pose $GIVEN --set data.store=poses --out golf_pose.jsonl
    python -m benchmarks.tune golf_image $GIVEN --features features --out golf_image.jsonl
    python -m benchmarks.tune signs_image --set data.root=Signs --set data.val=0.2 --features features --out signs.jsonl

No test video is used, and on GolfDB and the signs no person of the held-out videos is trained on. Every method has
three learning rates times two settings of its own with one seed; seeds can differ by more than settings, so the best
two of these get two seeds more (`--seeds 1`: none). The best mean is the least error of events after DTW, on 1 − cos or
on the contrastive cost; where videos have no events, the highest τ. It is printed at the end, and goes into the
method's recipe; `inphase reproduce` then trains that recipe on the whole training split and reports on the test split.

The same command resumes: trials in the output file are not trained again.
"""

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from inphase.data.frame_source import FrameSource
from inphase.models import Encoder
from inphase.training import Recipe, read_recipe, train

Changes = dict[str, dict[str, Any]]  # table → key → value


def vary(name: str, key: str, values: Sequence[Any], **fixed: Any) -> list[Changes]:
    """List changes to a recipe: a loss with each of some values of one setting."""
    return [{"loss": {"name": name, **fixed, key: value}} for value in values]


# Two settings of each method besides the learning rate; the first is that of its source. The code of TCC, with TCN and
# SaL in it, does not normalize embeddings.
RAW = {"encoder": {"normalize": False}}
METHODS: dict[str, list[Changes]] = {
    "gta": vary("gta", "beta", (0.1, 0.07), variant="released", pairs="all"),
    "lav": vary("lav", "window", (10.0, 5.0), pairs="all"),
    "tcc": [{"loss": {"name": "tcc"}, **RAW}, {"loss": {"name": "tcc", "by_dimension": False}}],
    "tcn": [{"loss": {"name": "tcn", "window": 5}, **RAW}, {"loss": {"name": "tcn", "window": 15}}],
    "sal": [
        {"loss": {"name": "sal", "fraction": 0.75, "triplets": 8}, **RAW},
        {"loss": {"name": "sal", "fraction": 0.5, "triplets": 16}},
    ],
    "d3tw": vary("d3tw", "margin", (1.0, 5.0), pairs="all", cost="cosine"),
    "d3tw_contrastive": vary("d3tw", "margin", (1.0, 5.0), pairs="all", cost="contrastive"),
    "speednet": vary("speednet", "stride", (1.0, 2.0), hidden=128),
    "scl": vary("scl", "variance", (10.0, 30.0)),
    "vava": vary("vava", "align_weight", (1.0, 0.1), pairs="all"),
    "lrprop": vary("lrprop", "variance", (10.0, 30.0), pairs="all"),
}
RATES = (1e-3, 3e-3, 3e-4)
BEST, SEEDS = 2, 3  # settings that are trained again, and with how many seeds in all


@dataclass(frozen=True)
class Trial:
    """A method, its changes to the recipe and a seed."""

    method: str
    changes: Changes
    seed: int = 0

    @property
    def key(self) -> str:
        """Identify the trial in the output file."""
        return json.dumps([self.method, self.changes, self.seed], sort_keys=True)


def first_round(methods: Iterable[str], rates: Sequence[float] = RATES) -> list[Trial]:
    """List the settings of every method at some learning rates, with one seed."""
    return [
        Trial(method, {**settings, "optimizer": {"lr": rate}})
        for rate, method in product(rates, methods)
        for settings in METHODS[method]
    ]


def second_round(rows: Sequence[Mapping[str, Any]], *, methods: Iterable[str], seeds: int = SEEDS) -> list[Trial]:
    """List the best settings of every method with the other seeds."""
    return [
        Trial(method, changes, seed)
        for method in methods
        for changes in rank([row for row in rows if row["method"] == method and row["seed"] == 0])[:BEST]
        for seed in range(1, seeds)
    ]


def rank(rows: Sequence[Mapping[str, Any]]) -> list[Changes]:
    """Sort settings by their mean score over seeds, the best first; settings with fewer seeds come last."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        found[json.dumps(row["changes"], sort_keys=True)].append(score(row))
    best = sorted(found, key=lambda name: (-len(found[name]), sum(found[name]) / len(found[name])))
    return [json.loads(name) for name in best]


def score(row: Mapping[str, Any]) -> float:
    """Return the number to minimize: the error of events after the better DTW, or −τ; infinite if training failed."""
    if "error" in row:
        return float("inf")
    errors = [float(row[name]) for name in ("mean, dtw", "mean, contrastive") if name in row]
    return min(errors) if errors else -float(row["tau"])


def run_trial(base: Recipe, trial: Trial, features: Path | None = None) -> dict[str, Any]:
    """Train once and measure on held-out videos; `features` is a folder of a frozen network's features, shared."""
    import numba
    import torch

    from inphase.runs import cache_features
    from inphase.training.build import load_frame_sources

    torch.set_num_threads(1)
    numba.set_num_threads(1)
    recipe = change(base, trial)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out = train(recipe, folder, features=features).run
        took = time.perf_counter() - begin
        encoder = out.encoder()
    held = load_frame_sources(recipe, encoder).validation
    found = measure(encoder, cache_features(encoder, held, folder=features) if features and held else held)
    return {"seconds": took, "measured": time.perf_counter() - begin - took, **found}


def change(base: Recipe, trial: Trial) -> Recipe:
    """Make the recipe of a trial; a loss replaces that of the base, and held-out videos are those of the data set."""
    tables: dict[str, Any] = {name: {**(getattr(base, name) or {}), **table} for name, table in trial.changes.items()}
    if "loss" in trial.changes:
        tables["loss"] = trial.changes["loss"]
    run = {**base.run, **trial.changes.get("run", {}), "seed": trial.seed, "save_every": 10**6}
    validation = {name: value for name, value in base.validation.items() if value}
    return replace(base, **{**tables, "run": run, "validation": validation})


def compute_features(base: Recipe, features: Path) -> None:
    """Compute the features of a frozen network once, on a GPU where there is one."""
    import torch

    from inphase.runs import CachedFeatures
    from inphase.training.build import build_encoder_with_loss, load_frame_sources

    recipe = change(base, Trial("gta", {}))
    encoder = build_encoder_with_loss(recipe).encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    sources = load_frame_sources(recipe, encoder)
    for source in (sources.train, sources.validation):
        if source is not None:
            CachedFeatures(encoder, source, folder=features).compute_all()


def measure(encoder: Encoder, source: FrameSource | None) -> dict[str, float]:
    """Measure τ, and the event error where the videos have events."""
    from inphase.evaluation import embed_videos, select
    from inphase.evaluation.tasks.matching_errors import event_error
    from inphase.evaluation.tasks.unlabeled import kendall_tau

    if source is None:
        return {}
    embedded = embed_videos(
        encoder, source.videos, read=source.read, frame_count=source.frame_count, precomputed=source.precomputed
    )
    scores = select(kendall_tau([], embedded), action=None)
    if all(set(INNER) <= set(video.events) for video in source.videos):
        scores += select(event_error([], embedded, events=INNER, pairs=4000), event=None)
    elif any(video.events for video in source.videos):
        scores += select(event_error([], embedded, pairs=4000), event=None)
    return {score.label: score.value for score in scores if not score.metric.endswith("_fraction")}


INNER = ("toe_up", "mid_backswing", "top", "mid_downswing", "impact", "mid_follow_through")


def run_all(
    base: Recipe, trials: Sequence[Trial], *, out: Path, processes: int, features: Path | None
) -> list[dict[str, Any]]:
    """Run the trials that the output file lacks, in parallel; return the rows of all."""
    done = {row["key"]: row for row in read_rows(out)}
    left = [trial for trial in trials if trial.key not in done]
    with ProcessPoolExecutor(processes) as pool, out.open("a") as file:
        waiting = {pool.submit(run_trial, base, trial, features): trial for trial in left}
        for number, future in enumerate(as_completed(waiting), start=1):
            trial = waiting[future]
            row = {"key": trial.key, "method": trial.method, "changes": trial.changes, "seed": trial.seed}
            try:
                row |= future.result()
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"
            done[trial.key] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            shown = row.get("error") or f"{score(row):.3f}"
            print(f"{number}/{len(left)} {trial.method} {trial.changes} {trial.seed}: {shown}", flush=True)
    return [done[trial.key] for trial in trials]


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Read the trials of an output file, without failed ones and a last line that was cut off."""
    for line in file.read_text().splitlines() if file.is_file() else []:
        if line.endswith("}"):
            row = json.loads(line)
            if "error" not in row:
                yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the recipe to vary, such as penn_pose")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--trials", type=Path, help="a JSON list of changes to try instead of the methods' settings")
    parser.add_argument("--features", type=Path, help="a folder in which trials share the features of a frozen network")
    parser.add_argument("--rates", nargs="*", type=float, default=RATES)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of the best settings, or of --trials")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    base = read_recipe(chosen.base, changes=chosen.set)
    how: dict[str, Any] = {"out": chosen.out, "processes": chosen.processes, "features": chosen.features}
    if chosen.features:
        with ProcessPoolExecutor(1) as pool:  # CUDA cannot be used before this process forks
            pool.submit(compute_features, base, chosen.features).result()
    if chosen.trials:
        listed = [Trial("own", changes) for changes in json.loads(chosen.trials.read_text())]
        rows = run_all(base, [replace(t, seed=s) for t in listed for s in range(chosen.seeds)], **how)
    else:
        rows = run_all(base, first_round(chosen.methods, chosen.rates), **how)
        rows += run_all(base, second_round(rows, methods=chosen.methods, seeds=chosen.seeds), **how)
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        best = rank(own)[0]
        scores = [score(row) for row in own if row["changes"] == best]
        print(json.dumps({"method": method, "changes": best, "scores": [round(value, 4) for value in scores]}))


if __name__ == "__main__":
    main()
