import subprocess
import sys

import numpy as np
import pytest

from inphase.data.pose import JOINTS13
from inphase.data.reading import annotated_length, read_pose
from inphase.data.video import Video


def test_a_pose_is_read_like_frames_with_its_seconds() -> None:
    points = np.arange(4 * 13 * 2, dtype=np.float32).reshape(4, 13, 2)
    values, times = read_pose(Video("a", "wave", "train", keypoints=points, joints=JOINTS13, rate=20), np.array([1, 3]))
    assert values.shape == (2, 13, 3)
    assert values[0, 0].tolist() == [26, 27, 1]
    assert times.tolist() == [0.05, 0.15]
    with pytest.raises(ValueError, match="no keypoints"):
        read_pose(Video("b", "wave", "train"), np.array([0]))


def test_a_length_is_what_the_annotation_or_the_labels_say() -> None:
    assert annotated_length(Video("a", "wave", "train", length=7)) == 7
    assert annotated_length(Video("a", "wave", "train", phases=np.zeros(5, np.int64))) == 5
    with pytest.raises(ValueError, match="the length of a is not annotated"):
        annotated_length(Video("a", "wave", "train"))


def test_looking_at_a_collection_does_not_wait_for_torch() -> None:
    code = "import sys, inphase.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
