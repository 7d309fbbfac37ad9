"""Train the methods on a data set of key events, and measure them on people left out, beside controls.

python -m benchmarks.domains ski_jump_poses ROOT --modality pose
python -m benchmarks.domains lsa64_signs ROOT --modality both --store POSES --steps 1000
python -m benchmarks.domains knot_tying ROOT --modality image --people 9 --set "encoder.context=[-20,-10,0,10,20]"

Every seed holds out other people, about half of the videos; --people fixes them, so that seeds differ by training
alone. `both` trains a pose and an image head and measures them together, alone, and the pose head beside untrained
image features; POSES is a folder that `inphase data pose` filled. The table has the error of events in frames, mean
(least to greatest of the seeds) / median, the mean over the seeds: carried between all pairs of the videos held out,
along the contrastive path of the pair; where the other videos held out vote; and carried to each of them from all
videos of the people trained on, as labeled references, by the median of their votes.
With --out results are kept as they come, and the same command resumes.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.consensus import align_pairwise
from inphase.data.frame_source import FrameSource, load_videos, open_frame_source
from inphase.evaluation.embedded_videos import EmbeddedVideo, embed_videos, join_videos, untrained
from inphase.models import Encoder, load_encoder, load_shipped
from inphase.models.embed_videos import load_joint_encoder
from inphase.models.joint_encoder import PARTS, JointEncoder, add_motion_energy
from inphase.runs import cache_features
from inphase.training import read_recipe, train
from inphase.training.recipe import Recipe

METHODS = ("gta", "tcc", "lav", "lrprop", "tcn", "scl", "vava", "sal", "d3tw", "speednet")
CONTROLS = "controls"
VOTERS = 20
ROUTES = ("image", "pose")  # as `join_videos` takes them
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
    changes = [each.removeprefix(f"{part}:") for each in domain.changes if each.split(":")[0] not in {*PARTS} - {part}]
    recipe = read_recipe(f"golf_{part}_{method}", changes=changes)
    data = {key: value for key, value in domain.table(seed).items() if key != "store" or part == "pose"}
    recipe = replace(recipe, data=data, run={**recipe.run, "seed": seed, "steps": domain.steps})
    name = "-".join([domain.data, part, method, str(seed)])
    train(without_validation(recipe), domain.work / name, features=domain.work / "features")
    return load_encoder(domain.work / name)


def without_validation(recipe: Recipe) -> Recipe:
    return replace(recipe, validation={"fraction": 0.0})


def embed_people(domain: Domain, encoder: Encoder, seed: int, split: str) -> list[EmbeddedVideo]:
    """Embed the videos of the people held out, or of those trained on."""
    videos = load_videos(domain.table(seed), split=split)
    source = open_frame_source(encoder, videos, store=None if encoder.modality == "image" else domain.store)
    if isinstance(encoder, JointEncoder):
        return join_videos(encoder, *(embed_source(domain, encoder.parts[name], source.parts[name]) for name in ROUTES))
    return embed_source(domain, encoder, source)


def embed_source(domain: Domain, encoder: Encoder, source: FrameSource) -> list[EmbeddedVideo]:
    if encoder.is_frozen:
        source = cache_features(encoder, source, folder=domain.work / "features")
    return embed_videos(
        encoder,
        source.videos,
        read=source.read,
        frame_count=source.frame_count,
        precomputed=source.precomputed,
    )


def errors_of(domain: Domain, encoder: Encoder, seed: int) -> Iterator[Row]:
    """Carry events to the videos held out; yield a row for each way."""
    parts = {split: embed_people(domain, encoder, seed, split) for split in ("test", "train")}
    found: dict[str, list[float]] = defaultdict(list)
    for action in sorted({each.video.action for each in parts["test"]}):
        test, known = ([each for each in parts[split] if each.video.action == action] for split in ("test", "train"))
        maps = align_pairwise(add_motion_energy(encoder, [each.embedding for each in test]))
        for a, b in permutations(range(len(test)), 2):
            start, target = test[a], test[b]
            names = [name for name in start.video.events if name in target.video.events]
            at, true = events_of(start, names), events_of(target, names)
            places = {
                "linear": at * (target.length / start.length),
                "pair": maps.at(a, b, at),
                "vote": np.median(maps.votes(a, b, at, neighbors=VOTERS), axis=0),
            }
            for setting, each in places.items():
                found[setting] += np.abs(each - true).tolist()
        found["references"] += errors_by_references(encoder, known, test)
    for setting, values in found.items():
        yield {"setting": setting, "mean": float(np.mean(values)), "median": float(np.median(values))}


def errors_by_references(
    encoder: Encoder, known: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo]
) -> list[float]:
    """Carry events from all of the labeled videos, on all paths, and take the median."""
    maps = align_pairwise(add_motion_energy(encoder, [each.embedding for each in (*known, *test)]))
    errors = list[float]()
    for b, target in enumerate(test, start=len(known)):
        for name in target.video.events:
            having = [(a, each) for a, each in enumerate(known) if name in each.video.events]
            votes = [maps.votes(a, b, events_of(each, [name]), neighbors=VOTERS) for a, each in having]
            if votes:
                errors.append(abs(float(np.median(np.concatenate(votes))) - float(events_of(target, [name])[0])))
    return errors


def events_of(item: EmbeddedVideo, names: Sequence[str]) -> NDArray[np.float64]:
    return np.array([item.video.events[name] - item.first for name in names], dtype=np.float64)


def run(domain: Domain, method: str, seed: int) -> list[Row]:
    """Train a method with one seed, or measure the encoders that ship; return the errors."""
    torch.set_num_threads(1)
    parts = PARTS if domain.modality == "both" else (domain.modality,)
    encoders: dict[str, Encoder] = {}
    if method == CONTROLS:
        shipped = load_joint_encoder()
        encoders = {"both": shipped, "pose": load_shipped("pose"), "image": shipped.image}
        encoders = {name: each for name, each in encoders.items() if name in (*parts, domain.modality)}
    else:
        encoders = {part: train_part(domain, method, seed, part) for part in parts}
        if domain.modality == "both":
            mixed = JointEncoder(pose=encoders["pose"], image=load_joint_encoder().image)
            encoders |= {"both": JointEncoder(**encoders), "pose, and untrained image features": mixed}
    if method == "gta":
        encoders |= {f"{part}, untrained": untrained(encoders[part]) for part in parts}
    return [
        {"method": method, "seed": seed, "modality": modality, **row}
        for modality, encoder in encoders.items()
        for row in errors_of(domain, encoder.eval(), seed)
    ]


def name_row(row: Row) -> str:
    """Name the line of the table that a row belongs to."""
    modality = str(row["modality"])
    if row["setting"] == "linear":
        return "linear stretch"
    if row["method"] == CONTROLS:
        kind = {"pose": "shipped pose encoder", "image": "untrained image features"}
        return f"{kind.get(modality, 'shipped: pose, arms and untrained image features')}, nothing trained here"
    return (
        f"the heads before training: {modality.split(',')[0]}"
        if "untrained" in modality.split(", ")[1:]
        else (f"{row['method']}, {modality}")
    )


def lay_out(rows: Sequence[Row]) -> str:
    """Lay the table out."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: (row["setting"] != "linear", row["method"] != CONTROLS)):
        found[name_row(row)][str(row["setting"])].append((float(str(row["mean"])), float(str(row["median"]))))
    lines = ["| | one pair | others vote | from those trained on |", "|---|---|---|---|"]
    for name, cells in found.items():
        texts = []
        for setting in ("linear",) if "linear" in cells else ("pair", "vote", "references"):
            means, medians = zip(*cells[setting], strict=True)
            spread = f" ({min(means):.2f} to {max(means):.2f})" if max(means) - min(means) > 0.005 else ""
            texts.append(f"{np.mean(means):.2f}{spread} / {np.mean(medians):.1f}")
        lines.append(f"| {name} | {' | '.join([*texts, '', ''][:3])} |")
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
    changes = "a change to the recipes, TABLE.KEY=VALUE, or to that of a part, image:TABLE.KEY=VALUE"
    arguments.add_argument("--set", action="append", default=[], help=changes)
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
