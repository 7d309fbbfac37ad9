"""A small run: poses of two actions of the stage, a narrow encoder, a few steps."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from inphase.training import Recipe, Status, train
from tests.processes import call_in_process

Change = Mapping[str, object]


def make_recipe(**changes: Change) -> Recipe:
    """Describe a small run; each change is merged into the table of its name."""
    tables: dict[str, Change] = {
        "data": {"name": "stage", "actions": ["squat", "kick"], "videos": 4, "level": "plain"},
        "encoder": {"name": "pose", "hidden": [16], "dimension": 8},
        "loss": {"name": "gta", "variant": "released"},
        "batch": {"actions": 2, "videos": 2, "frames": 8},
        "optimizer": {"lr": 1e-2},
        "run": {"steps": 12, "save_every": 5, "log_every": 1, "accelerator": "cpu"},
    }
    for name, change in changes.items():
        tables[name] = {**tables.get(name, {}), **change}
    return Recipe(**tables)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


def train_interrupted(recipe: Recipe, out: Path, *, step: int, features: Path | None = None) -> None:
    """Train in a process of its own, which a signal interrupts at a step: it would end the test runner as well."""
    assert call_in_process(_is_interrupted, recipe, out, step, features)


def _is_interrupted(recipe: Recipe, out: Path, step: int, features: Path | None) -> bool:
    def interrupt(status: Status) -> None:
        if status.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    try:
        train(recipe, out, on_status=interrupt, features=features)
    except KeyboardInterrupt:
        return True
    return False
