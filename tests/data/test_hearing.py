import multiprocessing.reduction

import numpy as np
import pytest

from inphase.data import stage
from inphase.data.audio_visual import LogMelReader, read_video_sound
from inphase.data.reading import LRUCache
from inphase.data.video import Video
from inphase.media.audio import Sound, cut_sound, log_mel


def test_patches_are_the_spectra_of_their_stretches_heard_once() -> None:
    heard = []
    (video,) = stage.load(split="train", actions=["kick"], videos=1)
    sound = read_video_sound(video)

    def listen() -> Sound:
        heard.append(1)
        return sound

    read = LogMelReader()
    noted = Video("a", "kick", "train", hear=listen)
    starts = np.array([0.0, 0.37])
    for _ in range(2):
        found = read(noted, starts, 1.0)
    assert len(heard) == 1
    for patch, start in zip(found, starts.tolist(), strict=True):
        np.testing.assert_allclose(patch, log_mel(cut_sound(sound, start=start, end=start + 1))[:96], atol=1e-6)
    assert multiprocessing.reduction.ForkingPickler.dumps(read).nbytes < 500, "workers get no sounds"
    with pytest.raises(ValueError, match=r"a patch of sound needs 0\.975 s, the stretches are 0\.9 s long"):
        read(noted, starts, 0.9)


def test_memory_forgets_what_was_used_longest_ago() -> None:
    made: list[str] = []
    memory: LRUCache[str, bytes] = LRUCache(room=10, size=len)

    def make(name: str) -> bytes:
        made.append(name)
        return name.encode() * 4

    for name in "abacab":
        assert memory.recall(name, lambda name=name: make(name)) == name.encode() * 4  # type: ignore[misc]
    assert made == ["a", "b", "c", "b"]
    assert memory.recall("d", lambda: b"x" * 100) == b"x" * 100, "what is larger than the room is given all the same"
