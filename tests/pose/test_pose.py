"""A pose is that of one person in all frames: gaps are interpolated and marked, and nobody is an error."""

import csv
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from inphase.media.frames import Clip, read_clip
from inphase.pose.blazepose import BlazePose
from inphase.pose.estimator import estimate_pose
from inphase.pose.networks import DETECTOR, LANDMARKS, MODEL_FOLDER_VARIABLE, find_model
from inphase.pose.pose import JOINTS13, Pose, Region, assemble
from inphase.pose.tracking import track_person
from inphase.progress import Progress
from inphase.storage.errors import MissingExtraError, NoPersonError
from tests.media.recordings import write_video
from tests.pose.people import HIPS, JOINTS, WRISTS, Actor, Stage, make_body, make_film, make_pose, needs_networks
from tests.real_data import needs_real, real_folder

GOLFDB = real_folder("golfdb")

needs_golfdb = needs_real("golfdb")


class Scripted:
    """A pose estimator that tracks the actors of a stage."""

    joints: ClassVar[tuple[str, ...]] = JOINTS
    stage: ClassVar[Stage]

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        return track_person(self.stage, clips)


def watch(stage: Stage, film: Clip, progress: Progress | None = None) -> Pose:
    Scripted.stage = stage
    return estimate_pose(film, estimator=f"{__name__}:Scripted", progress=progress)


def test_who_swings_is_followed_and_not_who_stands_by() -> None:
    player = Actor(lambda frame: Region(40, 45, 20), swing=0.6, hidden=range(20, 24))
    bystander = Actor(lambda frame: Region(95, 45, 22))
    film = make_film(48)
    reported: list[tuple[str, int, int]] = []
    pose = watch(Stage(bystander, player), film, lambda *step: reported.append(step))
    assert np.flatnonzero(~pose.found).tolist() == [20, 21, 22, 23]
    assert pose.keypoints[:, HIPS].mean(1) == pytest.approx(np.tile([40, 45], (48, 1)), abs=1e-4)
    assert (pose.visibility[~pose.found] == 0).all()
    assert (pose.visibility[pose.found] > 0).all()
    assert (pose.size, pose.times.tolist(), reported) == (
        (90, 120),
        film.times.tolist(),
        [("estimating pose", done, 48) for done in (16, 32, 48)],
    )


def test_gaps_are_bridged_in_time_and_the_ends_held() -> None:
    times = np.array([0.0, 0.1, 0.2, 0.5, 0.6, 0.7])
    person = {frame: make_body(Region(x, 40, 20)) for frame, x in ((1, 10.0), (4, 60.0))}
    pose = assemble(person, joints=JOINTS, times=times, size=(90, 120))
    assert pose.found.tolist() == [False, True, False, False, True, False]
    assert pose.keypoints[:, HIPS, 0].mean(1) == pytest.approx([10, 10, 20, 50, 60, 60])
    assert pose.world is not None
    assert pose.keypoints.dtype == pose.world.dtype == pose.visibility.dtype == np.float32


def test_the_joints_of_penn_action_are_the_ones_of_their_names() -> None:
    pose = make_pose(5)
    points, seen = pose.joints13(threshold=0.3)
    for column, name in enumerate(JOINTS13[1:], start=1):
        np.testing.assert_array_equal(points[:, column], pose.keypoints[:, JOINTS.index(name)])
        np.testing.assert_array_equal(seen[:, column], pose.visibility[:, JOINTS.index(name)] >= 0.3)
    ears = [JOINTS.index("left_ear"), JOINTS.index("right_ear")]
    np.testing.assert_allclose(points[:, 0], pose.keypoints[:, ears].mean(1))
    assert points.shape == (5, 13, 2)
    assert points.dtype == np.float32


def test_the_landmarks_are_in_the_order_of_mediapipe() -> None:
    mediapipe = pytest.importorskip("mediapipe.python.solutions.pose")
    names = [landmark.name.lower() for landmark in mediapipe.PoseLandmark]
    ours = [name.replace("left_mouth", "mouth_left").replace("right_mouth", "mouth_right") for name in JOINTS]
    assert [f"{name}_index" if name.endswith("_foot") else name for name in ours] == names


def test_nobody_or_hardly_anybody_is_no_person() -> None:
    with pytest.raises(NoPersonError, match=r"the clip shows no person \(in none of the frames"):
        watch(Stage(), make_film(30))
    passing = Actor(lambda frame: Region(40, 45, 20) if frame < 2 else None)
    with pytest.raises(NoPersonError, match="in 2 of 30 frames only"):
        watch(Stage(passing), make_film(30))


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    pose = make_pose(5)
    with pytest.raises(ValueError, match=r"found must be \[5\], got \[4\]"):
        Pose(JOINTS, pose.keypoints, pose.visibility, pose.found[:4], pose.times, pose.size)
    with pytest.raises(ValueError, match="pass the path instead of the clip"):
        estimate_pose(make_film(3), fps=10)
    with pytest.raises(ValueError, match=r"world must be \[5, 33, 3\], got \[4, 33, 3\]"):
        Pose(
            JOINTS, pose.keypoints, pose.visibility, pose.found, pose.times, pose.size, np.zeros((4, 33, 3), np.float32)
        )


def test_the_head_is_the_best_joint_there_is_and_missing_joints_are_named() -> None:
    pose = make_pose(3)
    names = (*JOINTS13[1:], "nose")
    order = [JOINTS.index(name) for name in names]
    less = Pose(names, pose.keypoints[:, order], pose.visibility[:, order], pose.found, pose.times, pose.size)
    points, _ = less.joints13()
    np.testing.assert_array_equal(points[:, 0], pose.keypoints[:, JOINTS.index("nose")])
    np.testing.assert_array_equal(points[:, 1:], pose.joints13()[0][:, 1:])
    bare = Pose(names[1:-1], less.keypoints[:, 1:-1], less.visibility[:, 1:-1], pose.found, pose.times, pose.size)
    with pytest.raises(ValueError, match="lacks head, ears, eyes or nose, left_shoulder: use another estimator"):
        bare.joints13()


def test_without_openvino_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'inphase\[pose\]'"):
        estimate_pose(make_film(3))


@pytest.mark.slow
@needs_networks
def test_noise_shows_no_person_and_nothing_is_printed(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (12, 96, 128, 3), np.uint8)
    path = write_video(tmp_path / "noise.mp4", images=list(noise), height=96, width=128)
    code = """if True:
        import sys
        from inphase.storage.errors import NoPersonError
        from inphase.pose.estimator import estimate_pose
        try:
            estimate_pose(sys.argv[1])
        except NoPersonError as error:
            print(error)
    """
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert f"{path} shows no person (in none of the frames" in run.stdout
    assert run.stderr == ""
    with pytest.raises(ValueError, match="complexity must be 0, 1 or 2, got 3"):
        BlazePose(complexity=3)


def golfers(view: str, count: int) -> list[Path]:
    with (GOLFDB / "index.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["view"] == view]
    return [GOLFDB / "videos" / f"{row['id']}.mp4" for row in rows[:: len(rows) // count][:count]]


@needs_networks
@needs_golfdb
def test_real_golfers_are_found_with_their_own_left_and_right() -> None:
    for path in golfers("face-on", 2):
        pose = estimate_pose(path, fps=10)
        assert pose.found.mean() > 0.95
        left, right = (pose.keypoints[:5, JOINTS.index(f"{side}_hip"), 0] for side in ("left", "right"))
        assert (left > right).all(), "who faces the camera has their left hip on the right of the image"
        assert np.ptp(pose.keypoints[:, WRISTS[0], 1]) > 20, "the hands go up and down"
        assert pose.size == (128, 128)
        assert np.diff(pose.times) == pytest.approx(0.1, abs=0.04)


@needs_networks
@needs_golfdb
@pytest.mark.parametrize("right", [False, True])
def test_a_real_golfer_is_followed_beside_a_bystander_and_through_a_gap(right: bool) -> None:
    swing, other = (read_clip(path, fps=15).frames for path in golfers("face-on", 3)[1:])
    swing = swing[:40].copy()
    swing[18:21] = 0
    still = np.repeat(other[:1], len(swing), axis=0)
    still[18:21] = 0
    together = Clip(np.concatenate([still, swing] if right else [swing, still], axis=2), np.arange(len(swing)) / 15)
    pose = estimate_pose(together)
    middle = pose.keypoints[:, HIPS, 0].mean(1)
    assert ((middle > 128) == right).all()
    assert not pose.found[18:21].any()
    assert pose.found[30:].all()
    wrist = pose.keypoints[:, WRISTS[0]]
    np.testing.assert_allclose(wrist[19], (wrist[18] + wrist[20]) / 2, atol=1e-3)


@needs_networks
def test_networks_that_are_not_the_published_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for model in (DETECTOR, LANDMARKS[1]):
        (tmp_path / model.name).write_bytes(find_model(model).read_bytes())
    monkeypatch.setenv(MODEL_FOLDER_VARIABLE, str(tmp_path))
    assert BlazePose().find(np.zeros((64, 64, 3), np.uint8)) == []
    with (tmp_path / LANDMARKS[1].name).open("r+b") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"pose_landmark_full\.tflite is not the published file: its SHA-256 is "):
        BlazePose()
