"""Where the tests find real data: never copied, only read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.real_data import REASON, real_folder

# How long an example takes on a busy machine says nothing about the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def real() -> Callable[[str], Path]:
    """Give the folder of a real collection, or skip the test."""

    def find(name: str) -> Path:
        folder = real_folder(name)
        if not folder.is_dir():
            pytest.skip(REASON.format(name=name))
        return folder

    return find
