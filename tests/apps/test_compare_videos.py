"""A student beside a pro: a known tempo and a known bend of the elbow are found, in numbers and in the files."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from inphase.apps.align_videos import align_videos
from inphase.apps.compare_videos import compare_embeddings, compare_students, compare_videos, read_marks
from inphase.apps.comparison import Comparison
from inphase.apps.labels import Event, Labels, Segment
from inphase.media.recording import NamedVideo, Properties
from inphase.models.modality import embed_pose
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.weights import load_shipped
from inphase.playback import read_playback
from inphase.pose.body import ANGLES, mirror_pose
from inphase.pose.pose import Pose
from inphase.stage.physique import JOINT
from inphase.stage.take import FPS, Take
from inphase.storage.errors import NoPersonError
from tests.apps.stage_pairs import STAGE_ESTIMATOR, StagePair, make_stage_pair, pose_of, write_stage_pair
from tests.media.recordings import numbered, write_video
from tests.pose.people import needs_networks

FRAMES, DEGREES = 2, 5


def named(name: str, take: Take) -> NamedVideo:
    length = len(take.progress)
    return NamedVideo(
        Path(f"{name}.mp4"), name, Properties(length, FPS, length / FPS, (320, 320), False), playable=True
    )


def labels_of(pair: StagePair, take: Take) -> Labels:
    moments = {"start": 0.0, "middle": 0.5, "end": 1.0}
    return Labels(events=tuple(Event(pair.frame_of(take, at) / FPS, name) for name, at in moments.items()))


def compare_poses(pair: StagePair, pro: Pose, student: Pose) -> Comparison:
    encoder, names = load_shipped("pose"), (named("pro", pair.pro), named("student", pair.student))
    marks = read_marks(names[0], labels_of(pair, pair.pro), phases=2)
    return compare_embeddings(
        (names[0], embed_pose(encoder, pro)), (names[1], embed_pose(encoder, student)), marks=marks
    )


def elbow(take: Take, side: str, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Measure the elbow in the picture plane at canonical times, from the projected joints themselves."""
    a, b, c = (take.keypoints[:, JOINT[f"{side}_{name}"]] for name in ("shoulder", "elbow", "wrist"))
    cosine = ((a - b) * (c - b)).sum(1) / np.linalg.norm(a - b, axis=1) / np.linalg.norm(c - b, axis=1)
    return np.asarray(np.interp(at, take.progress, np.degrees(np.arccos(np.clip(cosine, -1, 1)))))


def check_found(comparison: Comparison, pair: StagePair, side: str) -> None:
    """Check tempo within two frames, and the largest bend within two frames and five degrees."""
    for phase, pro, student in zip(comparison.phases, (1.2, 0.8), (1.8, 0.8), strict=True):
        assert phase.seconds == pytest.approx((pro, student), abs=FRAMES / FPS)
    center = pair.student.progress[np.abs(pair.bend).argmax()]
    progress = np.linspace(center - 0.1, center + 0.1, 100)  # elsewhere, fast motion is coarse between frames
    truth = elbow(pair.student, side, progress) - elbow(pair.pro, side, progress)
    most = int(np.abs(truth).argmax())
    found = next(each for each in comparison.angles() if each.name == f"{side}_elbow")
    assert found.largest == pytest.approx(truth[most], abs=DEGREES)
    assert found.student_second == pytest.approx(pair.frame_of(pair.student, progress[most]) / FPS, abs=FRAMES / FPS)
    assert found.pro_second == pytest.approx(pair.frame_of(pair.pro, progress[most]) / FPS, abs=FRAMES / FPS)


@pytest.mark.parametrize(
    ("action", "side", "at", "degrees"),
    [("serve", "right", 0.4, 30), ("pitch", "right", 0.5, -30), ("golf_swing", "left", 0.42, 30)],
)
def test_tempo_and_bend_of_the_stage_are_found(action: str, side: str, at: float, degrees: float) -> None:
    pair = make_stage_pair(action, side=side, degrees=degrees, at=at)
    comparison = compare_poses(pair, pose_of(pair.pro), pose_of(pair.student))
    check_found(comparison, pair, side)
    assert comparison.angles()[0].name == f"{side}_elbow", "the elbow differs most"
    assert comparison.warnings == ()
    # In the first half the student takes 1.5 times as long; in the second both are equally fast.
    halves = np.interp(comparison.clock, [0.2, 1.0, 1.4, 1.8], [0, 0, 1, 1])
    assert np.median(comparison.speed[halves == 0]) == pytest.approx(1 / 1.5, abs=0.1)
    assert np.median(comparison.speed[halves == 1]) == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
@needs_networks
def test_tempo_and_bend_are_found_in_rendered_pixels(tmp_path: Path) -> None:
    pair = make_stage_pair("squat", side="right", degrees=40, at=0.3)
    pro, student = write_stage_pair(tmp_path, pair, size=320)
    comparison = compare_videos(student, pro, labels=labels_of(pair, pair.pro), cache=tmp_path / "cache")
    check_found(comparison, pair, "right")


def test_no_bend_means_no_difference() -> None:
    pair = make_stage_pair("serve", side="right", degrees=0, at=0.4)
    comparison = compare_poses(pair, pose_of(pair.pro), pose_of(pair.student))
    assert np.mean([each.mean for each in comparison.angles()]) < 3


def test_a_left_handed_student_is_compared_in_the_mirror() -> None:
    pair = make_stage_pair("pitch", side="right", degrees=30, at=0.5)
    other_hand = mirror_pose(pose_of(pair.student))
    as_filmed = compare_poses(pair, pose_of(pair.pro), other_hand)
    assert any("mirror" in text for text in as_filmed.warnings)
    check_found(compare_poses(pair, pose_of(pair.pro), mirror_pose(other_hand)), pair, "right")


def test_a_view_from_another_side_is_warned_of() -> None:
    pair = make_stage_pair("serve", side="right", degrees=0, at=0.4)
    away = make_stage_pair("serve", side="right", degrees=0, at=0.4, turn=70.0)
    comparison = compare_poses(pair, pose_of(pair.pro), pose_of(away.student))
    (text,) = [text for text in comparison.warnings if "views differ" in text]
    assert "pro from the front, student from the side" in text
    assert "picture plane" in text


def test_segments_and_missing_labels_give_phases() -> None:
    pair = make_stage_pair("serve", side="right", degrees=0, at=0.4)
    video = named("pro", pair.pro)
    given = Labels(segments=(Segment(0, 0.5, "wind-up"), Segment(0.5, 1.0, "throw"), Segment(1.5, 2.0, "end")))
    marks = read_marks(video, given, phases=4)
    assert [each.label for each in marks.moments] == ["wind-up", "throw", "end of throw", "end", "end of end"]
    assert marks.phases == (("wind-up", 0, 1), ("throw", 1, 2), ("end", 3, 4))
    equal = read_marks(video, None, phases=4)
    np.testing.assert_allclose([each.second for each in equal.moments], np.linspace(0, 2, 5))
    one = read_marks(video, Labels(events=(Event(0.7, "impact"),)), phases=4)
    assert [label for label, _, _ in one.phases] == ["start → impact", "impact → end"]
    with pytest.raises(ValueError, match="phases must be at least 1, got 0"):
        read_marks(video, None, phases=0)


@pytest.fixture(scope="module")
def pair() -> StagePair:
    return make_stage_pair("serve", side="right", degrees=30, at=0.4)


@pytest.fixture(scope="module")
def videos(pair: StagePair, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_stage_pair(tmp_path_factory.mktemp("videos"), pair)


def test_a_session_in_place_of_a_student_is_named_with_the_option_that_cuts_it(pair: StagePair) -> None:
    pro, student = pose_of(pair.pro), pose_of(pair.student)
    joints = np.concatenate([student.keypoints] * 3)
    shown, found = np.ones(joints.shape[:2], np.float32), np.ones(len(joints), np.bool_)
    thrice = replace(student, keypoints=joints, visibility=shown, found=found, times=np.arange(len(joints)) / FPS)
    warned = " ".join(compare_poses(pair, pro, thrice).warnings)
    assert "this comparison. " in warned
    assert "The student's video shows the action again every" in warned
    assert "--session" in warned


@pytest.fixture(scope="module")
def comparison(pair: StagePair, videos: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    pro, student = videos
    labels = labels_of(pair, pair.pro)
    cache = tmp_path_factory.mktemp("cache")
    return compare_videos(student, pro, labels=labels, cache=cache, pose_estimator=STAGE_ESTIMATOR)


def test_every_file_says_the_same(comparison: Comparison, pair: StagePair, tmp_path: Path) -> None:
    files = comparison.write(tmp_path)
    names = ["report.html", "comparison.json", "comparison.csv", "positions.png", "aligned.mp4", "playback.json"]
    assert [file.name for file in files] == names
    pro, student = json.loads((tmp_path / "playback.json").read_text(encoding="utf-8"))["tracks"]
    assert "certainty" not in pro
    assert student["certainty"]["judgment"] == comparison.verdict.judgment
    document = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert document == json.loads(json.dumps(comparison.to_dict()))
    assert [each["label"] for each in document["phases"]] == ["start → middle", "middle → end"]
    assert document["phases"][0]["ratio"] == pytest.approx(1.5, abs=0.1)
    assert document["phases"][0]["student_percent"] == pytest.approx(100 * 1.8 / 2.6, abs=3)
    rows = list(csv.DictReader((tmp_path / "comparison.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len(pair.pro.progress)
    number = ANGLES.index("right_elbow")
    for row, a, b in zip(rows, comparison.pro_angles, comparison.student_angles, strict=True):
        assert row["right_elbow_pro"] == ("" if np.isnan(a[number]) else f"{a[number]:.2f}")
        assert row["right_elbow_student"] == ("" if np.isnan(b[number]) else f"{b[number]:.2f}")
    with Image.open(tmp_path / "positions.png") as sheet:
        assert sheet.width > sheet.height / 4 > 100
    playback = read_playback(tmp_path)
    assert [[event.label for event in track.events] for track in playback.tracks] == [["start", "middle", "end"]] * 2
    assert all(track.keypoints is not None for track in playback.tracks)


def test_the_report_is_one_page_that_loads_nothing(comparison: Comparison, tmp_path: Path) -> None:
    comparison.write(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "http:" not in page
    assert "https:" not in page
    assert "<script" not in page
    assert page.count("data:image/jpeg;base64,") == 2 * len(comparison.positions)
    assert "Right elbow" in page
    assert "picture plane" in page
    assert f"{comparison.angles()[0].largest:+.0f}°".replace("-", "−") in page


def test_names_and_labels_are_text(comparison: Comparison, videos: tuple[Path, Path], tmp_path: Path) -> None:
    from dataclasses import replace

    evil = "<b>&\"'{{ 7*7 }}"
    positions = tuple(replace(each, label=evil) for each in comparison.positions)
    student = replace(comparison.student, name=evil)
    replace(comparison, positions=positions, student=student).write(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "{{ 7*7 }}" in page


@pytest.mark.slow
def test_students_of_a_folder_give_one_table(pair: StagePair, videos: tuple[Path, Path], tmp_path: Path) -> None:
    pro, student = videos
    folder = tmp_path / "students"
    folder.mkdir()
    (folder / "ann.mp4").write_bytes(student.read_bytes())
    (folder / "bob.mp4").write_bytes(pro.read_bytes())
    (folder / "broken.mp4").write_bytes(b"no video")
    settings = {"labels": labels_of(pair, pair.pro), "cache": tmp_path / "cache", "pose_estimator": STAGE_ESTIMATOR}
    compared = compare_students([folder, pro], pro, **settings)  # type: ignore[arg-type]
    assert [each.student.name for each in compared.comparisons] == ["ann", "bob"]
    assert list(compared.left_out) == [str(folder / "broken.mp4")]
    compared.write(tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "students.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["student"] for row in rows] == ["ann", "bob"]
    assert float(rows[0]["ratio"]) == pytest.approx(2.6 / 2.0, abs=0.08)
    assert float(rows[1]["ratio"]) == pytest.approx(1.0, abs=0.03)
    assert rows[0]["largest_angle"] == "right_elbow"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert 'href="ann/report.html"' in page
    assert (tmp_path / "out" / "ann" / "report.html").is_file()
    assert "broken.mp4" in page
    assert json.loads(json.dumps(compared.to_dict(), allow_nan=False))["left_out"]


def test_a_student_in_slow_motion_is_compared_at_equal_tempo(tmp_path: Path) -> None:
    pair = make_stage_pair("serve", side="right", degrees=0, at=0.4, student_seconds=(3.6, 2.4))
    pro, student = write_stage_pair(tmp_path, pair)
    settings = {"labels": labels_of(pair, pair.pro), "cache": tmp_path / "cache", "pose_estimator": STAGE_ESTIMATOR}
    (several,) = compare_students([student], pro, **settings).comparisons  # type: ignore[arg-type]
    for found in (compare_videos(student, pro, **settings), several):  # type: ignore[arg-type]
        assert "times slower than pro: they are compared at equal tempo" in found.why
        for phase, mine, theirs in zip(found.phases, (1.2, 0.8), (3.6, 2.4), strict=True):
            assert phase.seconds == pytest.approx((mine, theirs), abs=3 * FRAMES / FPS)


def test_a_student_of_one_frame_has_a_finite_speed() -> None:
    pair = make_stage_pair("serve", side="right", degrees=0, at=0.4)
    pose = pose_of(pair.student)
    cut = {name: getattr(pose, name)[:1] for name in ("keypoints", "visibility", "found", "times")}
    one = replace(pose, **cut)
    found = compare_poses(pair, pose_of(pair.pro), one)
    assert found.speed.max() <= 10
    assert found.verdict.judgment == "do_not_trust"


def test_labels_of_both_are_paired_by_name(pair: StagePair, videos: tuple[Path, Path], tmp_path: Path) -> None:
    pro, student = videos
    settings = {"cache": tmp_path / "cache", "pose_estimator": STAGE_ESTIMATOR}
    theirs = Labels(events=(Event(0.1, "start"), Event(1.1, "middle"), Event(2.1, "end")))
    found = compare_videos(
        student,
        pro,
        labels=labels_of(pair, pair.pro),
        student_labels=theirs,
        **settings,  # type: ignore[arg-type]
    )
    assert [each.student for each in found.positions] == [0.1, 1.1, 2.1]
    assert found.positions[0].confidence is None
    wrong = Labels(events=theirs.events[:2])
    with pytest.raises(ValueError, match="differ from the pro's: check end"):
        compare_videos(
            student,
            pro,
            labels=labels_of(pair, pair.pro),
            student_labels=wrong,
            **settings,  # type: ignore[arg-type]
        )


@pytest.mark.slow
@needs_networks
def test_a_comparison_matches_frames_as_an_alignment_does(tmp_path: Path) -> None:
    """Both add the motion energy to untrained image features."""
    orders = [np.random.default_rng(seed).integers(4000, size=30).tolist() for seed in (0, 1)]
    films = [
        write_video(tmp_path / f"{name}.mp4", images=[numbered(n) for n in order])
        for name, order in zip(("pro", "student"), orders, strict=True)
    ]
    settings: dict[str, Any] = {"model": PooledFeatures(size=64, grid=2, weights=None), "cache": tmp_path / "cache"}
    aligned = align_videos(films, reference="pro", **settings)
    (several,) = compare_students(films[1:], films[0], **settings).comparisons
    for found in (compare_videos(films[1], films[0], **settings), several):
        np.testing.assert_array_equal(found.synchronization.matches[1].path, aligned.alignments[1].path)


def test_without_a_person_only_the_tempo_is_compared(tmp_path: Path) -> None:
    films = [write_video(tmp_path / f"{name}.mp4", count=length) for name, length in (("pro", 20), ("student", 24))]
    comparison = compare_videos(films[1], films[0], cache=tmp_path / "cache")
    assert comparison.angles() == []
    assert any("only the tempo is compared" in text for text in comparison.warnings)
    comparison.write(tmp_path / "out")
    assert "Angles in the picture plane" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    with pytest.raises((ValueError, NoPersonError), match=r"needs body pose|shows no person"):
        compare_videos(films[1], films[0], cache=tmp_path / "cache", mirror=True)
