"""The first event sounds on its frame, and other noises elsewhere."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.data.stage_videos import load
from inphase.stage import ACTIONS
from inphase.stage.scene import DISTRACTORS, SAMPLE_RATE, SOUNDS, synthesize, synthesize_track
from inphase.stage.take import FPS, Slate, Take, sample_take

TAKES = [sample_take(Slate(action, "val", index)) for action in ACTIONS for index in range(6)]


def energy(take: Take) -> NDArray[np.float64]:
    track = synthesize_track(take).samples.astype(np.float64)
    edges = np.round(np.arange(len(take.progress) + 1) / FPS * SAMPLE_RATE).astype(int)
    return np.array([(track[a:b] ** 2).sum() for a, b in pairwise(edges)])


def test_every_action_has_its_sound() -> None:
    assert {action.sound for action in ACTIONS.values()} <= set(SOUNDS)


def test_the_loudest_frame_is_the_event() -> None:
    for take in TAKES:
        event = next(iter(take.events.values()))
        assert abs(int(energy(take).argmax()) - event) <= 1, take.slate.id


def test_there_are_other_noises_at_other_moments() -> None:
    others = []
    for take in TAKES:
        loud = energy(take)
        event = next(iter(take.events.values()))
        away = np.abs(np.arange(len(loud)) - event) > 5
        heard = np.nonzero(away & (loud > 10 * np.median(loud)))[0]
        others += (heard / len(loud)).tolist()
    assert len(others) > len(TAKES)
    quarters = np.histogram(others, bins=4, range=(0, 1))[0] / len(others)
    assert (quarters > 0.12).all(), "distractors occur at all times"


def test_a_track_is_as_long_as_its_images_and_depends_on_the_slate_only() -> None:
    take = TAKES[0]
    (video,) = load(split="val", actions=[take.slate.action], videos=1)
    assert (video.id, Slate.parse(video.id)) == (take.slate.id, take.slate)
    assert video.synthesize is not None
    track = video.synthesize().samples
    assert video.synthesize().rate == SAMPLE_RATE
    assert track.dtype == np.float32
    assert len(track) == round(len(take.progress) / FPS * SAMPLE_RATE)
    assert np.abs(track).max() == pytest.approx(0.9)
    np.testing.assert_array_equal(track, synthesize_track(take).samples)


@pytest.mark.parametrize("name", [*SOUNDS, *DISTRACTORS])
def test_a_sound_begins_at_once_and_fades(name: str) -> None:
    wave = synthesize(np.random.default_rng(0), (SOUNDS | DISTRACTORS)[name])
    frame = int(SAMPLE_RATE / FPS)
    assert (wave[:frame] ** 2).sum() == pytest.approx(1)
    assert (wave[frame : 2 * frame] ** 2).sum() < 0.8
    assert np.abs(wave[-10:]).max() < 0.05 * np.abs(wave).max()
