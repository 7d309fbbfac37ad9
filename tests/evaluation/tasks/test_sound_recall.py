import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.data import stage_videos
from inphase.data.frame_source import open_frame_source
from inphase.data.video import Problem
from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError
from inphase.evaluation.scores import select, value_of
from inphase.evaluation.tasks.sound_recall import chance_of_one, measure_sound_recall, sound_recall
from inphase.models import AudioEncoder, Embedding, PoseEncoder, save_encoder
from tests.evaluation.embeddings import embedded
from tests.evaluation.test_evaluate import run


def unit(values: np.ndarray) -> np.ndarray:
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def recordings(*, seed: int = 0) -> tuple[list[EmbeddedVideo], dict[str, Embedding]]:
    """Make videos of two actions with random vectors, frames 30 and seconds of sound 10 a second."""
    rng = np.random.default_rng(seed)
    items, sounds = [], {}
    for number in range(6):
        frames = int(rng.integers(60, 120))
        event = int(rng.integers(10, frames - 10))
        values = unit(rng.normal(size=(frames, 3)))
        item = embedded(values, name=f"v{number}", action="ab"[number % 2], events={"hit": event, "late": frames - 1})
        items.append(item)
        times = np.arange(0.5, frames / 30 - 0.5, 0.1)
        sounds[item.video.id] = Embedding(unit(rng.normal(size=(len(times), 3))), times)
    return items, sounds


def moments(items: list[EmbeddedVideo], sounds: dict[str, Embedding], kind: str) -> list[tuple[int, float, np.ndarray]]:
    """List (video, second, vector) of every frame or every second of sound."""
    found = []
    for index, item in enumerate(items):
        of = item.embedding if kind == "image" else sounds[item.video.id]
        found += [(index, float(second), vector) for second, vector in zip(of.times, of.values, strict=True)]
    return found


def literal(items: list[EmbeddedVideo], sounds: dict[str, Embedding], *, ask: str, corpus: str, k: int) -> float:
    """Ask every query of every moment, one by one."""
    answers = moments(items, sounds, "image" if ask == "sound" else "sound")
    hits = []
    for index, item in enumerate(items):
        event = item.video.events["hit"] / 30
        own = [(second, vector) for video, second, vector in moments(items, sounds, ask) if video == index]
        _, query = min(own, key=lambda moment: abs(moment[0] - event))
        ranked = sorted(answers, key=lambda moment: -float(moment[2] @ query))
        chosen: list[tuple[int, float]] = []
        for video, second, _ in ranked:
            if video == index or (corpus == "own" and items[video].video.action != item.video.action):
                continue
            if any(video == other and abs(second - at) < 0.5 for other, at in chosen):
                continue
            chosen.append((video, second))
            if len(chosen) == k:
                break
        hits.append(
            any(
                items[video].video.action == item.video.action
                and abs(second - items[video].video.events["hit"] / 30) <= 0.5 + 1e-9
                for video, second in chosen
            )
        )
    return float(np.mean(hits))


def test_recall_is_what_a_literal_search_finds() -> None:
    for seed in range(4):
        items, sounds = recordings(seed=seed)
        found = sound_recall(items, sounds)
        for ask, direction in (("sound", "sound to video"), ("image", "video to sound")):
            for corpus, name in (("all", "all actions"), ("own", "same action")):
                for k in (1, 5):
                    expected = literal(items, sounds, ask=ask, corpus=corpus, k=k)
                    value = value_of(found, f"recall@{k}", setting=f"{direction}, {name}")
                    assert value == pytest.approx(expected), (seed, ask, corpus, k)


def test_encoders_that_agree_find_every_event_and_random_ones_score_chance() -> None:
    items, sounds = recordings()
    agreed = []
    for item in items:
        clock = item.embedding.times - item.video.events["hit"] / 30
        values = unit(np.stack([np.exp(-(clock**2)), np.full(len(clock), ord(item.video.action) - 96.0), clock], 1))
        agreed.append(EmbeddedVideo(item.video, Embedding(values, item.embedding.times), length=item.length))
        heard = sounds[item.video.id].times
        sounds[item.video.id] = Embedding(values[np.abs(heard[:, None] - item.embedding.times).argmin(1)], heard)
    found = sound_recall(agreed, sounds)
    for metric, corpus in (("recall@1", "same"), ("recall@5", "same"), ("recall@1", "all"), ("action@1", "all")):
        setting = f"sound to video, {corpus} action{'s' * (corpus == 'all')}"
        assert value_of(found, metric, setting=setting) == 1.0
    scores = [sound_recall(*recordings(seed=seed)) for seed in range(40)]
    for metric, setting in (
        ("recall@1", "sound to video, all actions"),
        ("recall@1", "sound to video, same action"),
        ("recall@1", "video to sound, all actions"),
        ("action@1", "sound to video, all actions"),
    ):
        mean, chance = (
            np.mean([value_of(rows, metric, setting=setting, control=control) for rows in scores])
            for control in (None, "chance")
        )
        assert mean == pytest.approx(chance, abs=0.09), (metric, setting)


def test_chance_counts_every_draw() -> None:
    for total, right, drawn in ((7, 3, 2), (6, 1, 5), (5, 0, 2), (4, 4, 1), (3, 1, 5)):
        draws = list(combinations(range(total), min(drawn, total)))
        expected = np.mean([any(place < right for place in draw) for draw in draws])
        assert chance_of_one(total=total, right=right, drawn=drawn) == pytest.approx(expected)


def test_what_cannot_be_asked_is_refused() -> None:
    items, sounds = recordings()
    with pytest.raises(NotApplicableError, match="no two videos have sound and an event"):
        sound_recall(items, {})
    with pytest.raises(NotApplicableError, match="no action has two videos with sound"):
        sound_recall(items[:2], sounds)
    with pytest.raises(ValueError, match="every k ≥ 1"):
        sound_recall(items, sounds, ks=(0,))


def test_two_encoders_are_measured_beside_chance_and_untrained_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    eyes = PoseEncoder(hidden=(8,), dimension=8).eval()
    ears = AudioEncoder(convolutions=[[2], [2]], hidden=(8,), dimension=8).eval()
    frame_source = open_frame_source(
        eyes, stage_videos.load(split="test", videos=2, actions=["squat", "kick"], level="plain")
    )
    scores = measure_sound_recall(eyes, ears, frame_source, untrained=2)
    mute = [replace(frame_source.videos[0], id="mute", synthesize=None), *frame_source.videos]
    with pytest.warns(Problem, match="mute: its sound cannot be read .* has no sound"):
        again = measure_sound_recall(eyes, ears, replace(frame_source, videos=mute), untrained=0)
    assert select(again, control=None) == select(scores, control=None)
    controls = list(dict.fromkeys(score.control for score in scores))
    assert controls == [None, "chance", "untrained", "untrained (best)"]
    labels = [[score.label for score in select(scores, control=control)] for control in controls]
    assert all(column == labels[0] for column in labels)
    setting = "sound to video, all actions"
    own, chance, fresh, best = (value_of(scores, "recall@5", setting=setting, control=name) for name in controls)
    assert best >= fresh

    save_encoder(tmp_path / "encoder.safetensors", eyes)
    text = '[data]\nname = "stage"\nvideos = 2\nactions = ["squat", "kick"]\nlevel = "plain"\n'
    (tmp_path / "recipe.toml").write_text(text)
    assert run(monkeypatch, str(tmp_path), "--tasks", "sound_recall") == 1
    assert "holds no audio.safetensors" in capsys.readouterr().err
    save_encoder(tmp_path / "audio.safetensors", ears)
    assert run(monkeypatch, str(tmp_path), "--tasks", "sound_recall", "--no-controls") == 0
    printed = capsys.readouterr().out
    (row,) = re.findall(rf"recall@5, {setting}\D+([\d.]+)\D+([\d.]+)", printed)
    assert float(row[0]) == pytest.approx(own, abs=1e-3)
    assert float(row[1]) == pytest.approx(chance, abs=1e-3)
