"""Recordings whose frames carry their own number, so that a test can tell which one it was given."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

HEIGHT, WIDTH = 64, 96
BITS = 12


def numbered(number: int, *, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.uint8]:
    """Draw a number as 12 black or white fields, 3 rows of 4: no codec at a usable quality can change it."""
    bits = (number >> np.arange(BITS)) & 1
    rows, columns = np.arange(height) * 3 // height, np.arange(width) * 4 // width
    fields = np.where(bits, 235, 20).astype(np.uint8).reshape(3, 4)[rows][:, columns]
    return np.repeat(fields[..., None], 3, axis=2)


def number_of(image: NDArray[np.uint8]) -> int:
    """Read the number of an image."""
    height, width = image.shape[:2]
    rows, columns = (np.arange(3) * 2 + 1) * height // 6, (np.arange(4) * 2 + 1) * width // 8
    return int(sum(1 << i for i, field in enumerate(image[rows][:, columns].mean(-1).ravel()) if field > 128))


def numbers_of(frames: Iterable[NDArray[np.uint8]]) -> list[int]:
    return [number_of(frame) for frame in frames]


def write_video(
    path: Path,
    *,
    count: int = 40,
    rate: Fraction | int = 30,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    height: int = HEIGHT,
    width: int = WIDTH,
    stamps: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    options: dict[str, str] | None = None,
    faststart: bool = False,
    sound: NDArray[np.float32] | None = None,
    sound_start: float = 0.0,
    sound_rate: int = 44100,
    turn: dict[str, Any] | None = None,
    images: Sequence[NDArray[np.uint8]] | None = None,
) -> Path:
    """Write frames 0, 1, 2 … of `count`, at a constant rate or at the given time stamps, with sound where given."""
    container_options = {"movflags": "+faststart"} if faststart else {}
    with av.open(str(path), "w", options=container_options) as container:
        stream = container.add_stream(codec, rate=Fraction(rate), options=options or {})
        assert isinstance(stream, VideoStream)
        stream.height, stream.width, stream.pix_fmt = height, width, pixels
        if pixels == "gray":
            stream.color_range = 2  # grey is made from black 0 to white 255, which h264 must be reported
        if time_base is not None:
            stream.codec_context.time_base = time_base
        if turn is not None:
            stream.set_display_rotation(**turn)
        speaker = None if sound is None else container.add_stream("aac", rate=sound_rate, layout="mono")
        for number in range(count if images is None else len(images)):
            image = numbered(number, height=height, width=width) if images is None else images[number]
            frame = VideoFrame.from_ndarray(image).reformat(format=pixels)
            frame.pts = number if stamps is None else stamps[number]
            frame.time_base = time_base or 1 / Fraction(rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if speaker is not None and sound is not None:
            for begin in range(0, len(sound), 1024):
                block = av.AudioFrame.from_ndarray(sound[None, begin : begin + 1024], format="fltp", layout="mono")
                block.sample_rate, block.time_base = sound_rate, Fraction(1, sound_rate)
                block.pts = begin + round(sound_start * sound_rate)
                container.mux(speaker.encode(block))
            container.mux(speaker.encode())
    return path


def remux(source: Path, target: Path, *, shift: int = 0, options: dict[str, str] | None = None) -> Path:
    """Copy the packets of a file into another container, `shift` time stamps later."""
    with av.open(str(source)) as old, av.open(str(target), "w", options=options or {}) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(video=0):
            if packet.pts is not None and packet.dts is not None:
                packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                new.mux(packet)
    return target


def clicks(seconds: Sequence[float], *, length: float, rate: int = 44100) -> NDArray[np.float32]:
    """Make a silence with a short burst at each second."""
    samples = np.zeros(round(length * rate), np.float32)
    burst = np.sin(2 * np.pi * 2000 * np.arange(rate // 100) / rate) * np.hanning(rate // 100)
    for second in seconds:
        begin = round(second * rate) - len(burst) // 2
        samples[begin : begin + len(burst)] += burst.astype(np.float32)
    return samples


def write_images(folder: Path, numbers: Iterable[int], *, suffix: str = "png", name: str = "{:06d}") -> Path:
    """Write a folder of numbered images."""
    folder.mkdir(parents=True)
    for number in numbers:
        VideoFrame.from_ndarray(numbered(number)).save(folder / f"{name.format(number)}.{suffix}")
    return folder
