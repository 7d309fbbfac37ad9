"""From a decoded frame to an upright RGB array."""

from typing import Any

import av
import numpy as np
from av.sidedata.sidedata import Type
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from numpy.typing import NDArray

from inphase.media.errors import MediaError


class Upright:
    """Convert frames of one stream to RGB, turned as their display matrix says, all of one size.

    Any pixel format: deeper ones are rounded to 8 bits, grey is repeated, alpha is dropped. One converter is kept for
    the stream, since setting it up costs more than a small picture does.
    """

    def __init__(self, *, size: tuple[int, int] | None = None) -> None:
        """Scale to `size` (height, width); where None, to that of the first frame."""
        self._size = size
        self._turn: tuple[bool, bool, bool] | None = None
        self._reformatter = VideoReformatter()

    def __call__(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Convert one frame to [H, W, 3]."""
        if self._turn is None:
            self._turn = orientation(frame)
        transposed, upside_down, mirrored = self._turn
        if self._size is None:
            self._size = (frame.width, frame.height) if transposed else (frame.height, frame.width)
        height, width = self._size[::-1] if transposed else self._size
        try:
            converted = self._reformatter.reformat(
                frame, width=width, height=height, format="rgb24", interpolation=Interpolation.BILINEAR, threads=1
            )
        except av.error.FFmpegError as error:
            raise MediaError(
                f"pixel format {frame.format.name} cannot be converted ({error.strerror}): re-encode as yuv420p"
            ) from error
        picture = converted.to_ndarray()
        if transposed:
            picture = picture.transpose(1, 0, 2)
        picture = picture[:: -1 if upside_down else 1, :: -1 if mirrored else 1]
        return np.ascontiguousarray(picture, dtype=np.uint8)


def orientation(frame: VideoFrame) -> tuple[bool, bool, bool]:
    """Read how to show a frame: whether to transpose it, then flip its rows, then its columns.

    The display matrix sends a pixel (x, y) to (a·x + c·y, b·x + d·y); cameras write quarter turns and mirrors.
    """
    attached: Any = frame.side_data  # its stub says otherwise, but it is a collection of SideData
    matrix = next((bytes(data) for data in attached if data.type is Type.DISPLAYMATRIX), None)
    if matrix is None:
        return False, False, False
    a, b, _, c, d = np.frombuffer(matrix, dtype=np.int32)[:5]
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return False, bool(d < 0), bool(a < 0)
    return True, bool(b < 0), bool(c < 0)
