"""`inphase align`, end to end, on videos as people have them; random weights are enough to recognize an image."""

import csv
import json
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inphase.media.audio import read_sound
from inphase.media.frames import read_clip
from inphase.media.recording import probe
from inphase.playback import read_playback
from tests.commands import type_command as run
from tests.media.recordings import clicks, number_of, numbered, write_video

pytestmark = pytest.mark.slow


def film(path: Path, numbers: "list[int]", **how: object) -> Path:
    """Write a video that shows these numbers."""
    return write_video(path, images=[numbered(number) for number in numbers], **how)  # type: ignore[arg-type]


def align(monkeypatch: pytest.MonkeyPatch, place: Path, *words: object) -> int:
    common = ("--model", place / "model.safetensors", "--out", place / "out", "--height", 64)
    return run(monkeypatch, "align", *map(str, (*common, *words)))


def seconds_of(place: Path) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    with (place / "out" / "path.csv").open(encoding="utf-8", newline="") as file:
        return np.array([[float(cell) for cell in row] for row in list(csv.reader(file))[1:]])


# Numbers that differ in many fields, so that a random network tells them apart.
WALK = [int(n) for n in np.random.default_rng(0).permutation(4000)[:30]]


def test_align_writes_everything(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a = film(place / "a.mp4", WALK, sound=clicks([0.5], length=1.0))
    b = film(place / "b [i].mp4", [n for n in WALK for _ in range(2)])
    assert align(monkeypatch, place, a, b) == 0
    out = place / "out"
    # The second shows everything twice.
    np.testing.assert_allclose(seconds_of(place)[:, 1], seconds_of(place)[:, 0] * 2, atol=0.05)
    playback = read_playback(out)
    assert [track.name for track in playback.tracks] == ["a", "b [i]"]
    time_map, curves = playback.tracks[1].time_map, playback.tracks[1].curves
    assert time_map is not None
    assert curves is not None
    np.testing.assert_allclose(time_map(0.5), 1.0, atol=0.05)
    assert playback.pairs[0].cost.shape == (30, 60)
    clip = read_clip(out / "aligned.mp4")
    same = [number_of(shown[:, :96]) == number_of(shown[:, 96:]) for shown in clip.frames]
    assert np.mean(same) > 0.9
    heard = read_sound(out / "aligned.mp4", rate=16000)
    assert heard.start + np.abs(heard.samples).argmax() / 16000 == pytest.approx(0.5, abs=0.05)
    with Image.open(out / "alignment.png") as image:
        assert image.size == (608, 608)
    printed = capsys.readouterr().out
    assert "Using the given image encoder." in printed
    assert "b [i]" in printed


def test_the_first_line_is_an_estimate_and_a_pipe_gets_progress(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = film(place / "a.mp4", WALK), film(place / "b.mp4", WALK[:20])
    for words in ("2 videos, 50 frames, about 7 s", "2 videos, 50 frames, embedded before: about "):
        assert align(monkeypatch, place, a, b) == 0
        first, second, *_ = capsys.readouterr().err.splitlines()
        assert first.startswith(words)
        assert second.split(maxsplit=1)[1].startswith("embedding ")
    assert align(monkeypatch, place, a, b, "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert align(monkeypatch, place, a, b, "--verbose") == 0
    assert f"INFO embedding {a} by image, every frame" in capsys.readouterr().err


def test_moments_between_the_frames_of_a_fast_recording_are_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = [n for n in WALK for _ in range(8)]  # 30 images a second, at 240 frames per second
    a, b = film(place / "a.mp4", at_once, rate=240), film(place / "b.mp4", [n for n in WALK for _ in range(2)], rate=60)
    (place / "labels.csv").write_text("second,label\n0.5,half\n0.75,later\n")
    words = ("--model", place / "model.safetensors", "--out", place / "out")
    assert run(monkeypatch, "transfer", a, place / "labels.csv", b, *words) == 0
    with (place / "out" / "b.csv").open(encoding="utf-8", newline="") as file:
        seconds = [float(row["second"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(seconds, [0.5, 0.75], atol=1 / 60)
    assert align(monkeypatch, place, a, b) == 0
    assert len(seconds_of(place)) == 30
    assert probe(place / "out" / "aligned.mp4").fps == pytest.approx(30, abs=0.1)


def rows_of(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_is_aligned_without_its_unusable_clips_and_again_with_fewer(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clips = place / "clips"
    clips.mkdir()
    for number in range(10):
        film(clips / f"{number}.mp4", WALK[: 20 + number])
    (clips / "broken.mp4").write_bytes(b"nonsense")
    assert align(monkeypatch, place, clips) == 0
    assert f"left out: {clips / 'broken.mp4'} cannot be opened" in capsys.readouterr().err
    out = place / "out"
    rows = rows_of(out / "alignment.csv")
    assert [row["video"] for row in rows] == [*"0123456789", "broken"]
    assert [row["file"] for row in rows[:2]] == [str(clips / "0.mp4"), str(clips / "1.mp4")]
    assert "cannot be opened" in rows[-1]["reason"]
    assert (float(rows[1]["start"]), float(rows[1]["end"])) == pytest.approx((0.0, 20 / 30), abs=0.05)
    assert len(seconds_of(place)[0]) == 10 + 9, (
        "the seconds of all videos, and the probabilities of all but the reference"
    )
    assert len(read_playback(out).tracks) == 9
    (out / "mine.txt").write_text("my own")
    assert align(monkeypatch, place, clips / "[01].mp4", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["videos"]] == ["0", "1"]
    assert {"verdict", "probability", "reasons"} <= found["videos"][1].keys()
    assert sorted(file.name for file in out.glob("*.mp4")) == ["0.mp4", "1.mp4", "aligned.mp4"]
    assert (out / "mine.txt").read_text() == "my own"
    assert len(list(clips.iterdir())) == 11, "the sources stay"


def test_the_help_says_that_videos_are_several_and_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("align", "transfer"):
        assert run(monkeypatch, command, "--help") == 0
        words = capsys.readouterr().out.split()
        assert "VIDEO… video files, folders of them, or patterns such as 'clips/*.mp4' (required)" in " ".join(words)


def test_the_command_that_opens_the_viewer_can_be_copied(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = place / "a folder whose name is so long that no terminal shows it in one line, and has [blanks] in it"
    a, b = film(place / "a.mp4", WALK[:4]), film(place / "b.mp4", WALK[:4])
    words = ("--model", place / "model.safetensors", "--out", out, "--height", 64)
    assert run(monkeypatch, "align", *map(str, (a, b, *words))) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(last)[-3:] == ["inphase", "view", str(out)]


def test_slow_motion_smoothing_and_another_reference(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = film(place / "a.mp4", WALK), film(place / "b.mp4", [n for n in WALK for _ in range(2)])
    assert align(monkeypatch, place, a, b, "--slow", 2, "--smooth", 0.5, "--reference", "b") == 0
    assert read_playback(place / "out").reference == 1
    assert probe(place / "out" / "aligned.mp4").duration == pytest.approx(4.0, abs=0.1)
    assert np.diff(seconds_of(place)[:, 1]).min() > 0


def test_a_reference_is_known_by_its_name_even_where_that_is_a_number(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, first = film(place / "0002.mp4", WALK), film(place / "0001.mp4", WALK)
    for wish, chosen in (("0001", 1), ("0002", 0), ("1", 0), ("2", 1)):
        assert align(monkeypatch, place, second, first, "--reference", wish) == 0
        assert read_playback(place / "out").reference == chosen, wish


def test_a_short_action_is_found_inside_a_long_video(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = film(place / "a.mp4", WALK), film(place / "b.mp4", WALK[10:20])
    assert align(monkeypatch, place, a, b, "--subsequence") == 0
    np.testing.assert_allclose(seconds_of(place)[[0, -1], 1], [10 / 30, 19 / 30], atol=0.05)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("embedded before it was refused")

    monkeypatch.setattr("inphase.apps.align_videos.embed_usable", refuse)
    capsys.readouterr()
    assert align(monkeypatch, place, a, b, "--subsequence", "--reference", 1) == 1
    assert "cannot be found inside" in capsys.readouterr().err
    assert align(monkeypatch, place, a, b, "--reference", "c") == 1
    assert "reference c: give a number from 1 to 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["a.mp4"], "name two or more videos, folders or patterns, got 1"),
        (["a.mp4", "gone.mp4"], "gone.mp4 does not exist"),
        (["a.mp4", "empty.mp4"], "empty.mp4 is empty (0 bytes)"),
        (["a.mp4", "text.mp4"], "text.mp4 cannot be opened"),
        (["a.mp4", "sound.m4a"], "sound.m4a has no video stream"),
        (["a.mp4", "folder"], "there is no video in folder: name a folder of videos"),
        (["clips/*.mp4"], "there is no video in clips/*.mp4"),
        (["a.mp4", "a.mp4", "--reference", "c"], "reference c: give a number from 1 to 2"),
        (["a.mp4", "a.mp4", "--model", "text.mp4"], "text.mp4 is not an encoder file"),
        (["a.mp4", "a.mp4", "--slow", "0"], "slow must be above 0"),
        (["a.mp4", "a.mp4", "--smooth", "nan"], "smooth must not be negative"),
        (["a.mp4", "a.mp4", "--height", "0"], "height must be at least 2 pixels, got 0"),
        (["a.mp4", "a.mp4", "--out", "empty.mp4"], "empty.mp4 is a file: choose a folder to write"),
    ],
)
def test_what_cannot_be_aligned_is_named_with_the_fix(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], wrong: str
) -> None:
    monkeypatch.chdir(place)
    film(place / "a.mp4", WALK[:4])
    (place / "empty.mp4").touch()
    (place / "text.mp4").write_text("not a video")
    (place / "folder").mkdir()
    _write_sound(place / "sound.m4a")
    assert align(monkeypatch, place, *words) == 1
    errors = capsys.readouterr().err
    assert wrong in errors  # in one line, however long
    assert not (place / "out" / "playback.json").exists()


def _write_sound(path: Path) -> None:
    import av

    with av.open(str(path), "w", format="mp4") as container:
        speaker = container.add_stream("aac", rate=44100, layout="mono")
        block = av.AudioFrame.from_ndarray(clicks([0.05], length=0.1)[None, :1024], format="fltp", layout="mono")
        block.sample_rate = 44100
        container.mux(speaker.encode(block))
        container.mux(speaker.encode())


def test_silent_turned_odd_and_differently_sized_videos_are_aligned(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = [numbered(number, height=64, width=64) for number in WALK]
    a = write_video(place / "a.mp4", images=straight, height=64, width=64)
    large = [np.kron(image, np.ones((2, 3, 1), np.uint8)) for image in straight]
    b = write_video(place / "b.mp4", images=large, height=128, width=192)
    upside_down = [np.ascontiguousarray(image[::-1, ::-1]) for image in straight]
    c = write_video(place / "c.mov", images=upside_down, height=64, width=64, turn={"degrees": 180}, rate=15)
    d = write_video(place / "d.avi", images=straight, height=64, width=64, codec="mjpeg", pixels="yuvj420p")
    assert align(monkeypatch, place, a, b, c, d) == 0
    found = seconds_of(place)
    for column, speed in ((1, 1), (2, 2), (3, 1)):
        assert np.median(np.abs(found[:, column] - found[:, 0] * speed)) < 0.04
    tracks = read_playback(place / "out").tracks
    assert [track.media for track in tracks] == ["a.mp4", "b.mp4", "c.mp4", "d.mp4"]
    assert not probe(place / "out" / "aligned.mp4").has_sound
    # Encoded again, the turned one is upright without being asked.
    assert number_of(read_clip(place / "out" / "c.mp4", indices=[3]).frames[0]) == WALK[3]


def test_one_frame_is_enough(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, many = film(place / "one.mp4", WALK[:1]), film(place / "many.mp4", WALK)
    assert align(monkeypatch, place, one, many) == 0
    assert probe(place / "out" / "aligned.mp4").frames == 1
    assert align(monkeypatch, place, many, one) == 0
    assert set(seconds_of(place)[:, 1]) == {0.0}


def test_a_very_long_video_is_aligned_piece_by_piece(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for 100 × 100 frames has to do for 300 × 400, as that for 4000 × 4000 has to for longer ones."""
    from inphase.align.matching import match
    from inphase.apps import alignment_files as track

    walk = [int(n) for n in np.random.default_rng(1).permutation(4000)[:100]]
    a = film(place / "a.mp4", [n for n in walk for _ in range(3)])
    b = film(place / "b.mp4", [n for n in walk for _ in range(4)])
    monkeypatch.setattr("inphase.apps.align_videos.match", partial(match, max_cells=10_000))
    monkeypatch.setattr(track, "MAX_CELLS", 10_000)
    monkeypatch.setattr(track, "MAX_COST_SIDE", 50)
    assert align(monkeypatch, place, a, b) == 0
    found = seconds_of(place)
    assert np.abs(found[:, 1] - found[:, 0] * 4 / 3).max() < 0.2
    assert read_playback(place / "out").pairs[0].cost.shape == (50, 50)


def test_a_video_that_is_called_as_the_result_is_never_lost(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = film(place / "aligned.mp4", WALK), film(place / "b.mp4", WALK)
    before = a.read_bytes()
    assert align(monkeypatch, place, a, b) == 0  # into another folder: both are there
    media = read_playback(place / "out").tracks[0].media
    assert media is not None
    assert (place / "out" / media).read_bytes() == before
    assert probe(place / "out" / "aligned.mp4").size == (64, 192)
    common = ("--model", place / "model.safetensors", "--out", place)
    assert run(monkeypatch, "align", *map(str, (a, b, *common))) == 1  # into its own folder: refused
    assert a.read_bytes() == before
    assert "aligned.mp4 would be overwritten: choose another output folder" in " ".join(capsys.readouterr().err.split())
    table = place / "b.csv"
    table.write_text("second,label\n0.5,middle\n")
    assert run(monkeypatch, "transfer", *map(str, (a, table, b, *common))) == 1
    assert table.read_text() == "second,label\n0.5,middle\n"
    assert "b.csv would be overwritten: choose another output folder" in " ".join(capsys.readouterr().err.split())
