import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from inphase.align import shortest_path_with_drops
from inphase.align.numba.path_numba import track_template
from inphase.apps.repetitions import Repetitions, find_repetitions
from inphase.apps.sessions import MIN_SCORE, Repetition, cut_embedding, find_spans, principal_basis
from inphase.media.frames import read_clip
from inphase.media.listing import videos_in
from inphase.media.recording import open_recordings
from inphase.models import Embedding, save_encoder
from inphase.playback import read_playback
from tests.commands import type_command as run
from tests.media.recordings import number_of, numbered, write_video
from tests.models.test_embed_videos import small

FPS = 20.0


def embed_phases(phases: NDArray[np.float64], *, noise: float = 0.1, seed: int = 0) -> Embedding:
    """Embed phases in cycles: a closed curve in 24 dimensions, which no rotation maps to itself; NaN is elsewhere."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(6, 24)) / np.array([1, 1, 2, 2, 3, 3])[:, None]
    angles = 2 * np.pi * np.nan_to_num(phases)
    values = np.stack([f(k * angles) for k in (1, 2, 3) for f in (np.sin, np.cos)], axis=1) @ weights
    walk = np.cumsum(rng.normal(size=values.shape), axis=0)
    values = np.where(np.isnan(phases)[:, None], 0.4 * (walk - walk.mean(0)), values)
    values += noise * rng.normal(size=values.shape)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return Embedding(values.astype(np.float32), np.arange(len(phases)) / FPS)


def tempo(*seconds: float) -> NDArray[np.float64]:
    """Give the phase at every frame of repetitions of these durations."""
    edges = np.concatenate([[0], np.cumsum(seconds)])
    return np.interp(np.arange(round(edges[-1] * FPS)) / FPS, edges, np.arange(len(edges)))


DURATIONS = (1.5, 1.4, 1.2, 1.0, 0.9, 1.1, 1.6, 2.2)
EDGES = np.concatenate([[0], np.cumsum(DURATIONS)])


def edges_of(spans: list[Repetition]) -> NDArray[np.float64]:
    return np.array([spans[0].start, *(each.end for each in spans)])


def test_repetitions_of_changing_tempo_are_found() -> None:
    spans = find_spans(embed_phases(tempo(*DURATIONS)))
    assert len(spans) == len(DURATIONS)
    # Boundaries have one phase, near that of the first frame.
    shift = edges_of(spans) - EDGES
    assert np.abs(shift).max() < 0.25
    assert all(each.score > 0.7 for each in spans)


def test_other_material_is_left_out() -> None:
    other = np.full(60, np.nan)
    phases = np.concatenate([other, tempo(*DURATIONS[:4]), other, tempo(*DURATIONS[4:]), other])
    spans = find_spans(embed_phases(phases))
    repeated = ~np.isnan(phases)
    inside = [repeated[int(each.start * FPS) : int(each.end * FPS)].mean() for each in spans]
    assert abs(len(spans) - len(DURATIONS)) <= 1
    assert min(inside) > 0.7


def test_a_clip_chooses_the_action_and_its_beginning() -> None:
    embedding = embed_phases(tempo(*DURATIONS) + 0.35)
    start, end = (np.interp(each, tempo(*DURATIONS), embedding.times) for each in (2 + 0.25, 3 + 0.25))
    like = cut_embedding(embedding, Repetition(float(start), float(end), 1.0))
    spans = find_spans(embedding, like)
    truth = np.interp(np.arange(7) + 0.25, tempo(*DURATIONS), embedding.times)
    found = np.array([each.start for each in spans])
    assert all(np.abs(found - each).min() < 0.12 for each in truth)
    assert len(spans) in (7, 8)


def test_noise_and_stills_have_no_repetitions() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(200, 24))
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    times = np.arange(200) / FPS
    assert len(find_spans(Embedding(noise.astype(np.float32), times), min_score=0.6)) == 0
    still = Embedding(np.full((200, 24), 24**-0.5, np.float32), times)
    assert find_spans(still) == []
    with pytest.raises(ValueError, match="3 frames are too few"):
        find_spans(Embedding(still.values[:3], times[:3]))


def test_a_template_is_followed_around() -> None:
    template = np.eye(5)
    truth = np.array([0, 1, 2, 3, 4, 0, 0, 1, 3, 4])
    frames = np.concatenate([np.full((3, 5), 9.0), template[truth]])
    rest = np.where(np.arange(len(frames)) < 3, 1.0, 2.0)
    bins, cost = track_template(frames, template, rest, pace=0.01, switch=0.5)
    assert bins.tolist() == [5, 5, 5, *truth]
    assert cost == pytest.approx(3 * 1.0 + 0.5 + 2 * 0.01)


def test_frames_of_something_else_are_dropped_as_by_drop_dtw() -> None:
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    template = np.stack([np.cos(angles), np.sin(angles), np.zeros(12)], axis=1)
    other = np.array([[0.0, 0.0, 3.0]])
    x = np.concatenate([other, other, template[:5], other, other, other, template[5:], other])
    bins, total = track_template(x, template, np.full(len(x), 0.5), pace=0.1, switch=0.0)
    cost = torch.from_numpy(((x[:, None] - template[None]) ** 2).sum(2))
    found = shortest_path_with_drops(cost, torch.full((len(x),), 0.5), torch.full((12,), 0.5))
    assert found.kept is not None
    np.testing.assert_array_equal(bins < 12, found.kept[0])
    assert total == pytest.approx(float(found.cost)) == 3.0
    np.testing.assert_array_equal(bins[bins < 12], np.arange(12))


def test_principal_components_are_those_of_the_singular_values() -> None:
    values = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32) + 3
    basis, mean = principal_basis(values, number=3)
    left, singular, _ = np.linalg.svd(values - mean, full_matrices=False)
    np.testing.assert_allclose(np.abs((values - mean) @ basis), np.abs(left * singular)[:, :3], atol=1e-3)


@pytest.mark.slow
def test_an_hour_takes_bounded_memory() -> None:
    import tracemalloc

    phases = np.tile(np.concatenate([tempo(*DURATIONS), np.full(400, np.nan)]), 62)
    embedding = embed_phases(phases)
    assert len(embedding) > 3000 * FPS / 2
    tracemalloc.start()
    spans = find_spans(embedding)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 2**20
    assert len(spans) >= 62  # sets and pauses repeat, too: without a clip a whole set may count as one


NUMBERS = [int(n) for n in np.random.default_rng(0).permutation(4000)[:12]]


@pytest.mark.slow
def test_cut_writes_a_table_clips_and_playbacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_encoder(tmp_path / "model.safetensors", small(context=(0,)))
    session = write_video(tmp_path / "session.mp4", images=[numbered(number) for number in NUMBERS * 5])
    like = write_video(tmp_path / "like.mp4", images=[numbered(number) for number in NUMBERS])
    out = tmp_path / "out"
    own = out / "clips" / "77.mp4"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"put there by hand")
    options = ("--model", tmp_path / "model.safetensors", "--out", out)
    assert run(monkeypatch, "cut", session, "--like", like, *options) == 0
    assert "5 repetitions in session" in capsys.readouterr().out
    with (out / "repetitions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    starts = [float(row["start"]) for row in rows]
    period = len(NUMBERS) / open_recordings([session])[0].properties.fps
    np.testing.assert_allclose(starts, np.arange(5) * period, atol=0.1)
    *clips, kept = videos_in([out / "clips"])
    assert kept.read_bytes() == b"put there by hand"
    assert [clip.name for clip in clips] == [f"{k:02}.mp4" for k in range(1, 6)]
    shown = [number_of(frame) for frame in read_clip(clips[2]).frames]
    assert set(shown[2:-2]) <= set(NUMBERS)
    assert len(set(shown) & set(NUMBERS)) >= len(NUMBERS) - 2
    assert [phase.label for phase in read_playback(out).tracks[0].phases] == ["1", "2", "3", "4", "5"]
    assert len(read_playback(out / "in_step").tracks) == 5
    # The clips are videos like others.
    assert run(monkeypatch, "align", *clips[:3], *options[:2], "--out", tmp_path / "aligned", "--height", 64) == 0


def test_a_recording_without_repetitions_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = write_video(tmp_path / "a.mp4", images=[numbered(3)] * 20)
    with pytest.raises(ValueError, match=r"a\.mp4: no action is repeated"):
        find_repetitions(video, model=small(context=(0,)), cache=tmp_path)


def test_the_result_is_ready_for_json(tmp_path: Path) -> None:
    (video,) = open_recordings([write_video(tmp_path / "a.mp4", count=4)])
    result = Repetitions(video, embed_phases(tempo(1, 1)), (Repetition(0.0, 1.0, 0.9),), "why")
    assert result.to_dict()["repetitions"] == [{"start": 0.0, "end": 1.0, "score": 0.9}]
    assert result.summary().rows == [("1", "0.00", "1.00", "1.00", "0.90")]
    assert 0 < MIN_SCORE < 1
