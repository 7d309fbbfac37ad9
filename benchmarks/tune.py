"""Tune every method alike: one grid of learning rates and each method's own settings, on held-out training videos.

    GIVEN="--set data.root=PennAction --set validation.fraction=0.2 --set validation.videos=40"
    python -m benchmarks.tune penn_pose $GIVEN --out first.jsonl --processes 16
    python -m benchmarks.tune penn_pose $GIVEN --trials best.json --seeds 3 --out second.jsonl

    GIVEN="--set data.root=GolfDB --set data.held_out=0.2 --set validation.videos=150"
    python -m benchmarks.tune golf_pose $GIVEN --set data.store=poses --out first.jsonl
    python -m benchmarks.tune golf_image $GIVEN --features features --out first.jsonl

No test video is used. Seeds can differ by more than settings: the best few settings of a method, written into
best.json, are trained again with three seeds, and the best mean goes into its recipe. `inphase reproduce` then trains
that recipe with three seeds on the whole training split and reports on the test split.
"""

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from inphase.data.frame_source import FrameSource
from inphase.models import Encoder
from inphase.training import Recipe, read_recipe, train

# Settings to try for each method besides the learning rate; the first value is that of its source.
METHODS: dict[str, dict[str, list[Any]]] = {
    "gta": {"variant": ["released"], "pairs": ["all"], "cycle_weight": [1.0, 0.0], "beta": [0.1, 0.07]},
    "lav": {"pairs": ["all"], "window": [10.0, 5.0], "weight": [0.5, 1.0]},
    "tcc": {"unit": [False], "by_dimension": [True, False], "tau": [0.1, 0.05]},
    "tcn": {"kind": ["n-pairs"], "window": [5, 15], "tau": [1.0, 0.1]},
    "sal": {"fraction": [0.75, 0.5], "triplets": [8, 16]},
    "d3tw": {"cost": ["cosine", "contrastive"], "margin": [1.0, 5.0], "pairs": ["all"]},
    "speednet": {"stride": [1.0, 2.0], "hidden": [64, 128]},
    "scl": {"variance": [10.0, 30.0], "tau": [0.1, 0.05]},
    "vava": {"pairs": ["all"], "align_weight": [1.0, 0.1], "window": [15.0, 5.0]},
    "lrprop": {"pairs": ["all"], "variance": [10.0, 30.0], "align_weight": [0.1, 1.0]},
    "soft_dtw": {"cost": ["squared_euclidean", "contrastive"], "gamma": [0.1, 1.0], "pairs": ["all"]},
}
RATES = [3e-4, 1e-3, 3e-3]


def variations(method: str) -> list[dict[str, Any]]:
    """List the settings to try for a method."""
    settings = METHODS[method]
    return [dict(zip(settings, values, strict=True)) for values in product(*settings.values())]


def trial(
    base: Recipe,
    changes: dict[str, dict[str, Any]],
    seed: int,
    elsewhere: dict[str, dict[str, Any]] | None = None,
    features: Path | None = None,
) -> dict[str, Any]:
    """Train once and measure on held-out videos, and on the data sets of `elsewhere`, `[data]` tables by name.

    `features` is a folder in which trials share the features of a frozen network.
    """
    import torch

    from inphase.runs import cache_features
    from inphase.training.build import load_frame_sources

    torch.set_num_threads(1)
    tables: dict[str, Any] = {name: {**(getattr(base, name) or {}), **table} for name, table in changes.items()}
    if "loss" in changes:
        tables["loss"] = changes["loss"]
    tables["run"] = {**base.run, **changes.get("run", {}), "seed": seed, "accelerator": "cpu", "save_every": 10**6}
    # A recipe without held-out videos of its own is measured on those of its data set.
    tables["validation"] = {name: value for name, value in base.validation.items() if value}
    recipe = replace(base, **tables)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out = train(recipe, folder, features=features).run
        took = time.perf_counter() - begin
        encoder = out.encoder()
    held = load_frame_sources(recipe, encoder).validation
    found = measure(encoder, cache_features(encoder, held, folder=features) if features and held else held)
    for name, data in (elsewhere or {}).items():
        other = replace(recipe, data=data, validation={"fraction": 0.9, "videos": 10})
        found |= {
            f"{name}:{key}": value
            for key, value in measure(encoder, load_frame_sources(other, encoder).validation).items()
        }
    return {"changes": changes, "seed": seed, "seconds": took, **found}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the recipe to vary, such as penn_pose")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--trials", type=Path, help="a JSON list of changes to try instead of the methods' grid")
    parser.add_argument("--elsewhere", type=Path, help="JSON: [data] tables of other data sets to measure on as well")
    parser.add_argument("--features", type=Path, help="a folder in which trials share the features of a frozen network")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    elsewhere = json.loads(chosen.elsewhere.read_text()) if chosen.elsewhere else None
    base = read_recipe(chosen.base, changes=chosen.set)
    if chosen.trials:
        tried = json.loads(chosen.trials.read_text())
    else:
        tried = [
            {"loss": {"name": method, **settings}, "optimizer": {"lr": rate}}
            for method in chosen.methods
            for settings in variations(method)
            for rate in RATES
        ]
    with ProcessPoolExecutor(chosen.processes) as pool, chosen.out.open("a") as out:
        waiting = [
            pool.submit(trial, base, changes, seed, elsewhere, chosen.features)
            for changes in tried
            for seed in range(chosen.seeds)
        ]
        for number, done in enumerate(as_completed(waiting), start=1):
            try:
                row = done.result()
            except Exception as error:
                row = {"error": f"{type(error).__name__}: {error}"}
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(f"{number}/{len(waiting)}", json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
