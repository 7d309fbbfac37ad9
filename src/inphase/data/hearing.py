"""How the sound of a video is got: waveforms, and the spectra that an encoder of sounds takes."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from inphase.data.memory import Memory
from inphase.data.video import Video
from inphase.media.audio import Sound, cut_sound, read_sound
from inphase.media.log_mel import RATE, log_mel_windows


def hear(video: Video, *, rate: int = RATE) -> Sound:
    """Give the whole sound of a video: made, where the video is, or decoded."""
    if video.hear is not None:
        sound = video.hear()
        if sound.rate != rate:
            raise ValueError(f"{video.id} is heard at {sound.rate} samples a second, not {rate}: ask for that rate")
        return sound
    if video.sound is None or video.spans:
        raise ValueError(f"{video.id} has no sound of its own: sound is read from whole files")
    return read_sound(video.sound, rate=rate)


def read_sounds(video: Video, starts: NDArray[np.float64], seconds: float, *, rate: int = RATE) -> NDArray[np.float32]:
    """Read stretches of a video's sound that begin at `starts`, each `seconds` long: waveforms [N, samples]."""
    sound = hear(video, rate=rate)
    return np.stack([cut_sound(sound, start=start, end=start + seconds).samples for start in starts.tolist()])


class Patches:
    """A `ReadSound` of the first 0.96 s of each stretch as log-mel spectra [N, 96, 64], `AudioEncoder`'s input.

    It keeps the sounds it heard last, within `room` bytes, for all threads together and for each process on its own:
    training neither decodes nor makes a sound at every step.
    """

    def __init__(self, *, room: int = 2**29) -> None:
        """Begin with nothing heard."""
        self._sounds: Memory[str, Sound] = Memory(room=room, size=lambda sound: sound.samples.nbytes)

    def __call__(self, video: Video, starts: NDArray[np.float64], seconds: float) -> NDArray[np.float32]:
        """Give the spectra of some stretches of a video's sound."""
        return log_mel_windows(self.hear(video), starts, seconds=seconds)

    def hear(self, video: Video) -> Sound:
        """Give the whole sound of a video, heard now or before."""
        return self._sounds.recall(video.id, partial(hear, video))

    def __reduce__(self) -> tuple[Callable[[], "Patches"], tuple[()]]:
        """Go to another process without the sounds."""
        return partial(Patches, room=self._sounds.room), ()
