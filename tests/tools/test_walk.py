"""The walk through the files of a command: what it counts, and that aligning stays a short one."""

from pathlib import Path

import numpy as np
import pytest

from inphase.align.matching import match
from tools.walk import WALKS, follow


def test_files_are_listed_once_in_the_order_of_their_first_call() -> None:
    frames = np.eye(3, dtype=np.float32)
    walk = follow(lambda: match(frames, frames))
    assert walk.files[0] == "align/matching.py"
    assert len(set(walk.files)) == len(walk.files)
    assert "align/cost.py" in walk.files


def test_a_new_function_in_a_file_that_was_left_is_a_return() -> None:
    frames = np.eye(3, dtype=np.float32)

    def twice() -> None:
        match(frames, frames)
        match(frames[:2], frames, subsequence=True)

    assert len(follow(twice).returns) > len(follow(lambda: match(frames, frames)).returns)


@pytest.mark.slow
def test_aligning_two_videos_passes_few_files(tmp_path: Path) -> None:
    walk = follow(WALKS["align"](tmp_path))
    assert walk.files[0] == "apps/align_videos.py"
    assert len(walk.files) <= 30
