import numpy as np
import pytest
import torch

from inphase.apps.retrieve_sound import find_frames, find_sounds, loudest_second, query_by_image, query_by_sound
from inphase.media.audio import Sound
from inphase.models import AudioEncoder, Embedding, PoseEncoder
from inphase.models.audio_encoder import embed_sound, embed_sound_at
from inphase.storage.errors import MediaError

RATE = 16000


def ears() -> AudioEncoder:
    torch.manual_seed(0)
    return AudioEncoder(convolutions=[[4], [4]], hidden=(8,), dimension=8).eval()


def clap(at: float, *, seconds: float = 4.0, start: float = 0.0) -> Sound:
    samples = np.zeros(round(seconds * RATE), np.float32)
    first = round((at - start) * RATE)
    samples[first : first + 800] = np.random.default_rng(0).normal(0, 0.5, 800)
    return Sound(samples, RATE, start)


def test_every_second_is_listened_to_on_the_clock_of_the_images() -> None:
    heard = embed_sound(ears(), clap(2.0))
    assert len(heard) == 31
    np.testing.assert_allclose(heard.times[[0, -1]], [0.5, 3.5])
    np.testing.assert_allclose(heard.values[15], embed_sound_at(ears(), clap(2.0), 2.0), atol=1e-6)
    late = embed_sound(ears(), clap(2.0, start=0.5, seconds=3.5))
    np.testing.assert_allclose(late.values[10:], heard.values[10:], atol=1e-6)
    assert len(embed_sound(ears(), clap(0.1, seconds=0.4))) == 1
    with pytest.raises(ValueError, match="embeds pose"):
        embed_sound(PoseEncoder(), clap(2.0))


def test_a_sound_is_queried_where_it_is_loudest_or_at_a_given_second() -> None:
    assert loudest_second(clap(2.5)) == pytest.approx(2.525, abs=0.03)
    assert loudest_second(clap(2.5, start=1.0)) == pytest.approx(2.525, abs=0.03)
    asked = query_by_sound(ears(), clap(2.5))
    np.testing.assert_allclose(asked.vector, embed_sound_at(ears(), clap(2.5), asked.second), atol=1e-6)
    # Near an end the last whole second is taken: part silence is nothing that was trained on.
    np.testing.assert_allclose(
        query_by_sound(ears(), clap(3.8), at=3.9).vector, embed_sound_at(ears(), clap(3.8), 3.5), atol=1e-6
    )
    with pytest.raises(ValueError, match=r"second 9 lies outside the sound, which runs from 0\.00 to 4\.00 s"):
        query_by_sound(ears(), clap(2.5), at=9)
    with pytest.raises(MediaError, match="the query is silent"):
        loudest_second(Sound(np.zeros(RATE, np.float32), RATE))


def test_images_are_found_by_sound_and_sounds_by_image() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 8)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    corpus = {"a": Embedding(values[:30], np.arange(30) / 10), "b": Embedding(values[30:], np.arange(30) / 10)}
    asked = query_by_image(corpus["b"], at=1.24)
    hits = find_frames(asked, corpus, top=5)
    assert (hits[0].name, hits[0].second, len(hits)) == ("b", 1.2, 5)
    assert hits[0].score == pytest.approx(1)
    for find, apart in ((find_frames, 0.5), (find_sounds, 1.0)):
        found = find(asked, corpus, top=5)
        assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
        pairs = [(x, y) for x in found for y in found if x is not y and x.name == y.name]
        assert all(abs(x.second - y.second) >= apart - 1e-9 for x, y in pairs)
