"""Measure frames per second of the procedural stage on one core, and the error of linear stretch.

    OMP_NUM_THREADS=1 python benchmarks/stage.py

Times include drawing the take, posing, painting the background and rasterizing. The gate: a video drawn twice has the
same bits.
"""

import time

import numpy as np

from inphase.data.stage_videos import load
from inphase.data.video import Video
from inphase.stage import ACTIONS, LEVELS
from inphase.stage.take import stretch_error


def draw(videos: list[Video]) -> list[bytes]:
    return [video.render().frames.tobytes() for video in videos if video.render is not None]


def main() -> None:
    print(f"{'level':8}{'size':>6}{'videos':>8}{'frames':>8}{'frames/s':>10}{'ms/video to list':>18}")
    for level in LEVELS:
        for size, count in ((64, 4), (128, 2), (256, 1)):
            load(split="train", videos=1, actions=["squat"], level=level, size=16)
            start = time.process_time()
            videos = load(split="train", videos=count, level=level, size=size)
            listed = (time.process_time() - start) / len(videos)
            start = time.process_time()
            once = draw(videos)
            seconds = time.process_time() - start
            if once != draw(videos):
                raise SystemExit(f"{level} at {size} pixels differs when drawn twice")
            frames = sum(video.length or 0 for video in videos)
            print(f"{level:8}{size:6}{len(videos):8}{frames:8}{frames / seconds:10,.0f}{1000 * listed:18.1f}")
    videos = load(split="train", videos=20)
    warps = {name: [video.progress for video in videos if video.action == name] for name in ACTIONS}
    errors = [
        stretch_error(a, b)
        for many in warps.values()
        for a in many
        for b in many
        if a is not b and a is not None and b is not None
    ]
    print(f"linear stretch: mean error {np.mean(errors):.3f} of the duration over {len(errors)} pairs")


if __name__ == "__main__":
    main()
