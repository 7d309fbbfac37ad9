"""The sound track of a take: the first event sounds on its frame, among unrelated noises."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inphase.media.audio import Sound
from inphase.stage.take import FPS, Take

SAMPLE_RATE = 16_000  # hertz


@dataclass(frozen=True)
class Timbre:
    """Parameters of a short sound made of decaying tones and decaying noise."""

    tones: tuple[float, ...]  # hertz
    decay: float  # seconds in which the sound falls to 1/e
    noise: float  # fraction of noise, 0 … 1
    smooth: int = 1  # samples over which the noise is averaged: 1 hisses, 40 rumbles


SOUNDS: dict[str, Timbre] = {
    "click": Timbre(tones=(3100.0, 4700.0), decay=0.008, noise=0.4),
    "crack": Timbre(tones=(1250.0, 2600.0), decay=0.015, noise=0.7),
    "pop": Timbre(tones=(520.0, 880.0), decay=0.02, noise=0.3, smooth=3),
    "thud": Timbre(tones=(95.0, 140.0), decay=0.04, noise=0.5, smooth=16),
    "thump": Timbre(tones=(70.0, 110.0), decay=0.05, noise=0.4, smooth=24),
    "knock": Timbre(tones=(310.0, 470.0), decay=0.025, noise=0.4, smooth=6),
    "clang": Timbre(tones=(740.0, 1130.0, 1890.0, 2770.0), decay=0.06, noise=0.2),
    "whip": Timbre(tones=(2200.0,), decay=0.02, noise=0.9, smooth=2),
    "grunt": Timbre(tones=(150.0, 300.0, 450.0), decay=0.05, noise=0.4, smooth=8),
}
DISTRACTORS: dict[str, Timbre] = {
    "beep": Timbre(tones=(1000.0,), decay=0.05, noise=0.0),
    "clap": Timbre(tones=(1500.0,), decay=0.01, noise=0.95, smooth=2),
    "chirp": Timbre(tones=(3800.0, 4100.0), decay=0.03, noise=0.0),
    "door": Timbre(tones=(60.0, 200.0), decay=0.05, noise=0.6, smooth=20),
}


def synthesize_track(take: Take) -> Sound:
    """Synthesize the sound track of a take: the first event loudest, quieter distractors, and background noise."""
    rng = take.slate.rng("sound")
    track = 0.002 * rng.standard_normal(round(len(take.progress) / FPS * SAMPLE_RATE))
    event = next(iter(take.events.values())) / FPS
    taken = [event]
    _mix(track, event, rng.uniform(0.85, 1.0) * synthesize(rng, SOUNDS[take.action.sound]))
    others = [timbre for name, timbre in SOUNDS.items() if name != take.action.sound] + list(DISTRACTORS.values())
    for _ in range(rng.integers(1, 6)):
        time = rng.uniform(0.0, len(track) / SAMPLE_RATE)
        timbre, loudness = others[rng.integers(len(others))], rng.uniform(0.15, 0.5)
        if min(abs(time - other) for other in taken) > 0.2:
            _mix(track, time, loudness * synthesize(rng, timbre))
            taken.append(time)
    return Sound(np.asarray(0.9 * track / np.abs(track).max(), dtype=np.float32), SAMPLE_RATE)


def synthesize(rng: np.random.Generator, timbre: Timbre) -> NDArray[np.float64]:
    """Synthesize one short sound; its samples within the first video frame have unit energy."""
    clock = np.arange(int(6 * timbre.decay * SAMPLE_RATE)) / SAMPLE_RATE
    detune = rng.uniform(0.92, 1.08)
    tones = sum(np.sin(2 * np.pi * detune * tone * clock + rng.uniform(0, 2 * np.pi)) for tone in timbre.tones)
    hiss = rng.standard_normal(len(clock) + timbre.smooth - 1)
    hiss = np.convolve(hiss, np.ones(timbre.smooth) / np.sqrt(timbre.smooth), mode="valid")
    envelope = np.minimum(clock / 0.001, 1.0) * np.exp(-clock / timbre.decay)
    wave = envelope * ((1 - timbre.noise) * tones + timbre.noise * hiss)
    return np.asarray(wave / np.linalg.norm(wave[: int(SAMPLE_RATE / FPS)]))


def _mix(track: NDArray[np.float64], time: float, wave: NDArray[np.float64]) -> None:
    """Add a sound to a track at `time` seconds; samples past the end are dropped."""
    start = round(time * SAMPLE_RATE)
    part = wave[: max(len(track) - start, 0)]
    track[start : start + len(part)] += part
