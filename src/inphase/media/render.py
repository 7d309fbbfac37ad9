"""Render synchronized videos as one mp4: side by side, in a grid or overlaid, with captions and sound.

`write_mp4` writes what every browser plays: h264 in yuv420p, even sizes, aac, the index in front.

Every source follows its own time map from the common clock.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inphase.media.audio import Sound, stream_sound
from inphase.media.canvas import Captions, JointOverlay, Layout, compose, plan_layout
from inphase.media.frames import Clip, warn_of_damage
from inphase.media.recording import open_recording, probe
from inphase.media.sampling import ROUNDING, shown_at
from inphase.progress import Progress, ignore_progress
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
    comment: str = "",
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
            return _encode(part, images, fps=exact, sound=sound, quality=quality, comment=comment)
    except av.error.FFmpegError as error:
        raise MediaError(f"{path} cannot be encoded ({error.strerror}): check the size of the images") from error


def _encode(
    part: Path,
    images: Iterable[NDArray[np.uint8]],
    *,
    fps: Fraction,
    sound: Iterator[NDArray[np.float32]] | None,
    quality: int,
    comment: str,
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
        if comment:
            container.metadata["comment"] = comment
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


RenderSource = Clip | Path | str

# Limits of a re-encoded video: a page plays up to nine files at a time.
MAX_PLAYABLE_HEIGHT, MAX_PLAYABLE_FPS = 1080, 60.0


def render(
    path: Path | str,
    sources: Sequence[RenderSource],
    *,
    clock: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
    layout: Layout = "row",
    height: int = 360,
    labels: Sequence[str] = (),
    joints: Sequence[JointOverlay | None] = (),
    marks: Sequence[tuple[float, str]] = (),
    freeze: float = 0.0,
    show_time: bool = False,
    fps: float = 30,
    slow: float = 1.0,
    sound: Sound | Path | str | None = None,
    sound_of: int = 0,
    quality: int = 20,
    comment: str = "",
    progress: Progress | None = None,
) -> int:
    """Write clips or video files side by side, in a grid or overlaid, and return the number of frames.

    `clock` [R] are increasing seconds of the common clock and `seconds` [R, K] the second of each source at each of
    them, interpolated linearly; without them all sources start together at 0. `height` is that of a row. `labels` are
    written below each source, and with `show_time` its second above; `joints` are drawn on each. `marks` are labeled
    seconds of the common clock: a label is shown from there to the next, and the result stands still there for
    `freeze` seconds. `slow` stretches the result: 2 lasts twice as long. `sound` follows the time map of source
    `sound_of`: it plays lower where that source runs slow and is silent where it stands still. `quality` is x264's crf,
    `comment` a text in the file, which `read_comment` reads. Files are decoded as they play, so their maps must not run
    backwards; memory does not grow with their length.
    """
    shapes = [_shape(source) for source in sources]
    layout_plan = plan_layout([size for size, _ in shapes], layout=layout, height=height)
    if not (fps > 0 and slow > 0):
        raise ValueError(f"fps and slow must be positive, got {fps} and {slow}")
    report = progress or ignore_progress
    clock_, seconds_ = _maps(clock, seconds, [end for _, end in shapes])
    shown_marks = [(second, text) for second, text in sorted(marks) if clock_[0] <= second <= clock_[-1]]
    knots, reached = _schedule(clock_, [second for second, _ in shown_marks], slow=slow, freeze=freeze)
    count = int(knots[-1] * fps + 1e-6) + 1

    def at(ticks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Find the second of every source at ticks of the result: [N, K]."""
        common = np.interp(ticks, knots, reached)
        return np.stack([np.interp(common, clock_, column) for column in seconds_.T], axis=1)

    captions = Captions(labels, layout_plan)
    cells = [(cell_height, cell_width) for _, _, cell_height, cell_width in layout_plan.cells]
    ticks = np.arange(count) / fps
    own = at(ticks)
    players = [
        _draw_joints(_play(source, cell, column), overlay, column)
        for source, cell, column, overlay in zip(sources, cells, own.T, joints or [None] * len(sources), strict=True)
    ]
    texts = _texts_at(np.interp(ticks, knots, reached), shown_marks)

    def images() -> Iterator[NDArray[np.uint8]]:
        for number, (now, text, shown) in enumerate(zip(own, texts, zip(*players, strict=True), strict=True), start=1):
            times = [f"{second:.2f} s" for second in now] if show_time else ()
            canvas = compose(shown, layout_plan)
            yield captions.on(canvas, left=[text] * len(cells), right=times)
            report(f"rendering {Path(path).name}", number, count)

    tape = None if sound is None else follow_sound(sound, lambda ticks: at(ticks)[:, sound_of], fps=fps)
    return write_mp4(path, images(), fps=fps, sound=tape, quality=quality, comment=comment)


def read_comment(path: Path) -> str:
    """Read the comment in a complete video file; empty if there is none, or no such file."""
    from inphase.media.decode import index_frames, open_container

    try:
        with open_container(path) as container:
            comment = container.metadata.get("comment", "")
        return comment if comment and not index_frames(path).missing else ""
    except MediaError:
        return ""


def _schedule(
    clock: NDArray[np.float64], stops: Sequence[float], *, slow: float, freeze: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Map seconds of the result to seconds of the common clock, which stands still at each stop: knots of both."""
    knots, reached = [0.0], [float(clock[0])]
    for second in [*(stops if freeze > 0 else ()), float(clock[-1])]:
        knots.append(knots[-1] + (second - reached[-1]) * slow)
        reached.append(second)
        if freeze > 0 and second in stops:
            knots.append(knots[-1] + freeze)
            reached.append(second)
    return np.array(knots), np.array(reached)


def _draw_joints(
    images: Iterator[NDArray[np.uint8]], overlay: JointOverlay | None, seconds: NDArray[np.float64]
) -> Iterator[NDArray[np.uint8]]:
    """Draw joints on the images shown at some seconds, once on an image that is shown for longer."""
    if overlay is None:
        yield from images
        return
    before: tuple[NDArray[np.uint8] | None, int] = (None, -1)
    drawn = np.empty((0, 0, 3), np.uint8)
    for image, second in zip(images, seconds, strict=True):
        frame = overlay.frame_at(float(second))
        if before[0] is not image or before[1] != frame:
            before, drawn = (image, frame), overlay.on(image, frame)
        yield drawn


def _texts_at(seconds: NDArray[np.float64], marks: Sequence[tuple[float, str]]) -> list[str]:
    """Find the label of the last mark before each second; none before the first."""
    begun = np.searchsorted([second for second, _ in marks], seconds + ROUNDING, side="right")
    return [marks[number - 1][1] if number else "" for number in begun.tolist()]


def _shape(source: RenderSource) -> tuple[tuple[int, int], float]:
    """Measure a source: the size of its frames and the second at which it ends."""
    if isinstance(source, Clip):
        height, width = source.frames.shape[1:3]
        return (height, width), float(source.times[-1])
    found = probe(source)
    return found.size, found.duration - 1 / found.fps


def _maps(
    clock: ArrayLike | None, seconds: ArrayLike | None, ends: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check the time maps from the common clock to the sources, or make maps that start together."""
    if (clock is None) != (seconds is None):
        raise ValueError("give clock and seconds together, or neither")
    if clock is None or seconds is None:
        both = np.array([0.0, max(ends)])
        return both, np.repeat(both[:, None], len(ends), axis=1)
    clock_, seconds_ = np.asarray(clock, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if clock_.ndim != 1 or not len(clock_) or np.any(np.diff(clock_) <= 0):
        raise ValueError("clock must be a list of increasing seconds")
    if seconds_.shape != (len(clock_), len(ends)):
        raise ValueError(f"seconds must be [{len(clock_)}, {len(ends)}], a row per clock second, got {seconds_.shape}")
    return clock_, seconds_


def _play(source: RenderSource, size: tuple[int, int], seconds: NDArray[np.float64]) -> Iterator[NDArray[np.uint8]]:
    """Yield the image, scaled to `size`, that a source shows at each second."""
    if isinstance(source, Clip):
        return _play_clip(source, size, seconds)
    if np.any(np.diff(seconds) < -ROUNDING):
        raise ValueError(f"the map of {source} runs backwards: read it with read_clip and pass the clip")
    return play_file(source, size, seconds)


def _play_clip(clip: Clip, size: tuple[int, int], seconds: NDArray[np.float64]) -> Iterator[NDArray[np.uint8]]:
    from av.video.frame import VideoFrame

    from inphase.media.decode import UprightConverter

    scale = UprightConverter(size=size)
    last, image = -1, np.empty((0, 0, 3), np.uint8)
    for index in shown_at(clip.times, seconds).tolist():
        if index != last:
            last, image = index, scale(VideoFrame.from_ndarray(np.ascontiguousarray(clip.frames[index])))
        yield image


def play_file(path: Path | str, size: tuple[int, int], seconds: NDArray[np.float64]) -> Iterator[NDArray[np.uint8]]:
    """Yield the image, scaled to `size`, that a file shows at each of the non-decreasing seconds."""
    recording = open_recording(path)
    wanted = np.unique(shown_at(recording.times, seconds))
    frames = recording.images(wanted, size=size, halve_color=True)
    first = next(frames, None)
    if first is None:
        raise MediaError(f"{path}: no frame could be decoded; get an undamaged copy of the file")
    shown, following = first[1], next(frames, None)
    for second in seconds:
        while following is not None and following[0] <= second + ROUNDING:
            shown, following = following[1], next(frames, None)
        yield shown
    if following is None:
        warn_of_damage(recording)


def follow_sound(
    sound: Sound | Path | str, second_at: Callable[[NDArray[np.float64]], NDArray[np.float64]], *, fps: float
) -> Iterator[NDArray[np.float32]]:
    """Yield the sound samples of each frame of the result."""
    waiting = _blocks(sound) if isinstance(sound, Sound) else stream_sound(sound, rate=SOUND_RATE)
    tape: list[Sound] = []
    begin, frame = 0, 0
    while True:
        frame += 1
        end = round(frame * SOUND_RATE / fps)
        seconds = second_at(np.arange(begin, end + 1) / SOUND_RATE)
        while block := _needed(tape, waiting, seconds.max()):
            tape.append(block)
        tape = [block for block in tape if block.start + len(block) / block.rate >= seconds.min()]
        yield _samples_at(tape, seconds)
        begin = end


def _blocks(sound: Sound, *, length: int = 4096) -> Iterator[Sound]:
    for begin in range(0, len(sound), length):
        yield Sound(sound.samples[begin : begin + length], sound.rate, sound.start + begin / sound.rate)


def _needed(tape: list[Sound], waiting: Iterator[Sound], second: float) -> Sound | None:
    reached = not tape or tape[-1].start + len(tape[-1]) / tape[-1].rate <= second
    return next(waiting, None) if reached else None


def _samples_at(tape: list[Sound], seconds: NDArray[np.float64]) -> NDArray[np.float32]:
    if not tape:
        return np.zeros(len(seconds) - 1, np.float32)
    samples = np.concatenate([block.samples for block in tape])
    times = tape[0].start + np.arange(len(samples)) / tape[0].rate
    resampled = np.interp(seconds[:-1], times, samples, left=0, right=0)
    return np.where(np.diff(seconds) != 0, resampled, 0).astype(np.float32)


def make_playable(source: Path | str, target: Path | str, *, progress: Progress | None = None) -> None:
    """Re-encode a recording as h264 and aac, upright and on the same clock from 0."""
    found, report = probe(source), progress or ignore_progress
    stage = f"encoding {Path(source).name}"
    height = min(found.size[0], MAX_PLAYABLE_HEIGHT)
    fps, sound = min(found.fps, MAX_PLAYABLE_FPS), source if found.has_sound else None
    render(
        target,
        [source],
        height=height + height % 2,
        fps=fps,
        sound=sound,
        progress=lambda _, done, total: report(stage, done, total),
    )
