"""The packets of a video are listed once and its bytes hashed once, whatever a command does with it."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import inphase
from inphase.media import decode
from inphase.media.decode import FrameIndex, index_frames
from inphase.media.frames import read_clip
from inphase.media.recording import open_recording, probe
from tests.corpus.made import small_encoder
from tests.media.recordings import write_video


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Name the files whose packets are listed, each time they are."""
    names: list[str] = []
    original = decode._index_frames

    def count(path: Path) -> FrameIndex:
        names.append(path.name)
        return original(path)

    monkeypatch.setattr(decode, "_index_frames", count)
    return names


def test_packets_are_listed_once_until_the_file_changes(tmp_path: Path, listed: list[str]) -> None:
    film = write_video(tmp_path / "film.mp4", count=20)
    with ThreadPoolExecutor(4) as pool:
        assert {len(index.times) for index in pool.map(index_frames, [film] * 8)} == {20}
    probe(film)
    assert len(read_clip(str(film), indices=[3, 5])) == 2
    assert listed == ["film.mp4"]
    write_video(film, count=21)
    assert len(open_recording(film).times) == 21
    assert listed == ["film.mp4"] * 2
    read_only = index_frames(film).times
    with pytest.raises(ValueError, match="read-only"):
        read_only[0] = 1


def test_aligning_lists_packets_once_and_hashes_bytes_once(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    original = hashlib.file_digest

    def count(file: Any, *rest: Any) -> Any:
        hashed.append(Path(file.name).name)
        return original(file, *rest)

    monkeypatch.setattr(hashlib, "file_digest", count)
    encoder = small_encoder(tmp_path / "encoder.safetensors")
    films = [write_video(tmp_path / f"{name}.mp4", count=30) for name in "ab"]
    aligned = inphase.align_videos(films, model=encoder, cache=tmp_path / "cache")
    aligned.write(tmp_path / "out")
    assert sorted(name for name in listed if name in ("a.mp4", "b.mp4")) == ["a.mp4", "b.mp4"]
    assert sorted(name for name in hashed if name in ("a.mp4", "b.mp4")) == ["a.mp4", "b.mp4"]
    assert (tmp_path / "out" / "aligned.mp4").is_file()
