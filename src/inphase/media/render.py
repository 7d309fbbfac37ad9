"""Letters in pictures: the font that comes with Pillow, and for what it lacks one of the system's."""
# MERGED: Several pictures as one: in a row, in a grid, or laid over each other.
# MERGED: Synchronised videos as one mp4: every source follows its own map from the common clock.

import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import ImageFont

from inphase.media.audio import Sound, stream_sound
from inphase.media.encode import SOUND_RATE, write_mp4
from inphase.media.frames import ROUNDING, Clip, shown_at, stream_clips
from inphase.media.probe import probe

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# Pillow's own letters are those of English. These are fonts of many, as Linux, Windows and macOS call them.
SYSTEM = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "arial.ttf", "Arial Unicode.ttf")
# A code that stands for no character: its picture is the one a font gives to whatever it lacks.
NOTHING = "\uffff"


def lettering(text: str, size: int) -> tuple[str, Font]:
    """Give the font that knows most of a text, and the text as it can write it: without marks, or "?" for a letter."""
    best = max(_fonts(text, size), key=lambda font: sum(_knows(font, letter) for letter in text))
    return "".join(letter if _knows(best, letter) else _plain(best, letter) for letter in text), best


def _fonts(text: str, size: int) -> Iterator[Font]:
    """Yield Pillow's font, and those of the system where a letter is missing in it."""
    own = ImageFont.load_default(size)
    yield own
    if not all(_knows(own, letter) for letter in text):
        yield from _installed(size)


@cache
def _installed(size: int) -> tuple[Font, ...]:
    found: list[Font] = []
    for name in SYSTEM:
        try:
            found.append(ImageFont.truetype(name, size))
        except OSError:
            continue
    return tuple(found)


def _knows(font: Font, letter: str) -> bool:
    return letter.isspace() or bytes(font.getmask(letter)) != bytes(font.getmask(NOTHING))


def _plain(font: Font, letter: str) -> str:
    base = unicodedata.normalize("NFKD", letter)[0]
    return base if _knows(font, base) else "?"


Layout = Literal["row", "grid", "overlay"]


@dataclass(frozen=True)
class Plan:
    """Where each of K pictures goes: `cells` holds its top, left, height and width on a canvas of `size`."""

    size: tuple[int, int]
    cells: tuple[tuple[int, int, int, int], ...]
    blended: bool = False


def plan(sizes: Sequence[tuple[int, int]], *, layout: Layout, height: int) -> Plan:
    """Lay out pictures of the given (height, width) with rows of `height`, keeping every aspect."""
    if not sizes:
        raise ValueError("there is nothing to lay out: give at least one clip")
    widths = [max(2, round(height * w / h)) for h, w in sizes]
    if layout == "overlay":
        return Plan((height, widths[0]), tuple((0, 0, height, widths[0]) for _ in sizes), blended=True)
    if layout == "row":
        lefts = np.cumsum([0, *widths]).tolist()
        return Plan((height, lefts[-1]), tuple((0, x, height, w) for x, w in zip(lefts[:-1], widths, strict=True)))
    if layout == "grid":
        columns = math.ceil(math.sqrt(len(sizes)))
        rows, cell = math.ceil(len(sizes) / columns), max(widths)
        places = [
            (i // columns * height, i % columns * cell + (cell - w) // 2, height, w) for i, w in enumerate(widths)
        ]
        return Plan((rows * height, columns * cell), tuple(places))
    raise ValueError(f"layout must be 'row', 'grid' or 'overlay', got {layout!r}")


def compose(pictures: Sequence[NDArray[np.uint8]], plan: Plan) -> NDArray[np.uint8]:
    """Put pictures, already of the size of their cells, on one canvas; those laid over each other are averaged."""
    if plan.blended:
        return np.asarray(np.mean(pictures, axis=0).round(), dtype=np.uint8)
    canvas = np.zeros((*plan.size, 3), np.uint8)
    for picture, (top, left, height, width) in zip(pictures, plan.cells, strict=True):
        canvas[top : top + height, left : left + width] = picture
    return canvas


class Captions:
    """Texts at the lower left of cells, drawn once and laid on every picture."""

    def __init__(self, texts: Sequence[str], plan: Plan) -> None:
        """Draw the texts, white on a dark box; those of pictures laid over each other stand above one another."""
        if texts and len(texts) != len(plan.cells):
            raise ValueError(f"{len(plan.cells)} clips need as many labels, got {len(texts)}: {list(texts)}")
        self._boxes: list[tuple[int, int, NDArray[np.float32], NDArray[np.float32]]] = []
        for number, (text, (top, left, height, width)) in enumerate(zip(texts, plan.cells, strict=False)):
            if not text:
                continue
            colour, alpha = _draw(text, height=height, width=width)
            lift = (len(texts) - number if plan.blended else 1) * len(colour)
            self._boxes.append((max(0, top + height - lift), left, colour, alpha))

    def on(self, canvas: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Lay the texts on a canvas, in place."""
        for top, left, colour, alpha in self._boxes:
            place = canvas[top : top + len(colour), left : left + colour.shape[1]]
            clipped = (slice(place.shape[0]), slice(place.shape[1]))
            place[:] = (place * (1 - alpha[clipped]) + colour[clipped] * alpha[clipped]).round()
        return canvas


def _draw(text: str, *, height: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw a text into a box that fits a cell: colours [h, w, 3] and opacity [h, w, 1]."""
    from PIL import Image, ImageDraw

    points = max(8, height // 16)
    shown, font = lettering(text, points)
    while len(shown) > 1 and font.getlength(shown) + points > width:
        shown = shown[:-2] + "…"
    box = Image.new("RGBA", (min(width, round(font.getlength(shown)) + points), points * 3 // 2), (0, 0, 0, 150))
    ImageDraw.Draw(box).text((points // 2, points * 3 // 4), shown, fill=(255, 255, 255, 255), font=font, anchor="lm")
    drawn = np.asarray(box, dtype=np.float32)
    return drawn[..., :3], drawn[..., 3:] / np.float32(255)


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

    from inphase.media.decode import Upright

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


# What Chrome, Firefox and Safari all play, by the name of the container's format.
VIDEO = {"mov,mp4,m4a,3gp,3g2,mj2": {"h264"}, "matroska,webm": {"vp8", "vp9"}}


SOUND = {"mov,mp4,m4a,3gp,3g2,mj2": {"aac", "mp3"}, "matroska,webm": {"opus", "vorbis"}}


ENDINGS = {".mp4": "mov,mp4,m4a,3gp,3g2,mj2", ".m4v": "mov,mp4,m4a,3gp,3g2,mj2", ".webm": "matroska,webm"}


PIXELS = {"yuv420p", "yuvj420p"}


# Larger pictures and faster ones are brought to these: a page plays up to nine files at a time.
HEIGHT, RATE = 1080, 60.0


def is_playable(path: Path | str) -> bool:
    """Tell whether browsers play a file as it is: container, codecs, 8 bits of 4:2:0, upright, its clock at 0."""
    from inphase.media.decode import clock_origin, decoded, open_container, orientation, video_stream

    path = Path(path)
    if path.is_dir() or path.suffix.lower() not in ENDINGS:
        return False
    with open_container(path) as container:
        stream, name = video_stream(container, path), container.format.name
        if name != ENDINGS[path.suffix.lower()] or stream.codec_context.codec.canonical_name not in VIDEO[name]:
            return False
        if stream.codec_context.pix_fmt not in PIXELS or clock_origin(container) != 0:
            return False
        if any(sound.codec_context.codec.canonical_name not in SOUND[name] for sound in container.streams.audio):
            return False
        first = next(decoded(container, stream), None)
        return first is not None and orientation(first) == (False, False, False)


def make_playable(
    source: Path | str, target: Path | str, *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Encode a recording anew as h264 and aac, upright and on the same clock from 0."""
    found = probe(source)
    height = min(found.size[0], HEIGHT)
    rate, sound = min(found.rate, RATE), source if found.has_sound else None
    render(target, [source], height=height + height % 2, rate=rate, sound=sound, progress=progress)
