"""Pouring's records, written here by the rules of TFRecord and of protocol buffers."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inphase.data import DATASETS, pouring
from inphase.data.video import Problem, RenderedFrames, Video
from inphase.storage.errors import MediaError


def varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def bytes_feature(value: bytes) -> bytes:
    return field(1, field(1, value))


def integer_feature(value: int, *, packed: bool = True) -> bytes:
    number = varint(value)
    return field(3, field(1, number) if packed else varint(1 << 3) + number)


def entry(key: str, value: bytes) -> bytes:
    return field(1, field(1, key.encode()) + field(2, value))


def jpeg(gray: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((16, 24, 3), gray, np.uint8)).save(stream, "jpeg", quality=95)
    return stream.getvalue()


def example(name: str, labels: list[int], *, packed: bool = True, images: int | None = None) -> bytes:
    frames = range(len(labels) if images is None else images)
    context = entry("name", bytes_feature(name.encode())) + entry("len", integer_feature(len(labels)))
    video = b"".join(field(1, bytes_feature(jpeg(40 + 20 * frame))) for frame in frames)
    phases = b"".join(field(1, integer_feature(label, packed=packed)) for label in labels)
    # Fields that nobody asked for are passed over: 7 is of eight bytes, 8 a number.
    unknown = varint(7 << 3 | 1) + bytes(8) + varint(8 << 3) + varint(300)
    return field(1, context) + unknown + field(2, entry("video", video) + entry("frame_labels", phases))


def write(file: Path, *examples: bytes) -> Path:
    file.write_bytes(b"".join(struct.pack("<Q", len(each)) + b"crc." + each + b"crc." for each in examples))
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "pouring_train-0-of-2.tfrecord", example("one", [0, 0, 1, 2, 3, 4]), example("two", [0, 1, 1, 3]))
    write(tmp_path / "pouring_train-1-of-2.tfrecord", example("three", [0, 1, 2, 3, 4], packed=False))
    write(tmp_path / "pouring_val-0-of-1.tfrecord", example("four", [0, 1, 2, 3, 4, 4]))
    return tmp_path


def test_records_are_videos_with_phases_and_events(root: Path) -> None:
    train = DATASETS["pouring"](root, split="train")
    assert [video.id for video in train] == ["one", "two", "three"]
    assert [video.id for video in pouring.load(root, split="test")] == ["four"]
    assert len(pouring.load(root, split="all")) == 4
    one, two, three = train
    assert one.phases is not None
    assert one.phases.tolist() == [0, 0, 1, 2, 3, 4]
    assert dict(one.events) == dict(zip(pouring.EVENTS, (2, 3, 4, 5), strict=True))
    assert dict(two.events) == {"hand_touches_bottle": 1, "pouring_complete": 3}
    assert three.phases is not None
    assert three.phases.tolist() == [0, 1, 2, 3, 4]


def test_frames_are_decoded_from_their_record(root: Path) -> None:
    two = pouring.load(root, split="train")[1]
    images, times = RenderedFrames()(two, np.array([1, 3]))
    assert images.shape == (2, 16, 24, 3)
    assert np.abs(images.mean((1, 2, 3)) - [60, 100]).max() < 2
    assert times.tolist() == [1 / 30, 3 / 30]


def test_damage_is_reported_and_the_rest_stays(root: Path) -> None:
    file = root / "pouring_val-0-of-1.tfrecord"
    whole = example("four", [0, 1])
    write(file, whole, example("five", [0, 1, 2], images=2))
    with pytest.warns(Problem, match="'five' has 2 frames and 3 labels"):
        assert [video.id for video in pouring.load(root, split="test")] == ["four"]
    (four,) = write_and_load(file, whole)
    file.write_bytes(file.read_bytes()[:-20])
    assert four.render is not None
    with pytest.raises((MediaError, ValueError), match="ends inside a record"):
        four.render()
    with pytest.warns(Problem, match="ends inside a record"):
        assert pouring.load(root, split="test") == []
    write(file, b"nonsense")
    with pytest.warns(Problem, match="download it again"):
        assert pouring.load(root, split="test") == []
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"no pouring_val\*\.tfrecord"):
        pouring.load(root, split="test")


def write_and_load(file: Path, *examples: bytes) -> list[Video]:
    return pouring.load(write(file, *examples).parent, split="test")
