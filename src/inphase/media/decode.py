"""Decode video files: list their frames, find each by its presentation timestamp, convert it to upright RGB.

Images and sound of a file share one clock, whose second 0 is the earliest of either. The packets of a file are listed
once per process and remembered until the file changes.
"""

import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from av.container import InputContainer
from av.sidedata.sidedata import Type
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from inphase.storage.errors import MediaError
from inphase.storage.files import file_stamp

if TYPE_CHECKING:
    from av.packet import Packet

# Frames of h264 and its successors are stored at most 16 places from where they are shown.
MAX_REORDERING = 16
# Codecs that mark every frame on which no other frame depends; the mark of HEVC holds within a layer only.
REFERENCE_CODECS = {"h264"}
# Decoding in several threads pays for its start-up from about this many pixels.
MIN_THREADED_PIXELS = 512 * 512
# Hours, minutes and seconds, as muxers write them.
_DURATION = re.compile(r"(\d{1,4}):(\d{1,2}):(\d{1,2}(?:\.\d{1,12})?)", re.ASCII)
# Frame indexes to remember, in bytes: about 150 hours of video.
MAX_INDEX_BYTES = 2**28


def open_container(path: Path) -> InputContainer:
    """Open a file for reading; raise `MediaError` with the reason if it cannot be opened."""
    if not path.exists():
        raise MediaError(f"{path} does not exist: check the path")
    if path.is_file() and path.stat().st_size == 0:
        raise MediaError(f"{path} is empty (0 bytes): copy or download it again")
    try:
        return av.open(str(path), metadata_errors="replace")
    except PermissionError as error:
        raise MediaError(f"{path} is not readable: change its permissions, for example by `chmod u+r`") from error
    except av.error.FFmpegError as error:
        raise MediaError(
            f"{path} cannot be opened ({error.strerror}): it is not a video or sound file, or it was cut short before "
            "its index was written; copy or download it again"
        ) from error


def video_stream(container: InputContainer, path: Path) -> VideoStream:
    """Find the video stream of a file; the cover image of a sound file does not count."""
    moving = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not moving:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise MediaError(f"{path} has no video stream (it holds {kinds}): give a video file")
    decodable = [stream for stream in moving if has_decoder(stream)]
    if not decodable:
        raise MediaError(
            f"{path} has a video stream whose codec is not known: convert it to H.264 in an .mp4 file, or get an "
            "undamaged copy of the file"
        )
    return decodable[0]


def has_decoder(stream: Any) -> bool:
    """Report whether a stream can be decoded: one with an unknown codec has no context, contrary to the type stubs."""
    return stream.codec_context is not None


def clock_origin(container: InputContainer) -> Fraction:
    """Find second 0 of a file: its earliest image or sound, in seconds of its own timestamps."""
    starts = [
        stream.start_time * stream.time_base
        for stream in (*container.streams.video, *container.streams.audio)
        if stream.start_time is not None and stream.time_base is not None
        if not stream.disposition & Disposition.attached_pic
    ]
    return min(starts, default=Fraction(0))


class UprightConverter:
    """Convert the frames of one stream to RGB of one size, rotated by their display matrix.

    It takes any pixel format: deeper ones are rounded to 8 bits, gray is repeated, alpha is dropped. One converter
    serves a whole stream, since setting it up costs more than converting a small image.
    """

    def __init__(self, *, size: tuple[int, int] | None = None, halve_color: bool = False) -> None:
        """Scale to `size` (height, width), by default that of the first frame.

        `halve_color` scales the colors of a video with half of the resolution, as encoders store them, which takes a
        third of the time.
        """
        self._size = size
        self._turn: tuple[bool, bool, bool] | None = None
        self._reformatter, self._scaler = VideoReformatter(), VideoReformatter() if halve_color else None

    def __call__(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Convert one frame to [H, W, 3]."""
        if self._turn is None:
            self._turn = orientation(frame)
        transposed, upside_down, mirrored = self._turn
        if self._size is None:
            self._size = (frame.width, frame.height) if transposed else (frame.height, frame.width)
        height, width = self._size[::-1] if transposed else self._size
        try:
            if self._scaler is not None and frame.format.name == "yuv420p" and width * 2 <= frame.width:
                frame = self._scaler.reformat(
                    frame, width=width, height=height, interpolation=Interpolation.BILINEAR, threads=1
                )
            converted = self._reformatter.reformat(
                frame, width=width, height=height, format="rgb24", interpolation=Interpolation.BILINEAR, threads=1
            )
        except av.error.FFmpegError as error:
            raise MediaError(
                f"pixel format {frame.format.name} cannot be converted ({error.strerror}): re-encode as yuv420p"
            ) from error
        image = converted.to_ndarray()
        if transposed:
            image = image.transpose(1, 0, 2)
        image = image[:: -1 if upside_down else 1, :: -1 if mirrored else 1]
        return np.ascontiguousarray(image, dtype=np.uint8)


def orientation(frame: VideoFrame) -> tuple[bool, bool, bool]:
    """Read the orientation of a frame: whether to transpose it, then flip its rows, then its columns.

    The display matrix sends a pixel (x, y) to (a·x + c·y, b·x + d·y); cameras write quarter turns and mirrors.
    """
    attached: Any = frame.side_data  # despite its stub, this is a collection of SideData
    matrix = next((bytes(data) for data in attached if data.type is Type.DISPLAYMATRIX), None)
    if matrix is None:
        return False, False, False
    a, b, _, c, d = np.frombuffer(matrix, dtype=np.int32)[:5]
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return False, bool(d < 0), bool(a < 0)
    return True, bool(b < 0), bool(c < 0)


@dataclass(frozen=True, eq=False)
class FrameIndex:
    """The frames of a video stream as its packets list them, in order of presentation.

    `times` [N] seconds; `stamps` [N] the timestamps behind them, None where the file has no usable ones and its frames
    are assumed to be equally spaced; `keys` the timestamps of key frames; `missing` the number of frames that the
    header promises beyond the last packet; `fps` the average frame rate.
    """

    times: NDArray[np.float64]
    stamps: NDArray[np.int64] | None
    keys: NDArray[np.int64]
    missing: int
    has_sound: bool
    fps: float

    def __post_init__(self) -> None:
        """Protect the arrays, which every reader of the file shares."""
        for array in (self.times, self.stamps, self.keys):
            if array is not None:
                array.flags.writeable = False

    @property
    def nbytes(self) -> int:
        """Return the memory that the arrays take."""
        return self.times.nbytes + self.keys.nbytes + (0 if self.stamps is None else self.stamps.nbytes)


class VideoFile:
    """A recording in one video file; `on_frame`, if set, receives every frame that is read, and its second."""

    def __init__(self, path: Path) -> None:
        """List the frames of the file without decoding them."""
        self.path = path
        self.index = index_frames(path)
        self.times = self.index.times
        self.fps = self.index.fps
        self.has_sound = self.index.has_sound
        stamps = [] if self.index.stamps is None else self.index.stamps.tolist()
        self._position_of = {stamp: position for position, stamp in enumerate(stamps)}
        self.lost = 0
        self.damaged = 0
        self.on_frame: Callable[[float, VideoFrame], None] | None = None

    def images(
        self, wanted: NDArray[np.int64] | None, *, size: tuple[int, int] | None = None, halve_color: bool = False
    ) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the time and the image of each `wanted` frame (None: all) in order of presentation."""
        convert = UprightConverter(size=size, halve_color=halve_color)
        count = len(self.times) if wanted is None else len(wanted)
        decoded_frames = 0
        for position, frame in self._frames(wanted):
            self.damaged += frame.is_corrupt
            if self.on_frame is not None:
                self.on_frame(float(self.times[position]), frame)
            yield float(self.times[position]), convert(frame)
            decoded_frames += 1
        self.lost += count - decoded_frames + (self.index.missing if wanted is None else 0)

    def _frames(self, wanted: NDArray[np.int64] | None) -> Iterator[tuple[int, VideoFrame]]:
        """Decode the frames that the wanted ones depend on; from the first fault on, every frame of the file."""
        chosen = np.arange(len(self.times)) if wanted is None else wanted
        found = 0
        if self.index.stamps is not None and len(self.index.keys) and len(chosen) < len(self.times):
            for position, frame in self._from_keys(chosen, self.index.stamps):
                if position != chosen[found]:
                    break
                yield position, frame
                found += 1
        if found < len(chosen):
            yield from self._from_start(chosen[found:])

    def _from_start(self, wanted: NDArray[np.int64]) -> Iterator[tuple[int, VideoFrame]]:
        """Decode from the beginning up to the last wanted frame."""
        with open_container(self.path) as container:
            stream = video_stream(container, self.path)
            self._use_threads(stream)
            yield from self._pick(decoded(container, stream), wanted)

    def _from_keys(self, wanted: NDArray[np.int64], stamps: NDArray[np.int64]) -> Iterator[tuple[int, VideoFrame]]:
        """Decode wanted frames from the key frames before them, up to the first fault."""
        before = np.maximum(np.searchsorted(self.index.keys, stamps[wanted], side="right") - 1, 0)
        with open_container(self.path) as container:
            stream = video_stream(container, self.path)
            # Decoding in order, in threads, is faster than seeking where at least half of the frames are wanted.
            if 2 * len(wanted) >= len(self.times):
                before[:] = before[0]
                self._use_threads(stream)
            for key in np.unique(before):
                try:
                    if key:  # the file is opened at the first
                        container.seek(int(self.index.keys[key]), stream=stream)
                except av.error.FFmpegError:
                    return
                part = wanted[before == key]
                yield from self._pick(decoded_after_seek(container, stream, wanted=stamps[part]), part)

    def _use_threads(self, stream: VideoStream) -> None:
        """Decode large images in threads, if nobody shares them.

        Pose and images share frames: networks take most of the time, other recordings use the other cores.
        """
        if stream.width * stream.height >= MIN_THREADED_PIXELS and self.on_frame is None:
            stream.thread_type = "AUTO"

    def _pick(self, frames: Iterator[VideoFrame], wanted: NDArray[np.int64]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield the wanted ones of consecutive frames, each with its position."""
        remaining = deque(wanted.tolist())
        position = -1
        for frame in frames:
            position = self._position_of.get(frame.pts, position) if self._position_of else position + 1
            while remaining and remaining[0] < position:
                remaining.popleft()
            if remaining and remaining[0] == position:
                yield remaining.popleft(), frame
            if not remaining:
                return


def index_frames(path: Path) -> FrameIndex:
    """List the frames of a file from its packets without decoding them; once per process unless the file changes."""
    try:
        stamp = file_stamp(path)
    except OSError:
        return _index_frames(path)  # which raises an error that explains what is wrong
    return _remembered_index(path, stamp)


# Threads that open the same file wait for one of them to list its packets.
@cached(
    LRUCache(maxsize=MAX_INDEX_BYTES, getsizeof=lambda index: index.nbytes),
    key=lambda path, stamp: (path.absolute(), stamp),
    condition=Condition(),
)
def _remembered_index(path: Path, stamp: tuple[int, ...]) -> FrameIndex:
    return _index_frames(path)


def _index_frames(path: Path) -> FrameIndex:
    with open_container(path) as container:
        stream = video_stream(container, path)
        packets = [
            (packet.pts, packet.is_keyframe, packet.duration or 0)
            for packet in _packets(container, stream)
            if not packet.is_discard
        ]
        if not packets:
            raise MediaError(f"{path} holds no frames: copy or download it again")
        fps = Fraction(stream.guessed_rate or stream.average_rate or 25)
        has_sound = any(map(has_decoder, container.streams.audio))
        time_base = stream.time_base or 1 / fps
        missing = _missing_at_end(stream, packets, fps)
        stamps = _usable_stamps([pts for pts, _, _ in packets], container)
        if stamps is None:
            times = np.array([float(i / fps) for i in range(len(packets))])
            return FrameIndex(times, None, np.empty(0, np.int64), missing, has_sound, float(fps))
        origin = clock_origin(container)
        times = np.array([float(int(pts) * time_base - origin) for pts in stamps])
        keys = np.array(sorted(pts for pts, key, _ in packets if key and pts is not None), dtype=np.int64)
        average = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else fps
        return FrameIndex(times, stamps, keys, missing, has_sound, float(average))


def _usable_stamps(listed: list[int | None], container: InputContainer) -> NDArray[np.int64] | None:
    """Sort the packets' timestamps; None if they cannot be presentation times."""
    stamps = [pts for pts in listed if pts is not None]
    # AVI stores no presentation times, and the library derives wrong ones for reordered frames.
    if len(stamps) < len(listed) or len(set(stamps)) < len(stamps) or container.format.name == "avi":
        return None
    # A clock that restarts half-way, as in concatenated files, would interleave the parts.
    order = np.argsort(stamps, kind="stable")
    if np.abs(order - np.arange(len(order))).max() > MAX_REORDERING:
        return None
    return np.asarray(stamps, dtype=np.int64)[order]


def _missing_at_end(stream: VideoStream, packets: list[tuple[int | None, bool, int]], fps: Fraction) -> int:
    """Count the frames that the header promises after the last packet of a truncated file."""
    if stream.time_base is None:
        return 0
    ends = [pts + duration for pts, _, duration in packets if pts is not None]
    if stream.duration is not None:
        promised = Fraction((stream.start_time or 0) + stream.duration) * stream.time_base
    elif "DURATION" in stream.metadata:  # Matroska
        # A text that anyone may have written: one that is not a duration promises nothing.
        written = _DURATION.fullmatch(stream.metadata["DURATION"].strip("\0 "))
        if written is None:
            return 0
        promised = int(written[1]) * 3600 + int(written[2]) * 60 + Fraction(written[3])
    else:
        return 0
    short = promised - max(ends, default=0) * stream.time_base
    if short * fps < Fraction(3, 2):
        return 0
    return stream.frames - len(packets) if stream.frames > len(packets) else round(short * fps)


def decoded_after_seek(
    container: InputContainer, stream: VideoStream, *, wanted: NDArray[np.int64]
) -> Iterator[VideoFrame]:
    """Decode from the next key frame up to the first fault, after which frames may depend on lost ones.

    A frame that no other frame depends on is decoded only if its timestamp is `wanted`.
    """
    packets = itertools.dropwhile(lambda packet: not packet.is_keyframe, _packets(container, stream))
    codec, stamps = stream.codec_context, set(wanted.tolist())
    try:
        for packet in itertools.chain(packets, [None]):
            if codec.name in REFERENCE_CODECS and packet is not None:
                codec.skip_frame = "DEFAULT" if packet.pts in stamps else "NONREF"
            for frame in stream.decode(packet):
                if frame.is_corrupt:
                    return
                yield frame
    except av.error.FFmpegError:
        return


def decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Decode packet by packet, skipping undecodable ones."""
    for packet in _packets(container, stream):
        try:
            yield from packet.decode()
        except av.error.MemoryError:
            raise
        except av.error.FFmpegError:
            continue
    # An error while the decoder drains must not cost the frames still inside it.
    for _ in range(MAX_REORDERING):
        try:
            yield from stream.decode(None)
            return
        except av.error.EOFError:
            return
        except av.error.MemoryError:
            raise
        except av.error.FFmpegError:
            continue


def _packets(container: InputContainer, stream: VideoStream) -> Iterator["Packet[VideoStream]"]:
    """Yield the packets that carry data, up to the end of the file or of its readable part."""
    try:
        for packet in container.demux(stream):
            if packet.size:
                yield packet
    except av.error.FFmpegError:
        return
