"""Where the tests find real data: never copied, only read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes on a busy machine says nothing about the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

DATA = Path(os.environ.get("INPHASE_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(scope="session")
def real() -> Callable[[str], Path]:
    """Give the folder of a real collection, or skip the test."""

    def find(name: str) -> Path:
        folder = DATA / name
        if not folder.is_dir():
            pytest.skip(f"needs the real {name} at {folder}; set INPHASE_DATA to the folder that holds it")
        return folder

    return find
