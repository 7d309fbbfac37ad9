"""Pouring, as TCC's authors distribute it: TFRecord files of sequence examples, read without TensorFlow.

    root/pouring_train-0-of-2.tfrecord, pouring_train-1-of-2.tfrecord    70 videos
    root/pouring_val-0-of-1.tfrecord                                     14 videos, "test" here

An example has the name of a video, JPEG images of its frames (`video`) and a phase for each (`frame_labels`). A record
is its length (8 bytes), a checksum, the bytes and another checksum; an example is a protocol buffer of which three
levels of fields are read. Phases lie between four events (Dwibedi et al., CVPR 2019).
"""

import io
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from inphase.data.video import Problem, Video, check_split
from inphase.media.frames import Clip
from inphase.storage.errors import MediaError

SPLITS = ("train", "test")
RATE = 30.0  # frames per second of the recordings
EVENTS = ("hand_touches_bottle", "liquid_exits", "pouring_complete", "bottle_on_table")
PHASES = ("start", *EVENTS)
MAX_RECORD_BYTES = 2**31
_FILES = {"train": "pouring_train*.tfrecord", "test": "pouring_val*.tfrecord"}


def load(root: Path | str, *, split: str) -> list[Video]:
    """Parse the records into videos of five phases, each of which begins with an event; the list "val" is "test"."""
    root = Path(root)
    check_split(split, of=SPLITS)
    videos = []
    for part in SPLITS if split == "all" else (split,):
        files = sorted(root.glob(_FILES[part]))
        if not files:
            raise FileNotFoundError(f"no {_FILES[part]} in {root}: download them as TCC's repository describes")
        for file in files:
            videos += [video for video in _parse_file(file, split=part) if video is not None]
    return videos


def _parse_file(file: Path, *, split: str) -> Iterator[Video | None]:
    """Parse each record of a file into a video; warn of one that is damaged."""
    with file.open("rb") as opened:
        while True:
            offset = opened.tell()
            try:
                record = read_record(opened)
                if record is None:
                    return
                yield _parse(record, file=file, offset=offset, split=split)
            except ValueError as error:
                warn(Problem(f"{file}, byte {offset}", str(error), "download it again"), stacklevel=3)
                return


def _parse(record: bytes, *, file: Path, offset: int, split: str) -> Video:
    name, images, labels = read_example(record)
    phases = np.array(labels, dtype=np.int64)
    if len(phases) != len(images) or not len(images):
        raise ValueError(f"{name!r} has {len(images)} frames and {len(phases)} labels")
    # A phase begins with the event of its name, where the video has it.
    begins = {int(phase): int(np.argmax(phases == phase)) for phase in np.unique(phases)}
    return Video(
        id=name,
        action="pouring",
        split=split,
        render=partial(_decode, file, offset),
        length=len(images),
        rate=RATE,
        phases=phases,
        phase_names=PHASES,
        events={event: begins[at] for at, event in enumerate(EVENTS, start=1) if at in begins},
    )


def _decode(file: Path, offset: int) -> Clip:
    """Decode the images of the record at an offset of a file."""
    import av

    from inphase.media.decode import UprightConverter

    with file.open("rb") as opened:
        opened.seek(offset)
        record = read_record(opened)
    if record is None:
        raise MediaError(f"{file} ends before byte {offset}: download it again")
    name, images, _ = read_example(record)
    convert, frames = UprightConverter(), list[NDArray[np.uint8]]()
    for image in images:
        try:
            with av.open(io.BytesIO(image), "r") as container:
                frame = next(container.decode(video=0))
        except (av.error.FFmpegError, StopIteration) as error:
            raise MediaError(f"{file}: image {len(frames)} of {name} cannot be decoded: download it again") from error
        frames.append(convert(frame))
    return Clip(np.stack(frames), np.arange(len(frames)) / RATE)


def read_record(opened: BinaryIO) -> bytes | None:
    """Read the next record of a TFRecord file; None at its end. The checksums are CRC-32C, of which Python has none."""
    head = opened.read(12)
    if not head:
        return None
    if len(head) < 12:
        raise ValueError("the file ends inside a record")
    (length,) = struct.unpack("<Q", head[:8])
    if length > MAX_RECORD_BYTES:
        raise ValueError(f"a record of {length:,} bytes: this is no TFRecord file of videos")
    record = opened.read(length)
    if len(record) < length or len(opened.read(4)) < 4:
        raise ValueError("the file ends inside a record")
    return record


def read_example(record: bytes) -> tuple[str, list[bytes], list[int]]:
    """Read the name, the images and the frame labels of a sequence example."""
    features = {key: value for _, part in _fields(record, 1) for key, value in _entries(part)}
    lists = {key: value for _, part in _fields(record, 2) for key, value in _entries(part)}
    try:
        name = _bytes_of(features["name"]).decode("utf-8")
        images = [_bytes_of(feature) for _, feature in _fields(lists["video"], 1)]
        labels = [_integer_of(feature) for _, feature in _fields(lists["frame_labels"], 1)]
    except (KeyError, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"the record is no example with a name, images and labels ({error!r})") from None
    return name, images, labels


def _entries(part: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the keys and values of a map, which is a list of pairs."""
    for _, entry in _fields(part, 1):
        key = next((value for _, value in _fields(entry, 1)), b"")
        yield key.decode("utf-8", errors="replace"), next((value for _, value in _fields(entry, 2)), b"")


def _bytes_of(feature: bytes) -> bytes:
    """Return the single value of a feature that is a list of bytes."""
    return next(value for _, part in _fields(feature, 1) for _, value in _fields(part, 1)) if feature else b""


def _integer_of(feature: bytes) -> int:
    """Return the single value of a feature that is a list of integers, packed or not."""
    for _, part in _fields(feature, 3):
        for kind, value in _fields(part, 1):
            number, _ = _varint(value, 0) if kind == 2 else (int.from_bytes(value, "little"), 0)
            return number
    raise ValueError("a frame without a label")


def _fields(message: bytes, wanted: int) -> Iterator[tuple[int, bytes]]:
    """Yield the wire type and the bytes of every field of a message that has the number `wanted`."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            content = value.to_bytes(8, "little")
        elif kind in (1, 2, 5):
            size, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            content, at = message[at : at + size], at + size
            if at > len(message):
                raise ValueError("a field is longer than its message")
        else:
            raise ValueError(f"a field of the unknown wire type {kind}")
        if number == wanted:
            yield kind, content


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Read an integer of 7 bits per byte; return it and the place after it."""
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("the record is damaged")
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value & (2**64 - 1), at
