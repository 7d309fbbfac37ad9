"""Recipes: TOML files whose tables are keyword arguments. The signatures they are handed to are the schema."""
# MERGED: The recipe in the run folder: only the run that was begun there is continued there.

import json
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inphase.data.recipe_tables import Table, call
from inphase.storage.files import atomic_write

SHIPPED = Path(__file__).parents[1] / "recipes"


@dataclass(frozen=True)
class Recipe:
    """What a run is made of; each table is what one constructor takes.

    - `data`        `name` of a collection and the arguments of its loader; `store` of its frames or poses, `split`
    - `encoder`     `name` of an encoder and its arguments
    - `sound`       the arguments of `AudioEncoder`, for training on pictures and sound
    - `objective`   `name` of a method and its arguments
    - `groups`      of `GroupStream`: how many groups, videos of each and frames of each; or of `AudioVisualStream`
    - `augment`     of `sample_image_augmentation` or `sample_pose_augmentation`; no augmentation where it is absent
    - `optimiser`   of `OptimizerSettings`
    - `validation`  of `ValidationSettings`
    - `run`         of `Run`
    """

    data: Table
    encoder: Table
    objective: Table
    groups: Table = field(default_factory=dict)
    sound: Table | None = None
    augment: Table | None = None
    optimiser: Table = field(default_factory=dict)
    validation: Table = field(default_factory=dict)
    run: Table = field(default_factory=dict)

    def tables(self) -> dict[str, Table]:
        """Give the tables that say something, by name."""
        said = {name: table for name, table in vars(self).items() if table is not None}
        # That these are there says something, even where all of it is at its defaults.
        return {name: table for name, table in said.items() if table or name in ("augment", "sound")}


def find_recipe(name: Path | str) -> Path:
    """Find a recipe by its path, or one that ships by its name."""
    path = Path(name)
    shipped = SHIPPED / f"{path.name.removesuffix('.toml')}.toml"
    if path.is_file():
        return path
    if path.parent == Path() and shipped.is_file():
        return shipped
    known = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.toml")))
    raise ValueError(f"no recipe {name}: give the path of a TOML file, or one of {known}")


def read_recipe(name: Path | str, *, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe, a file or one that ships, and make changes to it, each written `table.key=value` as in TOML."""
    path = find_recipe(name)
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from None
    for change in changes:
        _apply(tables, change)
    wrong = [name for name, table in tables.items() if not isinstance(table, dict)]
    if wrong:
        raise ValueError(f"{path}: {wrong[0]} stands outside a table: put it under [run], [data] …")
    return call(Recipe, tables, where=str(path))


def change_recipe(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """Make changes to a recipe, each written as for `read_recipe`."""
    tables: dict[str, Any] = deepcopy(dict(recipe.tables()))
    for change in changes:
        _apply(tables, change)
    return call(Recipe, tables, where="a recipe")


def _apply(tables: dict[str, Any], change: str) -> None:
    """Make one change `table.key=value`; a value that is no TOML is text."""
    place, equals, text = change.partition("=")
    *parents, key = place.strip().split(".")
    if not equals or not parents or not all((*parents, key)):
        raise ValueError(f"a change is written table.key=value, as in run.steps=500; got {change!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = tables
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ValueError(f"{place}: {parent} is no table")
    table[key] = value


def write_recipe(recipe: Recipe) -> str:
    """Write a recipe as TOML that reads back the same."""
    return "\n".join(_write_table(name, table) for name, table in recipe.tables().items())


def _write_table(name: str, table: Table) -> str:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = [f"[{name}]"]
    lines += [
        f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in inner and value is not None
    ]
    return "\n".join([*lines, *(_write_table(f"{name}.{_key(key)}", value) for key, value in inner.items())]) + "\n"


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def _value(value: Any) -> str:
    """Write a value: JSON's numbers, words, texts and lists are TOML's."""
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


RECIPE_FILE = "recipe.toml"
# What may differ when a run is continued: how long, how often, and on what.
MAY_CHANGE = {
    ("run", key)
    for key in ("steps", "save_every", "log_every", "threads", "accelerator", "devices", "nodes", "strategy")
} | {("validation", "every")}


def write_run_recipe(recipe: Recipe, out: Path) -> None:
    """Write the recipe into the run folder; a folder with another one is not this run's."""
    file = out / RECIPE_FILE
    changed = changed_entries(read_recipe(file), recipe) if file.exists() else []
    if changed:
        raise ValueError(
            f"{out} was begun with another recipe ({', '.join(changed)} differ): use another folder, or that recipe"
        )
    with atomic_write(file) as part:
        part.write_text(write_recipe(recipe), encoding="utf-8")


def changed_entries(before: Recipe, after: Recipe) -> list[str]:
    """Name the entries that make one run another."""
    found = []
    for name in {**before.tables(), **after.tables()}:
        one, other = getattr(before, name) or {}, getattr(after, name) or {}
        keys = sorted({**one, **other})
        found += [f"{name}.{key}" for key in keys if one.get(key) != other.get(key) and (name, key) not in MAY_CHANGE]
    return found
