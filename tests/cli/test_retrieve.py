"""`inphase retrieve` on drawn videos and on files."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import inphase
from inphase.data import stage_videos
from inphase.media.audio import Sound
from inphase.models import ImageEncoder, PoseEncoder, save_encoder
from inphase.playback import open_playback
from tests.apps.test_retrieve_sound import clap, ears
from tests.commands import type_command
from tests.media.recordings import write_video

pytestmark = pytest.mark.slow


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    return type_command(monkeypatch, "retrieve", *words)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Make a run of poses and sounds that has learnt nothing."""
    torch.manual_seed(0)
    folder = tmp_path / "run"
    folder.mkdir()
    save_encoder(folder / "encoder.safetensors", PoseEncoder(hidden=(8,), dimension=8))
    save_encoder(folder / "audio.safetensors", ears())
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
    found = inphase.retrieve_sound("stage", model=model, sound=query.id)
    assert [hit["name"] for hit in found.to_dict()["hits"]] == [hit.name for hit in result.hits]
    words = ("--image", query.id, "--at", "0.7", "--in", "stage", "--model", model, "--out", tmp_path / "back")
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
    save_encoder(model / "audio.safetensors", ears())
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
    words = ("--image", corpus / "a.mp4", "--at", "1", *common, "--out", tmp_path / "two")
    assert run(monkeypatch, *words) == 0
    assert {hit.name for hit in open_playback(tmp_path / "two").playback.results[0].hits} == {"b"}
    assert re.search(r"left out: \S*silent.mp4 has no sound", capsys.readouterr().err)
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
        ((), "give one query: either sound or image"),
        (("--sound", "a", "--image", "b"), "give one query"),
        (("--image", "a"), "give its second, at"),
        (("--sound", "nobody"), "no video nobody among stage-plain-0-test-squat-0000"),
        (("--sound", "stage-plain-0-test-kick-0000", "--at", "99"), "second 99 lies outside the sound"),
        (("--sound", "a", "--top", "0"), "top must be at least 1"),
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
    (model / "audio.safetensors").unlink()
    assert run(monkeypatch, "--sound", "a", "--in", "stage", "--model", model) == 1
    assert "holds no audio.safetensors: name the folder of a run" in " ".join(capsys.readouterr().err.split())
