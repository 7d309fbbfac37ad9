"""The moving picture of the README."""

import numpy as np

from inphase.data import stage_videos
from tools.picture import GAP, TAKES, TITLE, align, draw_half


def test_the_swings_of_the_picture_are_aligned_better_than_from_the_start() -> None:
    videos = stage_videos.load(split="test", actions=["golf_swing"], videos=max(TAKES) + 1, level="plain", size=16)
    first, second = (videos[take] for take in TAKES)
    assert first.progress is not None
    assert second.progress is not None
    matched = align([first, second])
    own = np.minimum(np.arange(len(first.progress)), len(second.progress) - 1)
    start = np.abs(first.progress - second.progress[own])
    aligned = np.abs(first.progress - second.progress[matched])
    assert (np.diff(matched) >= 0).all()
    assert aligned.mean() < start.mean() / 2


def test_a_half_shows_both_videos_in_order() -> None:
    dark, light = np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), 200, np.uint8)
    half = draw_half("title", [dark, light], [0.0, 1.0])
    row = TITLE + GAP + 10
    assert half[row, GAP + 5, 0] == 0
    assert half[row, 2 * GAP + 32 + 5, 0] == 200
