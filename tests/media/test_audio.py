"""Sound on the clock of the images."""

import math
import wave
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from inphase.media.audio import Sound, cut_sound, log_mel, log_mel_windows, read_sound
from inphase.media.frames import read_clip
from inphase.storage.errors import DamagedMediaWarning, MediaError
from tests.media.recordings import clicks, write_video

pytestmark = pytest.mark.slow


def heard(sound: Sound, *, near: float) -> float:
    """Find the second at which a click is loudest, within 0.2 s."""
    times = sound.start + np.arange(len(sound)) / sound.rate
    close = np.abs(times - near) < 0.2
    weight = np.where(close, sound.samples.astype(float) ** 2, 0)
    assert weight.sum() > 0.1, "no click there"
    return float((times * weight).sum() / weight.sum())


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "mov", "ts"])
@pytest.mark.parametrize("delay", [0.0, 0.5])
@pytest.mark.parametrize("rate", [16000, 44100, 48000])
def test_a_click_is_heard_when_its_frame_is_shown(tmp_path: Path, suffix: str, delay: float, rate: int) -> None:
    flashes = [np.full((64, 96, 3), 240 if i in (24, 45) else 15, np.uint8) for i in range(60)]
    path = tmp_path / f"film.{suffix}"
    # The click falls on the flash: a sound track that starts later holds it earlier.
    sound = clicks([24 / 30 - delay, 1.5 - delay], length=2.0 - delay)
    write_video(path, images=flashes, sound=sound, sound_start=delay, options={"bf": "2"})
    clip, read = read_clip(path), read_sound(path, rate=rate)
    for flash in (24, 45):
        assert clip.frames[flash].mean() > 200
        assert heard(read, near=clip.times[flash]) == pytest.approx(clip.times[flash], abs=0.0015)


def test_sound_before_the_images_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    sound = clicks([0.2, 0.8], length=1.5)
    write_video(path, stamps=range(700, 1900, 30), time_base=Fraction(1, 1000), sound=sound)
    assert read_clip(path).times[0] == pytest.approx(0.7, abs=0.001)
    assert heard(read_sound(path), near=0.2) == pytest.approx(0.2, abs=0.0015)
    assert heard(read_sound(path), near=0.8) == pytest.approx(0.8, abs=0.0015)


def write_wav(path: Path, samples: NDArray[np.int16], *, rate: int) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((samples.shape[1], 2, rate, len(samples), "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return path


def test_channels_are_averaged_and_the_scale_is_that_of_int16(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-20000, 20000, (4000, 2)).astype(np.int16)
    sound = read_sound(write_wav(tmp_path / "two.wav", samples, rate=16000))
    assert (sound.rate, sound.start) == (16000, 0.0)
    np.testing.assert_allclose(sound.samples, samples.mean(1) / 32768, atol=1e-6)


def test_resampling_keeps_length_pitch_and_level(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(44100) / 44100) * 16384
    sound = read_sound(write_wav(tmp_path / "tone.wav", tone[:, None].astype(np.int16), rate=44100))
    assert abs(len(sound) - 16000) <= 2
    truth = 0.5 * np.sin(2 * np.pi * 440 * np.arange(len(sound)) / 16000)
    np.testing.assert_allclose(sound.samples[100:-100], truth[100:-100], atol=0.002)


def test_what_is_lost_in_the_middle_is_silent_and_moves_nothing(tmp_path: Path) -> None:
    path = write_video(tmp_path / "film.mp4", sound=clicks([0.3, 1.0, 1.8], length=2.2), count=66, faststart=True)
    data = bytearray(path.read_bytes())
    noise = np.random.default_rng(1).integers(0, 255, 400, dtype=np.uint8).tobytes()
    begin = data.index(b"mdat") + (len(data) - data.index(b"mdat")) * 55 // 100
    data[begin : begin + len(noise)] = noise
    path.write_bytes(data)
    with pytest.warns(DamagedMediaWarning, match=r"film\.mp4 is damaged: \d+ packets of sound are lost"):
        sound = read_sound(path)
    assert heard(sound, near=1.8) == pytest.approx(1.8, abs=0.0015)
    assert len(sound) / sound.rate == pytest.approx(2.2, abs=0.05)


def test_a_silent_film_is_explained(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"film\.mp4 has no sound"):
        read_sound(write_video(tmp_path / "film.mp4"))
    with pytest.raises(MediaError, match="does not exist"):
        read_sound(tmp_path / "gone.wav")


@given(first=st.floats(-2, 3), length=st.floats(0.01, 3), start=st.floats(-0.5, 0.5))
def test_a_cut_is_the_samples_of_its_seconds(first: float, length: float, start: float) -> None:
    sound = Sound(np.arange(1, 101, dtype=np.float32), 100, start)
    cut = cut_sound(sound, start=first, end=first + length)
    assert (cut.start, len(cut)) == (first, round(length * 100))
    offset = round((first - start) * 100)
    for i, value in enumerate(cut.samples):
        assert value == (sound.samples[i + offset] if 0 <= i + offset < 100 else 0)


def test_what_is_no_sound_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[S\] float32, got \[2, 3\] float32"):
        Sound(np.zeros((2, 3), np.float32), 16000)
    with pytest.raises(ValueError, match="start must be before end"):
        cut_sound(Sound(np.zeros(3, np.float32), 16000), start=1, end=1)


def definition(samples: NDArray[np.float32], spectrum: int) -> list[float]:
    """Compute one log-mel spectrum by plain loops: window, Fourier sum, triangle, logarithm."""
    windowed = [float(samples[160 * spectrum + n]) * (0.5 - 0.5 * math.cos(2 * math.pi * n / 400)) for n in range(400)]
    turns = np.exp(-2j * np.pi * np.outer(np.arange(257), np.arange(400)) / 512)
    magnitudes = [abs(sum(windowed[n] * turns[k, n] for n in range(400))) for k in range(257)]

    def mel(hertz: float) -> float:
        return 1127 * math.log(1 + hertz / 700)

    low, high = mel(125), mel(7500)
    bands = []
    for band in range(64):
        lower, center, upper = (low + (high - low) * (band + i) / 65 for i in range(3))
        total = 0.0
        for k in range(1, 257):
            place = mel(k * 16000 / 512)
            total += magnitudes[k] * max(
                0.0, min((place - lower) / (center - lower), (upper - place) / (upper - center))
            )
        bands.append(math.log(total + 0.01))
    return bands


def sound_of(count: int) -> Sound:
    rng = np.random.default_rng(5)
    tone = 0.3 * np.sin(2 * np.pi * 700 * np.arange(count) / 16000)
    return Sound((tone + 0.1 * rng.standard_normal(count)).astype(np.float32), 16000, start=0.25)


def test_the_spectrum_is_that_of_the_definition() -> None:
    sound = sound_of(16000)
    spectra = log_mel(sound)
    assert spectra.shape == (98, 64)
    assert spectra.dtype == np.float64
    for spectrum in (0, 41, 97):
        np.testing.assert_allclose(spectra[spectrum], definition(sound.samples, spectrum), atol=1e-11)


@pytest.mark.parametrize(("samples", "spectra"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2), (16000, 98)])
def test_only_whole_windows_count(samples: int, spectra: int) -> None:
    assert log_mel(sound_of(samples)).shape == (spectra, 64)


def test_long_sounds_are_computed_in_parts_without_seams() -> None:
    sound = sound_of(160 * 4200 + 400)
    around = Sound(sound.samples[160 * 4090 :], 16000)
    np.testing.assert_allclose(log_mel(sound)[4090:], log_mel(around), atol=1e-12)


def test_a_patch_is_0_96_seconds() -> None:
    sound = sound_of(16000 * 3)
    patches = log_mel_windows(sound, np.array([0.25, 1.21, 2.17]))
    assert patches.shape == (3, 96, 64)
    np.testing.assert_allclose(patches[1], log_mel(sound)[96:192], atol=1e-5)


def test_silence_is_the_logarithm_of_the_offset() -> None:
    np.testing.assert_allclose(log_mel(Sound(np.zeros(800, np.float32), 16000)), math.log(0.01))


def test_another_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"16000 samples per second, got 44100"):
        log_mel(Sound(np.zeros(800, np.float32), 44100))
