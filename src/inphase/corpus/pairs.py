"""Align pairs of videos: all pairs of an action into a distance matrix, every video with a reference into a table.

Both are cut into blocks that an engine maps over workers, and both are written to disk as they are computed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

from inphase.align.consensus import Template, barycenter, match_distances, transpose
from inphase.align.matching import Frames, match, match_many, shared_routes, tensor_of
from inphase.corpus.embedding_store import CatalogEntry, EmbeddingStore
from inphase.corpus.engines import Engine
from inphase.corpus.shards import SUFFIX, read_rows
from inphase.models import ENCODERS, Encoder, load_encoder
from inphase.models.embedding import Embedding, Route, unit_rows
from inphase.models.joint_encoder import add_motion_energy
from inphase.models.weights import read_description
from inphase.storage.errors import StoreError, import_extra
from inphase.storage.files import atomic_write, explain_os_errors
from inphase.storage.processes import WorkerDied

# Videos on the side of a block of pairs.
BLOCK_SIDE = 32
# Videos read at a time, at most, and values of their embeddings, unless one video alone has more.
WINDOW_VIDEOS, WINDOW_VALUES = 256, 2**22
# Listed videos that are farthest from the reference, and distances that the bound is estimated from.
MAX_FAR, MAX_DISTANCES = 200, 2**16
# Videos that the template of an action averages, the nearest to its reference; with fewer there is none.
MAX_AVERAGED, MIN_AVERAGED = 60, 5
# Robust deviations above the median from which a video does not fit; videos below which no bound is set.
MAX_DEVIATIONS, MIN_VIDEOS = 3.5, 4
# Videos up to which the branches of the cluster tree are turned so that neighbors are alike, O(n³) in the worst case.
MAX_REORDERED = 500

Values = NDArray[np.float32]
Result = TypeVar("Result")


class PackedEmbeddings:
    """Embeddings of some videos in two memory-mapped files."""

    def __init__(self, folder: Path) -> None:
        """Open the files that `pack` wrote."""
        self._begins = np.load(folder / "begins.npy", allow_pickle=False)
        self._values = np.load(folder / "values.npy", mmap_mode="r", allow_pickle=False)
        routes = np.load(folder / "routes.npy", allow_pickle=False).tolist()
        self._routes = tuple(Route(int(width), beta) for width, beta in routes)

    def __len__(self) -> int:
        """Count the videos."""
        return len(self._begins) - 1

    def __getitem__(self, number: int) -> Values:
        """Read the unit vectors [T, D] of a video."""
        if not 0 <= number < len(self):
            raise IndexError(f"no video number {number}: there are {len(self)}, numbered from 0")
        return unit_rows(np.asarray(self._values[self._begins[number] : self._begins[number + 1]], np.float32))

    def embedding(self, number: int) -> Embedding:
        """Read a video's vectors with their routes; its times are frame numbers."""
        values = self[number]
        return Embedding(values, np.arange(len(values), dtype=np.float64), routes=self._routes)


def pack(folder: Path, lengths: Sequence[int], embeddings: Iterator[tuple[int, Frames]]) -> PackedEmbeddings:
    """Write embeddings, given with their numbers in any order, in the order of the numbers, and their routes."""
    begins, routes, values = np.cumsum([0, *lengths]), np.empty((0, 2)), None
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "begins.npy", begins, allow_pickle=False)
    for number, found in embeddings:
        rows = tensor_of(found).numpy()
        values = (
            reserve(folder / "values.npy", np.float16, (int(begins[-1]), rows.shape[1])) if values is None else values
        )
        values[begins[number] : begins[number + 1]] = rows
        routes = np.array(shared_routes(found, found), np.float64).reshape(-1, 2)
    if values is not None:
        values.flush()
    with explain_os_errors(folder):
        np.save(folder / "routes.npy", routes, allow_pickle=False)
    return PackedEmbeddings(folder)


@dataclass(frozen=True)
class PairBlock:
    """The pairs i < j of the videos `rows` with the videos `columns`."""

    rows: range
    columns: range

    def pairs(self) -> list[tuple[int, int]]:
        """List the pairs."""
        return [(i, j) for i in self.rows for j in self.columns if i < j]


def blocks(count: int, *, side: int = BLOCK_SIDE) -> Iterator[PairBlock]:
    """Cut all pairs of `count` videos into blocks."""
    parts = [range(begin, min(begin + side, count)) for begin in range(0, count, side)]
    for k, rows in enumerate(parts):
        for columns in parts[k:]:
            if len(rows) > 1 or columns is not rows:
                yield PairBlock(rows, columns)


def start_pairs(folder: Path, device: str) -> Callable[[PairBlock], tuple[PairBlock, Values]]:
    """Open packed embeddings in a worker; return the function that aligns the pairs of a block: block, distances."""
    packed = PackedEmbeddings(folder)

    def align(block: PairBlock) -> tuple[PairBlock, Values]:
        rows, columns = ([packed.embedding(number) for number in side] for side in (block.rows, block.columns))
        pairs = [(i - block.rows.start, j - block.columns.start) for i, j in block.pairs()]
        return block, match_distances(rows, columns, pairs, device=device)

    return align


def fill_matrix(
    file: Path, folder: Path, count: int, *, engine: Engine, progress: Callable[[int, int], None] | None = None
) -> int:
    """Write the distances of all pairs of a packed folder as a symmetric matrix to a .npy file; count the pairs."""
    total, done = count * (count - 1) // 2, 0
    with atomic_write(file) as part:
        matrix = reserve(part, np.float32, (count, count))
        for result in engine.map(partial(start_pairs, folder), blocks(count)):
            block, distances = require_result(result)
            i, j = np.array(block.pairs()).T
            matrix[i, j] = matrix[j, i] = distances
            done += len(i)
            if progress is not None:
                progress(done, total)
        matrix.flush()
    return done


def require_result(result: Result | WorkerDied[Any]) -> Result:
    """Return a result; raise if its worker died, as for lack of memory."""
    if isinstance(result, WorkerDied):
        raise StoreError("a worker process died during alignment, perhaps for lack of memory: use fewer workers")
    return result


def reserve(file: Path, kind: type[np.floating[Any]], shape: tuple[int, int]) -> "np.memmap[Any, Any]":
    """Create a memory-mapped array whose disk space is allocated now: a full disk raises here, not at a later write."""
    with explain_os_errors(file.parent):
        mapped = np.lib.format.open_memmap(file, mode="w+", dtype=kind, shape=shape)
        if hasattr(os, "posix_fallocate"):
            with file.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, mapped.offset + mapped.nbytes)
    return mapped


def find_reference(store: EmbeddingStore, action: str, name: str) -> CatalogEntry:
    """Find the video of an action by its id, or by the end of it that no other has."""
    ending: CatalogEntry | None = None
    count = 0
    for video in store.catalog.current(action=action):
        if video.id == name:
            return video
        if video.id.endswith("/" + name):
            ending, count = video, count + 1
    if ending is None or count > 1:
        found = f"{count:,} videos are called {name!r}" if count else f"no video is called {name!r}"
        raise ValueError(f"{found} among those of {action!r}: name one by its id, as in videos.csv")
    return ending


def align_with(
    store: EmbeddingStore,
    action: str,
    reference: CatalogEntry,
    file: Path,
    *,
    engine: Engine,
    template: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[tuple[CatalogEntry, float]]:
    """Align every video of an action with a reference into a Parquet file; return the videos that are too far from it.

    A row has the video's id, its distance, and for each frame of the reference the second of the video that goes with
    it; with the file of a `template`, on the way through it. Memory: the windows under way, whatever the number of
    videos.
    """
    pa, parquet = (import_extra(name, extra="corpus") for name in ("pyarrow", "pyarrow.parquet"))
    schema = pa.schema(
        [("id", pa.string()), ("distance", pa.float32()), ("seconds", pa.large_list(pa.float64()))],
        metadata={b"reference": reference.id.encode()},
    )
    spread = Spread()
    worst: list[tuple[float, str]] = []
    model = store.encoder_file(store.model())
    start = partial(start_window, store.shards, model, reference.shard, reference.row, template)
    with atomic_write(file) as part, parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for result in engine.map(start, windows(store, action)):
            found = require_result(result)
            offsets = np.arange(len(found.ids) + 1) * reference.frames
            seconds = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(found.seconds))
            writer.write_table(pa.table([pa.array(found.ids), pa.array(found.distances), seconds], schema=schema))
            spread.add(found.distances)
            named = zip(found.distances.tolist(), found.ids, strict=True)
            worst = sorted([*worst, *named], key=lambda each: -each[0])[:MAX_FAR]
            if progress is not None:
                progress(spread.total)
    bound = spread.bound()
    far = ((store.catalog.find(id), distance) for distance, id in worst if distance > bound)
    return [(video, distance) for video, distance in far if video is not None]


@dataclass
class Spread:
    """Distances to a reference: every one, or of very many every second, fourth, …"""

    total: int = 0
    every: int = 1
    kept: list[float] = field(default_factory=list)

    def add(self, distances: NDArray[np.float32]) -> None:
        """Add the distances of some videos."""
        self.kept += distances[-self.total % self.every :: self.every].tolist()
        self.total += len(distances)
        if len(self.kept) > MAX_DISTANCES:
            self.kept, self.every = self.kept[::2], 2 * self.every

    def bound(self) -> float:
        """Return the distance beyond which a video does not fit."""
        return outlier_bound(np.asarray(self.kept, np.float64))


@dataclass(frozen=True)
class Window:
    """Some videos of an action, rows of one shard."""

    shard: str
    rows: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AlignedWindow:
    """Videos aligned with the reference: `distances` [n], and one after the other the `seconds` of each, [n · R]."""

    ids: list[str]
    distances: Values
    seconds: NDArray[np.float64]


def windows(store: EmbeddingStore, action: str) -> Iterator[Window]:
    """Cut the videos of an action into windows, each of one shard.

    The catalog is queried shard by shard: an open query would keep other processes from writing to it.
    """
    shards = sorted(store.catalog.shards())
    for shard in shards:
        rows: list[int] = []
        values = 0
        for video in list(store.catalog.current(shard=shard, action=action)):
            size = video.frames * video.dimension
            if rows and (len(rows) == WINDOW_VIDEOS or values + size > WINDOW_VALUES):
                yield Window(shard, tuple(rows))
                rows, values = [], 0
            rows.append(video.row)
            values += size
        if rows:
            yield Window(shard, tuple(rows))
    store.require_shards(shards)


def add_energy(model: Path, embedding: Embedding) -> Embedding:
    """Add the motion energy of untrained image features, as `inphase align` does; `model` is the encoder's file."""
    encoder = _load_known(model)
    return embedding if encoder is None else add_motion_energy(encoder, [embedding])[0]


@lru_cache(maxsize=1)
def _load_known(file: Path) -> Encoder | None:
    """Load the encoder of a store; None if it is a class of the user's own, which has no such features."""
    name = str(read_description(file).get("name", ""))
    return load_encoder(file) if name in ENCODERS or name.startswith("inphase.") else None


def start_window(
    shards: Path, model: Path, shard: str, row: int, template: Path | None, device: str
) -> Callable[[Window], AlignedWindow]:
    """Read the reference in a worker; return the function that aligns a window's videos, in order of their lengths."""
    (reference,) = read_rows(shards / (shard + SUFFIX), [row])
    assert reference.embedding is not None
    middle = add_energy(model, reference.embedding)
    average = None if template is None else read_template(template)
    there = None if average is None else transpose(match(average, middle)).frame_map()

    def align(window: Window) -> AlignedWindow:
        read = read_rows(shards / (window.shard + SUFFIX), window.rows)
        videos = [(found.id, add_energy(model, found.embedding)) for found in read if found.embedding is not None]
        videos.sort(key=lambda each: len(each[1]))
        aligned = list(match_many([(middle, other) for _, other in videos], device=device))
        seconds = [each.time_map(middle.times, other.times) for each, (_, other) in zip(aligned, videos, strict=True)]
        if average is not None and there is not None:
            clock = np.arange(len(average), dtype=np.float64)
            onward = match_many([(average, other) for _, other in videos], device=device)
            seconds = [
                middle.times if id == reference.id else np.interp(there, clock, each.time_map(clock, other.times))
                for (id, other), each in zip(videos, onward, strict=True)
            ]
        distances = np.array([each.distance for each in aligned], np.float32)
        return AlignedWindow([id for id, _ in videos], distances, np.concatenate(seconds))

    return align


def average_nearest(
    store: EmbeddingStore, videos: list[CatalogEntry], distances: Values, reference: CatalogEntry, file: Path
) -> Path | None:
    """Write the template of an action: the average of the compared videos nearest to the reference.

    Return its file, or None where there are too few videos for an average to be better than the reference itself.
    """
    if len(videos) < MIN_AVERAGED:
        return None
    ids = [video.id for video in videos]
    center = ids.index(reference.id) if reference.id in ids else medoid(distances)
    nearest = [videos[k] for k in np.argsort(distances[center], kind="stable")[:MAX_AVERAGED] if ids[k] != reference.id]
    members = sorted([reference, *nearest[: MAX_AVERAGED - 1]], key=lambda video: (video.shard, video.row))
    read = [(row.id, row.embedding) for row in store.read(members) if row.embedding is not None]
    start = [id for id, _ in read].index(reference.id)
    model = store.encoder_file(store.model())
    write_template(file, [add_energy(model, embedding) for _, embedding in read], start=start)
    return file


def write_template(file: Path, embeddings: Sequence[Embedding], *, start: int) -> None:
    """Average embeddings in the time of number `start`; write the vectors, their routes, and the mean seconds.

    The `seconds` [T] of a template's frames are the mean over the videos of those of the frames that go with it: the
    barycenter in time.
    """
    template = barycenter(embeddings, start=start)
    clock = np.arange(len(template), dtype=np.float64)
    found = match_many([(template, each) for each in embeddings])
    seconds = [each.time_map(clock, other.times) for each, other in zip(found, embeddings, strict=True)]
    with atomic_write(file) as part, part.open("wb") as opened:
        routes = np.array(template.routes, np.float64).reshape(-1, 2)
        np.savez(opened, values=template.values, routes=routes, seconds=np.mean(seconds, axis=0))


def read_template(file: Path) -> Template:
    """Read the vectors and the routes of a template."""
    with np.load(file, allow_pickle=False) as stored:
        routes = tuple(Route(int(width), beta) for width, beta in stored["routes"].tolist())
        return Template(stored["values"], routes)


def outlier_bound(scores: NDArray[np.float64]) -> float:
    """Return the score beyond which a video does not fit: 3.5 robust deviations above the median of all."""
    if len(scores) < MIN_VIDEOS:
        return float("inf")
    middle = float(np.median(scores))
    deviation = 1.4826 * float(np.median(np.abs(scores - middle)))
    # Videos that are all the same differ by rounding.
    return middle + MAX_DEVIATIONS * max(deviation, 0.02 * middle, 1e-4)


def medoid(distances: Values) -> int:
    """Return the video with the least sum of distances to all others."""
    return int(np.asarray(distances.sum(1)).argmin())


def median_distances(distances: Values) -> NDArray[np.float64]:
    """Return the median distance of every video to the others, [n]: a few alike outliers do not hide each other."""
    count = len(distances)
    if count < 2:
        return np.zeros(count)
    return np.array([np.median(np.delete(row, k)) for k, row in enumerate(distances)])


def cluster(distances: Values, *, apart: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order videos so that alike ones are neighbors, [n], and number the clusters that are farther `apart`, [n]."""
    count = len(distances)
    if count < 2:
        return np.arange(count), np.zeros(count, np.int64)
    tree = linkage(squareform(np.asarray(distances), checks=False), "average", optimal_ordering=count <= MAX_REORDERED)
    order = np.asarray(leaves_list(tree), np.int64)
    labels = fcluster(tree, apart, "distance") if np.isfinite(apart) else np.ones(count)
    # Numbered in the order in which the page shows them.
    _, first = np.unique(labels[order], return_index=True)
    rank = {label: number for number, label in enumerate(labels[order][np.sort(first)])}
    return order, np.array([rank[label] for label in labels], np.int64)
