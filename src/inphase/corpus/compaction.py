"""Merge small shards into large ones, and leave out what no longer counts.

A merged shard appears before the shards it replaces go: whatever interrupts this, no row is lost, and one that is there
twice for a moment is the same row.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from filelock import FileLock, Timeout

from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.shards import ShardRow, read_rows, write_shard
from inphase.storage.files import sweep_drafts

# A shard is large from here on, in bytes: a million videos of 100 frames are a few hundred such shards.
LARGE = 64 * 2**20


@dataclass(frozen=True)
class _Found:
    """A shard, its size, and which of its rows count."""

    name: str
    size: int
    rows: list[int]
    stale: int


def compact(store: EmbeddingStore, *, large: int = LARGE) -> int:
    """Merge the shards of a store that are small, or stale by half, and give how many are gone.

    One process at a time does this; another one leaves it to the first. A large shard that is not mostly stale stays as
    it is, so that a run copies its own rows and less than one large shard of older ones. Memory: a row group.
    """
    lock = FileLock(store.folder / "compaction.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return 0
    try:
        gone = 0
        for batch in _batches(store, large=large):
            rows = sum(len(found.rows) for found in batch)
            if rows:
                names = " ".join(found.name for found in batch)
                # The time of the youngest: what was written after it still counts.
                begin = max(found.name for found in batch).split("-")[0]
                merged = f"{begin}-{hashlib.blake2b(names.encode(), digest_size=8).hexdigest()}"
                write_shard(store.shards, merged, _rows(store, batch))
            for found in batch:
                store.file(found.name).unlink(missing_ok=True)
                gone += 1
        sweep_drafts(store.shards)
        store.refresh()
        return gone
    finally:
        lock.release()


def _batches(store: EmbeddingStore, *, large: int) -> Iterator[list[_Found]]:
    """Choose shards to merge, in their order, until a merged one is large."""
    batch: list[_Found] = []
    size = 0
    for name in sorted(store.catalogue.shards()):
        found = _look(store, name)
        if found.size >= large and found.stale <= len(found.rows):
            continue
        batch.append(found)
        size += found.size
        if size >= large:
            yield batch
            batch, size = [], 0
    # A last one that stays small is worth it where many are, or where anything is stale.
    if len(batch) >= 8 or any(found.stale for found in batch):
        yield batch


def _look(store: EmbeddingStore, name: str) -> _Found:
    rows = [fact.row for fact in store.catalogue.current(shard=name, embedded=False)]
    total = store.catalogue.length(name)
    return _Found(name, store.file(name).stat().st_size, rows, total - len(rows))


def _rows(store: EmbeddingStore, batch: list[_Found]) -> Iterator[ShardRow]:
    for found in batch:
        yield from read_rows(store.file(found.name), found.rows)
