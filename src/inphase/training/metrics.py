"""Metrics of a run: JSON lines and TensorBoard events, and the status that callers display while it trains."""

import contextlib
import errno
import io
import json
import math
import os
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from inphase.progress import Summary
from inphase.runs import Run
from inphase.storage.errors import import_extra
from inphase.storage.files import atomic_write

# A mean cosine of 0.99 between embeddings of unrelated frames is an angle of 8 degrees: frames are indistinguishable.
COLLAPSED = 0.99
# Metrics that are recorded and left out of the printed status.
UNPRINTED_TERMS = {"lr", "frames_per_second", "variance"}
_ROW = msgspec.json.Decoder(dict[str, int | float | None])


@dataclass(frozen=True)
class Status:
    """The status of a run after `step` of `steps` steps; `messages` are sentences for the user."""

    step: int
    steps: int
    terms: Mapping[str, float] = field(default_factory=dict)
    frames_per_second: float = 0.0
    seconds_left: float = 0.0
    messages: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the step, the loss terms, the speed and the time left in a line."""
        terms = [f"{name} {value:.3f}" for name, value in self.terms.items() if name not in UNPRINTED_TERMS]
        minutes, seconds = divmod(round(self.seconds_left), 60)
        hours, minutes = divmod(minutes, 60)
        left = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        speed = f"{self.frames_per_second:,.0f} frames/s"
        return "  ".join([f"{self.step:>6}/{self.steps}", *terms, speed, f"{left} left"])


@dataclass(frozen=True)
class Trained:
    """The result of training: the run folder, the number of steps, and the last row of metrics."""

    run: Run
    steps: int
    metrics: Mapping[str, float | None]

    def summary(self) -> Summary:
        """Return where the run is."""
        return Summary([f"Trained {self.steps:,} steps: the run is in {self.run.folder}."])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"run": str(self.run.folder), "steps": self.steps, "metrics": dict(self.metrics)}

    def write(self, folder: Path | str) -> Path:
        """Write the result as training.json; the weights are in the run folder already."""
        file = Path(folder) / "training.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as part:
            part.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False), encoding="utf-8")
        return file


class TrainingError(RuntimeError):
    """Training cannot continue; the message gives the reason and the checkpoint that is kept."""


class Clock:
    """The training speed over the last 50 steps, which excludes compilation and most validation time."""

    def __init__(self) -> None:
        """Start the clock."""
        self._marks: deque[tuple[float, int]] = deque([(time.perf_counter(), 0)], maxlen=50)

    def tick(self, frames: int) -> None:
        """Count a step of `frames` frames."""
        self._marks.append((time.perf_counter(), self._marks[-1][1] + frames))

    @property
    def frames_per_second(self) -> float:
        """Return the number of frames embedded per second."""
        (begin, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / max(1e-9, end - begin)

    def seconds_left(self, steps: int) -> float:
        """Estimate the duration of `steps` more steps."""
        taken = self._marks[-1][0] - self._marks[0][0]
        return steps * taken / max(1, len(self._marks) - 1)


class Metrics:
    """A writer of metrics into a run folder; rows after the step at which the run resumes are dropped."""

    def __init__(self, run: Run, *, step: int) -> None:
        """Append after `step` steps."""
        kept = [row for row in read_metrics(run.folder) if row["step"] <= step]
        with atomic_write(run.metrics) as draft:
            draft.write_text("".join(_line(row) for row in kept), encoding="utf-8")
        self._files = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            self._lines = opened.enter_context(run.metrics.open("a", encoding="utf-8"))
            self._events = None
            if find_spec("tensorboard") is not None:
                self._events = opened.enter_context(contextlib.closing(_Events(run.tensorboard, step=step)))
            self._files = opened.pop_all()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the metrics of a step."""
        self._lines.write(_line({"step": step, **values}))
        self._lines.flush()
        if self._events is not None:
            self._events.write(step, values)

    def close(self) -> None:
        """Flush and close the files."""
        self._files.close()


def read_metrics(folder: Path | str) -> list[dict[str, Any]]:
    """Read the metrics of a run folder, a row per step; an incomplete or damaged line is skipped."""
    rows = []
    file = Run(folder).metrics
    if not file.exists():
        return []
    if not file.is_file():
        raise ValueError(f"{file} is not a file: move it away, and the run writes its metrics again")
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            row = _ROW.decode(line)
            if isinstance(row.get("step"), int):
                rows.append(row)
    return rows


class _Events:
    """A file of TensorBoard events, written by the caller.

    TensorBoard's own writer is a thread, which prints a traceback where the disk is full, and loses what it has queued.
    """

    def __init__(self, folder: Path, *, step: int) -> None:
        """Start a file; events of earlier files after `step` are dropped by TensorBoard."""
        self._proto = import_extra("tensorboard.compat.proto.event_pb2", extra="train")
        self._summary = import_extra("tensorboard.compat.proto.summary_pb2", extra="train").Summary
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        # Unbuffered: closing the file after a failure writes nothing.
        self._file = (folder / name).open("wb", buffering=0)
        try:
            self._add(file_version="brain.Event:2")
            if step:
                start = self._proto.SessionLog(status=self._proto.SessionLog.START)
                self._add(step=step + 1, session_log=start)
        except OSError:
            self._file.close()
            raise

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the metrics of a step."""
        found = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step=step, summary=self._summary(value=found))

    def _add(self, **fields: Any) -> None:
        """Append a record, all of it or nothing."""
        record, before = io.BytesIO(), self._file.tell()
        writer = import_extra("tensorboard.summary.writer.record_writer", extra="train").RecordWriter(record)
        writer.write(self._proto.Event(wall_time=time.time(), **fields).SerializeToString())
        try:
            if self._file.write(record.getvalue()) != len(record.getvalue()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._file.truncate(before)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(row: Mapping[str, Any]) -> str:
    """Format a row; JSON has no NaN, so NaN and infinity become null."""
    plain = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
    return json.dumps(plain) + "\n"
