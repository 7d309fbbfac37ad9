from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.media.audio import read_sound
from inphase.media.frames import read_clip
from inphase.media.recording import Properties, is_playable, open_named, probe, usual_fps
from inphase.media.render import make_playable
from inphase.storage.errors import MediaError
from tests.media.recordings import clicks, numbers_of, remux, write_images, write_video


def test_a_file_is_measured_as_it_is_shown(tmp_path: Path) -> None:
    path = write_video(
        tmp_path / "film.mp4", count=45, rate=Fraction(30000, 1001), turn={"degrees": 90}, sound=clicks([], length=1.0)
    )
    found = probe(path)
    assert (found.frames, found.size, found.has_sound) == (45, (96, 64), True)
    assert found.fps == pytest.approx(30000 / 1001)
    assert found.duration == pytest.approx(45 * 1001 / 30000)


def test_a_folder_is_measured_too(tmp_path: Path) -> None:
    assert probe(write_images(tmp_path / "frames", range(5)), native_fps=10) == Properties(
        5, 10.0, 0.5, (64, 96), has_sound=False
    )


def test_nothing_to_measure_is_explained(tmp_path: Path) -> None:
    path = write_video(tmp_path / "film.mp4", count=5, faststart=True)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"mdat") + 4].ljust(len(data), b"\0"))
    with pytest.raises(MediaError, match="not one frame"):
        probe(path)


def test_a_photo_is_no_video(tmp_path: Path) -> None:
    (photo,) = write_images(tmp_path / "frames", range(1)).iterdir()
    with pytest.raises(MediaError, match=r"000000\.png is a photo: name a video"):
        open_named(photo, "photo")


@pytest.mark.parametrize(
    ("name", "how", "playable"),
    [
        ("plain.mp4", {}, True),
        ("sound.mp4", {"sound": clicks([0.5], length=1.0)}, True),
        ("vp9.webm", {"codec": "libvpx-vp9"}, True),
        ("deep.mp4", {"pixels": "yuv420p10le"}, False),
        ("dense.mp4", {"pixels": "yuv444p"}, False),
        ("old.mp4", {"codec": "mpeg4"}, False),
        ("frames.avi", {"codec": "mjpeg", "pixels": "yuvj420p"}, False),
        ("turned.mp4", {"turn": {"degrees": 90}}, False),
        ("film.mkv", {}, False),
    ],
)
def test_media_that_browsers_play_are_recognized(
    tmp_path: Path, name: str, how: dict[str, Any], playable: bool
) -> None:
    assert is_playable(write_video(tmp_path / name, count=4, **how)) is playable


def test_a_false_ending_is_noticed(tmp_path: Path) -> None:
    matroska = write_video(tmp_path / "film.mkv", count=4)
    assert not is_playable(matroska.rename(tmp_path / "film.mp4"))


def test_a_turned_file_becomes_upright_and_keeps_its_clock_and_sound(tmp_path: Path) -> None:
    sound = clicks([0.5], length=1.0)
    source = write_video(
        tmp_path / "a.mov", count=30, codec="mjpeg", pixels="yuvj420p", turn={"degrees": 180}, sound=sound
    )
    make_playable(source, tmp_path / "b.mp4")
    assert is_playable(tmp_path / "b.mp4")
    assert numbers_of(read_clip(tmp_path / "b.mp4").frames) == numbers_of(read_clip(source).frames)
    np.testing.assert_allclose(read_clip(tmp_path / "b.mp4").times, np.arange(30) / 30, atol=1e-3)
    heard = read_sound(tmp_path / "b.mp4", rate=16000)
    assert heard.start + np.abs(heard.samples).argmax() / 16000 == pytest.approx(0.5, abs=0.05)


def test_frames_that_come_irregularly_stay_at_their_seconds(tmp_path: Path) -> None:
    stamps = [0, 1, 2, 10, 11, 20]
    plain = write_video(tmp_path / "a.mp4", stamps=stamps, count=6, time_base=Fraction(1, 20))
    make_playable(remux(plain, tmp_path / "a.mkv"), tmp_path / "b.mp4")
    shown = read_clip(tmp_path / "b.mp4", seconds=[0.25, 0.6, 0.9])
    assert numbers_of(shown.frames) == [2, 4, 4]
    assert probe(tmp_path / "b.mp4").duration == pytest.approx(probe(plain).duration, abs=0.3)


@pytest.mark.parametrize(
    ("native", "chosen"), [(24.0, None), (30.0, None), (50.0, 25.0), (59.94, 29.97), (120.0, 30.0), (240.0, 30.0)]
)
def test_high_frame_rates_are_reduced_to_about_30(native: float, chosen: float | None) -> None:
    assert usual_fps(native) == chosen
