"""Sessions beside a clip: each repetition becomes a clip of its own, in seconds of the recording."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inphase
from inphase.apps.repetitions import list_repetitions
from inphase.apps.sessions import Repetition, cut_embedding, cut_sessions, shared_part
from inphase.data import folder
from inphase.media.recording import NamedVideo, Properties
from inphase.models import Embedding, save_encoder
from inphase.models.embedding import Route
from inphase.playback import read_playback
from inphase.pose.pose import Pose
from inphase.training import fit
from tests.apps.test_repetitions import DURATIONS, EDGES, FPS, NUMBERS, embed_phases, tempo
from tests.commands import type_command as run
from tests.media.recordings import numbered, write_video
from tests.models.test_embed_videos import small
from tests.pose.people import needs_networks


def name(stem: str, seconds: float) -> NamedVideo:
    return NamedVideo(Path(f"{stem}.mp4"), stem, Properties(round(seconds * FPS), FPS, seconds, (96, 96), False), True)


def with_pose(embedding: Embedding) -> Embedding:
    """Give every frame a pose of one joint, which is at the number of the frame."""
    count = len(embedding)
    points = np.arange(count, dtype=np.float32)[:, None, None].repeat(2, axis=2)
    seen = np.ones((count, 1), np.float32)
    return replace(embedding, pose=Pose(("head",), points, seen, seen[:, 0] > 0, embedding.times, (96, 96)))


def test_repetitions_are_named_and_keep_the_clock_of_the_session() -> None:
    session, clip = with_pose(embed_phases(tempo(*DURATIONS))), embed_phases(tempo(1.2), seed=0)
    videos = [name("clip", 1.2), name("session", float(EDGES[-1])), name("other", 1.3)]
    left_out: dict[str, str] = {}
    found, parts = cut_sessions(videos, [clip, session, clip], left_out)
    inner = found[1:-1]
    assert [each.name for each in inner] == [f"session#{k}" for k in range(1, len(DURATIONS) + 1)]
    assert (found[0], found[-1]) == (videos[0], videos[2])
    assert left_out == {}
    for each, part, start in zip(inner, parts[1:-1], EDGES, strict=False):
        assert each.span is not None
        assert each.span[0] == pytest.approx(start, abs=0.15)
        assert part.times[0] == pytest.approx(each.span[0], abs=0.5 / FPS + 1e-9)
        assert each.duration == pytest.approx(part.times[-1] - part.times[0], abs=2 / FPS)
        assert part.pose is not None
        np.testing.assert_allclose(part.pose.keypoints[:, 0, 0], np.rint(part.times * FPS))


def test_a_clip_of_a_repetition_has_its_own_clock_and_keeps_joints_and_routes() -> None:
    whole = replace(with_pose(embed_phases(tempo(*DURATIONS))), routes=(Route(16, 0.1), Route(8, 0.1)))
    part = cut_embedding(whole, Repetition(1.0, 2.0, 1.0))
    assert part.times.tolist() == pytest.approx((np.arange(20) / FPS).tolist())
    assert part.routes == whole.routes
    assert part.pose is not None
    np.testing.assert_allclose(part.pose.times, part.times)
    np.testing.assert_array_equal(part.pose.keypoints[:, 0, 0], np.arange(20, 40))


def test_repetitions_are_found_by_pose_where_both_show_a_person() -> None:
    whole, clip = embed_phases(tempo(*DURATIONS)), embed_phases(tempo(1.2))
    routes, blank = (Route(24, 0.1), Route(24, 0.1)), np.zeros_like

    def join(pose: np.ndarray, image: np.ndarray, times: np.ndarray) -> Embedding:
        return Embedding(np.concatenate([pose, image], axis=1).astype(np.float32), times, "both", routes=routes)

    shown = join(whole.values, blank(whole.values), whole.times), join(clip.values, blank(clip.values), clip.times)
    for found, given in zip(shared_part(*shown), (whole, clip), strict=True):
        np.testing.assert_allclose(found.values, given.values, atol=1e-6)
    unseen = join(blank(clip.values), clip.values, clip.times)
    images = shared_part(join(clip.values, whole.values[: len(clip)], clip.times), unseen)
    np.testing.assert_allclose(images[0].values, whole.values[: len(clip)], atol=1e-6)
    # A further route of pose, its arms, is left out in both cases.
    arms = [np.full((len(clip), 2), value, np.float32) for value in (0.5, 0.0)]
    three = [
        Embedding(np.concatenate([each.values, more], axis=1), each.times, "both", routes=(*routes, Route(2, 0.05)))
        for each, more in zip((join(clip.values, whole.values[: len(clip)], clip.times), unseen), arms, strict=True)
    ]
    np.testing.assert_allclose(shared_part(three[0], three[1])[0].values, images[0].values, atol=1e-6)
    np.testing.assert_allclose(shared_part(three[0], three[0])[0].values, clip.values, atol=1e-6)
    neither = shared_part(shown[0], unseen)
    assert neither == (shown[0], unseen)


def test_a_session_without_the_action_is_left_out_and_shorter_clips_are_no_session() -> None:
    clip, still = embed_phases(tempo(1.2)), embed_phases(tempo(1.2)).values[:1].repeat(200, axis=0)
    videos = [name("clip", 1.2), name("second", 1.5), name("still", 10.0)]
    embeddings = [clip, embed_phases(tempo(1.5)), Embedding(still, np.arange(200) / FPS)]
    left_out: dict[str, str] = {}
    found, _ = cut_sessions(videos, embeddings, left_out)
    assert [each.name for each in found] == ["clip", "second"]
    assert left_out == {"still.mp4": "still.mp4: the action of clip.mp4 is not found in it"}
    with pytest.raises(ValueError, match=r"no recording lasts 1\.5 times as long as the clip"):
        cut_sessions(videos[:2], embeddings[:2], left_out)
    with pytest.raises(ValueError, match="fewer than two videos"):
        cut_sessions([videos[0], videos[2]], [clip, embeddings[2]], left_out)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a model, a clip, its labels, and a session of three repetitions after a still start."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_encoder(tmp_path / "model.safetensors", small(context=(0,)))
    shown = [NUMBERS[0]] * 6 + NUMBERS * 3
    write_video(tmp_path / "session.mp4", images=[numbered(number) for number in shown])
    write_video(tmp_path / "clip.mp4", images=[numbered(number) for number in NUMBERS])
    (tmp_path / "clip.csv").write_text(f"frame,label\n{len(NUMBERS) // 2},middle\n")
    return tmp_path


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def middles(place: Path) -> list[float]:
    """Give the seconds of the session at which the middle of the clip is shown."""
    fps = inphase.align_videos([place / "clip.mp4"] * 2, model=small(context=(0,))).recordings[0].properties.fps
    return [(6 + len(NUMBERS) * k + len(NUMBERS) // 2) / fps for k in range(3)]


@pytest.mark.slow
def test_align_takes_a_session(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--model", place / "model.safetensors", "--out", place / "out", "--height", 64)
    assert run(monkeypatch, "align", place / "session.mp4", place / "clip.mp4", "--session", *common) == 0
    assert "session#3" in capsys.readouterr().out
    rows = rows_of(place / "out" / "alignment.csv")
    assert sorted(row["video"] for row in rows) == ["clip", "session#1", "session#2", "session#3"]
    path = rows_of(place / "out" / "path.csv")[len(NUMBERS) // 2]
    found = [float(path[f"session#{k}"]) for k in (1, 2, 3)]
    np.testing.assert_allclose(found, middles(place), atol=0.05)
    playback = read_playback(place / "out")
    assert [track.name for track in playback.tracks if track.name != "clip"] == ["session#1", "session#2", "session#3"]
    assert {track.media for track in playback.tracks} == {"clip.mp4", "session.mp4"}
    assert run(monkeypatch, "align", place / "clip.mp4", place / "clip.mp4", "--session", *common) == 1
    assert "no session" in capsys.readouterr().err


@needs_networks
@pytest.mark.slow
def test_transfer_and_compare_take_a_session(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ("--session", "--model", place / "model.safetensors", "--json")
    clip, session, labels = place / "clip.mp4", place / "session.mp4", place / "clip.csv"
    assert run(monkeypatch, "transfer", clip, labels, session, *how, "--out", place / "labeled") == 0
    videos = json.loads(capsys.readouterr().out)["videos"]
    assert [each["name"] for each in videos] == ["session#1", "session#2", "session#3"]
    truth = middles(place)
    np.testing.assert_allclose([each["events"][0]["second"] for each in videos], truth, atol=0.05)
    spans = [each["span"] for each in videos]
    assert all(start < second < end for (start, end), second in zip(spans, truth, strict=True))
    combined = rows_of(place / "labeled" / "transferred.csv")
    assert [(float(row["start"]), float(row["end"])) for row in combined] == [
        pytest.approx(span, abs=1e-3) for span in map(tuple, spans)
    ]
    (row,) = rows_of(place / "labeled" / "session#2.csv")
    assert int(row["nearest_frame"]) == pytest.approx(6 + 1.5 * len(NUMBERS), abs=1)

    assert run(monkeypatch, "compare", session, clip, *how, "--out", place / "compared", "--labels", labels) == 0
    students = json.loads(capsys.readouterr().out)["students"]
    assert [each["student"]["name"] for each in students] == ["session#1", "session#2", "session#3"]
    found = [each["positions"][1]["student"] for each in students]
    np.testing.assert_allclose(found, truth, atol=0.1)
    assert (place / "compared" / "session#2" / "report.html").is_file()


@pytest.mark.slow
def test_fit_takes_a_session(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    listed = list(list_repetitions(place / "session.mp4", cache=place / "cache"))
    assert len(listed) >= 2
    how = ("--modality", "image", "--steps", 2, "--workers", 0, "--json", "--out", place / "run")
    assert run(monkeypatch, "fit", place / "session.mp4", *how) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["left_out"] == {}
    table = rows_of(place / "run" / "repetitions.csv")
    assert [(row["video"], row["start"], row["end"]) for row in table] == listed
    assert {row["video"] for row in table} == {"session.mp4"}
    ids = {video.id for video in folder.load(place, split="all", repetitions=str(place / "run" / "repetitions.csv"))}
    assert ids == {f"session#{number}" for number in range(1, len(table) + 1)}


def test_a_single_action_is_no_session_to_fit(tmp_path: Path) -> None:
    """The two halves of a swing pass for repetitions: training on them would take minutes and teach nothing."""
    write_video(tmp_path / "swing.mp4", count=8)
    halves = [("swing.mp4", "0", "0.1"), ("swing.mp4", "0.1", "0.2")]
    with pytest.raises(ValueError, match=r"only 2 repetitions in .*swing\.mp4: give a longer session, or a folder"):
        fit(tmp_path / "swing.mp4", tmp_path / "run", cut=lambda _: halves)
