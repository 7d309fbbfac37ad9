"""Worker processes of the tests are forked from a server that has imported torch already."""

from collections.abc import Iterator

import pytest
from loky.backend import context

from tests.processes import FORK_SERVER


@pytest.fixture(autouse=True, scope="session")
def forked_workers() -> Iterator[None]:
    """Let loky fork its workers, which start 5 seconds of CPU earlier. Commands of their own use its own way."""
    before = context.get_start_method()
    context.set_start_method(FORK_SERVER.get_start_method(), force=True)
    yield
    context.set_start_method(before, force=True)
