"""Real data for tests: read where INPHASE_DATA names its folder, never copied; the tests are skipped elsewhere."""

import os
from pathlib import Path

import pytest

REASON = "needs real data: set INPHASE_DATA to the folder that holds {name}"


def real_folder(name: str) -> Path:
    """Name the folder of a real collection; it does not exist where INPHASE_DATA is not set."""
    return Path(os.environ.get("INPHASE_DATA") or os.devnull) / name


def needs_real(name: str) -> pytest.MarkDecorator:
    """Skip a test where a real collection is absent."""
    return pytest.mark.skipif(not real_folder(name).is_dir(), reason=REASON.format(name=name))
