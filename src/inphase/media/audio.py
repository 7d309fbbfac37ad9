"""Read sound on the clock of its video, and compute the log-mel spectrogram that VGGish was trained on.

The spectrogram follows Hershey et al. (2017) exactly, in float64.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inphase.storage.errors import DamagedMediaWarning, MediaError

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer


# Seconds: clocks of decoded blocks are rounded to a millisecond; a longer gap is a gap in the recording.
MIN_GAP = 0.02
RATE = 16000
WINDOW, HOP, FFT = 400, 160, 512  # 25 ms every 10 ms
BANDS, LOWEST, HIGHEST = 64, 125.0, 7500.0  # Hz
LOG_OFFSET = 0.01
PATCH = 96  # spectra: 0.96 s
# Spectra computed at a time, which bounds the memory for an hour of sound.
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Sound:
    """A waveform: `samples` [S] float32 mono in about [−1, 1], `rate` per second, the first at second `start`.

    Seconds are on the clock of the video in the same file.
    """

    samples: NDArray[np.float32]
    rate: int
    start: float = 0.0

    def __post_init__(self) -> None:
        """Raise if the samples are not one float32 channel."""
        if self.samples.ndim != 1 or self.samples.dtype != np.float32:
            raise ValueError(f"samples must be [S] float32, got {list(self.samples.shape)} {self.samples.dtype}")
        if self.rate < 1:
            raise ValueError(f"rate must be at least 1 sample per second, got {self.rate}")

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.samples)


def read_sound(path: Path | str, *, rate: int = 16000) -> Sound:
    """Read the sound of a file, channels averaged, at `rate` samples per second."""
    blocks = list(stream_sound(path, rate=rate))
    return Sound(np.concatenate([block.samples for block in blocks]), rate, blocks[0].start)


def cut_sound(sound: Sound, *, start: float, end: float) -> Sound:
    """Cut the seconds from `start` to `end` out of a sound, padded with silence outside of it."""
    if not start < end:
        raise ValueError(f"start must be before end, got {start} to {end}")
    first, count = round((start - sound.start) * sound.rate), round((end - start) * sound.rate)
    samples = np.zeros(count, np.float32)
    begin, stop = min(max(first, 0), len(sound)), min(max(first + count, 0), len(sound))
    samples[begin - first : stop - first] = sound.samples[begin:stop]
    return Sound(samples, sound.rate, start)


def stream_sound(path: Path | str, *, rate: int) -> Iterator[Sound]:
    """Yield the sound of a file as consecutive blocks; memory for one block, whatever the duration."""
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler

    path = Path(path)
    given, start, resampler = 0, 0.0, None
    for second, samples, native in _mono_blocks(path):
        if resampler is None:
            start, resampler = second, AudioResampler(format="flt", layout="mono", rate=rate)
        block = AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        block.sample_rate = native
        for resampled in resampler.resample(block):
            yield Sound(_values(resampled), rate, start + given / rate)
            given += resampled.samples
    if resampler is None:
        raise MediaError(f"{path}: none of its sound could be decoded; get an undamaged copy of the file")
    for resampled in resampler.resample(None):
        yield Sound(_values(resampled), rate, start + given / rate)
        given += resampled.samples


def _values(frame: "AudioFrame") -> NDArray[np.float32]:
    return np.asarray(frame.to_ndarray(), dtype=np.float32).reshape(-1)


def _mono_blocks(path: Path) -> Iterator[tuple[float, NDArray[np.float32], int]]:
    """Decode sound into consecutive (second, samples, rate); silence replaces undecodable parts."""
    from av.audio.resampler import AudioResampler

    from inphase.media.decode import clock_origin, has_decoder, open_container

    faults = 0
    with open_container(path) as container:
        if not container.streams.audio:
            raise MediaError(f"{path} has no sound: give a file with a sound stream")
        stream = next(filter(has_decoder, container.streams.audio), None)
        if stream is None:
            raise MediaError(f"{path} has a sound stream whose codec is not known: convert it to AAC in an .mp4 file")
        origin = clock_origin(container)
        plain = AudioResampler(format="fltp")
        reached: Fraction | None = None
        for frame in _decoded(container, stream):
            if frame is None:
                faults += 1
                continue
            second = reached or Fraction(0)
            if frame.pts is not None and frame.time_base is not None:
                second = frame.pts * frame.time_base - origin
            reached = second if reached is None else reached
            gap = round((second - reached) * frame.sample_rate)
            if gap > MIN_GAP * frame.sample_rate:
                yield float(reached), np.zeros(gap, np.float32), frame.sample_rate
                reached += Fraction(gap, frame.sample_rate)
            for part in plain.resample(frame):
                yield float(reached), part.to_ndarray().mean(0, dtype=np.float32), frame.sample_rate
                reached += Fraction(part.samples, frame.sample_rate)
    if faults:
        warnings.warn(
            f"{path} is damaged: {faults} packets of sound are lost and silent; get an undamaged copy if you need them",
            DamagedMediaWarning,
            stacklevel=3,
        )


def _decoded(container: "InputContainer", stream: "AudioStream") -> Iterator["AudioFrame | None"]:
    """Decode packet by packet; None stands for an undecodable one."""
    import av

    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            if packet is None:
                return
            yield from packet.decode()
        except av.error.FFmpegError:
            yield None


def log_mel(sound: Sound) -> NDArray[np.float64]:
    """Compute the log-mel spectrum of every 10 ms: [F, 64], F = 1 + (S − 400) // 160, none for a shorter sound.

    Spectrum `f` covers the 25 ms from second `sound.start + f / 100`.
    """
    if sound.rate != RATE:
        raise ValueError(f"VGGish takes {RATE} samples per second, got {sound.rate}: use read_sound(path, rate={RATE})")
    count = max(0, 1 + (len(sound) - WINDOW) // HOP)
    if not count:
        return np.empty((0, BANDS))
    windows = np.lib.stride_tricks.sliding_window_view(sound.samples, WINDOW)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    bands = mel_bands()
    spectra = np.empty((count, BANDS))
    for begin in range(0, count, CHUNK):
        part = windows[begin : begin + CHUNK].astype(np.float64) * hann
        spectra[begin : begin + CHUNK] = np.log(np.abs(np.fft.rfft(part, FFT)) @ bands + LOG_OFFSET)
    return spectra


def log_mel_windows(sound: Sound, starts: NDArray[np.float64], *, seconds: float = 1.0) -> NDArray[np.float32]:
    """Compute the log-mel spectrum of the first 0.96 s of each stretch that begins at `starts`: [N, 96, 64].

    The stretches are `seconds` long; outside of the sound they are silent.
    """
    min_seconds = (PATCH - 1) * HOP / RATE + WINDOW / RATE
    if seconds < min_seconds:
        raise ValueError(f"a patch of sound needs {min_seconds} s, the stretches are {seconds} s long")
    cut = [cut_sound(sound, start=start, end=start + seconds) for start in np.asarray(starts).tolist()]
    return np.stack([log_mel(part)[:PATCH] for part in cut]).astype(np.float32)


def mel_bands() -> NDArray[np.float64]:
    """Make the triangles, straight in mel, that sum a magnitude spectrum into bands: [257, 64]."""
    frequencies = mel(np.linspace(0, RATE / 2, FFT // 2 + 1))[:, None]
    edges = np.linspace(mel(np.float64(LOWEST)), mel(np.float64(HIGHEST)), BANDS + 2)
    lower, center, upper = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (frequencies - lower) / (center - lower), (upper - frequencies) / (upper - center)
    return np.maximum(0.0, np.minimum(rising, falling))


def mel(hertz: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """Convert a frequency to mel, by the formula of HTK."""
    return np.asarray(1127.0 * np.log(1.0 + hertz / 700.0))
