"""A playback with a value in every field, and a folder with its media."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.playback import (
    Certainty,
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
)
from inphase.playback.part import Part

RNG = np.random.default_rng(0)
A = np.array
JOINTS = ("head", "left_wrist", "right_wrist")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the media of `whole`."""
    for name in ("a.mp4", "b ü%#?.webm", "heat.mp4", "query.wav", "images/hit.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"media")
    return tmp_path


def whole() -> Playback:
    """Build a playback that has something in every field."""
    times = np.arange(7) / 30
    points = RNG.random((7, 3, 3)).astype(np.float32)
    points[2, 1] = np.nan
    first = VideoTrack(
        "a <b>&",
        duration=7 / 30,
        rate=30,
        size=(64, 96),
        media="a.mp4",
        phases=(Phase(0, 0.1, "up"), Phase(0.1, 0.2, "down", 0.5)),
        events=(PlaybackEvent(0.1, "top", 0.9), PlaybackEvent(0.2, "end")),
        curves=Curves(times, RNG.random((7, 2)), ("PC 1", "PC 2")),
        keypoints=Keypoints(times, points, JOINTS, ((0, 1), (0, 2))),
        overlay="heat.mp4",
    )
    second = VideoTrack(
        "b",
        0.5,
        29.97,
        (64, 96),
        media="b ü%#?.webm",
        time_map=TimeMap(A([0, 0.1, 0.2]), A([0, 0, 0.4])),
        certainty=Certainty(times, np.linspace(0, 1, 7), "check", 0.625, ("Check 0.0 to 0.1 s.",)),
    )
    pair = Pair(0, 1, RNG.random((7, 5)), times, np.arange(5) / 10, A([[0, 0], [1, 1], [6, 4]]))
    skeleton = Skeleton("a", times, points, JOINTS, ((0, 1),), up="-y")
    query = PlaybackMoment("q", 0.3, media="query.wav")
    hits = (PlaybackMoment("h", 1.5, score=0.5, media="a.mp4", thumbnail="images/hit.jpg", duration=2, note="right"),)
    return Playback("T", (first, second), (pair,), (skeleton,), (Result(query, hits),))


def same(one: Any, other: Any) -> bool:
    """Compare parts field by field, arrays with their types."""
    if isinstance(one, Part):
        return type(one) is type(other) and all(same(getattr(one, f), getattr(other, f)) for f in one.__struct_fields__)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(one == other)
