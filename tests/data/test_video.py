from pathlib import Path

import numpy as np
import pytest

from inphase.data.video import Problem, Video, find_present
from inphase.progress import summarize


def test_labels_by_second_cover_their_half_open_intervals() -> None:
    video = Video("a", "wave", "train", intervals=((0.0, 1.0, 3), (1.0, 1.5, 7)))
    assert video.phases_at(np.array([0.0, 0.99, 1.0, 1.49, 1.5])).tolist() == [3, 3, 7, 7, -1]


def test_a_frame_at_a_boundary_belongs_to_what_begins_there_whatever_the_rounding() -> None:
    video = Video("a", "wave", "train", intervals=((0.0, 0.3, 1), (0.3, 0.6, 2)))
    assert video.phases_at(np.array([0.1 + 0.2, 0.3, 0.6 - 0.3, np.nextafter(0.3, 0)])).tolist() == [2, 2, 2, 2]


def test_labels_by_frame_need_all_frames() -> None:
    video = Video("a", "wave", "train", phases=np.array([0, 0, 1]))
    assert video.phases_at(np.arange(3) / 30).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="3 labeled frames, 2 times"):
        video.phases_at(np.arange(2) / 30)


def test_an_unlabelled_video_has_no_phase() -> None:
    assert Video("a", "wave", "train").phases_at(np.arange(3.0)).tolist() == [-1, -1, -1]


def test_absent_files_are_separated(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    videos = [Video(name, "wave", "train", path=tmp_path / f"{name}.mp4") for name in "ab"] + [Video("c", "w", "train")]
    here, absent = find_present(videos)
    assert ([video.id for video in here], [video.id for video in absent]) == (["a", "c"], ["b"])


def test_a_problem_says_where_what_and_the_fix() -> None:
    assert str(Problem("a.mat", "unreadable", "copy it again")) == "a.mat: unreadable; copy it again"
    assert summarize("abcde") == "a, b, c and 2 more"
    assert summarize("ab") == "a, b"
