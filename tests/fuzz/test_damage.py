"""Commands on damaged files end with the right result or with an error of one line: no traceback, no hang, no fault.

The short version of `make soak`: `python -m tools.soak` damages thousands of files.
"""

import os
from pathlib import Path

import pytest

from tests.forked import Ended
from tests.fuzz.cases import damage_inputs, judge
from tests.fuzz.inputs import TARGETS
from tests.processes import call_in_process

linux = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", list(TARGETS))
def test_damaged_files_end_in_a_result_or_in_one_line(name: str, tmp_path: Path) -> None:
    found = call_in_process(damage_inputs, name, tmp_path, list(range(3)))
    assert [case for case in found if case.problem] == []


@pytest.mark.parametrize(
    ("status", "output", "problem"),
    [
        (0, "done", ""),
        (1, "a.mp4 is no video: name another", ""),
        (1, "Traceback (most recent call last)\n  KeyError: 3", "a traceback"),
        (-11, "", "ended by signal 11"),
        (-24, "", "a hang"),
        (3, "oh", "exit status 3"),
        (1, " \n", "without a word"),
    ],
)
def test_the_judge_notices_every_bad_end(status: int, output: str, problem: str) -> None:
    assert problem in judge(Ended(status, output, 0, 0.0, 0.0))
    assert bool(judge(Ended(status, output, 0, 0.0, 0.0))) == bool(problem)
