"""One run of a study: its recipe, its training and its measurement, each done once and shared between studies.

OUT/runs/<method>-<hash of the recipe>-s<seed>/    a run folder, as `inphase train` makes it
    trained.json                                   the number of steps, and the seconds they took
    measured/<hash>.json                           the scores of one set of videos, tasks and options
    measured/<hash>.partial.json                   the same where some tasks failed, which are run again
OUT/controls/<hash>/measured/…                     the scores of an untrained network, of position and of clamping
OUT/features/<hash of the data>/…                  features of frozen backbones, shared by runs
"""

import hashlib
import json
import os
import platform
import re
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from inphase.data.frame_source import FrameSource, load_videos, open_frame_source
from inphase.data.stream import GroupStream
from inphase.data.video import read_pose
from inphase.evaluation.evaluate import Evaluation, measure
from inphase.models import Encoder, load_encoder
from inphase.models.joint_encoder import PARTS, JointEncoder
from inphase.progress import Progress
from inphase.reproduction.study import LOSS_TABLES, Changes, Setup
from inphase.runs import CachedFeatures
from inphase.storage.files import atomic_write
from inphase.storage.settings import Table
from inphase.training import Recipe, change_recipe, list_recipes, read_recipe, train
from inphase.training.build import build_encoder_with_loss
from inphase.training.recipe import part_recipes

# Steps as a fraction of the recipe's; for images, "full" is the paper's network and its 150,000 steps.
STEP_FRACTIONS: Mapping[str, float] = {"small": 1 / 8, "medium": 1 / 2, "full": 1.0}
# Entries of [run] that do not change the trained weights, or that are named apart, as the seed.
_NEUTRAL = {"seed", "accelerator", "devices", "nodes", "strategy", "threads", "save_every", "log_every"}
TRAINED = "trained.json"


def make_recipe(setup: Setup, method: str, changes: Changes | None = None) -> Recipe:
    """Make the recipe of a run: the method's, on this data and budget, changed by the user and then by `changes`.

    Runs train on the whole training split: their settings were chosen before, on videos held out of it.
    """
    changes = changes or {}
    recipe = _find_recipe(setup, method)
    if "name" in changes.get("encoder", {}) and changes["encoder"]["name"] != recipe.encoder["name"]:
        # A backbone is trained where the data set's recipe freezes it: on a GPU if there is one.
        run = {key: value for key, value in recipe.run.items() if key != "accelerator"}
        kept = {key: value for key, value in recipe.encoder.items() if key == "normalize"}
        recipe = replace(recipe, encoder={**read_recipe("image_gta").encoder, **kept}, run=run)
    steps = max(part.run.get("steps", 1000) for part in part_recipes(recipe).values() or [recipe])
    run = {**recipe.run, "steps": max(1, round(steps * STEP_FRACTIONS[setup.budget]))}
    recipe = replace(recipe, data=_data_table(setup), validation={"fraction": 0.0}, run=run)
    recipe = change_tables(change_recipe(recipe, setup.changes), changes)
    if setup.data == "stage" and setup.modality != "pose" and setup.root is None:
        encoder = part_recipes(recipe).get("image", recipe).encoder
        recipe = replace(recipe, data={"size": encoder.get("size", [224, 224])[0], **recipe.data})  # drawn at that size
    if method == "supervised" and recipe.loss.get("kind", "phase") == "phase":
        recipe = change_tables(recipe, {"loss": {"outputs": _count_phases(recipe.data)}})
    return recipe


def change_tables(recipe: Recipe, changes: Changes) -> Recipe:
    """Change entries of a recipe's tables."""
    tables: dict[str, Any] = {name: {**(getattr(recipe, name) or {}), **table} for name, table in changes.items()}
    return replace(recipe, **tables)


def list_actions(setup: Setup) -> list[str]:
    """List the actions of the test videos."""
    return sorted({video.action for video in load_videos(make_recipe(setup, "gta").data, split="test")})


def recipe_families(setup: Setup) -> list[str]:
    """Return the prefixes of the recipes to try: those of the data set, then the general ones."""
    if setup.modality == "pose":
        return list(dict.fromkeys([f"{setup.about.recipes}_pose", "penn_pose"]))
    general = "paper" if setup.budget == "full" else "image"
    return [f"{setup.about.recipes}_{general}", general]


def _find_recipe(setup: Setup, method: str) -> Recipe:
    """Read the recipe of a method; where it has none, GTA's with the loss as its source sets it.

    The parts of "both" have the recipes of pose and image.
    """
    if setup.modality == "both":
        loss = dict(LOSS_TABLES.get(method, {"name": method}))
        # The paper's network is one of images alone.
        parts = {part: _name_recipe(replace(setup, modality=part, budget="small"), method) for part in PARTS}
        return Recipe({}, {"name": "both", **parts}, loss)
    name = _name_recipe(setup, method)
    recipe = read_recipe(name)
    return (
        recipe if name.endswith(f"_{method}") else replace(recipe, loss=dict(LOSS_TABLES.get(method, {"name": method})))
    )


def _name_recipe(setup: Setup, method: str) -> str:
    """Find the recipe of a method, or GTA's."""
    for name in recipe_families(setup):
        if f"{name}_{method}" in list_recipes():
            return f"{name}_{method}"
    for name in recipe_families(setup):
        if f"{name}_gta" in list_recipes():
            return f"{name}_gta"
    raise ValueError(f"no recipe ships for {', '.join(recipe_families(setup))}")


def _data_table(setup: Setup) -> Table:
    data: dict[str, Any] = {"name": setup.data}
    if setup.root is not None:
        data["root"] = str(setup.root.resolve())
    if setup.store is not None:
        data["store"] = str(setup.store.resolve())
    return data | dict(setup.about.options)


def _count_phases(data: Table) -> int:
    """Count the phases of all actions, which training numbers consecutively."""
    found = _phases_of_toml(Recipe(data, {}, {}).to_toml())
    if not found:
        raise ValueError(f"{data['name']} has no phases here: a supervised network needs them")
    return found


@cache
def _phases_of_toml(text: str) -> int:
    return GroupStream(load_videos(tomllib.loads(text)["data"], split="train"), read=read_pose).phases


@dataclass(frozen=True)
class Measurement:
    """Tasks with their options, and the data they are run on."""

    data: Table
    tasks: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]]

    @property
    def file(self) -> Path:
        """The file of its scores, relative to the run's folder."""
        return Path("measured") / f"{_digest([self.data, sorted(self.tasks), self.options])}.json"

    @property
    def partial_file(self) -> Path:
        """The file of its scores while some tasks have failed."""
        return self.file.with_suffix(".partial.json")


@dataclass(frozen=True)
class TrainingJob:
    """A run and its measurements; without a seed nothing is trained, and the controls are measured."""

    recipe: Recipe
    seed: int | None
    measurements: tuple[Measurement, ...]

    @property
    def folder(self) -> Path:
        """The run's folder, relative to that of all studies."""
        if self.seed is None:
            return Path("controls") / _digest([self.recipe.encoder, self.recipe.data])
        return Path("runs") / f"{self.recipe.loss['name']}-{recipe_hash(self.recipe)}-s{self.seed}"


def recipe_hash(recipe: Recipe) -> str:
    """Hash the entries of a recipe that decide what is trained: neither its seed nor where it runs."""
    tables: dict[str, Any] = dict(recipe.tables())
    tables["run"] = {key: value for key, value in recipe.run.items() if key not in _NEUTRAL}
    return _digest(tables)


class MeasurementError(RuntimeError):
    """Tasks of a trained run that failed; the scores of its other tasks are kept."""


def is_done(job: TrainingJob, out: Path) -> bool:
    """Return whether everything is trained and measured."""
    return all((out / job.folder / each.file).is_file() for each in job.measurements)


def run_job(job: TrainingJob, out: Path, progress: Progress) -> None:
    """Train and measure a run, unless that is done."""
    folder = out / job.folder
    if is_done(job, out):
        return
    device = torch.device("cuda" if _on_gpu(job.recipe) else "cpu")
    if job.seed is None:
        torch.manual_seed(0)
        encoder = _build_untrained(job.recipe).to(device).eval()
    else:
        _train(replace(job.recipe, run={**job.recipe.run, "seed": job.seed}), folder, out=out, progress=progress)
        encoder = load_encoder(folder, device=device)
    compare = ("time only", "clamped only") if job.seed is None else ()
    errors = []
    for each in job.measurements:
        if not (folder / each.file).is_file():
            features = _features_folder(out, each.data)
            try:
                _measure(encoder, each, folder, features=features, compare=compare, progress=progress)
            # Any error of one measurement is reported once the others are done.
            except Exception as error:
                errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else MeasurementError("; ".join(map(str, errors)))


def _build_untrained(recipe: Recipe) -> Encoder:
    """Build the encoder of a recipe with random weights."""
    parts = {name: build_encoder_with_loss(part).encoder for name, part in part_recipes(recipe).items()}
    return JointEncoder(**parts) if parts else build_encoder_with_loss(recipe).encoder


def _train(recipe: Recipe, folder: Path, *, out: Path, progress: Progress) -> None:
    steps, before = recipe.run["steps"], read_trained(folder)
    if before.get("steps") == steps:
        return
    begin = time.perf_counter()

    try:
        train(recipe, folder, progress=progress, features=_features_folder(out, recipe.data))
        before = {**before, "steps": steps}
    finally:
        # The seconds of an interrupted run add up.
        if folder.is_dir():
            took = before.get("seconds", 0.0) + time.perf_counter() - begin
            gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            _write(folder / TRAINED, {**before, "seconds": took, "machine": describe_machine(), "gpu": gpu})


def _features_folder(out: Path, data: Table) -> Path:
    """Return the folder of the features of a data set; its files are named by the network that computes them."""
    return out / "features" / _digest(data)


def read_trained(folder: Path) -> dict[str, Any]:
    """Read the steps, seconds and machine of a run's training; empty where it was not trained."""
    file = folder / TRAINED
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _measure(
    encoder: Encoder,
    measurement: Measurement,
    folder: Path,
    *,
    features: Path,
    compare: Sequence[str],
    progress: Progress,
) -> None:
    def open_split(split: str) -> FrameSource:
        name = " ".join(f"{key}={value}" for key, value in sorted(measurement.data.items()))
        source = open_frame_source(
            encoder, load_videos(measurement.data, split=split), store=measurement.data.get("store"), name=name
        )
        if isinstance(encoder, JointEncoder):
            image = add_features(encoder.image, source.parts["image"], split)
            return replace(source, parts={**source.parts, "image": image})
        return add_features(encoder, source, split)

    def add_features(network: Encoder, source: FrameSource, split: str) -> FrameSource:
        if not network.is_frozen:
            return source
        kept = CachedFeatures(network, source, folder=features)
        kept.compute_all(lambda done, total: progress(f"computing features of {split}", done, total))
        return kept.source

    measured = measure(
        encoder,
        test=partial(open_split, "test"),
        train=partial(open_split, "train"),
        tasks=measurement.tasks,
        options=measurement.options,
        compare=compare,
        optional=True,
        cache=folder,
        progress=progress,
    )
    file, partial_file = folder / measurement.file, folder / measurement.partial_file
    file.parent.mkdir(parents=True, exist_ok=True)
    _write(partial_file if measured.failed else file, measured.to_dict())
    if measured.failed:
        raise MeasurementError("; ".join(f"{task} failed ({reason})" for task, reason in measured.failed.items()))
    partial_file.unlink(missing_ok=True)


def read_measured(file: Path) -> Evaluation:
    """Read the scores of a run."""
    return Evaluation.from_dict(json.loads(file.read_text(encoding="utf-8")))


def _on_gpu(recipe: Recipe) -> bool:
    wanted = recipe.run.get("accelerator", "auto")
    return wanted in ("auto", "gpu", "cuda") and torch.cuda.is_available()


def _write(file: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(file) as part:
        part.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def describe_machine() -> str:
    """Describe the cores and the processor, and the GPU where torch finds one."""
    parts = [f"{count_cores()} × {_processor()}"]
    if torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}")
    return ", ".join(parts)


def count_cores() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    """Return the name of the processor, which `platform` lacks on Linux."""
    known = Path("/proc/cpuinfo")
    text = known.read_text(encoding="utf-8", errors="replace") if known.is_file() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
