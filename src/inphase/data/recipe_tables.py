"""Tables of a recipe: their entries are keyword arguments, and signatures are the schema. [data] names a data set."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar

from inphase.data import DATASETS, OWN_JOINTS
from inphase.data.reading import sources
from inphase.data.video import Video
from inphase.media.frame_store import Source

Table = Mapping[str, Any]
Made = TypeVar("Made")


def call(make: Callable[..., Made], table: Table, *, where: str, **given: Any) -> Made:
    """Call `make` with the entries of a table; raise for an unknown key, with the known ones."""
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
    """Return the entry of a registry that a table names, and the rest of the table."""
    rest = dict(table)
    name = rest.pop("name", None)
    if name not in kinds:
        fault = f"has the unknown name {name!r}" if name is not None else "has no name"
        raise ValueError(f"[{where}] {fault}: choose one of {', '.join(kinds)}")
    return kinds[name], rest


# Entries of a table [data] that are not options of the loader.
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
    own = OWN_JOINTS.get(data.get("name", ""))
    if own is None or encoder.get("name") != "pose" or {"joints", "start"} & encoder.keys():
        return encoder
    find_loader(data["name"], data.get("root"))
    joints, space = own(data["root"])
    return {**encoder, "joints": list(joints), "space": encoder.get("space", space)}
