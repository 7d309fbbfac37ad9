"""Write an mp4 that every browser plays: h264 in yuv420p, even sizes, aac, the index in front."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inphase.storage.errors import MediaError
from inphase.storage.files import atomic_write

SOUND_RATE = 48000


def write_mp4(
    path: Path | str,
    images: Iterable[NDArray[np.uint8]],
    *,
    fps: float | Fraction,
    sound: Iterator[NDArray[np.float32]] | None = None,
    quality: int = 20,
) -> int:
    """Encode RGB images of one size and return their number.

    `sound`: for each image the mono samples played while it is shown, at `SOUND_RATE`. `quality`: x264's crf, lower is
    better and larger. An odd side is made even by repeating its last row or column. The file is written atomically.
    """
    import av

    path = Path(path)
    if path.suffix.lower() != ".mp4":
        raise ValueError(f"{path} must end in .mp4")
    exact = Fraction(fps).limit_denominator(90000)
    try:
        with atomic_write(path) as part:
            return _encode(part, images, fps=exact, sound=sound, quality=quality)
    except av.error.FFmpegError as error:
        raise MediaError(f"{path} cannot be encoded ({error.strerror}): check the size of the images") from error


def _encode(
    part: Path,
    images: Iterable[NDArray[np.uint8]],
    *,
    fps: Fraction,
    sound: Iterator[NDArray[np.float32]] | None,
    quality: int,
) -> int:
    import av
    from av.audio.frame import AudioFrame
    from av.video.frame import VideoFrame
    from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc, VideoReformatter

    count = samples = 0
    # A key frame every second lets a player seek at once.
    options = {"crf": str(quality), "preset": "veryfast", "g": str(max(1, round(fps)))}
    reformatter = VideoReformatter()
    with av.open(str(part), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=fps, options=options)
        audio = None if sound is None else container.add_stream("aac", rate=SOUND_RATE, layout="mono")
        for image in images:
            image = _even(image)
            if not count:
                stream.height, stream.width, stream.pix_fmt = *image.shape[:2], "yuv420p"
                stream.colorspace, stream.color_range = Colorspace.ITU709, ColorRange.MPEG
                stream.color_primaries, stream.color_trc = ColorPrimaries.BT709, ColorTrc.BT709
            frame = reformatter.reformat(
                VideoFrame.from_ndarray(image),
                format="yuv420p",
                dst_colorspace=Colorspace.ITU709,
                dst_color_range=ColorRange.MPEG,
                threads=1,
            )
            frame.pts, frame.time_base = count, 1 / fps
            container.mux(stream.encode(frame))
            count += 1
            if audio is not None and sound is not None:
                block = AudioFrame.from_ndarray(next(sound)[None], format="fltp", layout="mono")
                block.sample_rate, block.pts, block.time_base = SOUND_RATE, samples, Fraction(1, SOUND_RATE)
                samples += block.samples
                container.mux(audio.encode(block))
        if not count:
            raise ValueError("no image to write: check the clips and the clock")
        container.mux(stream.encode())
        if audio is not None:
            container.mux(audio.encode())
    return count


def _even(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    if height % 2 or width % 2:
        image = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(image)
