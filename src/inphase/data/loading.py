"""Load the videos of a collection that is known by its name, as commands and recipes write it."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path

from inphase.data import DATASETS
from inphase.data.table import Table, call
from inphase.data.video import Video

# Entries of a table [data] that are not the loader's.
OTHERS = ("name", "root", "store", "split", "videos_each")


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
