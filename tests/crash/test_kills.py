"""Commands that are killed at any file operation and run again end as if nobody had killed them.

The short version of `make soak`: `python -m tools.soak` kills far more often, and commands with workers too.
"""

import os
from pathlib import Path

import pytest

from tests.crash.commands import COMMANDS
from tests.crash.kills import kill_command
from tests.processes import call_in_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux"),
]


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not command.heavy])
def test_a_killed_command_ends_as_one_that_was_not_killed(name: str, tmp_path: Path) -> None:
    killed = call_in_process(kill_command, name, tmp_path, [0])
    assert [case.problem for case in killed if case.problem] == []
    assert sum(case.kills for case in killed) > 0
