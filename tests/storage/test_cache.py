import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.storage.cache import Cache, cache_key, content_hash, default_cache_folder, parse_index_line
from inphase.storage.errors import MediaError


def test_stored_arrays_are_found(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "folder")
    assert cache.get("key") is None
    cache.put("key", {"values": np.arange(6.0).reshape(2, 3)})
    stored = cache.get("key")
    assert stored is not None
    np.testing.assert_array_equal(stored["values"], [[0, 1, 2], [3, 4, 5]])
    assert [file.name for file in (tmp_path / "new" / "folder").iterdir()] == ["key.npz"]
    assert Cache(str(tmp_path / "new" / "folder")).get("key") is not None


def test_reading_removes_the_drafts_of_killed_writers(tmp_path: Path) -> None:
    """A writer killed between its last rename and the end leaves a draft, and the next command only reads."""
    arrays = {"values": np.zeros(2)}
    np.savez(tmp_path / "key.npz", allow_pickle=False, **arrays)
    (tmp_path / ".key.npz.inphase-draft").mkdir()
    assert Cache(tmp_path).get("key") is not None
    assert [file.name for file in tmp_path.iterdir()] == ["key.npz"]


@pytest.mark.parametrize("length", [0, 10, 100])
def test_a_damaged_file_counts_as_nothing(tmp_path: Path, length: int) -> None:
    cache = Cache(tmp_path)
    cache.put("key", {"values": np.zeros(100)})
    file = tmp_path / "key.npz"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.warns(UserWarning, match=r"key\.npz is damaged .*; it is computed again"):
        assert cache.get("key") is None


@pytest.mark.parametrize(("failures", "found"), [(1, True), (2, False)])
def test_an_intact_file_is_read_again_where_python_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, found: bool
) -> None:
    """Python 3.11 sometimes fails to parse a header while other threads parse one."""
    cache, left, load = Cache(tmp_path), [failures], np.load

    def fail_at_first(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise SystemError("AST constructor recursion depth mismatch (before=57, after=52)")
        return load(*arguments, **options)

    cache.put("key", {"values": np.arange(3)})
    monkeypatch.setattr(np, "load", fail_at_first)
    if found:
        assert (cache.get("key") or {})["values"].tolist() == [0, 1, 2]
    else:
        with pytest.warns(UserWarning, match="SystemError"):
            assert cache.get("key") is None


def test_a_folder_that_cannot_be_written_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="nothing is cached in .*file"):
        Cache(tmp_path / "file").put("key", {"values": np.zeros(1)})


def test_without_a_folder_nothing_is_cached() -> None:
    cache = Cache(None)
    cache.put("key", {"values": np.zeros(1)})
    assert cache.get("key") is None


def test_a_key_is_of_contents_and_settings_not_of_names(tmp_path: Path) -> None:
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    for file, content in ((one, b"film"), (same, b"film"), (other, b"firm")):
        file.write_bytes(content)
    assert cache_key(one, "pose", 1) == cache_key(same, "pose", 1)
    assert len({cache_key(one), cache_key(other), cache_key(one, "pose", 1), cache_key(one, "pose", 2)}) == 4


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"gone\.mp4 does not exist"):
        cache_key(tmp_path / "gone.mp4")


def test_the_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "inphase"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_cache_folder() == Path.home() / ".cache" / "inphase"


def test_the_bytes_of_a_file_are_hashed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = hashlib.file_digest

    def count(file: Any, *rest: Any) -> Any:
        read.append(Path(file.name).name)
        return original(file, *rest)

    monkeypatch.setattr(hashlib, "file_digest", count)
    film, frames = tmp_path / "film", tmp_path / "frames"
    film.write_bytes(b"film")
    frames.mkdir()
    for name in "ab":
        (frames / name).write_bytes(name.encode())
    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(content_hash, [film] * 8)}) == 1
    first = content_hash(frames), cache_key(film, "pose"), cache_key(film, "embedding")
    assert first == (content_hash(frames), cache_key(film, "pose"), cache_key(film, "embedding"))
    assert read == ["film", "a", "b"]
    (frames / "b").rename(frames / "c")
    film.write_bytes(b"firm")
    assert content_hash(frames) != first[0]
    assert cache_key(film, "pose") != first[1]
    assert read == ["film", "a", "b", "a", "c", "film"]


def test_an_index_line_of_many_brackets_is_damage() -> None:
    for line in (b"[" * 100_000, b'{"id": ' * 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_index_line(line)
