from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.apps.retrieve_sound import ask_with_picture, ask_with_sound, find_pictures, find_sounds, loudest
from inphase.data import stage_videos
from inphase.media.audio import Sound
from inphase.models import AudioEncoder, Embedding, ImageEncoder, PoseEncoder, save_encoder
from inphase.models.embed_videos import embed_sound, embed_sound_at
from inphase.playback import open_playback
from inphase.storage.errors import MediaError
from tests.commands import type_command
from tests.media.recordings import write_video

RATE = 16000


def ears() -> AudioEncoder:
    torch.manual_seed(0)
    return AudioEncoder(convolutions=[[4], [4]], hidden=(8,), dimension=8).eval()


def clap(at: float, *, seconds: float = 4.0, start: float = 0.0) -> Sound:
    samples = np.zeros(round(seconds * RATE), np.float32)
    first = round((at - start) * RATE)
    samples[first : first + 800] = np.random.default_rng(0).normal(0, 0.5, 800)
    return Sound(samples, RATE, start)


def test_every_second_is_listened_to_on_the_clock_of_the_pictures() -> None:
    heard = embed_sound(ears(), clap(2.0))
    assert len(heard) == 31
    np.testing.assert_allclose(heard.times[[0, -1]], [0.5, 3.5])
    np.testing.assert_allclose(heard.values[15], embed_sound_at(ears(), clap(2.0), 2.0), atol=1e-6)
    late = embed_sound(ears(), clap(2.0, start=0.5, seconds=3.5))
    np.testing.assert_allclose(late.values[10:], heard.values[10:], atol=1e-6)
    assert len(embed_sound(ears(), clap(0.1, seconds=0.4))) == 1
    with pytest.raises(ValueError, match="sees poses"):
        embed_sound(PoseEncoder(), clap(2.0))


def test_a_sound_is_asked_with_where_it_is_loudest_or_where_it_is_told() -> None:
    assert loudest(clap(2.5)) == pytest.approx(2.525, abs=0.03)
    assert loudest(clap(2.5, start=1.0)) == pytest.approx(2.525, abs=0.03)
    asked = ask_with_sound(ears(), clap(2.5))
    np.testing.assert_allclose(asked.vector, embed_sound_at(ears(), clap(2.5), asked.second), atol=1e-6)
    # Near an end the last whole second is taken: part silence is nothing that was trained on.
    np.testing.assert_allclose(
        ask_with_sound(ears(), clap(3.8), at=3.9).vector, embed_sound_at(ears(), clap(3.8), 3.5), atol=1e-6
    )
    with pytest.raises(ValueError, match=r"second 9 lies outside the sound, which runs from 0\.00 to 4\.00 s"):
        ask_with_sound(ears(), clap(2.5), at=9)
    with pytest.raises(MediaError, match="the query is silent"):
        loudest(Sound(np.zeros(RATE, np.float32), RATE))


def test_pictures_are_found_by_sound_and_sounds_by_picture() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 8)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    corpus = {"a": Embedding(values[:30], np.arange(30) / 10), "b": Embedding(values[30:], np.arange(30) / 10)}
    asked = ask_with_picture(corpus["b"], at=1.24)
    hits = find_pictures(asked, corpus, top=5)
    assert (hits[0].name, hits[0].second, len(hits)) == ("b", 1.2, 5)
    assert hits[0].score == pytest.approx(1)
    for find, apart in ((find_pictures, 0.5), (find_sounds, 1.0)):
        found = find(asked, corpus, top=5)
        assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
        pairs = [(x, y) for x in found for y in found if x is not y and x.name == y.name]
        assert all(abs(x.second - y.second) >= apart - 1e-9 for x, y in pairs)


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    return type_command(monkeypatch, "retrieve", *words)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Make a run of poses and sounds that has learnt nothing."""
    torch.manual_seed(0)
    folder = tmp_path / "run"
    folder.mkdir()
    save_encoder(folder / "encoder.safetensors", PoseEncoder(hidden=(8,), dimension=8))
    save_encoder(folder / "sound.safetensors", ears())
    text = '[data]\nname = "stage"\nvideos = 3\nactions = ["squat", "kick"]\nlevel = "plain"\nsize = 64\n'
    (folder / "recipe.toml").write_text(text)
    return folder


def test_a_collection_is_searched_both_ways(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    videos = stage_videos.load(split="test", actions=["squat", "kick"], videos=3, level="plain")
    query = videos[4]
    out = tmp_path / "found"
    assert run(monkeypatch, "--sound", query.id, "--in", "stage", "--model", model, "--out", out) == 0
    opened = open_playback(out)
    (result,) = opened.playback.results
    event = query.events["impact"] / 30
    assert result.query.name == query.id
    assert result.query.second + 0.5 == pytest.approx(max(event, 0.5), abs=0.1), "the kick is the loudest moment"
    assert len(result.hits) == 5
    assert query.id not in {hit.name for hit in result.hits}
    assert all(hit.media in opened.files and hit.thumbnail in opened.files for hit in (result.query, *result.hits))
    assert f"inphase view {out}" in capsys.readouterr().out
    words = ("--picture", query.id, "--at", "0.7", "--in", "stage", "--model", model, "--out", tmp_path / "back")
    assert run(monkeypatch, *words, "--top", "3") == 0
    assert len(open_playback(tmp_path / "back").playback.results[0].hits) == 3


def test_files_are_searched_with_a_sound_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, corpus = tmp_path / "run", tmp_path / "corpus"
    model.mkdir()
    corpus.mkdir()
    eyes = ImageEncoder(size=(32, 32), mode="scratch", weights=None, convolutions=(4,), hidden=(8,), dimension=8)
    save_encoder(model / "encoder.safetensors", eyes)
    save_encoder(model / "sound.safetensors", ears())
    noise = np.random.default_rng(0).normal(0, 0.1, 2 * 44100).astype(np.float32)
    for name in ("a", "b"):
        write_video(corpus / f"{name}.mp4", count=20, rate=10, sound=noise)
    write_video(corpus / "silent.mp4", count=20, rate=10)
    write_wave(tmp_path / "shot.wav", clap(1.0, seconds=2.0))
    common = ("--in", corpus, "--model", model, "--cache", tmp_path / "cache")
    assert run(monkeypatch, "--sound", tmp_path / "shot.wav", *common, "--out", tmp_path / "one") == 0
    (result,) = open_playback(tmp_path / "one").playback.results
    assert (result.query.media, result.query.thumbnail) == ("shot.wav", None)
    assert {hit.name for hit in result.hits} <= {"a", "b", "silent"}
    words = ("--picture", corpus / "a.mp4", "--at", "1", *common, "--out", tmp_path / "two")
    assert run(monkeypatch, *words) == 0
    assert {hit.name for hit in open_playback(tmp_path / "two").playback.results[0].hits} == {"b"}
    assert "left out: silent" in capsys.readouterr().err
    assert run(monkeypatch, "--sound", tmp_path / "nowhere.wav", *common, "--out", tmp_path / "three") == 1
    assert "nowhere.wav does not exist" in " ".join(capsys.readouterr().err.split())


def write_wave(path: Path, sound: Sound) -> None:
    import wave

    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sound.rate)
        file.writeframes((np.clip(sound.samples, -1, 1) * 32767).astype("<i2").tobytes())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "ask with either --sound QUERY or --picture QUERY"),
        (("--sound", "a", "--picture", "b"), "ask with either"),
        (("--picture", "a"), "say which with --at SECONDS"),
        (("--sound", "nobody"), "no video nobody among stage-plain-0-test-squat-0000"),
        (("--sound", "stage-plain-0-test-kick-0000", "--at", "99"), "second 99 lies outside the sound"),
        (("--sound", "a", "--top", "0"), "--top must be at least 1"),
    ],
)
def test_a_question_that_makes_no_sense_gets_one_line(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    assert run(monkeypatch, *words, "--in", "stage", "--model", model, "--out", tmp_path / "out") == 1
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_run_without_sound_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "sound.safetensors").unlink()
    assert run(monkeypatch, "--sound", "a", "--in", "stage", "--model", model) == 1
    assert "holds no sound.safetensors: name the folder of a run" in " ".join(capsys.readouterr().err.split())
