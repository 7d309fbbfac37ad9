"""The stage as a data set: people who perform actions, drawn on demand, with the whole truth about them."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from inphase.data.stage.actions import ACTIONS
from inphase.data.stage.files import read_videos, write_videos
from inphase.data.stage.film import shoot, visible
from inphase.data.stage.take import RATE, SPLITS, Slate, Take, draw_take
from inphase.data.video import Video
from inphase.media.frames import Clip


def stage(
    root: str | Path | None = None,
    *,
    split: str,
    actions: Sequence[str] | None = None,
    videos: int = 20,
    level: str = "medium",
    size: int = 64,
    seed: int = 0,
) -> list[Video]:
    """List the recordings of a split, `videos` of each action; nobody and no look of one split occurs in another.

    There is nothing to download: pictures are drawn when a recording's `draw` is called, `size` × `size` pixels and 30
    frames a second. `split` is "train", "val", "test" or "all"; `level` is "plain", "medium" or "hard". With `root`,
    the files that `write_stage` left there are listed instead, and what was drawn is theirs to say.
    """
    if root is not None:
        return [video for video in read_videos(root, split=split) if actions is None or video.action in actions]
    return [label(draw_take(slate), size=size) for slate in _slates(split, actions, videos, level, seed)]


def write_stage(
    root: str | Path,
    *,
    split: str = "all",
    actions: Sequence[str] | None = None,
    videos: int = 20,
    level: str = "medium",
    size: int = 128,
    seed: int = 0,
) -> int:
    """Write recordings as mp4 with sound, and their labels, below `root`; return how many."""
    drawn = (label(draw_take(slate), size=size) for slate in _slates(split, actions, videos, level, seed))
    return write_videos(root, drawn, about={"level": level, "size": size, "seed": seed})


def _slates(split: str, actions: Sequence[str] | None, videos: int, level: str, seed: int) -> Iterator[Slate]:
    """Name the recordings of a split."""
    for part in SPLITS if split == "all" else (split,):
        for action in ACTIONS if actions is None else actions:
            for index in range(videos):
                yield Slate(action=action, split=part, index=index, seed=seed, level=level)


def label(take: Take, *, size: int) -> Video:
    """Describe a take: pictures on demand, and canonical time, phases, events and joints of every frame."""
    slate = take.slate
    return Video(
        id=slate.id,
        action=slate.action,
        split=slate.split,
        draw=partial(_draw, slate, size=size),
        length=len(take.progress),
        rate=RATE,
        phases=take.action.phase_at(take.progress),
        progress=take.progress,
        events=take.events,
        keypoints=(take.pixels * size).astype(np.float32),
        joints3d=take.posture.joints.astype(np.float32),
        visibility=visible(take),
        notes={"level": slate.level, "phases": ", ".join(take.action.phases)},
    )


def _draw(slate: Slate, *, size: int) -> Clip:
    """Draw a recording anew: a slate is small, so that lists of videos are cheap to keep and to send to workers."""
    return shoot(draw_take(slate), size=size)
