"""Train the methods on a data set of key events, and measure them on people left out, beside controls.

python -m benchmarks.domains ski_jump_poses ROOT --modality pose
python -m benchmarks.domains lsa64_signs ROOT --modality both --store POSES
python -m benchmarks.domains knot_tying ROOT --modality image

Every seed holds out other people, about half of the videos; --people fixes them, so that seeds differ by training
alone. `both` trains a pose and an image head and measures them together and alone; POSES is a folder that `inphase data
pose` filled. The table has the error of events carried between all pairs of the videos held out, in frames, mean and
median, each the mean over the seeds: along the contrastive path of the pair, and where 20 other videos held out vote.
With --out results are kept as they come, and the same command resumes.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from inphase.data.frame_source import load_videos, open_frame_source
from inphase.evaluation.evaluate import measure
from inphase.evaluation.scores import Score, select
from inphase.models import Encoder, load_encoder
from inphase.models.embed_videos import load_joint_encoder
from inphase.models.joint_encoder import PARTS, JointEncoder
from inphase.runs import cache_features
from inphase.training import list_recipes, read_recipe, train
from inphase.training.recipe import Recipe

METHODS = ("gta", "tcc", "lav", "tcn", "sal", "d3tw", "speednet", "lrprop", "scl", "vava")
CONTROLS = "controls"
VOTERS = 20
SETTINGS = ("linear", "contrastive", "consensus")
Row = dict[str, object]


@dataclass(frozen=True)
class Domain:
    """A data set, its split into people, and how long to train on it."""

    data: str
    root: Path
    modality: str
    store: Path | None
    steps: int
    test: float
    people: int | None
    changes: tuple[str, ...]
    work: Path

    def table(self, seed: int) -> dict[str, object]:
        """Return the table [data] of a recipe."""
        split = {"val": 0.0, "test": self.test, "seed": seed if self.people is None else self.people}
        store = {} if self.store is None else {"store": str(self.store)}
        return {"name": self.data, "root": str(self.root), **split, **store}


def train_part(domain: Domain, method: str, seed: int, part: str) -> Encoder:
    """Train one head on the people who are not held out."""
    own = f"{'signs' if domain.data == 'lsa64_signs' else domain.data}_{part}_{method}"
    recipe = read_recipe(own if own in list_recipes() else f"golf_{part}_{method}", changes=domain.changes)
    data = {key: value for key, value in domain.table(seed).items() if key != "store" or part == "pose"}
    recipe = replace(recipe, data=data, run={**recipe.run, "seed": seed, "steps": domain.steps})
    name = "-".join([domain.data, part, method, str(seed)])
    train(without_validation(recipe), domain.work / name, features=domain.work / "features")
    return load_encoder(domain.work / name)


def without_validation(recipe: Recipe) -> Recipe:
    return replace(recipe, validation={"fraction": 0.0})


def errors_of(domain: Domain, encoder: Encoder, seed: int, *, untrained: bool = False) -> Iterator[Row]:
    """Carry events between the videos held out; yield a row for each way to match frames."""
    videos = load_videos(domain.table(seed), split="test")
    source = open_frame_source(encoder, videos, store=None if encoder.modality == "image" else domain.store)
    folder = domain.work / "features"
    if isinstance(encoder, JointEncoder) and encoder.image.is_frozen:
        image = cache_features(encoder.image, source.parts["image"], folder=folder)
        source = replace(source, parts={**source.parts, "image": image})
    elif encoder.is_frozen:
        source = cache_features(encoder, source, folder=folder)
    compare = ("untrained",) if untrained else ()
    options = {"event_error": {"neighbors": VOTERS}}
    found = measure(
        encoder, test=lambda: source, train=lambda: source, tasks=("event_error",), options=options, compare=compare
    )
    for control in (None, *compare):
        for setting in SETTINGS:
            mean, median = (read_error(found.scores, metric, setting, control) for metric in ("mean", "median"))
            if mean is not None:
                yield {"control": control, "setting": setting, "mean": mean, "median": median}


def read_error(scores: Sequence[Score], metric: str, setting: str, control: str | None) -> float | None:
    found = select(scores, task="event_error", metric=metric, setting=setting, control=control)
    return next((each.value for each in found if each.action is None and each.event is None), None)


def run(domain: Domain, method: str, seed: int) -> list[Row]:
    """Train a method with one seed, or measure the encoders that ship; return the errors."""
    torch.set_num_threads(1)
    parts = PARTS if domain.modality == "both" else (domain.modality,)
    encoders: dict[str, Encoder] = {}
    if method == CONTROLS:
        shipped = load_joint_encoder()
        encoders = {"both": shipped, **shipped.parts}
        encoders = {name: each for name, each in encoders.items() if name in (*parts, domain.modality)}
    else:
        encoders = {part: train_part(domain, method, seed, part) for part in parts}
        if domain.modality == "both":
            encoders["both"] = JointEncoder(**encoders)
    rows: list[Row] = []
    for modality, encoder in encoders.items():
        untrained = method == "gta" and modality != "both"
        for row in errors_of(domain, encoder.eval(), seed, untrained=untrained):
            rows.append({"method": method, "seed": seed, "modality": modality, **row})
    return rows


def name_row(row: Row) -> str:
    """Name the line of the table that a row belongs to."""
    if row["setting"] == "linear":
        return "linear stretch"
    if row["method"] == CONTROLS:
        kind = {"pose": "shipped pose encoder", "image": "untrained image features"}
        return f"{kind.get(str(row['modality']), 'shipped: pose and untrained image features')}, nothing trained here"
    return f"{row['control'] or row['method']}, {row['modality']}"


def lay_out(rows: Sequence[Row]) -> str:
    """Lay the table out: mean over seeds (least to greatest) / median."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: (row["setting"] != "linear", row["method"] != CONTROLS)):
        found[name_row(row)][str(row["setting"])].append((float(str(row["mean"])), float(str(row["median"]))))
    lines = ["| | one pair | 20 videos vote |", "|---|---|---|"]
    for name, cells in found.items():
        texts = []
        for setting in ("linear", "contrastive", "consensus"):
            if setting in cells:
                means, medians = zip(*cells[setting], strict=True)
                spread = f" ({min(means):.2f} to {max(means):.2f})" if max(means) - min(means) > 0.005 else ""
                texts.append(f"{np.mean(means):.2f}{spread} / {np.mean(medians):.1f}")
        lines.append(f"| {name} | {' | '.join(texts)} |" + (" |" if len(texts) < 2 else ""))
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", choices=("events", "lsa64_signs", "knot_tying", "ski_jump_poses"))
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--modality", choices=("pose", "image", "both"), required=True)
    arguments.add_argument("--store", type=Path, help="the poses")
    arguments.add_argument("--methods", nargs="*", default=METHODS)
    arguments.add_argument("--seeds", type=int, nargs="*", default=(0, 1, 2))
    arguments.add_argument("--people", type=int, help="the seed that chooses the people held out")
    arguments.add_argument("--steps", type=int, default=400)
    arguments.add_argument("--test", type=float, default=0.5)
    arguments.add_argument("--set", action="append", default=[], help="a change to the recipes, TABLE.KEY=VALUE")
    arguments.add_argument("--processes", type=int, default=1)
    arguments.add_argument("--out", type=Path, help="a file of results, one JSON object per line")
    given = arguments.parse_args()
    known = given.out.read_text().splitlines() if given.out is not None and given.out.exists() else []
    rows: list[Row] = [json.loads(line) for line in known]
    done = {(row["method"], row["seed"]) for row in rows}
    with tempfile.TemporaryDirectory() as work:
        fields = given.data, given.root, given.modality, given.store, given.steps, given.test, given.people
        domain = Domain(*fields, tuple(given.set), Path(work))
        wanted = [(method, seed) for method in (CONTROLS, *given.methods) for seed in given.seeds]
        with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
            jobs = {pool.submit(run, domain, *each): each for each in wanted if each not in done}
            for job in as_completed(jobs):
                if job.exception() is not None:
                    print(f"{jobs[job]} failed: {job.exception()}", flush=True)
                    continue
                rows += job.result()
                print(
                    f"{jobs[job]}: " + ", ".join(f"{r['modality']} {r['mean']:.2f}" for r in job.result()), flush=True
                )
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.writelines(json.dumps(row) + "\n" for row in job.result())
    print(f"\n{lay_out(rows)}")


if __name__ == "__main__":
    main()
