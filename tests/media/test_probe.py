from fractions import Fraction
from pathlib import Path

import pytest

from inphase.media.probe import Properties, probe
from inphase.storage.errors import MediaError
from tests.media.recordings import clicks, write_pictures, write_video


def test_a_file_is_measured_as_it_is_shown(tmp_path: Path) -> None:
    path = write_video(
        tmp_path / "film.mp4", count=45, rate=Fraction(30000, 1001), turn={"degrees": 90}, sound=clicks([], length=1.0)
    )
    found = probe(path)
    assert (found.frames, found.size, found.has_sound) == (45, (96, 64), True)
    assert found.fps == pytest.approx(30000 / 1001)
    assert found.duration == pytest.approx(45 * 1001 / 30000)


def test_a_folder_is_measured_too(tmp_path: Path) -> None:
    assert probe(write_pictures(tmp_path / "frames", range(5)), native_fps=10) == Properties(
        5, 10.0, 0.5, (64, 96), has_sound=False
    )


def test_nothing_to_measure_is_explained(tmp_path: Path) -> None:
    path = write_video(tmp_path / "film.mp4", count=5, faststart=True)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"mdat") + 4].ljust(len(data), b"\0"))
    with pytest.raises(MediaError, match="not one frame"):
        probe(path)
