"""A folder of numbered pictures as a recording."""

import re
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from inphase.media.errors import MediaError
from inphase.media.picture import Upright

SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}


class PictureFolder:
    """A recording whose frames are the pictures of a folder, ordered by the last number in their names.

    The number is the clock: a picture missing from the sequence leaves a gap and counts as a lost frame.
    """

    def __init__(self, path: Path, *, native_rate: float | None) -> None:
        """List the pictures without reading them."""
        if native_rate is None or not native_rate > 0:
            raise ValueError(
                f"{path} is a folder of pictures without a clock: pass native_rate= (frames/s), got {native_rate}"
            )
        self.path = path
        self._files = numbered_pictures(path)
        self._first = min(self._files)
        self.times = np.arange(max(self._files) - self._first + 1) / native_rate
        self.rate = float(native_rate)
        self.has_sound = False
        self.lost = 0
        self.damaged = 0

    def pictures(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the time and the picture of the `wanted` frames, all where None."""
        upright = Upright(size=size)
        for position in range(len(self.times)) if wanted is None else wanted.tolist():
            frame = _decode(self._files.get(self._first + position))
            if frame is None:
                self.lost += 1
            else:
                yield float(self.times[position]), upright(frame)


def numbered_pictures(folder: Path) -> dict[int, Path]:
    """Map the numbers of a folder's pictures to their files."""
    pictures = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if not pictures:
        raise MediaError(
            f"{folder} holds no pictures ({', '.join(sorted(SUFFIXES))}): point to a folder of numbered frames"
        )
    numbered: dict[int, Path] = {}
    for file in pictures:
        numbers = re.findall(r"\d+", file.stem)
        if not numbers:
            raise MediaError(f"{file} has no number in its name: rename it, or move it out of the folder of frames")
        if int(numbers[-1]) in numbered:
            raise MediaError(
                f"{numbered[int(numbers[-1])]} and {file.name} are both number {int(numbers[-1])}: keep one"
            )
        numbered[int(numbers[-1])] = file
    return numbered


def _decode(file: Path | None) -> VideoFrame | None:
    if file is None:
        return None
    try:
        # Named by its path alone, `frame_%d.png` would be read as a pattern; the content decides the format.
        with file.open("rb") as opened, av.open(opened, "r") as container:
            return next(container.decode(video=0), None)
    except av.error.FFmpegError:
        return None
