"""What every task works on: videos whose frames are embedded, and their labels on the same rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from inphase.data.video import Video
from inphase.media.sampling import Context, Frames, clamped
from inphase.models import Embedding

Label = TypeVar("Label", bound=np.generic)

SAME = 1e-6  # unit vectors that differ by less are the same: what is left is rounding


class NotApplicableError(ValueError):
    """A task cannot be asked of these videos; the message says which label it would need."""


@dataclass(frozen=True, eq=False)
class Embedded:
    """A video and the embedding of its frames `first` to `first + T`, of `length` in all.

    Rows are missing at the ends only where the edges of the `context` are "valid". Labels come by row.
    """

    video: Video
    embedding: Embedding
    length: int
    first: int = 0
    context: Context = Context((0,))  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        """Refuse rows that are not frames of the video."""
        if self.first < 0 or self.first + len(self.embedding) > self.length:
            last = self.first + len(self.embedding)
            raise ValueError(f"{self.video.id} has {self.length} frames, not those from {self.first} to {last}")

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.embedding)

    @property
    def values(self) -> NDArray[np.float32]:
        """Give the unit vectors, [T, D]."""
        return self.embedding.values

    @property
    def frames(self) -> Frames:
        """Say which frame of the video each row is, [T]."""
        return np.arange(self.first, self.first + len(self))

    @cached_property
    def clamped(self) -> NDArray[np.bool_]:
        """Mark the rows some of whose context does not exist, [T]."""
        return clamped(self.frames, length=self.length, context=self.context)

    @cached_property
    def phases(self) -> NDArray[np.int64]:
        """Give the phase of each row, [T], −1 where there is no label."""
        if self.video.phases is None:
            return self.video.phases_at(self.embedding.times)
        return self._rows("phases", self.video.phases)

    @cached_property
    def progress(self) -> NDArray[np.float64] | None:
        """Give the true canonical time of each row, [T], where it is known."""
        return None if self.video.progress is None else self._rows("progress", self.video.progress)

    @cached_property
    def is_constant(self) -> bool:
        """Tell whether all rows are the same vector, of which nothing can be said."""
        return bool(np.abs(self.values - self.values[:1]).max() < SAME)

    def _rows(self, name: str, labels: NDArray[Label]) -> NDArray[Label]:
        if len(labels) != self.length:
            raise ValueError(f"{self.video.id} has {self.length} frames and {len(labels)} {name}: check the collection")
        return labels[self.first : self.first + len(self)]


def by_action(videos: Iterable[Embedded]) -> dict[str, list[Embedded]]:
    """Sort videos by action, in the order of their names."""
    found: dict[str, list[Embedded]] = defaultdict(list)
    for item in videos:
        found[item.video.action].append(item)
    return dict(sorted(found.items()))


def all_constant(videos: Sequence[Embedded]) -> bool:
    """Tell whether all frames of all videos are the same vector."""
    first = videos[0].values[:1]
    return all(bool(np.abs(item.values - first).max() < SAME) for item in videos)


def require_two(videos: Sequence[Embedded]) -> dict[str, list[Embedded]]:
    """Sort videos by action and keep the actions with two of them at least; refuse where there is none."""
    found = {action: items for action, items in by_action(videos).items() if len(items) > 1}
    if not found:
        raise NotApplicableError(f"no action has two videos among {len(videos)}: there is nothing to compare them with")
    return found


def with_phases(videos: Iterable[Embedded], *, role: str) -> list[Embedded]:
    """Keep the videos that have labelled frames; refuse where none has."""
    listed = list(videos)
    found = [item for item in listed if (item.phases >= 0).any()]
    if not found:
        raise NotApplicableError(f"none of {len(listed)} {role} videos has phases: use a collection that labels them")
    return found


def mean(numbers: Iterable[float]) -> float:
    """Average the numbers that are defined; undefined (NaN) where none is."""
    defined = [number for number in numbers if not np.isnan(number)]
    return float(np.mean(defined)) if defined else float("nan")
