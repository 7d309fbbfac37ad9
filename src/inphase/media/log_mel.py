"""The log-mel spectrogram that VGGish was trained on (Hershey et al., 2017), exactly, in float64."""

import numpy as np
from numpy.typing import NDArray

from inphase.media.audio import Sound, cut_sound

RATE = 16000
WINDOW, HOP, FFT = 400, 160, 512  # 25 ms every 10 ms
BANDS, LOWEST, HIGHEST = 64, 125.0, 7500.0  # Hz
OFFSET = 0.01
PATCH = 96  # spectra: 0.96 s
# Spectra computed at a time, which bounds the memory for an hour of sound.
CHUNK = 4096


def log_mel(sound: Sound) -> NDArray[np.float64]:
    """Compute the log-mel spectrum of every 10 ms: [F, 64], F = 1 + (S − 400) // 160, none for a shorter sound.

    Spectrum `f` covers the 25 ms from second `sound.start + f / 100`.
    """
    if sound.rate != RATE:
        raise ValueError(f"VGGish hears {RATE} samples a second, got {sound.rate}: use read_sound(path, rate={RATE})")
    count = max(0, 1 + (len(sound) - WINDOW) // HOP)
    if not count:
        return np.empty((0, BANDS))
    windows = np.lib.stride_tricks.sliding_window_view(sound.samples, WINDOW)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    bands = mel_bands()
    spectra = np.empty((count, BANDS))
    for begin in range(0, count, CHUNK):
        part = windows[begin : begin + CHUNK].astype(np.float64) * hann
        spectra[begin : begin + CHUNK] = np.log(np.abs(np.fft.rfft(part, FFT)) @ bands + OFFSET)
    return spectra


def log_mel_patches(sound: Sound) -> NDArray[np.float64]:
    """Cut the log-mel spectrum into consecutive patches of 0.96 s, VGGish's input: [P, 96, 64], the rest dropped."""
    spectra = log_mel(sound)
    count = len(spectra) // PATCH
    return spectra[: count * PATCH].reshape(count, PATCH, BANDS)


def log_mel_windows(sound: Sound, starts: NDArray[np.float64], *, seconds: float = 1.0) -> NDArray[np.float32]:
    """Compute the log-mel spectrum of the first 0.96 s of each stretch that begins at `starts`: [N, 96, 64].

    The stretches are `seconds` long; before the beginning of a sound and after its end there is silence.
    """
    least = (PATCH - 1) * HOP / RATE + WINDOW / RATE
    if seconds < least:
        raise ValueError(f"a patch of sound needs {least} s, the stretches are {seconds} s long")
    cut = [cut_sound(sound, start=start, end=start + seconds) for start in np.asarray(starts).tolist()]
    return np.stack([log_mel(part)[:PATCH] for part in cut]).astype(np.float32)


def mel_bands() -> NDArray[np.float64]:
    """Make the triangles, straight in mel, that sum a magnitude spectrum into bands: [257, 64]."""
    frequencies = mel(np.linspace(0, RATE / 2, FFT // 2 + 1))[:, None]
    edges = np.linspace(mel(np.float64(LOWEST)), mel(np.float64(HIGHEST)), BANDS + 2)
    lower, centre, upper = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (frequencies - lower) / (centre - lower), (upper - frequencies) / (upper - centre)
    return np.maximum(0.0, np.minimum(rising, falling))


def mel(hertz: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """Convert a frequency to mel, by the formula of HTK."""
    return np.asarray(1127.0 * np.log(1.0 + hertz / 700.0))
