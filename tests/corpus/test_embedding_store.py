from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.shards import write_shard
from inphase.storage.errors import StoreError
from inphase.storage.files import DRAFT_SUFFIX, draft_file
from tests.corpus.made import made_store, row, walk

RNG = np.random.default_rng(0)


def ids(store: EmbeddingStore) -> list[str]:
    return [fact.id for fact in store.catalog.current()]


def test_the_last_shard_counts(tmp_path: Path) -> None:
    old, new = walk(RNG, frames=4), walk(RNG, frames=9)
    made_store(tmp_path / "s", {"1": [row("a", old), row("b", old)], "2": [row("a", new, action="bowl")]})
    with EmbeddingStore(tmp_path / "s") as store:
        assert [(fact.id, fact.shard, fact.frames) for fact in store.catalog.current()] == [
            ("b", "1", 4),
            ("a", "2", 9),
        ]
        assert [fact.id for fact in store.catalog.current(shard="1")] == ["b"]
        assert store.catalog.counts("action") == {"bowl": 1, "squat": 1}
        assert store.catalog.totals() == (2, 13, 0)
        found = store.catalog.find("a")
        assert found is not None
        assert [each.id for each in store.read([found])] == ["a"]
        # Without the last shard, the one before counts again.
        store.file("2").unlink()
        store.refresh()
        assert store.catalog.totals() == (2, 8, 0)


def test_the_catalog_can_be_made_again(tmp_path: Path) -> None:
    made_store(tmp_path / "s", {"1": [row("a", walk(RNG)), row("x", None, reason="no images")]})
    catalog = tmp_path / "s" / "catalog.sqlite"
    with EmbeddingStore(tmp_path / "s"):
        head = catalog.read_bytes()[:4096]  # whole: only its use shows that the other pages are damaged
    for damage in (None, b"", b"no database" * 500, head + b"\xff" * 20_000):
        catalog.unlink(missing_ok=True)
        if damage is not None:
            catalog.write_bytes(damage)
        with EmbeddingStore(tmp_path / "s") as store:
            assert ids(store) == ["a"]
            assert store.catalog.totals() == (1, 30, 1)


def test_damage_that_only_a_query_finds_ends_in_one_line(tmp_path: Path) -> None:
    made_store(tmp_path / "s", {"1": [row("a", walk(RNG))]})
    catalog = tmp_path / "s" / "catalog.sqlite"
    damaged = "catalog\\.sqlite was damaged and has been removed: run this again"

    def count_in_damaged() -> None:
        with EmbeddingStore(tmp_path / "s") as store:
            content = catalog.read_bytes()
            catalog.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
            store.catalog._db.execute("PRAGMA shrink_memory")  # what SQLite has read is read again
            store.catalog.counts("action")

    with pytest.raises(StoreError, match=damaged):
        count_in_damaged()
    with EmbeddingStore(tmp_path / "s") as store:
        assert store.catalog.counts("action") == {"squat": 1}


@pytest.mark.parametrize("name", [".store.json", "models/.0a.safetensors"])
def test_the_draft_of_a_killed_process_is_removed(tmp_path: Path, name: str) -> None:
    made_store(tmp_path / "s", {"1": [row("a", walk(RNG))]})
    draft = tmp_path / "s" / f"{name}.inphase-draft"
    draft.mkdir(parents=True)
    (draft / ".lock").touch()
    with EmbeddingStore(tmp_path / "s", create=True) as store:
        store.compact()
    assert not draft.exists()


def test_a_damaged_shard_is_named_and_left_out(tmp_path: Path) -> None:
    made_store(tmp_path / "s", {"1": [row("a", walk(RNG))], "2": [row("b", walk(RNG))]})
    file = tmp_path / "s" / "shards" / "2.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"2\.parquet is damaged"), EmbeddingStore(tmp_path / "s") as store:
        assert ids(store) == ["a"]


def test_models_are_not_mixed(tmp_path: Path) -> None:
    made_store(tmp_path / "s", {"1": [row("a", walk(RNG)), row("b", walk(RNG), model="other")]})
    with (
        EmbeddingStore(tmp_path / "s") as store,
        pytest.raises(ValueError, match=r"several models \(1 by m, 1 by other\)"),
    ):
        store.model()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"):
        EmbeddingStore(tmp_path, create=True)
    with pytest.raises(ValueError, match="not a store of embeddings"):
        EmbeddingStore(tmp_path)


def test_compaction_merges_what_counts(tmp_path: Path) -> None:
    embeddings = {f"v{n}": walk(RNG, frames=5 + n) for n in range(12)}
    shards = {f"{n:03d}-x": [row(id, seen)] for n, (id, seen) in enumerate(embeddings.items())}
    shards["100-y"] = [row("v3", walk(RNG, frames=40)), row("broken", None, reason="no images")]
    made_store(tmp_path / "s", shards)
    with EmbeddingStore(tmp_path / "s") as store:
        before = {fact.id: fact.frames for fact in store.catalog.current()}
        assert before["v3"] == 40
        assert store.compact() == 13
        assert {fact.id: fact.frames for fact in store.catalog.current()} == before
        assert store.catalog.totals() == (12, sum(before.values()), 1)
        (merged,) = store.catalog.shards()
        assert store.catalog.length(merged) == 13  # v3 once
        # What is written later counts more than what was merged.
        write_shard(store.shards, "101-z", [row("v3", walk(RNG, frames=3))])
        store.refresh()
        assert store.compact() == 2
        assert store.catalog.totals()[1] == sum(before.values()) - 37
        assert store.compact() == 0


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    made_store(tmp_path / "s", {"1": [row("a", walk(RNG))]})
    stale = tmp_path / "s" / "shards" / f".2.parquet{DRAFT_SUFFIX}"
    stale.mkdir()
    with EmbeddingStore(tmp_path / "s") as store, draft_file(tmp_path / "s" / "shards" / "3.parquet") as living:
        living.write_text("half")
        store.compact()
        assert not stale.exists()
        assert living.exists()


def test_an_interrupted_compaction_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_store(tmp_path / "s", {f"{n:03d}-x": [row(f"v{n}", walk(RNG))] for n in range(9)})

    def fail(self: Path, missing_ok: bool = False) -> None:
        if self.name.startswith("004"):
            raise KeyboardInterrupt
        original(self, missing_ok=missing_ok)

    original = Path.unlink
    with EmbeddingStore(tmp_path / "s") as store:
        monkeypatch.setattr(Path, "unlink", fail)
        with pytest.raises(KeyboardInterrupt):
            store.compact()
        monkeypatch.undo()
        store.refresh()
        assert sorted(ids(store)) == [f"v{n}" for n in range(9)]
        store.compact()
        assert sorted(ids(store)) == [f"v{n}" for n in range(9)]
        assert len(store.catalog.shards()) == 1


def test_shards_are_ordered_by_a_counter_and_not_by_the_clock(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made_store(tmp_path, {f"{5:020d}-old": [row("a", walk(rng))], f"{7:020d}-old": [row("b", walk(rng))]})
    with EmbeddingStore(tmp_path) as store:
        assert store.next_counter() == 8
        for file in store.shards.glob("*-old.parquet"):
            file.unlink()
        assert store.next_counter() == 8  # the catalog still lists them, and so may a reader
        store.refresh()
        assert store.next_counter() == 1


def test_a_shard_that_is_merged_while_the_catalog_is_brought_up_to_date_stays_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_store(tmp_path / "s", {f"{n}-x": [row(f"v{n}", walk(RNG))] for n in range(12)})
    with EmbeddingStore(tmp_path / "s") as one, EmbeddingStore(tmp_path / "s") as other:
        listed = Path.glob

        def merge_first(folder: Path, pattern: str) -> Iterator[Path]:
            """Merge the shards in the other process, after this one has listed them."""
            found = list(listed(folder, pattern))
            if folder == one.shards and not done:
                done.append(1)
                assert other.compact() == 12
            return iter(found)

        done: list[int] = []
        monkeypatch.setattr(Path, "glob", merge_first)
        one.refresh()
        assert done
        assert other.catalog.totals()[0] == 12
