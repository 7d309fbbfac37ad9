"""From a table of a recipe to what it names: its entries are keyword arguments, and the signatures are the schema."""
# MERGED: Load the videos of a collection that is known by its name, as commands and recipes write it.

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar

from inphase.data import DATASETS
from inphase.data.video import Video

Table = Mapping[str, Any]
Made = TypeVar("Made")


def call(make: Callable[..., Made], table: Table, *, where: str, **given: Any) -> Made:
    """Call `make` with a table's entries; a key it does not take is refused with those it does."""
    parameters = signature(make).parameters
    takes = [name for name, parameter in parameters.items() if parameter.kind is not Parameter.VAR_KEYWORD]
    accepted = [name for name in takes if name not in given]
    for key in table:
        if key not in accepted:
            near = get_close_matches(key, accepted, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"{where} does not take {key!r}: {hint}it takes {', '.join(accepted) or 'nothing'}")
    missing = [name for name in accepted if parameters[name].default is Parameter.empty and name not in table]
    if missing:
        raise ValueError(f"{where} needs {', '.join(missing)}")
    try:
        return make(**given, **table)
    except TypeError as error:
        raise ValueError(f"{where}: {error}; check the types of {dict(table)}") from error


def choose(kinds: Mapping[str, Made], table: Table, *, where: str) -> tuple[Made, dict[str, Any]]:
    """Find what a table names, and give it with the rest of the table."""
    rest = dict(table)
    name = rest.pop("name", None)
    if name not in kinds:
        said = f"names no {name!r}" if name is not None else "has no name"
        raise ValueError(f"[{where}] {said}: choose one of {', '.join(kinds)}")
    return kinds[name], rest


# Entries of a table [data] that are not the loader's.
OTHERS = ("name", "root", "store", "split", "max_videos_per_action")


def load_videos(table: Table, *, split: str) -> list[Video]:
    """List the videos of a split that a recipe's table [data] names: `name`, `root` and the loader's own options."""
    if "name" not in table:
        raise ValueError(f"[data] has no name: choose one of {', '.join(DATASETS)}")
    root = table.get("root")
    load = find_loader(table["name"], root)
    options = {key: value for key, value in table.items() if key not in OTHERS}
    return call(load, options, where="[data]", root=root, split=split)


def find_loader(name: str, root: Path | str | None) -> Callable[..., list[Video]]:
    """Find a collection by name, and insist on a folder where it needs one."""
    if name not in DATASETS:
        raise ValueError(f"no collection {name!r}: choose one of {', '.join(DATASETS)}")
    load = DATASETS[name]
    if root is None and signature(load).parameters["root"].default is not None:
        raise ValueError(f"{name} is read from a folder: name the one it lies in")
    return load
