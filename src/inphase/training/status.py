"""How a run stands, and how fast it goes."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

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
