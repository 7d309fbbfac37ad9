"""Shards: Parquet files of embedded videos, one row each, written atomically and never changed after.

A shard is self-contained: any number of processes write shards into one folder without coordination. Values are
float16, flattened; a row group holds a few videos, so that reading one video does not read the whole shard. Pages have
checksums, which are verified whenever they are read; the footer has one of the whole file, for `inphase data verify`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inphase.models.embedding import Embedding, Route
from inphase.storage.errors import StoreError, import_extra
from inphase.storage.files import CHECKSUM, draft_file, explain_os_errors, write_checksum

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = b"inphase corpus 1"
SUFFIX = ".parquet"
# Values in a row group, at most, unless a single video has more: 2 MB.
GROUP_VALUES = 1_000_000


class ShardMergedError(StoreError):
    """A shard was merged into another one while the store was read: open the store again."""


# The columns of a shard beside the embedding.
TEXTS = ("id", "path", "action", "content", "stamp", "model", "reason")
FACTS = [*TEXTS, "frames", "dimension"]


@cache
def schema() -> "pa.Schema":
    """Return the columns of a shard.

    `content` is the hash of the file, `stamp` that of its name, size and time of modification, `model` the fingerprint
    of the encoder and its fps, `reason` why there is no embedding: empty where there is one. `routes` are the widths
    and temperatures of the parts of joint vectors.
    """
    pa = import_extra("pyarrow", extra="corpus")
    texts = [(name, pa.string()) for name in TEXTS]
    counts = [("frames", pa.int64()), ("dimension", pa.int64())]
    times, values = pa.large_list(pa.float64()), pa.large_list(pa.float16())  # [T] seconds, [T · D]
    routes = pa.list_(pa.float64())  # width, temperature, width, temperature, …
    columns = [*texts, *counts, ("routes", routes), ("times", times), ("values", values)]
    return pa.schema(columns, metadata={b"format": FORMAT})


@dataclass(frozen=True, eq=False)
class ShardRow:
    """One video of a store: its columns as in `schema`, and its embedding or the reason why it has none."""

    id: str
    path: str
    action: str
    content: str
    stamp: str
    model: str
    embedding: Embedding | None
    reason: str = ""


def write_shard(folder: Path, name: str, rows: Iterable[ShardRow]) -> None:
    """Write rows as they come into a shard, which appears when all are on disk and replaces one of the same name."""
    parquet = import_extra("pyarrow.parquet", extra="corpus")
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with draft_file(folder / (name + SUFFIX)) as draft:
            writer = parquet.ParquetWriter(
                draft,
                schema().with_metadata({b"format": FORMAT, b"checksum": CHECKSUM}),
                compression="zstd",
                use_byte_stream_split=["values.list.element"],
                use_dictionary=["action", "model"],
                write_page_checksum=True,
            )
            with writer:
                for group in _grouped(rows):
                    writer.write_table(_table(group), row_group_size=len(group))
            write_checksum(draft)


def read_facts(file: Path) -> list[dict[str, Any]]:
    """Read the columns of a shard except the embeddings."""
    with _explain_damage(file), _parquet_file(file) as opened:
        is_shard = (opened.schema_arrow.metadata or {}).get(b"format") == FORMAT
        found: list[dict[str, Any]] = opened.read(columns=FACTS).to_pylist() if is_shard else []
    if not is_shard:
        raise ValueError(f"{file} is not a shard of embeddings: move it elsewhere")
    return found


def read_rows(file: Path, numbers: Sequence[int]) -> Iterator[ShardRow]:
    """Read some rows of a shard, given in ascending order, a row group at a time."""
    wanted = np.asarray(numbers, np.int64)
    first = 0
    with _opened(file) as opened:
        for group in range(opened.num_row_groups):
            size = opened.metadata.row_group(group).num_rows
            here = wanted[(wanted >= first) & (wanted < first + size)] - first
            if len(here):
                with _explain_damage(file):
                    table = opened.read_row_group(group)
                    rows = [_row(table, int(number)) for number in here]
                yield from rows
            first += size


def read_times(file: Path, number: int) -> NDArray[np.float64]:
    """Read the times of one row's frames, in seconds, and nothing else."""
    with _opened(file) as opened:
        for group in range(opened.num_row_groups):
            size = opened.metadata.row_group(group).num_rows
            if number < size:
                with _explain_damage(file):
                    times = opened.read_row_group(group, columns=["times"])["times"][number]
                return np.asarray(times.values.to_numpy(zero_copy_only=False))
            number -= size
    raise IndexError(f"{file} has no such row")


def _opened(file: Path) -> "pq.ParquetFile":
    try:
        with _explain_damage(file):
            return _parquet_file(file)
    except FileNotFoundError as error:
        raise ShardMergedError(
            f"{file} was merged into another shard while the store was read: run this again"
        ) from error


def _parquet_file(file: Path) -> "pq.ParquetFile":
    parquet = import_extra("pyarrow.parquet", extra="corpus")
    return parquet.ParquetFile(file, page_checksum_verification=True)


@contextmanager
def _explain_damage(file: Path) -> Iterator[None]:
    """Turn the errors of a damaged Parquet file into a `StoreError` that names it."""
    try:
        yield
    except FileNotFoundError:
        raise
    # pyarrow's own errors, and those of Python for names, numbers and texts that its checks let pass
    except (
        import_extra("pyarrow", extra="corpus").ArrowException,
        OSError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split())
        raise StoreError(f"{file} is damaged ({reason}): remove it and run `inphase embed` again") from error


def _grouped(rows: Iterable[ShardRow]) -> Iterator[list[ShardRow]]:
    """Cut rows into groups of at most `GROUP_VALUES` values, unless a row alone has more."""
    group: list[ShardRow] = []
    total = 0
    for row in rows:
        size = 0 if row.embedding is None else row.embedding.values.size
        if group and total + size > GROUP_VALUES:
            yield group
            group, total = [], 0
        group.append(row)
        total += size
    if group:
        yield group


def _table(rows: Sequence[ShardRow]) -> "pa.Table":
    import pyarrow as pa

    embeddings = [row.embedding for row in rows]
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in TEXTS}
    columns["frames"] = [0 if each is None else len(each) for each in embeddings]
    columns["dimension"] = [0 if each is None else each.values.shape[1] for each in embeddings]
    columns["routes"] = [
        [] if each is None else [number for route in each.routes for number in route] for each in embeddings
    ]
    columns["times"] = _lists([np.empty(0) if each is None else each.times for each in embeddings], np.float64)
    columns["values"] = _lists(
        [np.empty(0) if each is None else each.values.ravel() for each in embeddings], np.float16
    )
    return pa.table(columns, schema=schema())


def _lists(parts: Sequence[NDArray[Any]], kind: type[np.floating[Any]]) -> "pa.LargeListArray":
    import pyarrow as pa

    offsets = np.cumsum([0, *(len(part) for part in parts)])
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(parts).astype(kind)))


def _row(table: "pa.Table", number: int) -> ShardRow:
    facts = {name: table[name][number].as_py() for name in FACTS}
    frames, dimension = facts.pop("frames"), facts.pop("dimension")
    embedding = None
    if frames:
        values = table["values"][number].values.to_numpy(zero_copy_only=False).astype(np.float32)
        values = values.reshape(frames, dimension)
        # Half precision leaves lengths of 1 off by up to a thousandth.
        values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
        numbers = table["routes"][number].as_py()
        embedding = Embedding(
            values,
            table["times"][number].values.to_numpy(zero_copy_only=False).copy(),
            routes=tuple(Route(int(width), beta) for width, beta in zip(numbers[::2], numbers[1::2], strict=True)),
        )
    return ShardRow(**facts, embedding=embedding)
