"""Synchronised videos as one mp4: every source follows its own map from the common clock."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inphase.media.audio import Sound, stream_sound
from inphase.media.compose import Captions, Layout, compose, plan
from inphase.media.encode import SOUND_RATE, write_mp4
from inphase.media.frames import Clip, stream_clips
from inphase.media.probe import probe
from inphase.media.selection import ROUNDING, shown_at

Source = Clip | Path | str


def render(
    path: Path | str,
    sources: Sequence[Source],
    *,
    clock: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
    layout: Layout = "row",
    height: int = 360,
    labels: Sequence[str] = (),
    rate: float = 30,
    slow: float = 1.0,
    sound: Sound | Path | str | None = None,
    sound_of: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write clips or video files side by side, in a grid or laid over each other, and return the number of frames.

    `clock` [R] are increasing seconds of the common clock and `seconds` [R, K] the second of each source at each of
    them, with straight lines between; without them all sources start together at 0. `height` is that of a row. `slow`
    stretches the result: 2 lasts twice as long. `sound` is heard as its picture, that of source `sound_of`, is seen:
    where that runs slow it is lower, where it stands still it is silent. Files are decoded as they play, so their maps
    must not run backwards; memory does not grow with their length.
    """
    shapes = [_shape(source) for source in sources]
    layout_plan = plan([size for size, _ in shapes], layout=layout, height=height)
    if not (rate > 0 and slow > 0):
        raise ValueError(f"rate and slow must be positive, got {rate} and {slow}")
    clock_, seconds_ = _maps(clock, seconds, [end for _, end in shapes])
    count = int((clock_[-1] - clock_[0]) * rate * slow + 1e-6) + 1

    def at(ticks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Find the second of every source at ticks of the result: [N, K]."""
        common = clock_[0] + ticks / slow
        return np.stack([np.interp(common, clock_, column) for column in seconds_.T], axis=1)

    captions = Captions(labels, layout_plan)
    cells = [(cell_height, cell_width) for _, _, cell_height, cell_width in layout_plan.cells]
    players = [_play(*job) for job in zip(sources, cells, at(np.arange(count) / rate).T, strict=True)]

    def pictures() -> Iterator[NDArray[np.uint8]]:
        for number, shown in enumerate(zip(*players, strict=True), start=1):
            yield captions.on(compose(shown, layout_plan))
            if progress is not None:
                progress(number, count)

    tape = None if sound is None else follow_sound(sound, lambda ticks: at(ticks)[:, sound_of], rate=rate)
    return write_mp4(path, pictures(), rate=rate, sound=tape)


def _shape(source: Source) -> tuple[tuple[int, int], float]:
    """Measure a source: the size of its pictures and the second at which it ends."""
    if isinstance(source, Clip):
        height, width = source.frames.shape[1:3]
        return (height, width), float(source.times[-1])
    found = probe(source)
    return found.size, found.duration - 1 / found.rate


def _maps(
    clock: ArrayLike | None, seconds: ArrayLike | None, ends: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check the maps from the common clock to the sources, or make those of sources that start together."""
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


def _play(source: Source, size: tuple[int, int], seconds: NDArray[np.float64]) -> Iterator[NDArray[np.uint8]]:
    """Yield the picture, scaled to `size`, that a source shows at each second."""
    if isinstance(source, Clip):
        return _play_clip(source, size, seconds)
    if np.any(np.diff(seconds) < -ROUNDING):
        raise ValueError(f"the map of {source} runs backwards: read it with read_clip and pass the clip")
    return play_file(source, size, seconds)


def _play_clip(clip: Clip, size: tuple[int, int], seconds: NDArray[np.float64]) -> Iterator[NDArray[np.uint8]]:
    from av.video.frame import VideoFrame

    from inphase.media.picture import Upright

    scale = Upright(size=size)
    last, picture = -1, np.empty((0, 0, 3), np.uint8)
    for index in shown_at(clip.times, seconds).tolist():
        if index != last:
            last, picture = index, scale(VideoFrame.from_ndarray(np.ascontiguousarray(clip.frames[index])))
        yield picture


def play_file(path: Path | str, size: tuple[int, int], seconds: NDArray[np.float64]) -> Iterator[NDArray[np.uint8]]:
    """Yield the picture, scaled to `size`, that a file shows at each second; they never decrease."""
    frames = (
        pair for clip in stream_clips(path, length=8, size=size) for pair in zip(clip.times, clip.frames, strict=True)
    )
    _, shown = next(frames)
    following = next(frames, None)
    for second in seconds:
        while following is not None and following[0] <= second + ROUNDING:
            shown, following = following[1], next(frames, None)
        yield shown


def follow_sound(
    sound: Sound | Path | str, second_at: Callable[[NDArray[np.float64]], NDArray[np.float64]], *, rate: float
) -> Iterator[NDArray[np.float32]]:
    """Yield, for each picture of the result, the samples to be heard with it."""
    waiting = _blocks(sound) if isinstance(sound, Sound) else stream_sound(sound, rate=SOUND_RATE)
    tape: list[Sound] = []
    begin, picture = 0, 0
    while True:
        picture += 1
        end = round(picture * SOUND_RATE / rate)
        seconds = second_at(np.arange(begin, end + 1) / SOUND_RATE)
        while block := _needed(tape, waiting, seconds.max()):
            tape.append(block)
        tape = [block for block in tape if block.start + len(block) / block.rate >= seconds.min()]
        yield _heard(tape, seconds)
        begin = end


def _blocks(sound: Sound, *, length: int = 4096) -> Iterator[Sound]:
    for begin in range(0, len(sound), length):
        yield Sound(sound.samples[begin : begin + length], sound.rate, sound.start + begin / sound.rate)


def _needed(tape: list[Sound], waiting: Iterator[Sound], second: float) -> Sound | None:
    reached = not tape or tape[-1].start + len(tape[-1]) / tape[-1].rate <= second
    return next(waiting, None) if reached else None


def _heard(tape: list[Sound], seconds: NDArray[np.float64]) -> NDArray[np.float32]:
    if not tape:
        return np.zeros(len(seconds) - 1, np.float32)
    samples = np.concatenate([block.samples for block in tape])
    times = tape[0].start + np.arange(len(samples)) / tape[0].rate
    heard = np.interp(seconds[:-1], times, samples, left=0, right=0)
    return np.where(np.diff(seconds) != 0, heard, 0).astype(np.float32)
