import numpy as np
import pytest

from inphase.data.frame_source import select_joints
from inphase.data.video import Video
from inphase.pose.pose import JOINTS13, bones, mirrored
from inphase.stage import JOINTS


def make(joints: tuple[str, ...] = JOINTS13, *, length: int = 4) -> Video:
    points = np.arange(length * len(joints) * 2, dtype=np.float32).reshape(length, len(joints), 2)
    return Video("a", "wave", "train", keypoints=points, joints=joints, length=length)


def test_left_and_right_change_places_and_twice_is_nothing() -> None:
    order = mirrored(JOINTS13)
    assert [JOINTS13[i] for i in order[:3]] == ["head", "right_shoulder", "left_shoulder"]
    assert np.array_equal(order[order], np.arange(13))


def test_a_joint_without_counterpart_is_refused() -> None:
    with pytest.raises(ValueError, match="'left_hip' has no counterpart 'right_hip'"):
        mirrored(("head", "left_hip"))


def test_a_stick_figure_is_connected() -> None:
    for joints in (JOINTS13, JOINTS, ("head", "shoulder_center", "spine", "hip_center", "left_hip", "right_hip")):
        reached = {0}
        for _ in joints:
            reached |= {b for a, b in bones(joints) if a in reached} | {a for a, b in bones(joints) if b in reached}
        assert reached == set(range(len(joints)))


def test_joints_are_selected_by_name_in_the_order_asked() -> None:
    video = select_joints(make(), ("right_hip", "head"))
    assert video.keypoints is not None
    assert video.keypoints.shape == (4, 2, 2)
    assert video.keypoints[0, 1].tolist() == [0, 1]
    with pytest.raises(ValueError, match="no joint nose"):
        select_joints(video, ("nose",))
