"""Damaged files give what they can and say what they lost; hopeless ones say what to do."""

import warnings
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.media import decode
from inphase.media.audio import read_sound
from inphase.media.frames import Clip, read_clip, stream_clips
from inphase.media.recording import is_playable, open_recording, probe
from inphase.storage.errors import DamagedMediaWarning, MediaError
from tests.media.recordings import clicks, numbers_of, write_images, write_video

COUNT = 90


def noisy(count: int = COUNT) -> list[NDArray[np.uint8]]:
    """Make images that compress badly, so that bytes of the file are bytes of images."""
    rng = np.random.default_rng(3)
    return [rng.integers(0, 255, (8, 12, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1) for _ in range(count)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.mp4"
    return write_video(path, images=noisy(), faststart=True, options={"g": "15", "bf": "2"})


def cut(path: Path, target: Path, share: float) -> Path:
    data = path.read_bytes()
    target.write_bytes(data[: int(len(data) * share)])
    return target


def hole(path: Path, target: Path, *, start: float, length: int) -> Path:
    data = bytearray(path.read_bytes())
    begin = int(len(data) * start)
    data[begin : begin + length] = bytes(length)
    target.write_bytes(data)
    return target


def read_damaged(path: Path, message: str, **request: object) -> Clip:
    with pytest.warns(DamagedMediaWarning, match=message) as caught:
        clip = read_clip(path, **request)  # type: ignore[arg-type]
    assert len(caught) == 1
    return clip


def test_a_whole_file_raises_no_alarm(whole: Path) -> None:
    assert len(read_clip(whole)) == COUNT


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_cut_short_gives_its_beginning_and_counts_the_rest(whole: Path, tmp_path: Path, share: float) -> None:
    path = cut(whole, tmp_path / "cut.mp4", share)
    with pytest.warns(DamagedMediaWarning) as caught:
        clip = read_clip(path)
    assert 0 < len(clip) < COUNT
    assert f"{COUNT - len(clip)} of the requested frames are lost" in str(caught[0].message)
    assert str(path) in str(caught[0].message)
    # The last images may lack the reference that was cut off; those before are those of the whole file.
    sound = slice(len(clip) - 4)
    np.testing.assert_array_equal(clip.frames[sound], read_clip(whole).frames[: len(clip)][sound])
    np.testing.assert_array_equal(clip.times[sound], read_clip(whole).times[: len(clip)][sound])


def test_a_matroska_file_cut_short_counts_by_its_duration(tmp_path: Path) -> None:
    path = write_video(tmp_path / "whole.mkv", images=noisy(), options={"g": "15", "bf": "0"})
    clip = read_damaged(cut(path, tmp_path / "cut.mkv", 0.5), "are lost")
    recording = open_recording(tmp_path / "cut.mkv")
    list(recording.images(None))
    assert abs(recording.lost - (COUNT - len(clip))) <= 1


@pytest.mark.parametrize("large", [False, True])
def test_a_hole_costs_only_what_it_covers(
    whole: Path, tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(decode, "MIN_THREADED_PIXELS", 0)
    path = hole(whole, tmp_path / "hole.mp4", start=0.5, length=6000)
    recording = open_recording(path)
    clip = read_damaged(path, "lost")
    list(recording.images(None))
    assert recording.lost == COUNT - len(clip) > 0
    assert len(clip) > COUNT - 20
    truth = read_clip(whole)
    kept = np.searchsorted(truth.times, clip.times)
    np.testing.assert_array_equal(truth.times[kept], clip.times)
    same = [np.array_equal(truth.frames[k], frame) for k, frame in zip(kept, clip.frames, strict=True)]
    assert sum(same) >= COUNT - 30
    # A frame keeps its number although others before it are lost.
    np.testing.assert_array_equal(read_clip(path, indices=[COUNT - 2]).frames[0], truth.frames[COUNT - 2])


@pytest.mark.parametrize("seed", range(12))
def test_scattered_errors_never_stop_the_reader_and_seeking_agrees(whole: Path, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(whole.read_bytes())
    for position in rng.integers(len(data) // 4, len(data), 6):
        data[position] ^= int(rng.integers(1, 255))
    path = tmp_path / "spoilt.mp4"
    path.write_bytes(data)
    recording = open_recording(path)
    images = dict(recording.images(None))
    assert len(images) + recording.lost == COUNT
    wanted = np.sort(rng.choice(COUNT, 8, replace=False))
    recording.lost = 0
    for time, image in recording.images(wanted):
        np.testing.assert_array_equal(image, images[time])
    assert recording.lost == sum(float(recording.times[i]) not in images for i in wanted)


def test_a_stream_warns_at_its_end(whole: Path, tmp_path: Path) -> None:
    path = cut(whole, tmp_path / "cut.mp4", 0.5)
    with pytest.warns(DamagedMediaWarning, match="are lost"):
        clips = list(stream_clips(path, length=10))
    assert len(clips) > 1


def test_a_missing_or_broken_image_of_a_folder_is_lost(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", [1, 2, 4, 5])
    (folder / "000005.png").write_bytes(b"no image")
    clip = read_damaged(folder, "2 of the requested frames are lost", native_fps=10)
    assert numbers_of(clip.frames) == [1, 2, 4]
    np.testing.assert_allclose(clip.times, [0, 0.1, 0.3])


def test_hopeless_files_say_what_to_do(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"gone\.mp4 does not exist: check the path"):
        read_clip(tmp_path / "gone.mp4")
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(MediaError, match=r"empty\.mp4 is empty \(0 bytes\)"):
        read_clip(tmp_path / "empty.mp4")
    (tmp_path / "text.mp4").write_text("not a video\n" * 50)
    with pytest.raises(MediaError, match=r"text\.mp4 cannot be opened .* download it again"):
        read_clip(tmp_path / "text.mp4")
    with pytest.raises(MediaError, match=r"header\.mp4 (cannot be opened|holds no frames|.* get an undamaged copy)"):
        read_clip(cut(whole, tmp_path / "header.mp4", 0.01))
    data = whole.read_bytes()
    emptied = tmp_path / "emptied.mp4"
    emptied.write_bytes(data[: data.index(b"mdat") + 4].ljust(len(data), b"\0"))
    with pytest.raises(MediaError, match="no requested frame could be decoded"):
        read_clip(emptied)


def test_sound_alone_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "song.m4a"
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=44100, layout="mono")
        block = av.AudioFrame.from_ndarray(clicks([0.2], length=0.5)[None], format="fltp", layout="mono")
        block.sample_rate = 44100
        container.mux([*stream.encode(block), *stream.encode()])
    with pytest.raises(MediaError, match=r"song\.m4a has no video stream \(it holds audio\)"):
        read_clip(path)


@pytest.mark.parametrize(
    "text",
    [
        "00:00:1/0",
        "00:00:1e999999999",
        "00:00:nan",
        "1.3",
        "::",
        "-1:00:00",
        "99999999:00:00",
        "\N{ARABIC-INDIC DIGIT ONE}:0:0",
    ],
)
def test_an_odd_duration_in_a_good_file_is_ignored(tmp_path: Path, text: str) -> None:
    file = write_video(tmp_path / "odd.mkv", count=40)
    content = file.read_bytes()
    place = content.index(b"00:00:01.333000000")
    file.write_bytes(content[:place] + text.encode().ljust(18, b"\0") + content[place + 18 :])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numbers_of(read_clip(file).frames) == list(range(40))


def test_a_stream_without_a_decoder_is_named(tmp_path: Path) -> None:
    tone = np.zeros(44100, np.float32)
    file = write_video(tmp_path / "odd.mp4", count=4, sound=tone)
    content = file.read_bytes()
    file.write_bytes(content.replace(b"avc1", b"zzz1"))
    with pytest.raises(MediaError, match=r"odd\.mp4 has a video stream whose codec is not known: convert it"):
        read_clip(file)
    silent = write_video(tmp_path / "odd.mkv", count=4, sound=tone)
    silent.write_bytes(silent.read_bytes().replace(b"A_AAC", b"A_ZZZ"))
    assert len(read_clip(silent)) == 4
    assert not probe(silent).has_sound
    with pytest.raises(MediaError, match=r"odd\.mkv has a sound stream whose codec is not known: convert it"):
        read_sound(silent)
    mixed = silent.rename(tmp_path / "odd.webm")
    assert not is_playable(mixed)
