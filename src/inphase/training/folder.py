"""The recipe in the run folder: only the run that was begun there is continued there."""

from pathlib import Path

from inphase.media.atomic import atomic_write
from inphase.training.recipe import Recipe, read_recipe, write_recipe

FILE = "recipe.toml"
# What may differ when a run is continued: how long, how often, and on what.
MAY_CHANGE = {
    ("run", key)
    for key in ("steps", "save_every", "log_every", "threads", "accelerator", "devices", "nodes", "strategy")
} | {("validation", "every")}


def keep_recipe(recipe: Recipe, out: Path) -> None:
    """Write the recipe into the run folder; a folder with another one is not this run's."""
    file = out / FILE
    changed = compare(read_recipe(file), recipe) if file.exists() else []
    if changed:
        raise ValueError(
            f"{out} was begun with another recipe ({', '.join(changed)} differ): use another folder, or that recipe"
        )
    with atomic_write(file) as part:
        part.write_text(write_recipe(recipe), encoding="utf-8")


def compare(before: Recipe, after: Recipe) -> list[str]:
    """Name the entries that make one run another."""
    found = []
    for name in {**before.tables(), **after.tables()}:
        one, other = getattr(before, name) or {}, getattr(after, name) or {}
        keys = sorted({**one, **other})
        found += [f"{name}.{key}" for key in keys if one.get(key) != other.get(key) and (name, key) not in MAY_CHANGE]
    return found
