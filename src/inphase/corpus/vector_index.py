"""Nearest frames in a store: exhaustive search where they are few, an inverted index of FAISS beyond.

The index is one file per shard, beside the centroids that all share: a shard never changes, so neither does its file,
and a new shard is indexed without touching the others. Files are memory-mapped; a search touches the probed lists. The
number of probes is chosen by measurement: the fewest whose recall against exhaustive search reaches a target. Rows that
are superseded or of another action are filtered by FAISS.
"""

import errno
import hashlib
import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from inphase.corpus.embedding_store import CatalogEntry, EmbeddingStore
from inphase.corpus.shards import GROUP_VALUES, read_rows
from inphase.storage.errors import StoreError, import_extra
from inphase.storage.files import (
    CHECKSUM,
    atomic_write,
    explain_os_errors,
    is_draft,
    sweep_drafts,
    verify_checksum,
    write_checksum,
)
from inphase.storage.settings import parse_json

# Frames up to which all of them are compared: a few seconds.
MAX_EXHAUSTIVE = 1_000_000
# Neighbors and queries that the recall is measured with, and the recall that the index has to reach.
NEIGHBORS, QUERIES, TARGET_RECALL = 10, 64, 0.95
# Vectors that a centroid is trained on, and all of them at most, which bounds memory; growth of the store by which
# centroids are trained again.
VECTORS_PER_LIST, MAX_VECTORS, GROWTH = 32, 2**17, 4
LOCK = "index.lock"

Vectors = NDArray[np.float32]
ShardProgress = Callable[[int, int], None]  # shards done, shards to index


@dataclass(frozen=True)
class Candidate:
    """A frame that was found: its cosine similarity, its video, and its number in it from 0."""

    score: float
    entry: CatalogEntry
    frame: int


@dataclass(frozen=True)
class IndexMethod:
    """How a store is searched: exhaustively where `lists` is 0, otherwise in `probes` of `lists` inverted lists.

    `recall` is the fraction of the truly nearest frames that the index finds.
    """

    frames: int
    lists: int = 0
    probes: int = 0
    recall: float = 1.0
    queries: int = 0

    def __str__(self) -> str:
        """Describe the method in one line."""
        if not self.lists:
            return f"{self.frames:,} frames, all compared"
        return (
            f"{self.frames:,} frames, inverted index: {self.probes} of {self.lists} lists probed, "
            f"recall@{NEIGHBORS} {self.recall:.3f} against comparing all ({self.queries} queries)"
        )


class Index:
    """The index of a store, updated when it is opened."""

    def __init__(
        self,
        store: EmbeddingStore,
        *,
        exact: int = MAX_EXHAUSTIVE,
        target: float = TARGET_RECALL,
        sample: int = MAX_VECTORS,
        progress: ShardProgress | None = None,
    ) -> None:
        """Index the new shards.

        Up to `exact` frames are compared without an index; `target` is the recall that the index has to reach, `sample`
        the number of vectors its centroids are trained on, at most. Memory: the sample, and the index of one shard.
        """
        self._store, self._folder = store, store.folder / "index"
        model = store.model()
        self._shards = sorted(store.catalog.shards())
        _, frames, _ = store.catalog.totals()
        self.method = IndexMethod(frames)
        self._sample = sample
        self.built = 0  # shards indexed by this call
        if frames > exact:
            self.method = self._update(model, frames, target=target, progress=progress)

    def nearest(self, queries: Vectors, *, k: int, action: str | None = None) -> list[list[Candidate]]:
        """Return the k frames nearest to each of the queries [Q, D], best first."""
        found = self._nearest(queries, k=k, action=action)
        self._store.require_shards(self._shards)
        return found

    def _nearest(self, queries: Vectors, *, k: int, action: str | None) -> list[list[Candidate]]:
        if not self.method.lists:
            return self._compare_all(queries, k=k, action=action)
        wanted, probes = min(k, self._store.catalog.frames(action)), self.method.probes
        while True:
            found = self._probe(queries, k=k, action=action, probes=probes)
            # The lists nearest to a query may hold little of a rare action.
            if probes >= self.method.lists or all(len(of_query) >= wanted for of_query in found):
                return found
            probes *= 4

    def _compare_all(self, queries: Vectors, *, k: int, action: str | None) -> list[list[Candidate]]:
        """Compare queries with every frame, a block at a time."""
        faiss = _faiss()
        best = _Best(len(queries), k)
        for entries, vectors in self._blocks(action=action):
            scores, numbers = faiss.knn(queries, vectors, min(k, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT)
            best.add(scores, numbers, entries)
        return best.found()

    def _probe(self, queries: Vectors, *, k: int, action: str | None, probes: int) -> list[list[Candidate]]:
        """Search the index of every shard and keep the best k of all."""
        faiss = _faiss()
        best = _Best(len(queries), k)
        for shard in self._shards:
            every = self._rows(shard)
            counts = {entry.row for entry in self._store.catalog.current(shard=shard, action=action)}
            if not counts:
                continue
            wanted = np.concatenate([np.full(entry.frames, entry.row in counts) for entry in every])
            bits = np.packbits(wanted, bitorder="little")
            chosen = None if wanted.all() else faiss.IDSelectorBitmap(bits)
            how = faiss.SearchParametersIVF(sel=chosen, nprobe=probes)
            if not self._file(shard).exists():
                raise StoreError(f"{self._folder} was rebuilt by another process meanwhile: run this again")
            index = faiss.read_index(str(self._file(shard)), faiss.IO_FLAG_MMAP)
            scores, numbers = index.search(queries, min(k, len(wanted)), params=how)
            best.add(scores, numbers, every)
        return best.found()

    def _rows(self, shard: str) -> list[CatalogEntry]:
        """List the rows of a shard that have frames; vectors are numbered consecutively in this order."""
        return self._store.catalog.rows(shard)

    def _blocks(self, *, action: str | None = None) -> Iterator[tuple[list[CatalogEntry], Vectors]]:
        """Yield the frames that count, in blocks of about the size of a row group."""
        for shard in self._shards:
            yield from self._read(shard, list(self._store.catalog.current(shard=shard, action=action)))

    def _read(self, shard: str, entries: list[CatalogEntry]) -> Iterator[tuple[list[CatalogEntry], Vectors]]:
        """Read rows of a shard in blocks."""
        block: list[CatalogEntry] = []
        parts: list[Vectors] = []
        rows = read_rows(self._store.file(shard), [entry.row for entry in entries])
        for entry, row in zip(entries, rows, strict=True):
            if row.embedding is None:
                continue
            block.append(entry)
            parts.append(row.embedding.values)
            if sum(part.size for part in parts) > GROUP_VALUES:
                yield block, np.concatenate(parts)
                block, parts = [], []
        if block:
            yield block, np.concatenate(parts)

    def _update(self, model: str, frames: int, *, target: float, progress: ShardProgress | None) -> IndexMethod:
        """Index the new shards, train centroids where that is due, and measure the recall where anything changed.

        One process at a time: another one waits, and finds the index finished.
        """
        with explain_os_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self._folder / LOCK):
            return self._build(model, frames, target=target, progress=progress)

    def _build(self, model: str, frames: int, *, target: float, progress: ShardProgress | None) -> IndexMethod:
        state = self._state()
        if state is None or state["model"] != model or frames > GROWTH * state["trained_on"]:
            state = self._train(model, frames)
        self._key = state["key"]
        missing = [shard for shard in self._shards if not self._file(shard).exists()]
        for done, shard in enumerate(missing):
            self._add(shard)
            if progress is not None:
                progress(done + 1, len(missing))
        self.built = len(missing)
        self._sweep()
        signature = hashlib.blake2b(" ".join(self._shards).encode(), digest_size=16).hexdigest()
        if state.get("signature") != signature or state.get("target") != target:
            method = self._choose_probes(IndexMethod(frames, state["lists"]), target=target)
            state |= {"signature": signature, "target": target, "method": asdict(method)}
            with atomic_write(self._folder / "index.json") as part:
                part.write_text(json.dumps({**state, "checksum": CHECKSUM}), encoding="utf-8")
                write_checksum(part)
        return IndexMethod(**state["method"])

    def _state(self) -> dict[str, Any] | None:
        """Read the state of the index; None where it is damaged or absent."""
        try:
            if verify_checksum(self._folder / "index.json") is False:
                return None
            found: dict[str, Any] = parse_json((self._folder / "index.json").read_bytes())
            return found if self._trained(found["key"]).exists() else None
        except (OSError, ValueError, KeyError):
            return None

    def _train(self, model: str, frames: int) -> dict[str, Any]:
        """Train the centroids on a sample of the frames."""
        faiss = _faiss()
        lists = int(2 ** np.clip(round(np.log2(4 * np.sqrt(frames))), 2, 14))
        every = max(1, frames // min(VECTORS_PER_LIST * lists, self._sample))
        # Copied: views would keep their blocks, all of them together the store, in memory.
        sample = np.concatenate([vectors[::every].copy() for _, vectors in self._blocks()])
        dimension = sample.shape[1]
        kind = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(dimension), dimension, lists, kind, faiss.METRIC_INNER_PRODUCT, False
        )
        index.cp.min_points_per_centroid = 1
        index.cp.niter, index.cp.seed = 10, 0
        index.train(sample)
        key = hashlib.blake2b(f"{model} {lists} {frames} {sample.sum()}".encode(), digest_size=8).hexdigest()
        _write_index(index, self._trained(key))
        return {"model": model, "key": key, "lists": lists, "trained_on": frames}

    def _add(self, shard: str) -> None:
        """Index the frames of one shard, superseded ones included."""
        index = _faiss().read_index(str(self._trained(self._key)))
        for _, vectors in self._read(shard, self._rows(shard)):
            index.add(vectors)
        _write_index(index, self._file(shard))

    def _sweep(self) -> None:
        """Remove the files of shards that are gone and of replaced centroids."""
        kept = {self._file(shard).name for shard in self._shards} | {self._trained(self._key).name, "index.json", LOCK}
        sweep_drafts(self._folder)
        for file in self._folder.iterdir():
            if file.name not in kept and not is_draft(file):
                file.unlink(missing_ok=True)

    def _choose_probes(self, method: IndexMethod, *, target: float) -> IndexMethod:
        """Double the number of probes until the recall reaches the target."""
        queries = self._sample_queries()
        found = self._compare_all(queries, k=NEIGHBORS, action=None)
        truth = [{(each.entry.id, each.frame) for each in of_query} for of_query in found]
        probes = 1
        while True:
            found = self._probe(queries, k=NEIGHBORS, action=None, probes=probes)
            hits = [
                len(real & {(each.entry.id, each.frame) for each in of_query}) / max(1, len(real))
                for real, of_query in zip(truth, found, strict=True)
            ]
            recall = float(np.mean(hits))
            if recall >= target or probes >= method.lists:
                return replace(method, probes=probes, recall=recall, queries=len(queries))
            probes *= 2

    def _sample_queries(self) -> Vectors:
        """Sample frames from the whole store."""
        every = max(1, self.method.frames // QUERIES)
        taken, offset = [], every // 2
        for _, vectors in self._blocks():
            taken.append(vectors[offset::every].copy())
            offset = (offset - len(vectors)) % every
        # Not the frames themselves, which any index finds, but vectors near them.
        frames = np.concatenate(taken)[:QUERIES]
        queries = frames + np.random.default_rng(0).normal(0, 0.3 / np.sqrt(frames.shape[1]), frames.shape)
        return np.asarray(queries / np.linalg.norm(queries, axis=1, keepdims=True), np.float32)

    def _trained(self, key: str) -> Path:
        return self._folder / f"centroids.{key}.faiss"

    def _file(self, shard: str) -> Path:
        return self._folder / f"{shard}.{self._key}.faiss"


class _Best:
    """The k best candidates of each query so far."""

    def __init__(self, queries: int, k: int) -> None:
        self._k = k
        self._heaps: list[list[tuple[float, int, CatalogEntry, int]]] = [[] for _ in range(queries)]
        self._serial = 0  # breaks ties between equal scores

    def add(self, scores: Vectors, numbers: NDArray[np.int64], entries: list[CatalogEntry]) -> None:
        """Add the results of a block [Q, k]; vectors are numbered through the frames of `entries`, −1 is no result."""
        begins = np.cumsum([0, *(entry.frames for entry in entries)])
        videos = np.searchsorted(begins, numbers, side="right") - 1
        for query, heap in enumerate(self._heaps):
            for score, number, video in zip(scores[query], numbers[query], videos[query], strict=True):
                if number < 0 or (len(heap) == self._k and score <= heap[0][0]):
                    continue
                self._serial -= 1
                entry = (float(score), self._serial, entries[video], int(number - begins[video]))
                (heapq.heappush if len(heap) < self._k else heapq.heapreplace)(heap, entry)

    def found(self) -> list[list[Candidate]]:
        """List the candidates of each query, best first."""
        ordered = [sorted(heap, key=lambda entry: (-entry[0], -entry[1])) for heap in self._heaps]
        return [[Candidate(score, entry, frame) for score, _, entry, frame in heap] for heap in ordered]


def _write_index(index: Any, file: Path) -> None:
    with atomic_write(file) as part:
        try:
            _faiss().write_index(index, str(part))
            write_checksum(part, append=True)  # FAISS reads no further than its index
        except RuntimeError as error:  # as FAISS reports a full disk
            raise OSError(errno.ENOSPC, f"FAISS could not write it: {error}") from error


def _faiss() -> Any:
    return import_extra("faiss", extra="corpus")
