"""VGGish's spectrogram against its definition, written out one number at a time."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.media.audio import Sound, log_mel, log_mel_patches


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
        lower, centre, upper = (low + (high - low) * (band + i) / 65 for i in range(3))
        total = 0.0
        for k in range(1, 257):
            place = mel(k * 16000 / 512)
            total += magnitudes[k] * max(
                0.0, min((place - lower) / (centre - lower), (upper - place) / (upper - centre))
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
    patches = log_mel_patches(sound)
    assert patches.shape == (3, 96, 64)
    np.testing.assert_array_equal(patches[1], log_mel(sound)[96:192])


def test_silence_is_the_logarithm_of_the_offset() -> None:
    np.testing.assert_allclose(log_mel(Sound(np.zeros(800, np.float32), 16000)), math.log(0.01))


def test_another_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"16000 samples per second, got 44100"):
        log_mel(Sound(np.zeros(800, np.float32), 44100))
