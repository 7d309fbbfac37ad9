"""Damaged files and absurd settings end in one line that names the thing, and nothing large is allocated for them."""

import json
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path

import pytest
import torch
from torch import nn

from inphase.data.batches import sample_pose_augmentation
from inphase.losses import LOSSES
from inphase.models import ENCODERS, PoseEncoder, load_encoder, save_encoder
from inphase.runs import Run, load_checkpoint, restore_checkpoint, rng_state, save_checkpoint, set_rng_state
from inphase.storage.settings import call
from inphase.training.build import build_encoder_with_loss, build_stream, load_frame_sources
from inphase.training.metrics import read_metrics
from inphase.training.recipe import OptimizerSettings, RunSettings, ValidationSettings, read_recipe
from tests.damage import METRICS, MODELS, STATES, Damage

MAX_LETTERS = 1000


@pytest.fixture(autouse=True)
def limited_memory() -> Iterator[None]:
    """Let no test map 4 GB more than the process has, where the system can limit it."""
    if sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 4 * 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(call: Callable[[], object], *, naming: str) -> str:
    """Return the one line by which a call refuses its input."""
    with pytest.raises(ValueError, match=r"\S") as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < MAX_LETTERS
    assert naming in message
    return message


@pytest.mark.parametrize("damage", MODELS.values(), ids=MODELS)
def test_a_damaged_encoder_is_refused(damage: Damage, tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    save_encoder(file, PoseEncoder(hidden=(8,), dimension=4))
    load_encoder(file)
    damage(file)
    refused(lambda: load_encoder(file), naming=str(file))


@pytest.mark.parametrize("damage", STATES.values(), ids=STATES)
def test_a_damaged_checkpoint_is_refused(damage: Damage, tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(network.parameters())
    network(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    save_checkpoint(file, step=7, network=network, optimizer=optimizer, rng_states=rng_state(torch.device("cpu"))[None])

    def resume() -> None:
        checkpoint = load_checkpoint(file)
        assert checkpoint is not None
        restore_checkpoint(file, checkpoint, network=network, optimizer=optimizer)
        set_rng_state(checkpoint.rng_states[0], device=torch.device("cpu"))

    resume()
    damage(file)
    refused(resume, naming="damaged (")


@pytest.mark.parametrize("name", METRICS)
def test_damaged_metrics_lose_only_the_damaged_lines(name: str, tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 1 / step, "val/tau": None} for step in range(1, 6)]
    run = Run(tmp_path)
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    METRICS[name](run.metrics)
    if name in ("a folder", "a pipe"):
        refused(lambda: read_metrics(tmp_path), naming=str(run.metrics))
        return
    kept = {"empty": 0, "noise": 0, "a line cut in two": 4}.get(name, 5)
    assert read_metrics(tmp_path) == rows[:kept]


RECIPE = """
[data]
name = "stage"
actions = ["squat", "kick"]
videos = 4
level = "plain"
[encoder]
name = "pose"
hidden = [8]
dimension = 4
[loss]
name = "gta"
[batch]
actions = 2
videos = 2
frames = 4
"""
# No entry of any table accepts one of these.
ABSURD = ["nan", "inf", "-inf", "99999999999999999999999999", "[[[]]]", "{a = {b = nan}}", "1979-05-27", "9" * 5000]
ENTRIES = {
    "data": ["name", "root", "store", "split", "max_videos_per_action", "actions", "videos", "level", "size", "seed"],
    "encoder": ["name", "start", *signature(ENCODERS["pose"]).parameters],
    "batch": ["actions", "videos", "frames", "stride", "rule", "epochs"],
    "run": [*signature(RunSettings).parameters],
    "optimizer": [*signature(OptimizerSettings).parameters],
    "validation": [*signature(ValidationSettings).parameters],
    "augmentation": [name for name in signature(sample_pose_augmentation).parameters if name != "rng"],
}
# Values of the right type that would allocate too much, or of a type that Python takes for another.
SIZES = [
    "run.steps=true", "run.steps=1.5", "run.steps=-1", "run.threads=1000000000", "run.accumulate=1000000000",
    "optimizer.lr=nan", "optimizer.lr=true", "optimizer.betas=[0.9]", "optimizer.betas=[0.9, nan]",
    "data.videos=1000000000", "data.size=1000000000", "data.actions=3", "batch.videos=1000000000",
    "batch.frames=1000000000", "batch.frames=true", "batch.actions=100000", "encoder.dimension=1000000000",
    "encoder.dimension=0", "encoder.hidden=[1000000000]", "encoder.context=[0, 1000000000]",
    "encoder.start=3", "loss.name=['gta']",
]  # fmt: skip


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(RECIPE, encoding="utf-8")
    return file


def build(file: Path, *changes: str) -> None:
    """Build everything that a recipe names, as training does before its first step."""
    recipe = read_recipe(file, changes=changes)
    settings = call(RunSettings, recipe.run, where="[run]")
    optimizer = call(OptimizerSettings, recipe.optimizer, where="[optimizer]")
    call(ValidationSettings, recipe.validation, where="[validation]")
    network = build_encoder_with_loss(recipe)
    optimizer.build(list(network.parameters()))
    source = load_frame_sources(recipe, network.encoder).train
    build_stream(recipe, network, source, seed=settings.seed, rank=0, world=1)


@pytest.mark.parametrize("table", ENTRIES)
def test_absurd_entries_of_a_recipe_are_refused(table: str, recipe_file: Path) -> None:
    build(recipe_file)
    for key in ENTRIES[table]:
        for value in ABSURD:
            refused(lambda change=f"{table}.{key}={value}": build(recipe_file, change), naming=key)  # type: ignore[misc]


@pytest.mark.parametrize("name", LOSSES)
def test_absurd_settings_of_a_loss_are_refused(name: str, recipe_file: Path) -> None:
    for key in signature(LOSSES[name]).parameters:
        for value in ABSURD:
            change = f"loss.{key}={value}"
            refused(lambda change=change: build(recipe_file, f"loss.name={name}", change), naming=key)  # type: ignore[misc]


@pytest.mark.parametrize("change", SIZES)
def test_sizes_that_cannot_be_meant_are_refused(change: str, recipe_file: Path) -> None:
    refused(lambda: build(recipe_file, change), naming=change.split(".")[1].split("=")[0])


NO_RECIPES = {
    "brackets": "a = " + "[" * 50_000,
    "a deep table": "[" + ".".join("a" * 5_000) + "]",
    "too long": f"a = '{'x' * 17 * 2**20}'",
    "a zero": "\0",
    "cut": "[data]\nname = 'stage'\nvideos = 1e",
}


@pytest.mark.parametrize("text", NO_RECIPES.values(), ids=NO_RECIPES)
def test_a_file_that_is_no_recipe_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    refused(lambda: read_recipe(file), naming=str(file))
    refused(lambda: read_recipe("golf_pose", changes=[f"data.videos={'[' * 50_000}"]), naming="data.videos")


@pytest.mark.parametrize("network", ["resnet50v2", "efficientnet_lite0"])
def test_a_folder_as_weights_is_refused(network: str, recipe_file: Path, tmp_path: Path) -> None:
    image = f'name = "image"\nbackbone = "{network}"\nweights = "{tmp_path}"\n[loss]'
    head, tail = RECIPE.split('name = "pose"')
    recipe_file.write_text(head + image + tail.split("[loss]")[1], encoding="utf-8")
    refused(lambda: build(recipe_file), naming=str(tmp_path))
