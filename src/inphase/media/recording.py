"""What a video file and a folder of pictures offer alike."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Recording(Protocol):
    """What files and folders offer alike: the time of every frame at once, and the pictures one after the other."""

    path: Path
    times: NDArray[np.float64]  # [N] of every frame there is, or was before damage
    rate: float  # frames a second, on average
    has_sound: bool
    lost: int  # frames asked for so far that could not be decoded
    damaged: int  # frames given so far although some of their data was missing

    def pictures(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the time and the RGB picture of the `wanted` frames, all where None, in order of presentation."""
        ...


def open_recording(path: Path | str, *, native_rate: float | None = None) -> Recording:
    """Open a video file, or a folder of numbered pictures shown at `native_rate`."""
    # Both need the codec, which the machines that train on a frame store do without.
    from inphase.media.decode import VideoFile
    from inphase.media.folder import PictureFolder

    path = Path(path)
    if path.is_dir():
        return PictureFolder(path, native_rate=native_rate)
    if native_rate is not None:
        raise ValueError(f"native_rate={native_rate} is for folders of pictures; {path} has its own clock: drop it")
    return VideoFile(path)


def describe_damage(recording: Recording) -> str:
    """Say what a decoded recording lost; nothing where it lost nothing."""
    if not recording.lost and not recording.damaged:
        return ""
    return (
        f"{recording.path} is damaged: {recording.lost} of the frames asked for are lost and {recording.damaged} are "
        "shown with faults; get an undamaged copy if you need them"
    )
