from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from inphase.data import penn_action
from inphase.data.video import Problem

SIDES = ("left", "right")


def write_labels(
    root: Path, stem: str, *, action: str = "squat", train: int = 1, frames: int = 4, boxes: int = 4
) -> None:
    """Write one label file as MATLAB stored them: counts in small unsigned types, everything in two dimensions."""
    (root / "labels").mkdir(parents=True, exist_ok=True)
    columns = np.tile(np.arange(13.0), (frames, 1))
    savemat(
        root / "labels" / f"{stem}.mat",
        {
            "action": action,
            "pose": "left",
            "x": columns,
            "y": columns + 100,
            "visibility": (columns % 2).astype(np.uint8),
            "bbox": np.tile([1.0, 2.0, 30.0, 40.0], (boxes, 1)),
            "dimensions": np.array([[270, 480, frames]], dtype=np.uint16),
            "nframes": np.uint8(frames),
            "train": np.int32(train),
        },
    )


def test_a_label_file_becomes_a_video(tmp_path: Path) -> None:
    write_labels(tmp_path, "0001")
    (video,) = penn_action.load(tmp_path, split="train")
    assert (video.id, video.action, video.split, video.length, video.path) == ("0001", "squat", "train", 4, None)
    assert video.size == (270, 480)
    assert video.notes == {"view": "left"}
    assert video.keypoints is not None
    assert video.keypoints[2, 0].tolist() == [0, 100]
    assert video.keypoints[2, video.joints.index("left_wrist")].tolist() == [6, 106]
    assert video.keypoints[2, video.joints.index("right_wrist")].tolist() == [5, 105]
    assert video.visibility is not None
    assert video.visibility[0].tolist() == [False] + [True, False][::-1] * 6
    assert video.boxes is not None
    assert video.boxes[3].tolist() == [1, 2, 30, 40]
    assert video.phases is None


def test_frames_are_found_where_there_are_some(tmp_path: Path) -> None:
    write_labels(tmp_path, "0001")
    (tmp_path / "frames").mkdir()
    (video,) = penn_action.load(tmp_path, split="all")
    assert video.path == tmp_path / "frames" / "0001"


def test_splits_and_actions_are_chosen(tmp_path: Path) -> None:
    write_labels(tmp_path, "0001", train=1)
    write_labels(tmp_path, "0002", train=-1)
    write_labels(tmp_path, "0003", action="jump_rope")
    assert [video.id for video in penn_action.load(tmp_path, split="all")] == ["0001", "0002"]
    assert [video.id for video in penn_action.load(tmp_path, split="test")] == ["0002"]
    every = penn_action.load(tmp_path, split="all", actions=penn_action.ALL_ACTIONS)
    assert [video.id for video in every] == ["0001", "0002", "0003"]
    with pytest.raises(ValueError, match="no such action: swim"):
        penn_action.load(tmp_path, split="all", actions=("swim",))
    with pytest.raises(ValueError, match="'val' does not exist"):
        penn_action.load(tmp_path, split="val")


def test_phases_are_read_wherever_they_lie_in_their_folder(tmp_path: Path) -> None:
    write_labels(tmp_path, "0001")
    (tmp_path / "phases" / "squat").mkdir(parents=True)
    np.save(tmp_path / "phases" / "squat" / "0001.npy", np.array([0, 0, 1, 3], dtype=np.int32))
    (video,) = penn_action.load(tmp_path, split="all")
    assert video.phases is not None
    assert video.phases.tolist() == [0, 0, 1, 3]
    with pytest.raises(FileNotFoundError, match="no folder of phase labels"):
        penn_action.load(tmp_path, split="all", phases=tmp_path / "elsewhere")


def test_phases_of_another_length_are_resampled_as_their_distributor_does(tmp_path: Path) -> None:
    write_labels(tmp_path, "0001")  # four frames
    (tmp_path / "phases").mkdir()
    for phases, expected in (([0, 1, 1, 2, 2, 3, 4], [0, 1, 2, 3]), ([0, 1, 2], [0, 1, 2, 2]), ([0, 1], [0, 0, 1, 1])):
        np.save(tmp_path / "phases" / "0001.npy", np.array(phases))
        (video,) = penn_action.load(tmp_path, split="all")
        assert video.phases is not None
        assert video.phases.tolist() == expected
        assert video.notes["repaired"].endswith(f"{len(phases)} phases resampled to 4 frames")
    # Of 5 labels for 12 frames CARL keeps the frames ⌊12 j / 5⌋: 0, 2, 4, 7 and 9.
    found = penn_action.resample_phases(np.arange(5), length=12)
    assert found[[0, 2, 4, 7, 9]].tolist() == [0, 1, 2, 3, 4]
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.array([[0, 1, 2, 3]]), "instead of a list of integers"),
        (np.array([], dtype=np.int64), "instead of a list of integers"),
        (np.zeros(4), "float64"),
        (np.array([{}, {}, {}, {}], dtype=object), "not an array of integers"),
    ],
)
def test_wrong_phases_are_reported_and_the_video_stays(tmp_path: Path, wrong: np.ndarray, message: str) -> None:
    write_labels(tmp_path, "0001")
    (tmp_path / "phases").mkdir()
    np.save(tmp_path / "phases" / "0001.npy", wrong, allow_pickle=True)
    with pytest.warns(Problem, match=message):
        (video,) = penn_action.load(tmp_path, split="all")
    assert video.phases is None


def test_a_damaged_label_file_is_reported_and_left_out(tmp_path: Path) -> None:
    write_labels(tmp_path, "0001")
    whole = (tmp_path / "labels" / "0001.mat").read_bytes()
    (tmp_path / "labels" / "0002.mat").write_bytes(whole[:200])
    (tmp_path / "labels" / "0003.mat").write_bytes(b"")
    with pytest.warns(Problem) as caught:
        assert [video.id for video in penn_action.load(tmp_path, split="all")] == ["0001"]
    assert len(caught) == 2


def test_a_missing_last_box_is_repeated_and_noted(tmp_path: Path) -> None:
    write_labels(tmp_path, "0001", boxes=3)
    (video,) = penn_action.load(tmp_path, split="all")
    assert video.boxes is not None
    assert video.boxes.shape == (4, 4)
    assert video.notes["repaired"] == "3 boxes for 4 frames: the last is repeated"


def test_a_folder_without_labels_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no labels/\*\.mat under"):
        penn_action.load(tmp_path, split="all")


def test_the_real_labels_give_the_published_counts(real: Callable[[str], Path]) -> None:
    videos = penn_action.load(real("penn_action"), split="all", actions=penn_action.ALL_ACTIONS)
    assert Counter(video.split for video in videos) == {"train": 1258, "test": 1068}
    one_way = [video for video in videos if video.action in penn_action.ACTIONS]
    assert Counter(video.split for video in one_way) == {"train": 1172, "test": 978}
    assert Counter(video.split for video in videos if video.action == "clean_and_jerk") == {"train": 43, "test": 45}
    assert sum(video.length or 0 for video in videos) == 163_841
    for video in videos:
        assert video.keypoints is not None
        assert video.boxes is not None
        assert video.keypoints.shape == (video.length, 13, 2)
        assert video.boxes.shape == (video.length, 4)
    assert [video.id for video in videos if "repaired" in video.notes] == ["1154", "1865"]


def test_left_is_left_in_the_real_labels(real: Callable[[str], Path]) -> None:
    """A body's own left, by four signs that do not depend on each other."""
    videos = penn_action.load(real("penn_action"), split="all")
    column = {name: index for index, name in enumerate(videos[0].joints)}
    from_view: dict[str, list[float]] = {"front": [], "back": []}
    near_side, throwing_hand = [], []
    for video in videos:
        assert video.keypoints is not None
        assert video.visibility is not None
        points, seen = video.keypoints, video.visibility
        both = seen[:, column["left_shoulder"]] & seen[:, column["right_shoulder"]]
        if video.notes["view"] in from_view and both.any():
            across = points[both, column["left_shoulder"], 0] - points[both, column["right_shoulder"], 0]
            from_view[video.notes["view"]].append((across > 0).mean())
        left, right = (seen[:, [column[f"{side}_{joint}"] for joint in ("elbow", "knee")]].mean() for side in SIDES)
        if video.notes["view"] in SIDES and abs(left - right) > 0.3:
            near_side.append((left > right) == (video.notes["view"] == "left"))
        if video.action in ("baseball_pitch", "tennis_serve", "bowl"):
            hands = [column["left_wrist"], column["right_wrist"]]
            speed = np.linalg.norm(np.diff(points[:, hands], axis=0), axis=-1) * (seen[1:, hands] & seen[:-1, hands])
            throwing_hand.append(np.diff(np.percentile(speed, 95, axis=0)) > 0)
    assert np.mean(from_view["front"]) > 0.9
    assert np.mean(from_view["back"]) < 0.25
    assert np.mean(near_side) > 0.9
    assert np.mean(throwing_hand) > 0.65


def test_labels_of_other_shapes_are_reported_and_left_out(tmp_path: Path) -> None:
    write_labels(tmp_path, "0001")
    for stem, wrong in (
        ("0002", {"x": np.zeros((4, 12))}),
        ("0003", {"visibility": np.ones((3, 13))}),
        ("0004", {"nframes": np.zeros((0, 0))}),
        ("0005", {"dimensions": np.array([[270]])}),
    ):
        write_labels(tmp_path, stem)
        file = tmp_path / "labels" / f"{stem}.mat"
        savemat(file, {name: value for name, value in loadmat(file).items() if name[0] != "_"} | wrong)
    with pytest.warns(Problem, match="labels of other shapes than PennAction's") as caught:
        assert [video.id for video in penn_action.load(tmp_path, split="train")] == ["0001"]
    assert len(caught) == 4
