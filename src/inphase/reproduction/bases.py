"""The recipe a run begins with: the method's own for a collection and a way of seeing, as long as the budget lasts."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from inphase.data.reading import read_pose
from inphase.data.recipe_tables import Table, load_videos
from inphase.data.stream import GroupStream
from inphase.reproduction.study import Changes, Setup
from inphase.training import Recipe, change_recipe, list_recipes, read_recipe

# Steps as a share of what the recipe says; for pictures "full" is the paper's network, and its 150,000 steps.
SHARES: Mapping[str, float] = {"small": 1 / 8, "medium": 1 / 2, "full": 1.0}
# Where a method's recipe is looked for: the collection's own, then what was tuned on another one.
_OWN = {"stage": "stage", "penn_action": "penn", "golfdb": "golf", "finegym": "finegym"}


def compose(setup: Setup, method: str, changes: Changes | None = None) -> Recipe:
    """Make the recipe of a run: the method's, on this data, within this budget, changed by the user, then by `changes`.

    Runs train on the whole training split: settings were chosen before, on videos held out of it.
    """
    recipe = _find(setup, method)
    run = {**recipe.run, "steps": max(1, round(recipe.run.get("steps", 1000) * SHARES[setup.budget]))}
    recipe = replace(recipe, data=_data(setup), validation={"fraction": 0.0}, run=run)
    recipe = merge(change_recipe(recipe, setup.changes), changes or {})
    if setup.data == "stage" and setup.modality == "image" and setup.root is None:
        size = recipe.encoder.get("size", [224, 224])[0]  # drawn as large as they are seen
        recipe = replace(recipe, data={"size": size, **recipe.data})
    if method == "supervised" and recipe.loss.get("kind", "phase") == "phase":
        recipe = merge(recipe, {"loss": {"outputs": _count_phases(recipe.data)}})
    return recipe


def merge(recipe: Recipe, changes: Changes) -> Recipe:
    """Change entries of a recipe's tables."""
    tables: dict[str, Any] = {name: {**(getattr(recipe, name) or {}), **table} for name, table in changes.items()}
    return replace(recipe, **tables)


def list_actions(setup: Setup) -> list[str]:
    """Name the actions of the test videos."""
    return sorted({video.action for video in load_videos(compose(setup, "gta").data, split="test")})


def families(setup: Setup) -> list[str]:
    """Name the families of recipes to look in, nearest first."""
    if setup.modality == "pose":
        return list(dict.fromkeys([f"{_OWN[setup.data]}_pose", "penn_pose"]))
    general = "paper" if setup.budget == "full" else "image"
    return [f"{_OWN[setup.data]}_{general}", general]


def _find(setup: Setup, method: str) -> Recipe:
    """Read the recipe of a method; where it has none, GTA's with the loss as its source sets it."""
    for name in families(setup):
        if f"{name}_{method}" in list_recipes():
            return read_recipe(f"{name}_{method}")
    for name in families(setup):
        if f"{name}_gta" in list_recipes():
            return replace(read_recipe(f"{name}_gta"), loss={"name": method})
    raise ValueError(f"no recipe ships for {', '.join(families(setup))}")


def _data(setup: Setup) -> Table:
    data: dict[str, Any] = {"name": setup.data}
    if setup.root is not None:
        data["root"] = str(setup.root.resolve())
    if setup.store is not None:
        data["store"] = str(setup.store.resolve())
    if setup.data == "golfdb":
        data["held_out"] = 0.0  # the loader keeps a fifth of the players to choose settings on
    if setup.data == "finegym":
        data["labels"] = 101  # the loader's default, said so that runs with and without the word are one
    return data


def _count_phases(data: Table) -> int:
    """Count the phases of all actions, numbered through as training numbers them."""
    found = _phases_of(Recipe(data, {}, {}).to_toml())
    if not found:
        raise ValueError(f"{data['name']} has no phases here: a supervised network needs them")
    return found


@cache
def _phases_of(text: str) -> int:
    import tomllib

    return GroupStream(load_videos(tomllib.loads(text)["data"], split="train"), read=read_pose).phases
