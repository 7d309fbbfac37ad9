"""What is known of a recording before anything is decoded."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.media.audio import Sound
from inphase.media.frames import Clip

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Video:
    """One recording of an action, and its labels where there are some. A data set parses into a list of these.

    The pictures come from `path` (a video file, or a folder of numbered frames) or from `draw`; one known by its
    keypoints alone has neither. Per-frame arrays have one row for each of `length` frames. Where `spans` cut the file,
    every other second in this class counts on the clock of what is shown: the spans laid end to end, starting at 0.
    """

    id: str
    action: str
    split: str  # "train", "val" or "test"
    path: Path | None = None
    draw: Callable[[], Clip] | None = None
    spans: tuple[tuple[float, float], ...] = ()  # the seconds of `path` to show, in this order; empty: all of it
    length: int | None = None  # frames, where the annotation says so
    rate: float | None = None  # frames a second, where the annotation says so
    size: tuple[int, int] | None = None  # height and width in pixels, where the annotation says so
    phases: NDArray[np.int64] | None = None  # [T], −1 where unlabelled
    intervals: tuple[tuple[float, float, int], ...] = ()  # start ≤ t < end in seconds → phase, where labels are timed
    phase_names: tuple[str, ...] = ()  # phase → what people call it
    progress: NDArray[np.float64] | None = None  # [T] true canonical time in [0, 1], where it is known
    events: Mapping[str, int] = field(default_factory=dict)  # key moment → frame
    keypoints: NDArray[np.float32] | None = None  # [T, J, 2] pixels
    joints3d: NDArray[np.float32] | None = None  # [T, J, 3] metres
    visibility: NDArray[np.bool_] | None = None  # [T, J]
    joints: tuple[str, ...] = ()  # the J joints by name: "left_…" and "right_…" are each other's mirror image
    boxes: NDArray[np.float32] | None = None  # [T, 4] x0, y0, x1, y1 pixels
    sound: Path | None = None  # a file with a sound stream; often `path` itself
    hear: Callable[[], Sound] | None = None  # the sound of what is drawn
    # What a data set knows beside this: view, player, club …; "instance" names the performance where several videos
    # show parts of one, "repaired" what was wrong with the labels.
    notes: Mapping[str, str] = field(default_factory=dict)

    def phases_at(self, times: NDArray[np.float64]) -> NDArray[np.int64]:
        """Give the phase shown at each of `times` seconds, −1 where there is no label.

        Labels by frame need the whole video's times, one for each frame; labels by second take any.
        """
        if self.phases is not None:
            if len(times) != len(self.phases):
                raise ValueError(f"{self.id}: {len(self.phases)} labelled frames, {len(times)} times: pass all of them")
            return self.phases
        # A frame at a boundary belongs to what begins there, however its seconds were added up.
        clock = times + 1e-6
        found = np.full(len(times), -1, dtype=np.int64)
        for start, end, phase in self.intervals:
            found[(clock >= start) & (clock < end)] = phase
        return found


class Problem(UserWarning):
    """Something in a collection that is wrong but stops nothing: where, what, and what to do about it.

    Loaders warn with it and leave the entry out; `inphase data check` collects and lists them. One that is `harmless`
    leaves the collection whole.
    """

    def __init__(self, where: str, what: str, fix: str, *, harmless: bool = False) -> None:
        """Word the warning so that it can be acted upon."""
        super().__init__(f"{where}: {what}; {fix}")
        self.where, self.what, self.fix, self.harmless = where, what, fix, harmless


def check_split(split: str, *, of: tuple[str, ...] = SPLITS) -> None:
    """Refuse a split that a collection does not have; "all" is every one of them."""
    if split != "all" and split not in of:
        raise ValueError(f"split {split!r} does not exist here: choose one of {', '.join([*of, 'all'])}")


def present(videos: Iterable[Video]) -> tuple[list[Video], list[Video]]:
    """Separate the videos whose file is there, or which need none, from those whose file is absent."""
    here: list[Video] = []
    absent: list[Video] = []
    for video in videos:
        (here if video.path is None or video.path.exists() else absent).append(video)
    return here, absent


def summarise(names: Iterable[str], *, show: int = 3) -> str:
    """Name the first few of many and say how many more there are."""
    listed = list(names)
    return ", ".join(listed[:show]) + (f" and {len(listed) - show:,} more" if len(listed) > show else "")
