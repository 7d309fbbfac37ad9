from pathlib import Path

import numpy as np
import pytest

from inphase.corpus import shards as shard
from inphase.corpus.shards import ShardRow, read_facts, read_rows, write_shard
from inphase.models import Embedding
from inphase.storage.errors import StoreError
from inphase.storage.files import verify_checksum
from tests.corpus.made import row, walk


def test_rows_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "GROUP_VALUES", 16 * 40)  # a group holds one or two of these
    rng = np.random.default_rng(0)
    rows = [row(f"v{n}", walk(rng, frames=5 + 7 * n)) for n in range(6)] + [row("ü/\n", None, reason="it is empty")]
    write_shard(tmp_path, "a", rows)
    found = list(read_rows(tmp_path / "a.parquet", range(7)))
    for one, other in zip(rows, found, strict=True):
        assert [getattr(one, name) for name in shard.TEXTS] == [getattr(other, name) for name in shard.TEXTS]
        if one.embedding is None:
            assert other.embedding is None
        else:
            assert other.embedding is not None
            np.testing.assert_array_equal(other.embedding.times, one.embedding.times)
            np.testing.assert_allclose(other.embedding.values, one.embedding.values, atol=1e-3)
            np.testing.assert_allclose(np.linalg.norm(other.embedding.values, axis=1), 1, atol=1e-6)
    assert [found.id for found in read_rows(tmp_path / "a.parquet", [1, 4, 6])] == ["v1", "v4", "ü/\n"]
    assert [fact["frames"] for fact in read_facts(tmp_path / "a.parquet")] == [5, 12, 19, 26, 33, 40, 0]
    assert (tmp_path / "a.parquet").stat().st_size > 0


def test_a_shard_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def rows() -> "list[ShardRow]":
        raise KeyboardInterrupt

    def interrupted() -> object:
        yield row("a", walk(np.random.default_rng(0)))
        seen.append([path.name for path in tmp_path.glob("[!.]*")])
        rows()

    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path, "a", interrupted())  # type: ignore[arg-type]
    assert seen == [[]]
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="not a shard of embeddings"):
        read_facts(tmp_path / "b.parquet")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        write_shard(tmp_path / "file", "a", [])


def test_a_flipped_bit_is_noticed_when_a_shard_is_read(tmp_path: Path) -> None:
    embedding = Embedding(np.eye(4, dtype=np.float32), np.arange(4) / 25)
    write_shard(tmp_path, "0", [ShardRow("a", "/a.mp4", "vault", "", "", "m", embedding)])
    file = tmp_path / "0.parquet"
    assert verify_checksum(file) is True
    content = file.read_bytes()
    noticed = 0
    for place in range(4, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        assert verify_checksum(file) is not True
        try:
            (found,) = read_rows(file, [0])
        except StoreError as error:
            noticed += str(file) in str(error)
        else:
            # Bits beside the pages, as of statistics that are never used.
            assert found.embedding is not None
            np.testing.assert_array_equal(found.embedding.times, embedding.times)
            np.testing.assert_allclose(found.embedding.values, embedding.values)
    assert noticed > 100
