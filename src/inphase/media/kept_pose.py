"""The pose of a recording, read once: what was found is kept, and so is that nobody was."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from inphase.media.errors import NoPersonError
from inphase.media.pose import Pose, read_pose
from inphase.media.pose_store import pack, unpack
from inphase.media.shelf import Shelf, content_key


def kept_pose(
    path: Path | str,
    *,
    shelf: Shelf,
    rate: float | None = None,
    complexity: int = 1,
    progress: Callable[[int, int], None] | None = None,
    read: Callable[[], Pose] | None = None,
) -> Pose:
    """Give the pose that `read_pose` finds in a video file, from the shelf where it was found before.

    Following somebody takes a second of processor time for every second of video; a shelf answers at once. Whoever has
    another way to the same pose gives it as `read`.
    """
    key = _key(path, complexity=complexity, rate=rate)
    kept = shelf.find(key)
    if kept is not None and "nobody" in kept:
        raise NoPersonError(str(kept["nobody"]).replace("{path}", str(path)))
    if kept is not None and "pose" in kept:
        pose = unpack(kept["pose"])
        if progress is not None:
            progress(len(pose), len(pose))
        return pose
    try:
        pose = read() if read else read_pose(path, rate=rate, complexity=complexity, progress=progress)
    except NoPersonError as error:
        # Kept without the name of the file, which may be another the next time.
        shelf.keep(key, {"nobody": np.array(str(error).replace(str(path), "{path}"))})
        raise
    shelf.keep(key, {"pose": pack(pose)})
    return pose


def is_kept(path: Path | str, *, shelf: Shelf, rate: float | None = None, complexity: int = 1) -> bool:
    """Tell whether `kept_pose` would answer at once."""
    return shelf.folder is not None and shelf.find(_key(path, complexity=complexity, rate=rate)) is not None


def _key(path: Path | str, *, complexity: int, rate: float | None) -> str:
    return content_key(path, "pose", complexity, rate)
