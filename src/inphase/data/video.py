"""What is known of a recording before anything is decoded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.media.frames import Clip


@dataclass(frozen=True, eq=False)
class Video:
    """One recording of an action, and its labels where there are some. A data set parses into a list of these.

    The pictures come from `path` (a video file, or a folder of numbered frames) or from `draw`; one known by its
    keypoints alone has neither. Per-frame arrays have one row for each of `length` frames.
    """

    id: str
    action: str
    split: str  # "train", "val" or "test"
    path: Path | None = None
    draw: Callable[[], Clip] | None = None
    spans: tuple[tuple[float, float], ...] = ()  # the seconds of `path` to show, in this order; empty: all of it
    length: int | None = None  # frames, where the annotation says so
    rate: float | None = None  # frames a second, where the annotation says so
    phases: NDArray[np.int64] | None = None  # [T], −1 where unlabelled
    progress: NDArray[np.float64] | None = None  # [T] true canonical time in [0, 1], where it is known
    events: Mapping[str, int] = field(default_factory=dict)  # key moment → frame
    keypoints: NDArray[np.float32] | None = None  # [T, J, 2] pixels
    joints3d: NDArray[np.float32] | None = None  # [T, J, 3] metres
    visibility: NDArray[np.bool_] | None = None  # [T, J]
    boxes: NDArray[np.float32] | None = None  # [T, 4] x0, y0, x1, y1 pixels
    sound: Path | None = None  # a file with a sound stream; often `path` itself
    notes: Mapping[str, str] = field(default_factory=dict)  # what a data set knows beside this: view, player, club …
