"""Commands, typed as people type them."""

import sys

import pytest

from inphase import cli


def type_command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Type a command; give its exit status."""
    monkeypatch.setattr(sys, "argv", ["inphase", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "200")
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
