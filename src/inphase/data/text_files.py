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
    return list(_number_rows(file).values())


def read_table(file: Path, *, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Read a CSV file whose first line names its columns, at least `columns`; what a line leaves out is empty."""
    return list(read_numbered_table(file, columns=columns).values())


def read_numbered_table(file: Path, *, columns: tuple[str, ...] = ()) -> dict[int, dict[str, str]]:
    """Read a CSV file as `read_table` does, each line by the number an editor gives it: the heading is line 1.

    Lines without a word, as spreadsheets leave them below a table, are left out.
    """
    rows = _number_rows(file)
    names = [name.strip() for name in rows.pop(1, [])]
    absent = [column for column in columns if column not in names]
    if absent:
        begins = f"begins with {','.join(names)} and " if names else ""
        raise ValueError(
            f"{file} {begins}has no column {', '.join(absent)}: its first line must be {','.join(columns)}"
        )
    return {
        number: dict.fromkeys(names, "") | dict(zip(names, row, strict=False))
        for number, row in rows.items()
        if any(cell.strip() for cell in row)
    }


def _number_rows(file: Path) -> dict[int, list[str]]:
    """Read the rows of a CSV file by the line each begins in: a break inside a quoted cell counts as well."""
    reader, rows, line = csv.reader(io.StringIO(read_text(file), newline="")), {}, 1
    try:
        for row in reader:
            rows[line] = row
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{file} is not a table of comma-separated values ({error}): save it as such") from None
    return rows
