"""Recipes that train both parts of a joint encoder into one run."""

from pathlib import Path

import pytest

import inphase
from inphase.evaluation.scores import select
from inphase.models.joint_encoder import JointEncoder
from inphase.training import read_recipe, train
from inphase.training.recipe import list_recipes, part_recipes

RECIPE = """
[data]
name = "stage"
actions = ["kick"]
videos = 4
level = "plain"
size = 96
[encoder]
name = "both"
pose = "demo_pose"
image = "demo_image"
[loss]
name = "gta"
[batch]
actions = 1
videos = 2
frames = 6
[run]
steps = 2
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(RECIPE, encoding="utf-8")
    return tmp_path / "mine.toml"


def test_parts_keep_their_settings_but_for_those_given(recipe: Path, tmp_path: Path) -> None:
    parts = part_recipes(read_recipe(recipe))
    assert [part.encoder["name"] for part in parts.values()] == ["pose", "motion"]
    for name, part in parts.items():
        base = read_recipe(f"demo_{name}")
        assert part.run == {**base.run, "steps": 2}
        assert part.loss == base.loss
        assert part.optimizer == base.optimizer
        assert part.data["videos"] == 4
    assert part_recipes(read_recipe("golf_pose")) == {}
    both, image = ({name.removeprefix(f"golf_{kind}") for name in list_recipes()} for kind in ("both", "image"))
    methods = {name for name in both & image if name.startswith("_")}
    assert {"_gta", "_tcc", "_lav", "_lrprop", "_scl", "_vava"} <= methods
    for method in methods:
        for name, part in part_recipes(read_recipe(f"golf_both{method}")).items():
            assert part.loss == read_recipe(f"golf_{name}{method}").loss
    # A store of poses alone is no store of images.
    for name in ("golf_both", "fit_both"):  # the second names another data set than its parts do
        whole = read_recipe(name, changes=[f"data.store={tmp_path}", "data.name=golfdb"])
        stored = part_recipes(whole)
        assert "store" in whole.data
        assert "store" in stored["pose"].data
        assert "store" not in stored["image"].data
    with pytest.raises(
        ValueError, match="needs the recipes of pose and image, got pose: other settings are those of one part"
    ):
        part_recipes(read_recipe(write(tmp_path / "half.toml", RECIPE.replace('image = "demo_image"', ""))))


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.slow
def test_both_parts_are_trained_evaluated_and_resumed(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stages: list[str] = []
    trained = train(recipe, run, progress=lambda stage, done, total: stages.append(stage))
    assert trained.steps == 4
    assert [each for each in dict.fromkeys(stages) if each.startswith("training")] == [
        "training (1 of 2, pose)",
        "training (2 of 2, image)",
    ]
    assert {"pose/loss", "image/loss"} <= set(trained.metrics)
    encoder = inphase.load_encoder(run)
    assert isinstance(encoder, JointEncoder)
    assert train(recipe, run).steps == 4
    tasks = {"event_error": {"neighbors": 1, "pairs": 4}}
    found = inphase.evaluate(run, tasks=["event_error"], options=tasks, compare=("untrained",))
    for control in (None, "untrained"):
        for method in ("contrastive", "consensus"):
            (score,) = select(found.scores, metric="mean", setting=method, event=None, control=control)
            assert 0 <= score.value < 40
    one = inphase.evaluate(run, tasks=["event_error"], modality="pose", compare=())
    (linear,) = select(one.scores, metric="mean", setting="linear", event=None)
    (same,) = select(found.scores, metric="mean", setting="linear", event=None, control=None)
    assert linear.value > 0
    assert same.value > 0
