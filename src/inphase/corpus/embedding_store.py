"""A store of embeddings: shards in a folder, a catalog that follows them, and the encoders that made them.

The shards are the truth. The catalog is a database that finds rows by id or action without opening a shard; it may be
removed at any time. Of an id that is in several shards the last one counts, in the order of their names, which begin
with a counter that every run of `embed` raises: a clock may step back. `EmbeddingStore.compact` merges small shards: a
merged shard appears before the shards it replaces go, so that an interruption loses no row, and a row that is there
twice for a moment is the same row.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any
from warnings import warn

from filelock import FileLock, Timeout

from inphase.corpus.shards import SUFFIX, ShardMergedError, ShardRow, read_facts, read_rows, write_shard
from inphase.media.listing import ListedVideo
from inphase.storage.errors import StoreError, import_extra
from inphase.storage.files import atomic_write, explain_os_errors, is_draft, sweep_drafts
from inphase.storage.settings import parse_json

# Size from which a shard stays as it is, in bytes: a million videos of 100 frames are a few hundred such shards.
SHARD_BYTES = 64 * 2**20
# Small shards that are worth merging into one that is small as well.
MIN_MERGED = 8

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
class CatalogEntry:
    """A row of a store: the columns of its shard except the embedding, and its place."""

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


class Catalog:
    """The rows of a store's shards, in an SQLite file."""

    def __init__(self, file: Path) -> None:
        """Open a catalog, or create one."""
        self._file = file
        # SQLite would create it with mode 0644 at most, whatever the umask allows.
        with suppress(OSError):
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o666))
        self._db = sqlite3.connect(file, timeout=60)
        try:
            self._db.executescript(_TABLES)
        except sqlite3.DatabaseError:
            self._db.close()
            raise
        # A temporary database of its own: a transaction left open here locks no other process out.
        self._listed = sqlite3.connect("")
        self._listed.execute("CREATE TABLE listed (id TEXT PRIMARY KEY) WITHOUT ROWID")

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        self._listed.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit all or nothing; raise StoreError where the disk is full or another process keeps the lock."""
        try:
            with self._db:
                yield
        except sqlite3.OperationalError as error:
            failed = f"{self._file} cannot be written ({error})"
            raise StoreError(f"{failed}: make room, or wait for the other process, then run this again") from error

    def shards(self) -> set[str]:
        """Return the names of the entered shards."""
        return {name for (name,) in self._db.execute("SELECT name FROM shards")}

    def add_shard(self, shard: str, entries: Sequence[dict[str, Any]]) -> None:
        """Enter the rows of a shard, all of them or none."""
        rows = [
            (entry["id"], shard, number, *(entry[name] for name in _COLUMNS.split(", ")[3:]))
            for number, entry in enumerate(entries)
        ]
        with self._transaction():
            self._db.executemany(f"INSERT OR REPLACE INTO videos ({_COLUMNS}) VALUES ({', '.join('?' * 11)})", rows)
            self._db.execute("INSERT OR IGNORE INTO shards VALUES (?)", [shard])

    def length(self, shard: str) -> int:
        """Count the rows of a shard, superseded ones included."""
        return int(self._db.execute("SELECT COUNT(*) FROM videos WHERE shard = ?", [shard]).fetchone()[0])

    def rows(self, shard: str) -> list[CatalogEntry]:
        """List the rows of a shard that have an embedding, in order, superseded ones included."""
        query = f"SELECT {_COLUMNS} FROM videos WHERE shard = ? AND reason = '' ORDER BY row"
        return [CatalogEntry(*row) for row in self._db.execute(query, [shard])]

    def remove_shards(self, shards: Iterable[str]) -> None:
        """Remove the rows of shards whose files are gone."""
        with self._transaction():
            for name in shards:
                self._db.execute("DELETE FROM videos WHERE shard = ?", [name])
                self._db.execute("DELETE FROM shards WHERE name = ?", [name])

    def find(self, id: str) -> CatalogEntry | None:
        """Return the row of an id that counts: the one of its last shard."""
        query = f"SELECT {_COLUMNS} FROM videos WHERE id = ? ORDER BY shard DESC LIMIT 1"
        row = self._db.execute(query, [id]).fetchone()
        return None if row is None else CatalogEntry(*row)

    def current(
        self, *, shard: str | None = None, action: str | None = None, embedded: bool = True
    ) -> Iterator[CatalogEntry]:
        """Yield the rows that count, by shard and row; only those with an embedding where `embedded`."""
        query, given = f"SELECT {_COLUMNS} FROM current WHERE 1", []
        if shard is not None:
            # Only the rows of this shard are checked: the view would scan all of them.
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
        # A cursor of its own: several iterations may be under way.
        with closing(self._db.cursor()) as cursor:
            for row in cursor.execute(f"{query} ORDER BY shard, row", given):
                yield CatalogEntry(*row)

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
        """Record a new stamp for unchanged contents, so that they need not be hashed again."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO stamps VALUES (?, ?, ?)", [id, content, stamp])

    def last_stamp(self, entry: CatalogEntry) -> str:
        """Return the last recorded stamp of the contents that a row was made from."""
        query = "SELECT stamp FROM stamps WHERE id = ? AND content = ?"
        row = self._db.execute(query, [entry.id, entry.content]).fetchone()
        return entry.stamp if row is None else str(row[0])

    def is_first(self, video: ListedVideo) -> bool:
        """Return whether this is the first call with a video since the catalog was opened."""
        return self._listed.execute("INSERT OR IGNORE INTO listed VALUES (?)", [video.id]).rowcount == 1


MARK = {"format": "inphase corpus 1"}


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store of embeddings."""
    return (folder / "store.json").is_file()


class EmbeddingStore:
    """An open store; use it as a context manager. Writers add shards to its folder."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        """Open a store and update its catalog."""
        import_extra("pyarrow", extra="corpus")
        self.folder = folder
        if create and not is_store(folder):
            # A process killed while it created the store leaves a draft of the mark.
            if folder.exists() and not all(is_draft(path) for path in folder.iterdir()):
                raise ValueError(f"{folder} holds other files and is not a store of embeddings: name another folder")
            with explain_os_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            # The mark comes first: after any interruption the folder counts as a store.
            with atomic_write(folder / "store.json") as part:
                part.write_text(json.dumps(MARK), encoding="utf-8")
        if not is_store(folder):
            made = "STORE" if folder.exists() else folder  # a folder of other files cannot become one
            raise ValueError(
                f"{folder} is not a store of embeddings: make one with `inphase embed CORPUS --out {made}`"
            )
        with explain_os_errors(folder):
            self.shards.mkdir(exist_ok=True)
        self.catalog = _open_catalog(folder / "catalog.sqlite")
        try:
            try:
                self.refresh()
            except sqlite3.DatabaseError:  # damaged where only a write or a whole list shows it
                self.catalog.close()
                (folder / "catalog.sqlite").unlink()
                self.catalog = _open_catalog(folder / "catalog.sqlite")
                self.refresh()
        except BaseException:
            self.catalog.close()
            raise

    @property
    def shards(self) -> Path:
        """The folder of shards."""
        return self.folder / "shards"

    def __enter__(self) -> "EmbeddingStore":
        """Use the store."""
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        """Close the catalog; remove it where a query found damage, since it is made again from the shards."""
        self.catalog.close()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            file = self.folder / "catalog.sqlite"
            file.unlink(missing_ok=True)
            raise StoreError(
                f"{file} was damaged and has been removed: run this again, and it is made again"
            ) from error

    def refresh(self) -> None:
        """Add new shards to the catalog, remove missing ones, and warn of unreadable ones."""
        # In this order a shard that another process merges meanwhile is neither removed nor missing for a moment.
        entered = self.catalog.shards()
        there = {file.name.removesuffix(SUFFIX) for file in self.shards.glob(f"[!.]*{SUFFIX}")}
        for name in sorted(there - entered):
            try:
                facts = read_facts(self.file(name))
            except FileNotFoundError:  # merged into another meanwhile
                continue
            except StoreError as error:
                warn(str(error), stacklevel=2)
                continue
            self.catalog.add_shard(name, facts)
        self.catalog.remove_shards(entered - there)

    def file(self, shard: str) -> Path:
        """Return the file of a shard."""
        return self.shards / (shard + SUFFIX)

    def next_counter(self) -> int:
        """Return the counter of the next shard: one above the highest in the names of all shards."""
        names = [file.name for file in self.shards.glob(f"[!.]*{SUFFIX}")] + list(self.catalog.shards())
        heads = (name.partition("-")[0].removesuffix(SUFFIX) for name in names)
        return 1 + max((int(head) for head in heads if head.isdecimal()), default=0)

    def model(self) -> str:
        """Return the fingerprint of the model that made all embeddings; raise where there are several."""
        models = self.catalog.counts("model")
        if not models:
            raise ValueError(f"{self.folder} holds no embedding yet: fill it with `inphase embed`")
        if len(models) > 1:
            held = ", ".join(f"{count:,} by {name[:8]}" for name, count in models.items())
            raise ValueError(
                f"{self.folder} holds embeddings of several models ({held}): run `inphase embed` to its end"
            )
        return next(iter(models))

    def encoder_file(self, model: str) -> Path:
        """Return the file of the encoder with a fingerprint."""
        return self.folder / "models" / f"{model}.safetensors"

    def fps_file(self, model: str) -> Path:
        """Return the file of the frames per second that were embedded with a model."""
        return self.folder / "models" / f"{model}.json"

    def fps(self, model: str) -> float | None:
        """Return the frames per second that were embedded with a model; None: all."""
        found = parse_json(self.fps_file(model).read_bytes())
        return None if found is None else float(found)

    def read(self, entries: Iterable[CatalogEntry]) -> Iterator[ShardRow]:
        """Read rows with their embeddings; consecutive entries of one shard are read together."""
        for shard, found in groupby(entries, key=lambda entry: entry.shard):
            yield from read_rows(self.file(shard), sorted(entry.row for entry in found))

    def compact(self, *, shard_bytes: int = SHARD_BYTES) -> int:
        """Merge the shards that are small, or of which most rows are superseded; return how many files are gone.

        One process at a time does this; in another one the call returns 0. A large shard that is not mostly superseded
        stays as it is, so that a run copies its own rows and less than one large shard of older ones. Memory: a row
        group.
        """
        lock = FileLock(self.folder / "compaction.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return 0
        try:
            gone = 0
            for batch in self._batches(shard_bytes):
                if any(part.rows for part in batch):
                    names = " ".join(part.name for part in batch)
                    # The counter of the youngest: rows written after it still count.
                    counter = max(part.name for part in batch).split("-")[0]
                    merged = f"{counter}-{hashlib.blake2b(names.encode(), digest_size=8).hexdigest()}"
                    rows = (row for part in batch for row in read_rows(self.file(part.name), part.rows))
                    write_shard(self.shards, merged, rows)
                for part in batch:
                    self.file(part.name).unlink(missing_ok=True)
                    gone += 1
            for place in (self.folder, self.shards, self.folder / "models"):
                sweep_drafts(place)
            self.refresh()
            return gone
        finally:
            lock.release()

    def _batches(self, shard_bytes: int) -> Iterator[list["_MergedPart"]]:
        """Choose shards to merge, in their order, until a merged one is large."""
        batch: list[_MergedPart] = []
        size = 0
        for name in sorted(self.catalog.shards()):
            rows = [entry.row for entry in self.catalog.current(shard=name, embedded=False)]
            superseded, taken = self.catalog.length(name) - len(rows), self.file(name).stat().st_size
            if taken >= shard_bytes and superseded <= len(rows):
                continue
            batch.append(_MergedPart(name, rows, superseded))
            size += taken
            if size >= shard_bytes:
                yield batch
                batch, size = [], 0
        if len(batch) >= MIN_MERGED or any(part.superseded for part in batch):
            yield batch

    def require_shards(self, names: Iterable[str]) -> None:
        """Raise if another process merged some of these shards meanwhile: rows would be missing."""
        if not self.catalog.shards().issuperset(names):
            raise ShardMergedError(f"{self.folder} changed while it was read, since it is being filled: run this again")

    def require_action(self, action: str | None) -> None:
        """Raise if no video of the store has this action."""
        actions = self.catalog.counts("action")
        if action is not None and action not in actions:
            known = ", ".join(list(actions)[:10]) + (" …" if len(actions) > 10 else "")
            raise ValueError(f"no video in {self.folder} has the action {action!r}: there are {known or 'none'}")


@dataclass(frozen=True)
class _MergedPart:
    """A shard to merge, its rows that count, and how many do not."""

    name: str
    rows: list[int]
    superseded: int


def _open_catalog(file: Path) -> Catalog:
    """Open the catalog; replace a damaged one."""
    try:
        return Catalog(file)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise StoreError(
                f"{file} cannot be opened ({error}): make room, or check your rights to the folder"
            ) from error
        file.unlink()
        return Catalog(file)
