"""A playback with everything in it, from golf swings on the stage whose true progress is their alignment.

`python -m tests.viewer.demo DIR` writes it; `inphase view DIR` shows it.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from inphase.align.path import shortest_path
from inphase.data import stage_videos
from inphase.data.video import Video
from inphase.media.audio import Sound
from inphase.media.render import SOUND_RATE, write_mp4
from inphase.playback import (
    Curves,
    Keypoints,
    Pair,
    Phase,
    Playback,
    PlaybackEvent,
    PlaybackMoment,
    Result,
    Skeleton,
    TimeMap,
    VideoTrack,
    principal_curves,
    write_playback,
)
from inphase.pose.pose import bones

RATE = 30.0
NAMES = ("Ana", "Ben", "Chloe")


def write_demo(folder: Path, *, count: int = 3, size: int = 384, level: str = "medium") -> Playback:
    """Write videos, heat maps, thumbnails and the playback of `count` people doing the same."""
    folder.mkdir(parents=True, exist_ok=True)
    # People whose tempo differs by no more than a factor of three: the reference first.
    taken = stage_videos.load(split="test", actions=["golf_swing"], videos=10, size=size, level=level)
    videos = [taken[index] for index in (2, 1, 9)][:count]
    seen = principal_curves([features(video) for video in videos])
    tracks = tuple(track(folder, number, videos, seen[number], size) for number in range(count))
    pairs = tuple(pair(videos, other) for other in range(1, count))
    first = videos[0]
    assert first.joints3d is not None
    skeleton = Skeleton(tracks[0].name, seconds(first), first.joints3d, first.joints, tuple(bones(first.joints)))
    result = Result(
        thumbnail(folder, videos[0], videos[0].events["top"], number=0),
        tuple(
            thumbnail(folder, video, video.events["top"] + k, number=i, score=0.99 - 0.01 * i - 0.02 * k)
            for k in (0, 3)
            for i, video in enumerate(videos)
        ),
    )
    playback = Playback(
        "Golf swing · three players in step", tracks=tracks, pairs=pairs, skeletons=(skeleton,), results=(result,)
    )
    write_playback(folder, playback)
    return playback


def seconds(video: Video) -> NDArray[np.float64]:
    return np.arange(video.length or 0) / RATE


def features(video: Video) -> NDArray[np.float64]:
    """Describe each frame by where the joints are around the pelvis, as the person faces the camera."""
    assert video.joints3d is not None
    joints = video.joints3d.astype(np.float64)
    return np.asarray((joints - joints[:, :1]).reshape(len(joints), -1))


def track(folder: Path, number: int, videos: Sequence[Video], curves: NDArray[np.float32], size: int) -> VideoTrack:
    video, reference = videos[number], videos[0]
    assert video.render is not None
    assert video.synthesize is not None
    assert video.phases is not None
    assert video.progress is not None
    assert reference.progress is not None
    assert video.keypoints is not None
    assert video.visibility is not None
    clip, name = video.render(), f"swing-{number}"
    write_mp4(folder / f"{name}.mp4", clip.frames, fps=RATE, sound=_resample(video.synthesize()))
    write_mp4(folder / f"{name}-heat.mp4", heat(video, size), fps=RATE)
    times = seconds(video)
    own = np.interp(reference.progress, video.progress, times)
    points = np.concatenate([video.keypoints, video.visibility[..., None]], axis=-1)
    return VideoTrack(
        name=NAMES[number],
        duration=len(times) / RATE,
        rate=RATE,
        size=(size, size),
        media=f"{name}.mp4",
        overlay=f"{name}-heat.mp4",
        time_map=None if number == 0 else TimeMap(seconds(reference), own),
        phases=tuple(phases(video)),
        events=tuple(PlaybackEvent(frame / RATE, label, 1 - 0.2 * number) for label, frame in video.events.items()),
        curves=Curves(times, curves),
        keypoints=Keypoints(times, points, video.joints, tuple(bones(video.joints))),
    )


def phases(video: Video) -> Iterator[Phase]:
    assert video.phases is not None
    edges = [0, *(np.flatnonzero(np.diff(video.phases)) + 1).tolist(), len(video.phases)]
    for start, end in pairwise(edges):
        yield Phase(start / RATE, end / RATE, video.phase_names[video.phases[start]])


def pair(videos: Sequence[Video], other: int) -> Pair:
    import torch

    x, y = features(videos[0]), features(videos[other])
    cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    path = shortest_path(torch.from_numpy(cost)).path
    return Pair(0, other, cost, seconds(videos[0]), seconds(videos[other]), path)


def heat(video: Video, size: int) -> Iterator[NDArray[np.uint8]]:
    """Glow where the hands are."""
    assert video.keypoints is not None
    y, x = np.mgrid[:size, :size]
    for points in video.keypoints:
        glow = np.zeros((size, size))
        for joint in ("left_wrist", "right_wrist", "head"):
            px, py = points[video.joints.index(joint)]
            glow += (0.5 if joint == "head" else 1.0) * np.exp(
                -((x - px) ** 2 + (y - py) ** 2) / (2 * (size / 14) ** 2)
            )
        level = np.clip(glow / 1.6, 0, 1)[..., None]
        yield (255 * np.clip(np.concatenate([level * 2.2, level * 1.6 - 0.5, 0.35 - level], -1), 0, 1)).astype(np.uint8)


def thumbnail(folder: Path, video: Video, frame: int, *, number: int, score: float | None = None) -> PlaybackMoment:
    assert video.render is not None
    frame = min(frame, (video.length or 1) - 1)
    file = f"thumbnails/swing-{number}-{frame}.jpg"
    (folder / "thumbnails").mkdir(exist_ok=True)
    Image.fromarray(video.render().frames[frame]).save(folder / file, quality=85)
    return PlaybackMoment(NAMES[number], frame / RATE, score=score, media=f"swing-{number}.mp4", thumbnail=file)


def _resample(sound: Sound) -> Iterator[NDArray[np.float32]]:
    from scipy.signal import resample_poly

    samples = resample_poly(sound.samples.astype(np.float64), SOUND_RATE, sound.rate).astype(np.float32)
    block = round(SOUND_RATE / RATE)
    for start in range(0, len(samples), block):
        yield samples[start : start + block]


if __name__ == "__main__":
    write_demo(Path(sys.argv[1]))
