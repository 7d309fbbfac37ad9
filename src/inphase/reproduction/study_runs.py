"""One run of a study: trained once, measured once, whatever interrupts it; studies that want the same run share it.

OUT/runs/<method>-<hash of the recipe>-s<seed>/    a run folder, as `inphase train` makes it
    trained.json                                   how many steps it took, and how long
    measured/<hash>.json                           the numbers of one set of videos, tasks and options
OUT/controls/<hash>/measured/…                     what an untrained network, position and clamping score
OUT/features/<hash>/…                              what frozen networks see, shared by runs
"""
# MERGED: Run a study: train and measure what is missing, and write its report.

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from inphase.data.frame_source import FrameSource, open_frame_source
from inphase.data.recipe_tables import Table, load_videos
from inphase.evaluation.evaluate import Evaluation, measure
from inphase.models import Encoder, load_encoder
from inphase.progress import Progress
from inphase.reproduction.machine import describe_machine
from inphase.storage.files import atomic_write
from inphase.training import Recipe, train
from inphase.training.build import build_encoder_with_loss
from inphase.training.features import CachedFeatures

# What makes no difference to what a run learns.
_IDLE = {"seed", "accelerator", "devices", "nodes", "strategy", "threads", "save_every", "log_every"}
TRAINED = "trained.json"


@dataclass(frozen=True)
class Test:
    """What is measured of a run: tasks and their options, on some data."""

    data: Table
    tasks: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]]

    @property
    def file(self) -> Path:
        """Name the file of its numbers, below the run's folder."""
        return Path("measured") / f"{_digest([self.data, sorted(self.tasks), self.options])}.json"


@dataclass(frozen=True)
class TrainingJob:
    """A run and what is measured of it; without a seed nothing is trained, and the controls are measured."""

    recipe: Recipe
    seed: int | None
    tests: tuple[Test, ...]

    @property
    def folder(self) -> Path:
        """Name the run's folder, below that of all studies."""
        if self.seed is None:
            return Path("controls") / _digest([self.recipe.encoder, self.recipe.data])
        return Path("runs") / f"{self.recipe.loss['name']}-{fingerprint(self.recipe)}-s{self.seed}"


def fingerprint(recipe: Recipe) -> str:
    """Give a name to what a recipe trains, whatever its seed and wherever it runs."""
    tables: dict[str, Any] = dict(recipe.tables())
    tables["run"] = {key: value for key, value in recipe.run.items() if key not in _IDLE}
    return _digest(tables)


def is_done(job: TrainingJob, out: Path) -> bool:
    """Tell whether everything is trained and measured."""
    return all((out / job.folder / test.file).is_file() for test in job.tests)


def perform(job: TrainingJob, out: Path, tell: Progress) -> None:
    """Train what is not trained and measure what is not measured."""
    folder = out / job.folder
    if is_done(job, out):
        return
    device = torch.device("cuda" if _on_gpu(job.recipe) else "cpu")
    if job.seed is None:
        torch.manual_seed(0)
        encoder = build_encoder_with_loss(job.recipe).encoder.to(device).eval()
    else:
        _train(replace(job.recipe, run={**job.recipe.run, "seed": job.seed}), folder, out=out, tell=tell)
        encoder = load_encoder(folder, device=device)
    compare = ("time only", "clamped only") if job.seed is None else ()
    for test in job.tests:
        if not (folder / test.file).is_file():
            features = _features(out, test.data, job.recipe.encoder)
            _measure(encoder, test, folder, features=features, compare=compare, tell=tell)


def _train(recipe: Recipe, folder: Path, *, out: Path, tell: Progress) -> None:
    steps, before = recipe.run["steps"], read_trained(folder)
    if before.get("steps") == steps:
        return
    begin = time.perf_counter()

    try:
        train(recipe, folder, progress=tell, features=_features(out, recipe.data, recipe.encoder))
        before = {**before, "steps": steps}
    finally:
        # A run that was stopped on the way took all its parts together.
        if folder.is_dir():
            took = before.get("seconds", 0.0) + time.perf_counter() - begin
            _write(folder / TRAINED, {**before, "seconds": took, "machine": describe_machine()})


def _features(out: Path, data: Table, encoder: Table) -> Path:
    """Name the folder of what frozen networks see of a collection."""
    return out / "features" / _digest([data, encoder])


def read_trained(folder: Path) -> dict[str, Any]:
    """Read how a run was trained, as far as it was."""
    file = folder / TRAINED
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _measure(
    encoder: Encoder, test: Test, folder: Path, *, features: Path, compare: Sequence[str], tell: Progress
) -> None:
    def look(split: str) -> FrameSource:
        name = " ".join(f"{key}={value}" for key, value in sorted(test.data.items()))
        sight = open_frame_source(encoder, load_videos(test.data, split=split), store=test.data.get("store"), name=name)
        if not encoder.is_frozen:
            return sight
        kept = CachedFeatures(encoder, sight, folder=features)
        kept.compute_all(lambda done, total: tell(f"computing features of {split}", done, total))
        return kept.source

    measured = measure(
        encoder,
        test=partial(look, "test"),
        train=partial(look, "train"),
        tasks=test.tasks,
        options=test.options,
        compare=compare,
        optional=True,
        cache=folder,
        progress=tell,
    )
    (folder / test.file.parent).mkdir(parents=True, exist_ok=True)
    _write(folder / test.file, measured.to_dict())


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
