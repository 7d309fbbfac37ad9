"""Listen to a sound second by second, on the clock of its pictures."""

import numpy as np
from numpy.typing import NDArray

from inphase.media.audio import Sound
from inphase.media.log_mel import log_mel_windows
from inphase.models.embed import Embedding, embed
from inphase.models.encoder import Encoder

SECOND = 1.0  # how much is listened to at a time
HOP = 0.1


def listen(encoder: Encoder, sound: Sound, *, duration: float | None = None, hop: float = HOP) -> Embedding:
    """Embed every second of a sound between 0 and its end or `duration`, `hop` apart; `times` are their middles.

    Of what lasts less than a second, the one that begins with it, silence at its end.
    """
    if encoder.sees != "sounds":
        raise ValueError(f"this encoder sees {encoder.sees}: one of sounds lies in a run folder as sound.safetensors")
    if not hop > 0:
        raise ValueError(f"hop must be above 0 seconds, got {hop}")
    end = sound.start + len(sound) / sound.rate if duration is None else duration
    starts: NDArray[np.float64] = hop * np.arange(1 + max(0, int((end - SECOND) / hop + 1e-6)), dtype=np.float64)
    return embed(encoder, (log_mel_windows(sound, starts, seconds=SECOND), starts + SECOND / 2), batch=64)


def listen_at(encoder: Encoder, sound: Sound, second: float) -> NDArray[np.float32]:
    """Embed the second of a sound that has `second` in its middle, as a vector [D]."""
    found = embed(encoder, (log_mel_windows(sound, np.array([second - SECOND / 2]), seconds=SECOND), np.zeros(1)))
    return np.asarray(found.values[0])
