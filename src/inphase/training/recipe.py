"""Recipes: TOML files whose tables are keyword arguments; the signatures that receive them are the schema.

A recipe may start from another, and may hold variants of itself. Tables are merged key by key, except that a table with
another `name` replaces the one below it, since its other keys belong to another constructor:

    base = "golf_pose"                    # a shipped recipe, or a path relative to this file
    [run]
    steps = 3000
    [variants]                            # `mine_tcc` is mine.toml with these differences
    tcc.loss = { name = "tcc" }
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import tomli_w
import torch
from torch import Tensor

from inphase.models.joint_encoder import PARTS
from inphase.runs import Run
from inphase.storage.cache import INDEX
from inphase.storage.files import CHECKSUM, atomic_write, write_checksum
from inphase.storage.settings import Count, Table, Threads, call, parse_toml, read_toml

SHIPPED = Path(__file__).parents[1] / "recipes"

# Entries that may differ when a run is resumed: how long it trains, how often it writes, and on which hardware.
MAY_CHANGE = {
    ("run", key)
    for key in ("steps", "save_every", "log_every", "threads", "accelerator", "devices", "nodes", "strategy")
} | {("validation", "every")}


@dataclass(frozen=True)
class Recipe:
    """The settings of a run; each table holds the keyword arguments of one constructor.

    - `data`          `name` of a data set and the arguments of its loader; `store` of its frames or poses, `split`,
                      `max_videos_per_action`
    - `encoder`       `name` of an encoder, or `package.module:Class` of your own, and its arguments; or `start`; or
                      `name = "both"` and the recipes that train its parts, `pose` and `image` (`part_recipes`)
    - `audio`         of `AudioEncoder`, for training on video and audio
    - `loss`          `name` of a loss and its arguments
    - `batch`         of `GroupStream`: `actions` per step, `videos` per action, `frames` per video; or of
                      `AudioVisualStream`
    - `augmentation`  of `sample_image_augmentation` or `sample_pose_augmentation`; absent means no augmentation
    - `optimizer`     of `OptimizerSettings`
    - `validation`    of `ValidationSettings`
    - `run`           of `RunSettings`
    """

    data: Table
    encoder: Table
    loss: Table
    batch: Table = field(default_factory=dict)
    audio: Table | None = None
    augmentation: Table | None = None
    optimizer: Table = field(default_factory=dict)
    validation: Table = field(default_factory=dict)
    run: Table = field(default_factory=dict)

    def tables(self) -> dict[str, Table]:
        """Return the tables that are not at their defaults, by name."""
        present = {name: table for name, table in vars(self).items() if table is not None}
        # An empty [audio] or [augmentation] differs from none: it enables the feature with its default arguments.
        return {name: table for name, table in present.items() if table or name in ("augmentation", "audio")}

    def to_toml(self) -> str:
        """Format the recipe as TOML that `read_recipe` reads back equal."""
        return tomli_w.dumps({name: _plain(table) for name, table in self.tables().items()})


Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class OptimizerSettings:
    """The table [optimizer]: Adam with the defaults of the released code.

    `penalty` is the strength of the released code's penalty on the embedder's weights; `weight_decay` is AdamW's.
    `clip` bounds the norm of the gradient; 0 disables clipping.
    """

    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-7
    weight_decay: float = 0.0
    penalty: float = 1e-5
    schedule: Schedule = "constant"
    warmup: int = 0
    clip: float = 0.0

    def __post_init__(self) -> None:
        """Raise if a value is out of range."""
        if not self.lr > 0 or self.schedule not in ("constant", "cosine"):
            raise ValueError(f"[optimizer] needs lr > 0 and schedule 'constant' or 'cosine'; got {self}")
        if self.warmup < 0 or self.clip < 0 or self.penalty < 0 or self.weight_decay < 0:
            raise ValueError(f"[optimizer] needs warmup, clip, penalty and weight_decay of at least 0; got {self}")

    def build(self, parameters: list[Tensor], *, graphed: bool = False) -> torch.optim.AdamW:
        """Build the optimizer; without weight decay AdamW is Adam. In a CUDA graph the learning rate is a tensor."""
        a, b = self.betas
        lr = torch.tensor(self.lr, device="cuda") if graphed else self.lr
        return torch.optim.AdamW(
            parameters,
            lr=lr,
            betas=(a, b),
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=True,
            capturable=graphed,
        )

    def rate(self, step: int, *, steps: int) -> float:
        """Return the learning rate of a step: a linear warm-up, then constant or half a cosine down to 0."""
        warm = min(1.0, (step + 1) / (self.warmup + 1))
        if self.schedule == "constant":
            return self.lr * warm
        done = max(0, step - self.warmup) / max(1, steps - self.warmup)
        return self.lr * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@dataclass(frozen=True)
class ValidationSettings:
    """The table [validation]: which videos the encoder is validated on, and how often.

    Without `fraction` the data set's "val" split is used where it has one. Otherwise `fraction` of the training videos
    of every action is held out of training, selected by a hash of their names. At most `videos` of each action are
    used. `every` is in steps; 0 validates at the end only.
    """

    every: int = 0
    fraction: float | None = None
    videos: int = 8

    def __post_init__(self) -> None:
        """Raise if a value is out of range."""
        if self.fraction is not None and not 0 <= self.fraction < 1:
            raise ValueError(f"[validation] fraction must lie in [0, 1), got {self.fraction}")
        if self.every < 0 or self.videos < 2:
            raise ValueError(f"[validation] needs every ≥ 0 and at least 2 videos of an action; got {self}")


@dataclass(frozen=True)
class RunSettings:
    """The table [run]: how long to train, how often to save, on which hardware.

    `precision`, `accelerator`, `devices`, `nodes` and `strategy` are Lightning Fabric's. `accumulate` batches make one
    step. `threads` prefetch batches, 0 reads each when its step begins; the default is 2 for images and 0 for poses.
    `compile` compiles the encoder by `torch.compile` and, on one GPU, replays each step as a CUDA graph.
    """

    steps: int = 1000
    seed: int = 0
    save_every: int = 500
    log_every: int = 10
    accumulate: Count = 1
    threads: Threads | None = None
    precision: str = "32-true"
    channels_last: bool = False
    compile: bool = False
    accelerator: str = "auto"
    devices: int | str = 1
    nodes: int = 1
    strategy: str = "auto"

    def __post_init__(self) -> None:
        """Raise if a value is out of range."""
        for name in ("steps", "save_every", "log_every", "accumulate", "nodes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"[run] {name} must be a whole number of at least 1, got {value!r}")
        if self.seed < 0:
            raise ValueError(f"[run] seed must be at least 0, got {self.seed}")


def read_recipe(name: Path | str, *, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe by path, or a shipped one by name, and apply changes, each written `table.key=value` as in TOML."""
    tables = _resolve(name, folder=Path(), chain=())
    for change in changes:
        _apply(tables, change)
    return call(Recipe, tables, where=str(name))


def change_recipe(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """Apply changes to a recipe, each written as for `read_recipe`."""
    tables: dict[str, Any] = deepcopy(dict(recipe.tables()))
    for change in changes:
        _apply(tables, change)
    return call(Recipe, tables, where="the recipe")


def part_recipes(recipe: Recipe) -> dict[str, Recipe]:
    """Read the recipes that train the parts of a joint encoder, with the tables of `recipe` in place of theirs.

    Images are read from `data.store` only where it holds frames: beside poses it need not.
    """
    if recipe.encoder.get("name") != "both":
        return {}
    given = {key: value for key, value in recipe.encoder.items() if key != "name"}
    if set(given) != set(PARTS):
        raise ValueError(
            f"[encoder] name = 'both' needs the recipes of {' and '.join(PARTS)}, got {', '.join(given)}: other "
            "settings are those of one part, which `inphase fit --modality image` or pose trains alone"
        )
    parts = {}
    for name in PARTS:
        tables = _resolve(given[name], folder=Path(), chain=())
        tables = _merge(tables, {key: table for key, table in recipe.tables().items() if key != "encoder"})
        store = tables["data"].get("store")
        if name == "image" and store is not None and not (Path(store) / INDEX).is_file():
            # A copy: the table may be that of `recipe`.
            tables["data"] = {key: value for key, value in tables["data"].items() if key != "store"}
        parts[name] = call(Recipe, tables, where=str(given[name]))
    return parts


def list_recipes() -> tuple[str, ...]:
    """List the names of the shipped recipes and of their variants."""
    return _list_recipes(SHIPPED)


@cache
def _list_recipes(folder: Path) -> tuple[str, ...]:
    found = []
    for file in folder.glob("*.toml"):
        found += [file.stem, *(f"{file.stem}_{variant}" for variant in _parse(file).get("variants", {}))]
    return tuple(sorted(found))


def write_run_recipe(recipe: Recipe, run: Run) -> None:
    """Write the resolved recipe into the run folder; raise if the folder belongs to a run of another recipe."""
    changed = changed_entries(read_recipe(run.recipe_file), recipe) if run.recipe_file.exists() else []
    if changed:
        raise ValueError(
            f"{run.folder} was started with another recipe ({', '.join(changed)} differ): use another folder, "
            "or that recipe"
        )
    with atomic_write(run.recipe_file) as part:
        part.write_text(f"{recipe.to_toml()}\n# {CHECKSUM}\n", encoding="utf-8")
        write_checksum(part)


def changed_entries(before: Recipe, after: Recipe) -> list[str]:
    """Name the entries in which two recipes differ so that one run cannot resume the other."""
    found = []
    for name in {**before.tables(), **after.tables()}:
        one, other = getattr(before, name) or {}, getattr(after, name) or {}
        keys = sorted({**one, **other})
        found += [f"{name}.{key}" for key in keys if one.get(key) != other.get(key) and (name, key) not in MAY_CHANGE]
    return found


def _resolve(name: Path | str, *, folder: Path, chain: tuple[str, ...]) -> dict[str, Any]:
    """Read the tables of a recipe with its base and its variant merged; paths are relative to `folder`."""
    file, variant = _locate(name, folder=folder)
    link = str(file.resolve()) + (f" {variant}" if variant else "")
    if link in chain:
        names = " → ".join(Path(each).stem for each in (*chain, link))
        raise ValueError(f"{file}: base forms a cycle ({names}): remove one of these bases")
    tables = _parse(file)
    base, variants = tables.pop("base", None), tables.pop("variants", {})
    if base is not None:
        tables = _merge(_resolve(base, folder=file.parent, chain=(*chain, link)), tables)
    return _merge(tables, variants[variant]) if variant else tables


def _locate(name: Path | str, *, folder: Path) -> tuple[Path, str]:
    """Find the file of a recipe, and the name of its variant or nothing."""
    path = folder / name
    if path.is_file():
        return path, ""
    stem = path.name.removesuffix(".toml")
    bare = Path(name).parent == Path()
    # A bare name without ".toml" is a shipped recipe, whatever files lie in the current folder.
    places = [path.parent] if not bare else [SHIPPED] if stem == path.name else [path.parent, SHIPPED]
    for place in places:
        if (place / f"{stem}.toml").is_file():
            return place / f"{stem}.toml", ""
        for file in place.glob("*.toml"):
            variant = stem.removeprefix(f"{file.stem}_")
            if variant != stem and variant in _parse(file).get("variants", {}):
                return file, variant
    raise ValueError(f"no recipe {name}: give the path of a TOML file, or one of {', '.join(list_recipes())}")


def _parse(file: Path) -> dict[str, Any]:
    """Read a file and check its shape: `base`, tables, and tables of tables under `variants`."""
    tables = read_toml(file)
    if not isinstance(tables.get("base", ""), str):
        raise ValueError(f"{file}: base must be the name or the path of a recipe, got {tables['base']!r}")
    _require_tables({key: value for key, value in tables.items() if key != "base"}, file)
    for variant in tables.get("variants", {}).values():
        _require_tables(variant if isinstance(variant, dict) else tables["variants"], file)
    return tables


def _require_tables(tables: Mapping[str, Any], file: Path) -> None:
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{file}: {name} is outside of a table: put it under [run], [data] …")


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables key by key; a table with another `name` replaces the one of the base."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict) and value.get("name") in (None, below.get("name")):
            merged[key] = _merge(below, value)
        else:
            merged[key] = value
    return merged


def _apply(tables: dict[str, Any], change: str) -> None:
    """Apply one change `table.key=value`; a value that is not valid TOML is text."""
    place, equals, text = change.partition("=")
    *parents, key = place.strip().split(".")
    if not equals or not parents or not all((*parents, key)):
        raise ValueError(f"write a change as table.key=value, for example run.steps=500; got {change!r}")
    try:
        value = parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except ValueError as error:
        raise ValueError(f"{place.strip()}: the value cannot be read ({error})") from None
    table = tables
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ValueError(f"{place}: {parent} is not a table")
    table[key] = value


def _plain(value: Any) -> Any:
    """Replace what TOML cannot hold: paths become text, and absent values are left out."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value
