"""A store of embeddings: shards in a folder, the catalogue that follows them, and the encoders that made them.

STORE/store.json          what it is
STORE/shards/*.parquet    the embeddings (`inphase.corpus.shard`)
STORE/models/*            the encoders, by fingerprint
STORE/catalogue.sqlite    made from the shards; may be removed
STORE/index/              made from the shards by search; may be removed
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from types import TracebackType
from warnings import warn

import pyarrow as pa

from inphase.corpus.catalogue import Catalogue, Fact
from inphase.corpus.shard import SUFFIX, Row, read_facts, read_rows
from inphase.media.atomic import atomic_write, explained
from inphase.media.errors import StoreError

MARK = {"format": "inphase corpus 1"}


def is_store(folder: Path) -> bool:
    """Tell whether a folder is a store of embeddings."""
    return (folder / "store.json").is_file()


class Store:
    """A store, open for reading; writers add shards beside it. Use it as a context, or close it."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        """Open a store and bring its catalogue up to date."""
        self.folder = folder
        if create and not is_store(folder):
            # Half a mark is left by a process that was killed at the very beginning.
            if folder.exists() and any(path.name != ".store.part.json" for path in folder.iterdir()):
                raise ValueError(f"{folder} holds something else than a store of embeddings: name another folder")
            with explained(folder):
                folder.mkdir(parents=True, exist_ok=True)
            # The mark comes first: whatever happens after it, the folder is known to be ours.
            with atomic_write(folder / "store.json") as part:
                part.write_text(json.dumps(MARK))
        if not is_store(folder):
            made = "STORE" if folder.exists() else folder  # what holds something else cannot become one
            raise ValueError(f"{folder} is no store of embeddings: make one with `inphase embed CORPUS --out {made}`")
        with explained(folder):
            self.shards.mkdir(exist_ok=True)
        self.catalogue = _open_catalogue(folder / "catalogue.sqlite")
        self.refresh()

    @property
    def shards(self) -> Path:
        """The folder of shards."""
        return self.folder / "shards"

    def __enter__(self) -> "Store":
        """Use the store."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close the catalogue."""
        self.catalogue.close()

    def refresh(self) -> None:
        """Enter the shards that appeared, strike those that are gone. One that cannot be read is warned of."""
        there = {file.name.removesuffix(SUFFIX) for file in self.shards.glob(f"[!.]*{SUFFIX}")}
        entered = self.catalogue.shards()
        self.catalogue.strike(entered - there)
        for name in sorted(there - entered):
            try:
                self.catalogue.enter(name, read_facts(self.file(name)))
            except FileNotFoundError:  # merged into another meanwhile
                continue
            except (pa.ArrowInvalid, OSError) as error:
                warn(f"{self.file(name)} is damaged ({error}): remove it and embed again", stacklevel=2)

    def file(self, shard: str) -> Path:
        """Name the file of a shard."""
        return self.shards / (shard + SUFFIX)

    def model(self) -> str:
        """Give the fingerprint of the one model that made all embeddings; several cannot be compared."""
        models = self.catalogue.counts("model")
        if not models:
            raise ValueError(f"{self.folder} holds no embedding yet: fill it with `inphase embed`")
        if len(models) > 1:
            held = ", ".join(f"{count:,} by {name[:8]}" for name, count in models.items())
            raise ValueError(
                f"{self.folder} holds embeddings of several models ({held}): run `inphase embed` to its end"
            )
        return next(iter(models))

    def encoder_file(self, model: str) -> Path:
        """Name the file of the encoder with a fingerprint."""
        return self.folder / "models" / f"{model}.safetensors"

    def rate_file(self, model: str) -> Path:
        """Name the file that tells how many frames a second a model looked at."""
        return self.folder / "models" / f"{model}.json"

    def rate(self, model: str) -> float | None:
        """Tell how many frames a second a model looked at; None: all."""
        found = json.loads(self.rate_file(model).read_text())
        return None if found is None else float(found)

    def read(self, facts: Iterable[Fact]) -> Iterator[Row]:
        """Read rows with their embeddings; neighbours in one shard are read together."""
        for shard, found in groupby(facts, key=lambda fact: fact.shard):
            yield from read_rows(self.file(shard), sorted(fact.row for fact in found))

    def require_shards(self, names: Iterable[str]) -> None:
        """Refuse an answer from shards of which another process has merged some meanwhile: rows would be missing."""
        if not self.catalogue.shards().issuperset(names):
            raise StoreError(f"{self.folder} changed while it was read, since it is being filled: run this again")

    def require_action(self, action: str | None) -> None:
        """Refuse an action that no video of the store has."""
        actions = self.catalogue.counts("action")
        if action is not None and action not in actions:
            known = ", ".join(list(actions)[:10]) + (" …" if len(actions) > 10 else "")
            raise ValueError(f"no video in {self.folder} has the action {action!r}: there are {known or 'none'}")


def _open_catalogue(file: Path) -> Catalogue:
    """Open the catalogue; one that is damaged is made anew."""
    try:
        return Catalogue(file)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise StoreError(
                f"{file} cannot be opened ({error}): make room, or check your rights to the folder"
            ) from error
        file.unlink()
        return Catalogue(file)
