"""One bad video never stops a run: it is skipped, reported once, and counted."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from inphase.data.video import Video, summarise

Result = TypeVar("Result")


@dataclass(frozen=True)
class Skip:
    """A video that could not be read, and why."""

    id: str
    reason: str


class SkipLog:
    """A count of the videos that could not be read, kept where the batches arrive."""

    def __init__(self) -> None:
        """Begin with none."""
        self.counts: Counter[str] = Counter()

    def note(self, skipped: Iterable[Skip]) -> list[str]:
        """Count a batch's skips and give a message for each video that is seen to fail for the first time."""
        listed = list(skipped)
        new = {skip.id: skip.reason for skip in listed if skip.id not in self.counts}
        self.counts.update(skip.id for skip in listed)
        return [f"{name} cannot be read and is skipped: {reason}" for name, reason in new.items()]

    def summary(self) -> str:
        """Say at the end what was missing."""
        if not self.counts:
            return "every video could be read"
        return (
            f"{len(self.counts)} videos could not be read and were skipped {self.counts.total()} times: "
            + summarise(sorted(self.counts))
        )


def try_reading(
    video: Video, work: Callable[[], Result], *, failed: dict[str, str], skipped: list[Skip]
) -> Result | None:
    """Do something with a video, or note why that is impossible; what has failed once is not tried again."""
    if video.id not in failed:
        try:
            return work()
        # Whatever a codec or a file system says about one video must not end a run of days.
        except Exception as error:
            failed[video.id] = f"{type(error).__name__}: {error}"
    skipped.append(Skip(video.id, failed[video.id]))
    return None
