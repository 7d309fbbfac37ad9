"""Train the methods on a data set of key events, and measure them on people left out, beside controls.

python -m benchmarks.domains ski_jump_poses ROOT --modality pose
python -m benchmarks.domains lsa64_signs ROOT --modality image [--steps 400]
python -m benchmarks.domains knot_tying ROOT --modality image

Every seed holds out other people, about half of the videos. The table has the error of events carried between all pairs
of their videos along the contrastive path, in frames: mean / median, each the mean over the seeds.
"""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from inphase.evaluation.evaluate import evaluate
from inphase.evaluation.scores import Score, select
from inphase.training import train
from inphase.training.recipe import read_recipe

METHODS = ("gta", "tcc", "lav", "tcn", "sal")
CONTROLS = ("untrained",)


def read_error(scores: Sequence[Score], setting: str, control: str | None) -> tuple[float, float] | None:
    found = [
        [
            each.value
            for each in select(scores, task="event_error", metric=metric, setting=setting, control=control)
            if each.action is None and each.event is None
        ]
        for metric in ("mean", "median")
    ]
    return (found[0][0], found[1][0]) if all(found) else None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", choices=("events", "lsa64_signs", "knot_tying", "ski_jump_poses"))
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--modality", choices=("pose", "image"), required=True)
    arguments.add_argument("--methods", nargs="*", default=METHODS)
    arguments.add_argument("--seeds", type=int, nargs="*", default=(0, 1, 2))
    arguments.add_argument("--steps", type=int, default=400)
    arguments.add_argument("--test", type=float, default=0.5)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def add(name: str, found: tuple[float, float] | None) -> None:
        if found is not None:
            errors[name].append(found)

    with tempfile.TemporaryDirectory() as work:
        for seed in given.seeds:
            for method in given.methods:
                changes = [
                    f"data.name={given.data}",
                    f"data.root={given.root}",
                    f"data.seed={seed}",
                    f"data.test={given.test}",
                    "data.val=0.0",
                    f"run.seed={seed}",
                    f"run.steps={given.steps}",
                ]
                recipe = read_recipe(f"golf_{given.modality}_{method}", changes=changes)
                own = {key: value for key, value in recipe.data.items() if key not in ("held_out", "store")}
                recipe = replace(recipe, data=own)
                run = Path(work) / f"{method}-{seed}"
                train(recipe, run, features=Path(work) / "features" if given.modality == "image" else None)
                first = method == given.methods[0]
                scores = evaluate(run, tasks=("event_error",), compare=CONTROLS if first else ()).scores
                add(method, read_error(scores, "contrastive", None))
                if first:
                    add("linear stretch", read_error(scores, "linear", None))
                    for control in {each.control for each in scores if each.control}:
                        add(control, read_error(scores, "contrastive", control))
                print(f"seed {seed}, {method}: {errors[method][-1]}", flush=True)
    shipped = evaluate(
        "shipped",
        tasks=("event_error",),
        modality=given.modality,
        data=given.data,
        root=given.root,
        split="all",
        compare=(),
    )
    add("shipped, nothing trained here, all people", read_error(shipped.scores, "contrastive", None))
    print("\n| | mean | median |\n|---|---|---|")
    for name, found in errors.items():
        means, medians = zip(*found, strict=True)
        print(f"| {name} | {np.mean(means):.2f} ({min(means):.2f} to {max(means):.2f}) | {np.mean(medians):.1f} |")


if __name__ == "__main__":
    main()
