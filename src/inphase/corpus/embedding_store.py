"""What a store holds, in a database beside its shards: found by id or action without opening a shard.

The shards are the truth. The catalogue follows them, shard by shard, and may be removed at any time; of an id that is
in several shards the last one counts, in the order of their names, which begin with the time.
"""
# MERGED: A store of embeddings: shards in a folder, the catalogue that follows them, and the encoders that made them.

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any
from warnings import warn

import pyarrow as pa

from inphase.corpus.shards import SUFFIX, ShardRow, read_facts, read_rows
from inphase.media.listing import ListedVideo
from inphase.storage.errors import StoreError
from inphase.storage.files import atomic_write, explain_os_errors, is_draft

_TABLES = """
CREATE TABLE IF NOT EXISTS shards (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS videos (
    id TEXT, shard TEXT, row INTEGER, path TEXT, action TEXT, content TEXT, stamp TEXT, model TEXT, reason TEXT,
    frames INTEGER, dimension INTEGER, PRIMARY KEY (id, shard)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_shard ON videos (shard, row);
CREATE TABLE IF NOT EXISTS stamps (id TEXT PRIMARY KEY, content TEXT, stamp TEXT) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS current AS SELECT *, MAX(shard) FROM videos GROUP BY id;
"""
_COLUMNS = "id, shard, row, path, action, content, stamp, model, reason, frames, dimension"


@dataclass(frozen=True)
class Fact:
    """What is known of a row of a store: the columns of its shard but the embedding, and where it is."""

    id: str
    shard: str
    row: int
    path: str
    action: str
    content: str
    stamp: str
    model: str
    reason: str
    frames: int
    dimension: int


class Catalogue:
    """The catalogue in one file."""

    def __init__(self, file: Path) -> None:
        """Open a catalogue, or begin one."""
        self._file = file
        self._db = sqlite3.connect(file, timeout=60)
        self._db.executescript(_TABLES)
        # A database of its own, on disk and gone with this process: a transaction left open here locks nobody out.
        self._planned = sqlite3.connect("")
        self._planned.execute("CREATE TABLE planned (id TEXT PRIMARY KEY) WITHOUT ROWID")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
        self._planned.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all of it or nothing; what the disk or another process refuses is an error that says so."""
        try:
            with self._db:
                yield
        except sqlite3.OperationalError as error:
            said = f"{self._file} cannot be written ({error})"
            raise StoreError(f"{said}: make room, or wait for the other process, then run this again") from error

    def shards(self) -> set[str]:
        """Name the shards that are entered."""
        return {name for (name,) in self._db.execute("SELECT name FROM shards")}

    def enter(self, shard: str, facts: Sequence[dict[str, Any]]) -> None:
        """Enter the rows of a shard, all of them or none."""
        rows = [
            (fact["id"], shard, number, *(fact[name] for name in _COLUMNS.split(", ")[3:]))
            for number, fact in enumerate(facts)
        ]
        with self._transaction():
            self._db.executemany(f"INSERT OR REPLACE INTO videos ({_COLUMNS}) VALUES ({', '.join('?' * 11)})", rows)
            self._db.execute("INSERT OR IGNORE INTO shards VALUES (?)", [shard])

    def length(self, shard: str) -> int:
        """Count the rows of a shard, whether they count or not."""
        return int(self._db.execute("SELECT COUNT(*) FROM videos WHERE shard = ?", [shard]).fetchone()[0])

    def rows(self, shard: str) -> list[Fact]:
        """List the rows of a shard with an embedding in their order, whether they count or not."""
        query = f"SELECT {_COLUMNS} FROM videos WHERE shard = ? AND reason = '' ORDER BY row"
        return [Fact(*row) for row in self._db.execute(query, [shard])]

    def strike(self, shards: Iterable[str]) -> None:
        """Forget shards that are no longer there."""
        with self._transaction():
            for name in shards:
                self._db.execute("DELETE FROM videos WHERE shard = ?", [name])
                self._db.execute("DELETE FROM shards WHERE name = ?", [name])

    def find(self, id: str) -> Fact | None:
        """Give what counts of an id."""
        query = f"SELECT {_COLUMNS} FROM videos WHERE id = ? ORDER BY shard DESC LIMIT 1"
        row = self._db.execute(query, [id]).fetchone()
        return None if row is None else Fact(*row)

    def current(self, *, shard: str | None = None, action: str | None = None, embedded: bool = True) -> Iterator[Fact]:
        """Walk through the rows that count, shard by shard in their order; those with an embedding where `embedded`."""
        query, given = f"SELECT {_COLUMNS} FROM current WHERE 1", []
        if shard is not None:
            # Whether a row counts is asked of the rows of one shard alone: the view would go through all of them.
            query = (
                f"SELECT {_COLUMNS} FROM videos AS v WHERE shard = ? AND NOT EXISTS "
                "(SELECT 1 FROM videos AS w WHERE w.id = v.id AND w.shard > v.shard)"
            )
            given.append(shard)
        if action is not None:
            query += " AND action = ?"
            given.append(action)
        if embedded:
            query += " AND reason = ''"
        # A cursor of its own: several walks may be under way.
        with closing(self._db.cursor()) as cursor:
            for row in cursor.execute(f"{query} ORDER BY shard, row", given):
                yield Fact(*row)

    def counts(self, column: str) -> dict[str, int]:
        """Count the videos with an embedding by action or by model."""
        if column not in ("action", "model"):
            raise ValueError(f"videos are counted by action or by model, not by {column!r}")
        query = f"SELECT {column}, COUNT(*) FROM current WHERE reason = '' GROUP BY {column} ORDER BY 2 DESC, 1"
        return dict(self._db.execute(query).fetchall())

    def frames(self, action: str | None = None) -> int:
        """Count the frames of an action, or of all."""
        query = "SELECT SUM(frames) FROM current WHERE ? IS NULL OR action = ?"
        return int(self._db.execute(query, [action, action]).fetchone()[0] or 0)

    def totals(self) -> tuple[int, int, int]:
        """Count videos with an embedding, their frames, and videos without."""
        query = "SELECT SUM(reason = ''), SUM(frames), SUM(reason != '') FROM current"
        found = self._db.execute(query).fetchone()
        return (found[0] or 0, found[1] or 0, found[2] or 0)

    def restamp(self, id: str, *, content: str, stamp: str) -> None:
        """Note under which stamp unchanged contents were seen last, so that they need not be hashed again."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO stamps VALUES (?, ?, ?)", [id, content, stamp])

    def stamp_of(self, fact: Fact) -> str:
        """Give the stamp under which what a row was made from was seen last."""
        query = "SELECT stamp FROM stamps WHERE id = ? AND content = ?"
        row = self._db.execute(query, [fact.id, fact.content]).fetchone()
        return fact.stamp if row is None else str(row[0])

    def plan(self, video: ListedVideo) -> bool:
        """Tell whether a video comes up for the first time in this run."""
        return self._planned.execute("INSERT OR IGNORE INTO planned VALUES (?)", [video.id]).rowcount == 1


MARK = {"format": "inphase corpus 1"}


def is_store(folder: Path) -> bool:
    """Tell whether a folder is a store of embeddings."""
    return (folder / "store.json").is_file()


class EmbeddingStore:
    """A store, open for reading; writers add shards beside it. Use it as a context, or close it."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        """Open a store and bring its catalogue up to date."""
        self.folder = folder
        if create and not is_store(folder):
            # Half a mark is left by a process that was killed at the very beginning.
            if folder.exists() and not all(is_draft(path) for path in folder.iterdir()):
                raise ValueError(f"{folder} holds something else than a store of embeddings: name another folder")
            with explain_os_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            # The mark comes first: whatever happens after it, the folder is known to be ours.
            with atomic_write(folder / "store.json") as part:
                part.write_text(json.dumps(MARK))
        if not is_store(folder):
            made = "STORE" if folder.exists() else folder  # what holds something else cannot become one
            raise ValueError(f"{folder} is no store of embeddings: make one with `inphase embed CORPUS --out {made}`")
        with explain_os_errors(folder):
            self.shards.mkdir(exist_ok=True)
        self.catalogue = _open_catalogue(folder / "catalogue.sqlite")
        self.refresh()

    @property
    def shards(self) -> Path:
        """The folder of shards."""
        return self.folder / "shards"

    def __enter__(self) -> "EmbeddingStore":
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

    def read(self, facts: Iterable[Fact]) -> Iterator[ShardRow]:
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
