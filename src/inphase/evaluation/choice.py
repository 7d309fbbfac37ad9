"""The data a run is measured on: its recipe's, or another collection."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from inphase.data.frame_source import FrameSource, open_frame_source
from inphase.data.recipe_tables import find_loader, load_videos
from inphase.data.video import Video
from inphase.models import Encoder
from inphase.runs import Run


@dataclass(frozen=True)
class Choice:
    """A collection, its options and the store its frames come from; the recipe that named them, as it is written."""

    name: str
    root: Path | None
    store: Path | None
    options: Mapping[str, Any]
    recipe: str = ""

    def __str__(self) -> str:
        """Tell this data from other data, in which a video of the same name is another."""
        return f"{self.name} {self.root} {sorted(self.options.items())}"

    def load(self, split: str, *, size: int | None) -> list[Video]:
        """List the videos of a split; drawn ones at the size an encoder sees."""
        table = {**self.options, "name": self.name, "root": self.root}
        if size is not None and self.root is None and "size" in signature(find_loader(self.name, None)).parameters:
            table["size"] = size
        return load_videos(table, split=split)

    def seen_by(self, encoder: Encoder, split: str) -> FrameSource:
        """Show an encoder the videos of a split."""
        videos = self.load(split, size=encoder.image_size[0] if encoder.image_size else None)
        if not videos:
            raise ValueError(
                f"{self.name} has no video in the split {split!r}: choose another, as --split train or all"
            )
        return open_frame_source(encoder, videos, store=self.store, name=str(self))


def choose_data(
    folder: Path, *, name: str | None = None, root: Path | None = None, store: Path | None = None
) -> Choice:
    """Take the data of a run's recipe, as far as nothing else is said; options go with the recipe's collection only."""
    run = Run(folder)
    text = run.recipe_file.read_text(encoding="utf-8") if run.recipe_file.is_file() else ""
    table = run.recipe.get("data", {}) if text else {}
    known = dict(table)
    theirs, their_root, their_store = known.pop("name", None), known.pop("root", None), known.pop("store", None)
    known.pop("split", None)
    if name is None and theirs is None:
        raise ValueError(f"{folder} has no recipe that names its data: name a collection and the folder it lies in")
    if name is not None and name != theirs:
        return Choice(name, root, store, {}, text)
    root = root or (None if their_root is None else Path(their_root))
    store = store or (None if their_store is None else Path(their_store))
    return Choice(str(theirs), root, store, known, text)
