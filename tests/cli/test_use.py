"""Other commands on one's own videos, end to end: transfer, search, activations, compare."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inphase.apps.labels import name_tables
from inphase.media.recording import probe
from inphase.playback import read_playback
from tests.apps.stage_pairs import STAGE_ESTIMATOR, make_stage_pair, write_stage_pair
from tests.cli.test_align import WALK, film, rows_of
from tests.commands import type_command as run
from tests.media.recordings import number_of

pytestmark = pytest.mark.slow


def test_labels_are_transferred_to_a_pattern_and_stale_tables_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clips = place / "clips"
    clips.mkdir()
    pro = film(place / "pro.mp4", WALK)
    for name in "abc":
        film(clips / f"{name}.mp4", WALK)
    (place / "labels.csv").write_text("second,label\n0.5,top\n")
    words = ("--model", place / "model.safetensors", "--out", place / "out")
    assert run(monkeypatch, "transfer", pro, place / "labels.csv", clips / "*.mp4", *words) == 0
    assert [row["video"] for row in rows_of(place / "out" / "transferred.csv")] == ["a", "b", "c"]
    capsys.readouterr()
    assert run(monkeypatch, "transfer", pro, place / "labels.csv", clips / "b.mp4", *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"verdict", "probability", "reasons"} <= found["videos"][0].keys()
    assert sorted(file.name for file in (place / "out").glob("*.csv")) == ["b.csv", "transferred.csv"]


def test_labels_arrive_in_tables_and_in_the_playback(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = film(place / "a.mp4", WALK), film(place / "b.mp4", [n for n in WALK for _ in range(2)])
    (place / "labels.csv").write_text("second,label\n0.2,lift\n0.7,hit\n")
    words = ("transfer", a, place / "labels.csv", b, "--model", place / "model.safetensors", "--out", place / "out")
    assert run(monkeypatch, *map(str, words)) == 0
    with (place / "out" / "b.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["lift", "hit"]
    np.testing.assert_allclose([float(row["second"]) for row in rows], [0.4, 1.4], atol=0.06)
    assert all(0 < float(row["confidence"]) <= 1 for row in rows)
    tracks = read_playback(place / "out").tracks
    assert [[event.label for event in track.events] for track in tracks] == [["lift", "hit"]] * 2
    (place / "labels.csv").write_text("second,label\n\n,\n9,late\n")
    assert run(monkeypatch, *map(str, words)) == 1
    assert "labels.csv, line 4: 9 s lies outside the video" in " ".join(capsys.readouterr().err.split())
    (place / "labels.csv").write_text("second|label\n0.2|lift\n")
    assert run(monkeypatch, *map(str, words)) == 1
    assert "begins with second|label: its first line must be start,end,label" in capsys.readouterr().err
    (place / "labels.csv").write_text("second;label\n0,2;lift\n")
    assert run(monkeypatch, *map(str, words)) == 0
    assert float(rows_of(place / "out" / "b.csv")[0]["second"]) == pytest.approx(0.4, abs=0.06)


def test_search_finds_moments_and_videos(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = film(place / "query.mp4", WALK)
    folder = place / "corpus"
    (folder / "deeper").mkdir(parents=True)
    film(folder / "deeper" / "same.mp4", [n for n in WALK for _ in range(2)])
    film(folder / "other.mp4", [n + 7 for n in WALK[::-1]])
    (folder / "broken.mp4").write_bytes(b"no video")
    words = ("--in", folder, "--model", place / "model.safetensors", "--out", place / "out", "--top", 2)
    assert run(monkeypatch, "search", str(query), *map(str, words)) == 0
    printed = capsys.readouterr()
    assert "left out" in printed.err
    assert "broken.mp4" in printed.err
    (result,) = read_playback(place / "out").results
    assert [hit.name for hit in result.hits] == ["same", "other"]
    assert len(read_playback(place / "out").tracks) == 3
    assert run(monkeypatch, "search", str(query), "--at", "0.5", *map(str, words)) == 0
    (result,) = read_playback(place / "out").results
    assert result.hits[0].name == "same"
    assert result.hits[0].second == pytest.approx(1.0, abs=0.05)
    assert result.hits[0].thumbnail is not None
    with Image.open(place / "out" / result.hits[0].thumbnail) as image:
        assert number_of(np.asarray(image)) == WALK[15]
    capsys.readouterr()
    assert run(monkeypatch, "search", str(query), "--at", "0.5", "--json", *map(str, words)) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert hits[0] == {
        "name": "same",
        "second": result.hits[0].second,
        "score": hits[0]["score"],
        "path": hits[0]["path"],
    }
    assert run(monkeypatch, "search", str(query), "--at", "0.5", "--subsequence", *map(str, words)) == 1
    assert "give only one of them" in capsys.readouterr().err
    (folder / "store.json").touch()
    assert run(monkeypatch, "search", str(query), "--fps", "5", *map(str, words)) == 1
    assert "omit fps" in capsys.readouterr().err


def test_activations_are_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (film(place / "a.mp4", WALK[:5]), "--model", place / "model.safetensors", "--out", place / "out")
    assert run(monkeypatch, "activations", *map(str, words)) == 0
    assert probe(place / "out" / "activations.mp4").frames == 5


def test_tables_of_labels_never_share_a_file(tmp_path: Path) -> None:
    named = [file.name for file in name_tables(tmp_path, ["a/b", "a_b", "a_b_2", ".", "video", "a/b/c"])]
    assert named == ["a_b.csv", "a_b_2.csv", "a_b_2_2.csv", "video.csv", "video_2.csv", "a_b_c.csv"]


def test_a_student_is_compared_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = make_stage_pair("serve", side="right", degrees=0, at=0.4, pro_seconds=(0.5, 0.4), student_seconds=(0.8, 0.4))
    pro, student = write_stage_pair(tmp_path, pair)
    settings = ("--cache", tmp_path / "cache", "--pose-estimator", STAGE_ESTIMATOR, "--out", tmp_path / "out")
    assert run(monkeypatch, "compare", student, pro, "--phases", 2, *settings) == 0
    shown = capsys.readouterr().out
    assert "student beside pro" in shown
    assert "0 % → 50 %" in shown
    assert f"open {tmp_path / 'out'}/report.html" in shown
    assert run(monkeypatch, "compare", student, pro, "--json", *settings) == 0
    assert len(json.loads(capsys.readouterr().out)["phases"]) == 4, "running again replaces what was written"
    assert run(monkeypatch, "compare", tmp_path / "stud*.mp4", pro, *settings) == 0
    assert "verdict" in capsys.readouterr().out
    (row,) = rows_of(tmp_path / "out" / "students.csv")
    assert row["file"] == str(student)
    assert (tmp_path / "out" / "student" / "comparison.json").exists()
    assert not (tmp_path / "out" / "comparison.json").exists(), "what the run before wrote for one student"
    assert run(monkeypatch, "compare", pro) == 1
    assert "name the video of a student" in capsys.readouterr().err
    assert run(monkeypatch, "compare", tmp_path, pro, "--student-labels", "a.csv", *settings) == 1
    assert "--student-labels are those of one student" in capsys.readouterr().err
