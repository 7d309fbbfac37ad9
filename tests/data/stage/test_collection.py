"""The stage as a data set: labels that belong together, splits that share nothing, the same bits every time."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from inphase.data.stage import ACTIONS, JOINTS, load
from inphase.data.stage.actions import ACTIONS as BY_NAME
from inphase.data.stage.take import Slate, draw_take
from inphase.data.stage.warp import stretch_error
from inphase.data.video import SPLITS


def test_a_video_has_the_whole_truth() -> None:
    for video in load(split="train", videos=1, size=32):
        assert video.draw is not None
        clip = video.draw()
        frames = len(clip)
        assert clip.frames.shape == (frames, 32, 32, 3)
        assert video.length == frames
        assert video.rate == 30
        assert video.size == (32, 32)
        assert video.joints == JOINTS
        assert video.phase_names == tuple(ACTIONS[video.action].phases)
        for array, shape in (
            (video.progress, (frames,)),
            (video.phases, (frames,)),
            (video.keypoints, (frames, 17, 2)),
            (video.joints3d, (frames, 17, 3)),
            (video.visibility, (frames, 17)),
        ):
            assert array is not None
            assert array.shape == shape
        assert video.phases is not None
        assert set(video.phases.tolist()) == set(range(len(ACTIONS[video.action].phases)))
        assert (np.diff(video.phases) >= 0).all()


def test_an_event_is_the_frame_nearest_to_it() -> None:
    for video in load(split="val", videos=2):
        assert video.progress is not None
        for name, time in BY_NAME[video.action].events.items():
            frame = video.events[name]
            distances = [abs(progress - time) for progress in video.progress.tolist()]
            assert distances[frame] == min(distances)


def test_canonical_time_means_the_same_in_every_recording() -> None:
    # The event's pose is nearer to the event's pose of others than to what they do a quarter of the action away.
    for action in ("golf_swing", "kick", "clean_and_jerk"):
        time = BY_NAME[action].event
        poses = {s: [_pose_at(action, i, s) for i in range(6)] for s in (time - 0.25, time, time + 0.2)}
        alike = np.mean([np.abs(a - b).mean() for a in poses[time] for b in poses[time] if a is not b])
        for other in (time - 0.25, time + 0.2):
            unlike = np.mean([np.abs(a - b).mean() for a in poses[time] for b in poses[other]])
            assert alike < 0.75 * unlike, action


def _pose_at(action: str, index: int, time: float) -> np.ndarray:
    take = draw_take(Slate(action, "train", index))
    joints = take.posture.joints[np.abs(take.progress - time).argmin()]
    return np.asarray(joints - joints[0])


def test_the_true_poses_align_far_better_than_linear_stretch() -> None:
    warped, stretched = [], []
    for action in ("pitch", "serve", "shelf_lift", "squat"):
        first, second = (draw_take(Slate(action, "val", index)) for index in (0, 1))
        x, y = (take.posture.joints - take.posture.joints[:, :1] for take in (first, second))
        matched = _matches(np.abs(x[:, None] - y[None]).mean((2, 3))) / (len(y) - 1)
        true = np.interp(first.progress, second.progress, np.linspace(0, 1, len(y)))
        warped.append(np.abs(matched - true).mean())
        stretched.append(stretch_error(first.progress, second.progress))
    assert np.mean(warped) < 0.06
    assert np.mean(warped) < np.mean(stretched) / 2


def _matches(cost: np.ndarray) -> np.ndarray:
    """Find by plain dynamic time warping the frame of the second sequence that each frame of the first goes with."""
    m, n = cost.shape
    table = np.full((m + 1, n + 1), np.inf)
    table[0, 0] = 0
    for i, j in np.ndindex(m, n):
        table[i + 1, j + 1] = cost[i, j] + min(table[i, j], table[i, j + 1], table[i + 1, j])
    i, j, found = m, n, np.zeros(m)
    while i > 0:
        found[i - 1] = j - 1
        i, j = min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda cell: table[cell])
    return found


def test_no_body_and_no_look_is_in_two_splits() -> None:
    bodies: dict[tuple[float, ...], str] = {}
    looks: dict[bytes, str] = {}
    for split in SPLITS:
        for action in ACTIONS:
            for index in range(8):
                take = draw_take(Slate(action, split, index))
                measures = tuple(np.round(list(vars(take.body).values()), 9))
                colours = np.concatenate([take.look.skin, take.look.shirt, take.look.wall, take.look.light]).tobytes()
                assert bodies.setdefault(measures, split) == split
                assert looks.setdefault(colours, split) == split
    assert len(bodies) == len(looks) == 3 * len(ACTIONS) * 8, "nor in two recordings of one split"


def test_no_two_random_streams_are_the_same() -> None:
    aspects = ("body", "look", "timing", "style", "sway", "camera", "light", "shake", "background", "noise", "sound")
    first = {
        Slate(action, split, index).rng(aspect).integers(2**63)
        for action in ACTIONS
        for split in SPLITS
        for index in (0, 1)
        for aspect in aspects
    }
    assert len(first) == len(ACTIONS) * len(SPLITS) * 2 * len(aspects)


def test_seeds_and_levels_give_other_recordings() -> None:
    def body(seed: int) -> object:
        return draw_take(Slate("kick", "train", 0, seed=seed)).body

    assert body(0) != body(1)
    plain, hard = (draw_take(Slate("kick", "train", 0, level=level)) for level in ("plain", "hard"))
    np.testing.assert_array_equal(plain.progress, hard.progress)
    assert plain.look.clutter.shape != hard.look.clutter.shape


_DIGEST = """
import hashlib
from inphase.data.stage import load
total = hashlib.sha256()
for video in load(split="test", videos=1, actions=["serve", "shelf_lift", "clean_and_jerk"], level="hard"):
    for array in (video.draw().frames, video.keypoints, video.joints3d, video.visibility, video.hear().samples):
        total.update(array.tobytes())
print(total.hexdigest())
"""


def test_another_process_makes_the_same_bits() -> None:
    run = subprocess.run([sys.executable, "-c", _DIGEST], capture_output=True, text=True, check=True)
    total = hashlib.sha256()
    for video in load(split="test", videos=1, actions=["serve", "shelf_lift", "clean_and_jerk"], level="hard"):
        assert video.draw is not None
        assert video.hear is not None
        assert video.keypoints is not None
        assert video.joints3d is not None
        assert video.visibility is not None
        sound = video.hear().samples
        for array in (video.draw().frames, video.keypoints, video.joints3d, video.visibility, sound):
            total.update(array.tobytes())
    assert run.stdout.strip() == total.hexdigest()


def test_all_is_every_split() -> None:
    found = [video.id for video in load(split="all", videos=1, actions=["squat"])]
    assert found == [Slate("squat", split, 0).id for split in SPLITS]


def test_an_id_names_its_slate() -> None:
    slate = Slate("bat_swing", "test", 12, seed=3, level="hard")
    assert Slate.parse(slate.id) == slate


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"split": "tset"}, "split 'tset' does not exist here: choose one of train, val, test, all"),
        ({"split": "train", "level": "easy"}, "no level 'easy' on the stage; choose one of plain, medium, hard"),
        ({"split": "train", "actions": ["dance"]}, "no action 'dance' on the stage; choose one of golf_swing"),
    ],
)
def test_what_is_not_on_the_stage_is_named(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(**wrong)  # type: ignore[arg-type]
