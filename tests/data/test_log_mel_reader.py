import multiprocessing.reduction

import numpy as np
import pytest

from inphase.data import stage_videos
from inphase.data.audio_visual import LogMelReader, read_video_sound
from inphase.data.video import Video
from inphase.media.audio import Sound, cut_sound, log_mel


def test_patches_are_the_spectra_of_their_windows_computed_once() -> None:
    computed = []
    (video,) = stage_videos.load(split="train", actions=["kick"], videos=1)
    sound = read_video_sound(video)

    def listen() -> Sound:
        computed.append(1)
        return sound

    read = LogMelReader()
    noted = Video("a", "kick", "train", synthesize=listen)
    starts = np.array([0.0, 0.37])
    for _ in range(2):
        found = read(noted, starts, 1.0)
    assert len(computed) == 1
    for patch, start in zip(found, starts.tolist(), strict=True):
        np.testing.assert_allclose(patch, log_mel(cut_sound(sound, start=start, end=start + 1))[:96], atol=1e-6)
    assert multiprocessing.reduction.ForkingPickler.dumps(read).nbytes < 500, "workers get no sounds"
    with pytest.raises(ValueError, match=r"a patch of sound needs 0\.975 s, the stretches are 0\.9 s long"):
        read(noted, starts, 0.9)


def test_the_sounds_used_longest_ago_are_dropped_first() -> None:
    made: list[str] = []

    def video(name: str, samples: int = 4) -> Video:
        def listen() -> Sound:
            made.append(name)
            return Sound(np.full(samples, ord(name), np.float32), 16000)

        return Video(name, "kick", "train", synthesize=listen)

    read = LogMelReader(max_bytes=40)  # bytes: two sounds of 4 samples
    for name in "abacab":
        np.testing.assert_array_equal(read.sound(video(name)).samples, np.full(4, ord(name)))
    assert made == ["a", "b", "c", "b"]
    assert len(read.sound(video("d", 100))) == 100, "a sound larger than the cache is returned all the same"
