"""What is measured while training: lines of JSON for programs, TensorBoard's events for people."""

import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"
EVENTS = "tensorboard"


class Metrics:
    """The record of a run in its folder; what a run did after the step it resumes at is forgotten."""

    def __init__(self, folder: Path, *, step: int) -> None:
        """Go on after `step` steps."""
        self._file = folder / FILE
        kept = [row for row in read_metrics(folder) if row["step"] <= step]
        draft = self._file.with_suffix(".tmp")
        draft.write_text("".join(_line(row) for row in kept), encoding="utf-8")
        draft.replace(self._file)
        self._lines = self._file.open("a", encoding="utf-8")
        self._events = _open_events(folder / EVENTS, step=step)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Note what was measured after `step` steps."""
        self._lines.write(_line({"step": step, **values}))
        self._lines.flush()
        for name, value in values.items():
            if self._events is not None:
                self._events.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is not written yet."""
        self._lines.close()
        if self._events is not None:
            self._events.close()


def _open_events(folder: Path, *, step: int) -> Any:
    """Open TensorBoard's record, where it is installed; lines of JSON are written everywhere."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder, purge_step=step + 1)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read the record of a run; a line that was cut off is left out."""
    rows = []
    file = folder / FILE
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def _line(row: Mapping[str, Any]) -> str:
    """Write a row; JSON has no NaN, so what is not a number is null."""
    plain = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
    return json.dumps(plain) + "\n"
