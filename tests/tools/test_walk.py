"""The walk through the files of a command: what it counts, and that aligning stays a short one."""

from pathlib import Path

import numpy as np
import pytest

from inphase.align.matching import align_with_itself, match, match_many
from inphase.playback import Pair
from tools.walk import WALKS, follow


def test_files_are_listed_once_in_the_order_of_their_first_call() -> None:
    frames = np.eye(3, dtype=np.float32)
    walk = follow(lambda: match(frames, frames))
    assert walk.files[0] == "align/matching.py"
    assert len(set(walk.files)) == len(walk.files)
    assert "align/cost.py" in walk.files


def test_a_new_function_in_a_file_that_was_left_is_a_return() -> None:
    frames = np.eye(3, dtype=np.float32)

    def back_and_forth() -> None:
        path = match(frames, frames).path  # opens matching, cost, path
        Pair(0, 1, frames, np.arange(3.0), np.arange(3.0), path)  # goes on to playback
        next(match_many([(frames, frames)]))  # opens matching again, and calls cost from there

    assert "align/matching.py:match_many" in follow(back_and_forth).returns
    assert follow(lambda: match(frames, frames)).returns == []


def test_a_function_that_calls_no_other_file_is_no_return() -> None:
    frames = np.eye(3, dtype=np.float32)

    def itself_last() -> None:
        Pair(0, 1, frames, np.arange(3.0), np.arange(3.0), match(frames, frames).path)
        align_with_itself(3)

    assert follow(itself_last).returns == []


@pytest.mark.slow
def test_aligning_two_videos_passes_few_files(tmp_path: Path) -> None:
    walk = follow(WALKS["align"](tmp_path))
    assert walk.files[0] == "apps/align_videos.py"
    assert len(walk.files) <= 28
    assert walk.returns == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "first", "passed", "count"),
    [
        (
            "train",
            "training/loop.py",
            {"training/step.py", "data/stream.py", "losses/gta.py", "align/recursion.py"},
            36,
        ),
        (
            "reproduce",
            "reproduction/reproduce.py",
            {"reproduction/studies.py", "training/loop.py", "evaluation/evaluate.py", "evaluation/report.py"},
            54,
        ),
    ],
)
def test_training_and_reproducing_pass_the_files_that_do_it(
    name: str, first: str, passed: set[str], count: int, tmp_path: Path
) -> None:
    walk = follow(WALKS[name](tmp_path))
    assert walk.files[0] == first
    assert passed <= set(walk.files)
    assert len(walk.files) <= count
