"""Text files as people make them: with or without a byte order mark, with the line ends of any system."""

import csv
import io
import json
from pathlib import Path
from typing import Any


def read_text(file: Path) -> str:
    """Read a text in UTF-8."""
    try:
        # Without newline="" a line break inside a quoted cell would be changed.
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return stream.read()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} is not text in UTF-8 ({error.reason} at byte {error.start}): save it as such"
        ) from None


def read_json(file: Path) -> Any:
    """Read a JSON document."""
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is damaged or no JSON ({error}): copy it again") from None


def read_rows(file: Path) -> list[list[str]]:
    """Read the lines of a CSV file."""
    try:
        return list(csv.reader(io.StringIO(read_text(file), newline="")))
    except csv.Error as error:
        raise ValueError(f"{file} is not a table of comma-separated values ({error}): save it as such") from None


def read_table(file: Path, *, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Read a CSV file whose first line names its columns, at least `columns`; what a line leaves out is empty."""
    heading, *rows = read_rows(file) or [[]]
    names = [name.strip() for name in heading]
    absent = [column for column in columns if column not in names]
    if absent:
        raise ValueError(f"{file} has no column {', '.join(absent)}: its first line must be {','.join(columns)}")
    return [dict.fromkeys(names, "") | dict(zip(names, row, strict=False)) for row in rows if row]
