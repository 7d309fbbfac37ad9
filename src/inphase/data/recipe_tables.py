"""The table [data] of a recipe: it names a data set, and its entries are the keyword arguments of the loader."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path

from inphase.data import DATASETS, OWN_JOINTS
from inphase.data.reading import sources
from inphase.data.video import Video
from inphase.media.frame_store import Source
from inphase.storage.settings import Table, call, check_value

# Entries of a table [data] that are not options of the loader.
OTHERS = {"name": str, "root": str | None, "store": str | None, "split": str, "max_videos_per_action": int}


def load_videos(table: Table, *, split: str) -> list[Video]:
    """List the videos of a split that a recipe's table [data] names: `name`, `root` and the loader's own options."""
    if "name" not in table:
        raise ValueError(f"[data] has no name: choose one of {', '.join(DATASETS)}")
    for key, hint in OTHERS.items():
        if key in table:
            check_value(f"[data] {key}", table[key], hint)
    root = table.get("root")
    load = find_loader(table["name"], root)
    options = {key: value for key, value in table.items() if key not in OTHERS}
    return call(load, options, where="[data]", root=root, split=split)


def find_loader(name: str, root: Path | str | None) -> Callable[..., list[Video]]:
    """Find a data set by name; raise if it needs a folder and none is given."""
    if name not in DATASETS:
        raise ValueError(f"no data set {name!r}: choose one of {', '.join(DATASETS)}")
    load = DATASETS[name]
    if root is None and signature(load).parameters["root"].default is not None:
        raise ValueError(f"{name} is read from a folder: name it as root")
    return load


def list_sources(name: str, root: Path, *, split: str) -> dict[str, Source]:
    """List the files of a split of a data set, to fill a store with; raise if it has none."""
    found = sources(find_loader(name, root)(root, split=split))
    if not found:
        raise ValueError(f"{name} in {root} has no video files: there is nothing to cache")
    return found


def fill_joints(encoder: Table, data: Table) -> Table:
    """Add the joints of a data set that has its own, and their dimensions, to a table [encoder] that names none."""
    name = data.get("name", "")
    check_value("[data] name", name, str)
    own = OWN_JOINTS.get(name)
    if own is None or encoder.get("name") != "pose" or {"joints", "start"} & encoder.keys():
        return encoder
    find_loader(data["name"], data.get("root"))
    joints, space = own(data["root"])
    return {**encoder, "joints": list(joints), "space": encoder.get("space", space)}
