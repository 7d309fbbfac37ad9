"""Draw the moving picture of the README: two drawn swings, before and after alignment.

    python -m tools.picture                          # writes docs/images/swings.webp
    python -m tools.picture --out /tmp/swings.webp --size 160

Both swings come from the test split of the stage, and the shipped pose encoder, which has seen neither, aligns them.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from inphase.apps.align_videos import synchronize
from inphase.data import stage_videos
from inphase.data.frame_source import open_frame_source
from inphase.data.video import Video
from inphase.evaluation import embed_videos
from inphase.models import load_shipped
from inphase.stage.take import FPS

OUT = Path(__file__).parents[1] / "docs" / "images" / "swings.webp"
STEP, REST, QUALITY = 2, 8, 60  # every second frame of the stage; frames that the end is held
MAX_BYTES = 2_000_000
TAKES = (4, 6)  # two swings of the test split that differ in length and in rhythm
SMOOTH_SECONDS = 0.3  # changes of speed shorter than this are removed
PAPER, INK, GRAY = (255, 255, 255), (34, 40, 49), (215, 220, 226)
COLORS = ((0, 114, 178), (213, 94, 0))
GAP, TITLE, BAR = 10, 30, 18


def main() -> None:
    """Write the picture, and print its size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--size", type=int, default=208, help="height and width of a video in pixels")
    options = parser.parse_args()
    count = write_picture(options.out, size=options.size)
    print(f"{options.out}: {count} frames, {options.out.stat().st_size / 1e6:.2f} MB")


def write_picture(path: Path, *, size: int) -> int:
    """Write the animation and return its number of frames."""
    videos = stage_videos.load(split="test", actions=["golf_swing"], videos=max(TAKES) + 1, level="plain", size=size)
    pair = [videos[take] for take in TAKES]
    films = [video.render().frames for video in pair if video.render is not None]
    phases = [video.progress for video in pair if video.progress is not None]
    matched = align(pair)
    longest = max(len(film) for film in films) - 1
    moments = [*range(0, longest + 1, STEP), *[longest] * REST]
    frames = []
    for moment in moments:
        before = [min(moment, len(film) - 1) for film in films]
        after = [before[0], int(matched[before[0]])]
        halves = []
        for title, places in (("played from the start", before), ("aligned by inphase", after)):
            shown = [film[place] for film, place in zip(films, places, strict=True)]
            done = [float(phase[place]) for phase, place in zip(phases, places, strict=True)]
            halves.append(draw_half(title, shown, done))
        frames.append(Image.fromarray(np.concatenate(halves, axis=1)))
    path.parent.mkdir(parents=True, exist_ok=True)
    duration = round(1000 * STEP / FPS)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=duration, loop=0, quality=QUALITY, method=4)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, more than {MAX_BYTES}: choose a smaller --size")
    return len(frames)


def align(pair: list[Video]) -> NDArray[np.int64]:
    """Return for each frame of the first video the matching frame of the second."""
    encoder = load_shipped("pose")
    source = open_frame_source(encoder, pair)
    embedded = [each.embedding for each in embed_videos(encoder, source.videos, read=source.read)]
    seconds = synchronize(embedded, smooth=SMOOTH_SECONDS).seconds[:, 1]
    nearest: NDArray[np.int64] = np.abs(seconds[:, None] - embedded[1].times).argmin(axis=1)
    return nearest


def draw_half(title: str, images: list[NDArray[np.uint8]], done: list[float]) -> NDArray[np.uint8]:
    """Draw two videos under a title, and a bar with how far each action has come."""
    size = images[0].shape[0]
    width = 2 * size + 3 * GAP
    canvas = Image.new("RGB", (width, TITLE + size + BAR + 3 * GAP), PAPER)
    pen = ImageDraw.Draw(canvas)
    pen.text((width / 2, TITLE / 2 + GAP / 2), title, fill=INK, anchor="mm", font=ImageFont.load_default(size=17))
    for number, image in enumerate(images):
        left = GAP + number * (size + GAP)
        canvas.paste(Image.fromarray(image), (left, TITLE + GAP))
        pen.rectangle((left, TITLE + GAP + size, left + size - 1, TITLE + GAP + size + 3), fill=COLORS[number])
    left, right, middle = 2 * GAP, width - 2 * GAP, TITLE + size + 2 * GAP + BAR / 2
    pen.line((left, middle, right, middle), fill=GRAY, width=4)
    for color, share in zip(COLORS, done, strict=True):
        x = left + share * (right - left)
        pen.ellipse((x - 7, middle - 7, x + 7, middle + 7), outline=color, width=4)
    return np.asarray(canvas)


if __name__ == "__main__":
    main()
