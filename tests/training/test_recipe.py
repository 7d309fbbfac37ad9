import subprocess
import sys
from pathlib import Path

import pytest

from inphase.data import DATASETS
from inphase.losses import Loss
from inphase.training.build import build_loss
from inphase.training.recipe import Recipe, list_recipes, read_recipe

TEXT = """
[data]
name = "stage"
root = "a \\"b\\" ü"
[encoder]
name = "pose"
context = [-4, 0, 4]
[loss]
name = "weighted"
[loss.weights]
tcc = 0.5
gta = 1
[augmentation]
[run]
steps = 7
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_recipe_comes_back_as_it_was_written(file: Path, tmp_path: Path) -> None:
    recipe = read_recipe(file)
    assert recipe.data["root"] == 'a "b" ü'
    assert recipe.loss["weights"] == {"tcc": 0.5, "gta": 1}
    assert recipe.augmentation == {}
    assert recipe.audio is None
    again = tmp_path / "again.toml"
    again.write_text(recipe.to_toml(), encoding="utf-8")
    assert read_recipe(again) == recipe


def test_entries_are_changed_on_the_way(file: Path) -> None:
    changes = ["run.steps=9", "loss.weights.tcc=2.5", "data.root=/else where", "optimizer.betas=[0.5, 0.9]"]
    recipe = read_recipe(file, changes=changes)
    assert recipe.run == {"steps": 9}
    assert recipe.loss["weights"] == {"tcc": 2.5, "gta": 1}
    assert recipe.data["root"] == "/else where"
    assert recipe.optimizer == {"betas": [0.5, 0.9]}


@pytest.mark.parametrize("change", ["steps=3", "run.steps", "run.=3", ".steps=3", "run.steps.more=1"])
def test_a_change_that_is_none_is_refused(file: Path, change: str) -> None:
    with pytest.raises(ValueError, match=r"table\.key=value|is not a table"):
        read_recipe(file, changes=[change])


def test_what_is_wrong_is_named_with_what_would_be_right(file: Path) -> None:
    file.write_text("[run\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine\.toml is not valid TOML"):
        read_recipe(file)
    file.write_text("steps = 3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="steps is outside of a table"):
        read_recipe(file)
    file.write_text("[data]\n[encoder]\n[augmentatoin]\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"'augmentatoin': did you mean augmentation\? it takes data, encoder"):
        read_recipe(file)
    file.write_text("[data]\n[encoder]\n", encoding="utf-8")
    with pytest.raises(ValueError, match="needs loss"):
        read_recipe(file)


@pytest.mark.parametrize("name", list_recipes())
def test_shipped_recipes_are_found_by_name(name: str) -> None:
    recipe = read_recipe(name)
    assert isinstance(recipe, Recipe)
    assert recipe.data["name"] in DATASETS
    assert isinstance(build_loss(recipe, dimension=8), Loss)


def test_a_recipe_that_is_nowhere_is_refused_with_those_that_ship() -> None:
    with pytest.raises(ValueError, match=r"no recipe penn: .*golf_pose_tcc, .*penn_pose_gta, "):
        read_recipe("penn")


def test_a_variant_differs_from_its_recipe_in_what_it_says() -> None:
    recipe, variant = read_recipe("golf_pose"), read_recipe("golf_pose_lav")
    assert recipe == read_recipe("golf_pose_gta")
    # Another name replaces the whole table: nothing of GTA's is left in LAV's.
    assert variant.loss == {"name": "lav", "pairs": "all", "window": 5.0}
    assert variant.optimizer == {**recipe.optimizer, "lr": 3e-3}
    assert (variant.data, variant.augmentation, variant.run) == (recipe.data, recipe.augmentation, recipe.run)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_starts_from_a_base_and_says_only_what_differs(file: Path) -> None:
    shipped = write(file.with_name("shipped.toml"), 'base = "golf_pose_tcn"\n[loss]\nwindow = 3\n[run]\nsteps = 9\n')
    recipe, base = read_recipe(shipped), read_recipe("golf_pose_tcn")
    assert recipe.loss == {"name": "tcn", "window": 3}
    assert recipe.run == {**base.run, "steps": 9}
    assert (recipe.data, recipe.optimizer) == (base.data, base.optimizer)
    # A path is relative to the recipe that names it, not to the current folder.
    near = write(
        file.parent / "more" / "near.toml",
        'base = "../mine.toml"\n[loss.weights]\ngta = 3\n[variants.long.run]\nsteps = 70\n',
    )
    assert read_recipe(near).loss == {"name": "weighted", "weights": {"tcc": 0.5, "gta": 3}}
    assert read_recipe(near.with_name("near_long.toml")).run == {"steps": 70}
    assert read_recipe(near).run == {"steps": 7}
    far = write(file.with_name("far.toml"), 'base = "more/near_long.toml"\n[data]\nname = "folder"\nroot = "x"\n')
    assert read_recipe(far).data == {"name": "folder", "root": "x"}
    assert read_recipe(far).run == {"steps": 70}


def test_bases_in_a_circle_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.toml", 'base = "b.toml"\n')
    write(tmp_path / "b.toml", 'base = "a.toml"\n')
    with pytest.raises(ValueError, match=r"base forms a cycle .a → b → a.: remove one of these bases"):
        read_recipe(tmp_path / "a.toml")
    write(tmp_path / "c.toml", 'base = "c.toml"\n')
    with pytest.raises(ValueError, match="cycle"):
        read_recipe(tmp_path / "c.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "nowhere"\n', "no recipe nowhere"),
        ("base = 3\n", "base must be the name or the path of a recipe, got 3"),
        ("[variants]\ntcc = 3\n", "tcc is outside of a table"),
        ("[variants.tcc]\nsteps = 3\n", "steps is outside of a table"),
    ],
)
def test_what_is_wrong_with_a_base_or_a_variant_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_recipe(write(tmp_path / "mine.toml", text))


@pytest.mark.slow
def test_recipes_are_read_without_lightning_and_training_names_it(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['lightning'] = sys.modules['tensorboard'] = None"
    code = f"{hide}; from inphase.training import read_recipe, train; train(read_recipe('demo_pose'), sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith("Training needs lightning: pip install 'inphase[train]'")
