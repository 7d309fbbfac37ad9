"""How a run stands, and how fast it goes."""
# MERGED: What is measured while training: lines of JSON for programs, TensorBoard's events for people.

import json
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inphase.storage.files import atomic_write

# Two embeddings of unrelated frames point the same way within 8 degrees on average: nothing is told apart.
COLLAPSED = 0.99


@dataclass(frozen=True)
class Status:
    """Where a run stands, for whoever watches it; `doing` says what it does while it takes no steps."""

    step: int
    steps: int
    terms: Mapping[str, float] = field(default_factory=dict)
    frames_per_second: float = 0.0
    seconds_left: float = 0.0
    messages: tuple[str, ...] = ()
    doing: str = ""


class TrainingError(RuntimeError):
    """Training cannot go on: why, and what is kept."""


class Clock:
    """How fast it goes: over the last few dozen steps, since the first ones compile and validation takes its time."""

    def __init__(self) -> None:
        """Begin now."""
        self._marks: deque[tuple[float, int]] = deque([(time.perf_counter(), 0)], maxlen=50)

    def tick(self, frames: int) -> None:
        """Count a step."""
        self._marks.append((time.perf_counter(), self._marks[-1][1] + frames))

    @property
    def frames_per_second(self) -> float:
        """Give the frames embedded a second."""
        (begin, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / max(1e-9, end - begin)

    def seconds_left(self, steps: int) -> float:
        """Estimate how long `steps` more take."""
        taken = self._marks[-1][0] - self._marks[0][0]
        return steps * taken / max(1, len(self._marks) - 1)


METRICS_FILE = "metrics.jsonl"
EVENTS = "tensorboard"


class Metrics:
    """The record of a run in its folder; what a run did after the step it resumes at is forgotten."""

    def __init__(self, folder: Path, *, step: int) -> None:
        """Go on after `step` steps."""
        self._file = folder / METRICS_FILE
        kept = [row for row in read_metrics(folder) if row["step"] <= step]
        with atomic_write(self._file) as draft:
            draft.write_text("".join(_line(row) for row in kept), encoding="utf-8")
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
    file = folder / METRICS_FILE
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
