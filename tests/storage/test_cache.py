from pathlib import Path

import numpy as np
import pytest

from inphase.storage.cache import Cache, content_key, default_cache_folder
from inphase.storage.errors import MediaError


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "folder")
    assert cache.find("key") is None
    cache.keep("key", {"values": np.arange(6.0).reshape(2, 3)})
    kept = cache.find("key")
    assert kept is not None
    np.testing.assert_array_equal(kept["values"], [[0, 1, 2], [3, 4, 5]])
    assert [file.name for file in (tmp_path / "new" / "folder").iterdir()] == ["key.npz"]


@pytest.mark.parametrize("keep", [0, 10, 100])
def test_a_damaged_file_counts_as_nothing(tmp_path: Path, keep: int) -> None:
    cache = Cache(tmp_path)
    cache.keep("key", {"values": np.zeros(100)})
    file = tmp_path / "key.npz"
    file.write_bytes(file.read_bytes()[:keep])
    assert cache.find("key") is None


def test_a_shelf_that_cannot_be_written_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="nothing is kept in .*file"):
        Cache(tmp_path / "file").keep("key", {"values": np.zeros(1)})


def test_without_a_folder_nothing_is_kept() -> None:
    cache = Cache(None)
    cache.keep("key", {"values": np.zeros(1)})
    assert cache.find("key") is None


def test_a_key_is_of_contents_and_settings_not_of_names(tmp_path: Path) -> None:
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    for file, content in ((one, b"film"), (same, b"film"), (other, b"firm")):
        file.write_bytes(content)
    assert content_key(one, "pose", 1) == content_key(same, "pose", 1)
    assert len({content_key(one), content_key(other), content_key(one, "pose", 1), content_key(one, "pose", 2)}) == 4


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"gone\.mp4 does not exist"):
        content_key(tmp_path / "gone.mp4")


def test_the_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "inphase"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_cache_folder() == Path.home() / ".cache" / "inphase"
