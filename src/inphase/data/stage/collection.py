"""The stage as a data set: people who perform actions, drawn on demand, with the whole truth about them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from inphase.data.stage.actions import ACTIONS
from inphase.data.stage.body import JOINTS
from inphase.data.stage.files import is_whole, open_folder, read_videos, write_video
from inphase.data.stage.sound import record
from inphase.data.stage.take import RATE, Slate, Take, draw_take
from inphase.data.video import SPLITS, Video, check_split
from inphase.media.audio import Sound
from inphase.media.frames import Clip
from inphase.storage.files import exclusive_lock


def load(
    root: Path | str | None = None,
    *,
    split: str,
    actions: Sequence[str] | None = None,
    videos: int = 20,
    level: str = "medium",
    size: int = 64,
    seed: int = 0,
) -> list[Video]:
    """List the recordings of a split, `videos` of each action; nobody and no look of one split occurs in another.

    There is nothing to download: pictures and sound are made when a recording's `draw` and `hear` are called, `size` ×
    `size` pixels and 30 frames a second. `level` is "plain", "medium" or "hard". With `root`, the files that `write`
    left there are listed instead, and what was drawn is theirs to say.
    """
    check_split(split)
    if root is not None:
        return [video for video in read_videos(Path(root), split=split) if actions is None or video.action in actions]
    return [label(draw_take(slate), size=size) for slate in _slates(split, actions, videos, level, seed)]


def write(
    root: Path | str,
    *,
    split: str = "all",
    actions: Sequence[str] | None = None,
    videos: int = 20,
    level: str = "medium",
    size: int = 128,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[int, int]:
    """Write recordings as mp4 with sound, and their labels, below `root`; return how many are new and how many kept.

    Whatever interrupts it, the folder holds whole recordings only, and the next run does what is missing. One process
    writes at a time. `progress` is called with how many are done, and of how many.
    """
    check_split(split)
    root, slates, new = Path(root), _slates(split, actions, videos, level, seed), 0
    with exclusive_lock(root):
        open_folder(root, size=size)
        for done, slate in enumerate(slates, start=1):
            if not is_whole(root, slate.id):
                write_video(root, label(draw_take(slate), size=size))
                new += 1
            if progress is not None:
                progress(done, len(slates))
    return new, len(slates) - new


def _slates(split: str, actions: Sequence[str] | None, videos: int, level: str, seed: int) -> list[Slate]:
    """Name the recordings of a split."""
    if videos < 1 or seed < 0:
        raise ValueError(f"the stage needs at least 1 video of each action and a seed ≥ 0, got {videos} and {seed}")
    return [
        Slate(action=action, split=part, index=index, seed=seed, level=level)
        for part in (SPLITS if split == "all" else (split,))
        for action in (ACTIONS if actions is None else actions)
        for index in range(videos)
    ]


def label(take: Take, *, size: int) -> Video:
    """Describe a take: pictures on demand, and canonical time, phases, events and joints of every frame."""
    # Compiled code, slow to load: listing the other collections does without.
    from inphase.data.stage.film import visible

    slate = take.slate
    return Video(
        id=slate.id,
        action=slate.action,
        split=slate.split,
        draw=partial(_draw, slate, size=size),
        hear=partial(_hear, slate),
        length=len(take.progress),
        rate=RATE,
        size=(size, size),
        phases=take.action.phase_at(take.progress),
        phase_names=tuple(take.action.phases),
        progress=take.progress,
        events=take.events,
        keypoints=(take.pixels * size).astype(np.float32),
        joints3d=take.posture.joints.astype(np.float32),
        visibility=visible(take),
        joints=JOINTS,
        notes={"level": slate.level},
    )


# A slate is small, so that lists of videos are cheap to keep and to send to workers.
def _draw(slate: Slate, *, size: int) -> Clip:
    """Draw the pictures of a recording."""
    from inphase.data.stage.film import shoot

    return shoot(draw_take(slate), size=size)


def _hear(slate: Slate) -> Sound:
    """Make the sound of a recording."""
    return record(draw_take(slate))
