from pathlib import Path

import pytest

from inphase.training.recipe import SHIPPED, Recipe, find_recipe, read_recipe, write_recipe

TEXT = """
[data]
name = "stage"
root = "a \\"b\\" ü"
[encoder]
name = "pose"
context = [-4, 0, 4]
[objective]
name = "weighted"
[objective.weights]
tcc = 0.5
gta = 1
[augment]
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
    assert recipe.objective["weights"] == {"tcc": 0.5, "gta": 1}
    assert recipe.augment == {}
    assert recipe.sound is None
    again = tmp_path / "again.toml"
    again.write_text(write_recipe(recipe), encoding="utf-8")
    assert read_recipe(again) == recipe


def test_entries_are_changed_on_the_way(file: Path) -> None:
    changes = ["run.steps=9", "objective.weights.tcc=2.5", "data.root=/else where", "optimiser.betas=[0.5, 0.9]"]
    recipe = read_recipe(file, changes=changes)
    assert recipe.run == {"steps": 9}
    assert recipe.objective["weights"] == {"tcc": 2.5, "gta": 1}
    assert recipe.data["root"] == "/else where"
    assert recipe.optimiser == {"betas": [0.5, 0.9]}


@pytest.mark.parametrize("change", ["steps=3", "run.steps", "run.=3", ".steps=3", "run.steps.more=1"])
def test_a_change_that_is_none_is_refused(file: Path, change: str) -> None:
    with pytest.raises(ValueError, match=r"table\.key=value|is no table"):
        read_recipe(file, changes=[change])


def test_what_is_wrong_is_named_with_what_would_be_right(file: Path) -> None:
    file.write_text("[run\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine\.toml is no TOML"):
        read_recipe(file)
    file.write_text("steps = 3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="steps stands outside a table"):
        read_recipe(file)
    file.write_text("[data]\n[encoder]\n[objektive]\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"'objektive': did you mean objective\? it takes data, encoder"):
        read_recipe(file)
    file.write_text("[data]\n[encoder]\n", encoding="utf-8")
    with pytest.raises(ValueError, match="needs objective"):
        read_recipe(file)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_recipes_are_found_by_name(path: Path) -> None:
    assert find_recipe(path.stem) == path
    assert isinstance(read_recipe(path), Recipe)


def test_a_recipe_that_is_nowhere_is_refused_with_those_that_ship() -> None:
    with pytest.raises(ValueError, match=r"no recipe penn: .*penn_pose_gta"):
        find_recipe("penn")
