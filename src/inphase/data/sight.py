"""A collection as an encoder sees it: which of its videos, and how their frames are got."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from warnings import warn

import numpy as np

from inphase.data.pose import JOINTS13, add_poses, select_joints
from inphase.data.reading import (
    Drawings,
    Read,
    annotated_length,
    measured_length,
    read_pictures,
    read_pose,
    read_stored,
)
from inphase.data.video import Problem, Video, summarise
from inphase.media.pose_store import PoseStore
from inphase.media.store import FrameStore


@dataclass(frozen=True, eq=False)
class Sight:
    """Videos of which every frame can be seen, and how."""

    videos: list[Video]
    read: Read
    frame_count: Callable[[Video], int]


def see(
    videos: Sequence[Video],
    *,
    sees: str,
    size: tuple[int, int] | None = None,
    joints: Sequence[str] = JOINTS13,
    store: Path | str | None = None,
) -> Sight:
    """Look at videos as "pictures" of `size` or as "poses" of `joints`, from a store where one is given.

    Without a store pictures are drawn or decoded, which is slow where many are wanted, and poses are the labels'.
    Videos that a store does not hold are left out with a warning.
    """
    match sees:
        case "pictures" if store is not None:
            return _see_stored_pictures(videos, size=size, store=FrameStore(store))
        case "pictures" if videos and all(video.draw is not None for video in videos):
            return Sight(list(videos), Drawings(), annotated_length)
        case "pictures":
            return Sight(list(videos), partial(read_pictures, size=size), measured_length)
        case "poses":
            if store is not None:
                videos = _with_rate(_kept(videos, PoseStore(store)), PoseStore(store))
            return Sight([select_joints(video, tuple(joints)) for video in videos], read_pose, annotated_length)
        case _:
            raise ValueError(f"videos are seen as 'pictures' or as 'poses', not as {sees!r}")


def _see_stored_pictures(videos: Sequence[Video], *, size: tuple[int, int] | None, store: FrameStore) -> Sight:
    """Read pictures from a store of frames, which has to hold them in the size that is wanted."""
    if size is not None and store.size != tuple(size):
        height, width = size
        raise ValueError(
            f"{store.folder} holds pictures of {store.size}, {tuple(size)} are wanted: "
            f"fill another with `inphase data cache --size {height} {width}`"
        )
    return Sight(_kept(videos, store), partial(read_stored, store=store), lambda video: store.frames(video.id))


def _kept(videos: Sequence[Video], store: FrameStore | PoseStore) -> list[Video]:
    """Keep the videos a store holds, and say which it does not."""
    absent = [video.id for video in videos if video.id not in store]
    if len(absent) == len(videos):
        raise ValueError(f"{store.folder} holds none of the {len(videos)} videos: fill it from this collection first")
    if absent:
        what = f"{summarise(absent)} of {len(videos)} not in the store or not usable"
        warn(Problem(str(store.folder), what, "left out", harmless=True), stacklevel=4)
    return [video for video in videos if video.id in store]


def _with_rate(videos: Sequence[Video], store: PoseStore) -> list[Video]:
    """Give videos their poses as if they were labels, and those of unknown rate that of their frames."""
    posed = add_poses(videos, store=store)
    return [video if video.rate else replace(video, rate=_rate(store, video.id)) for video in posed]


def _rate(store: PoseStore, id: str) -> float | None:
    times = store[id].times
    gap = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return 1 / gap if gap > 0 else None
