"""Commands, typed as people type them."""

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from inphase import cli
from inphase.cli import options

SCHEMA = Path(__file__).parents[1] / "docs" / "reference" / "output.schema.json"


def type_command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Type a command; give its exit status. What it returns as JSON must follow the schema in the docs."""
    monkeypatch.setattr(sys, "argv", ["inphase", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "200")
    name = next((found for size in (2, 1) if (found := " ".join(map(str, words[:size]))) in cli.COMMANDS), None)

    @functools.wraps(options.run)
    def checked(*arguments: Any, **how: Any) -> Any:
        result = options.run(*arguments, **how)
        check_output(str(name), result.to_dict())
        return result

    for module in ("use", "learn", "corpora"):
        monkeypatch.setattr(f"inphase.cli.{module}.run", checked)
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def check_output(command: str, values: dict[str, Any]) -> None:
    """Raise if the JSON of a command does not follow its schema."""
    document = json.loads(json.dumps(values, allow_nan=False))
    validator_of(command).validate(document)


@functools.cache
def validator_of(command: str) -> Draft202012Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return Draft202012Validator({**schema, "$ref": f"#/$defs/{command}"})
