"""The parts of a playback: which values they accept, and how errors name the others."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inphase.playback import (
    Certainty,
    Curves,
    Keypoints,
    Pair,
    Phase,
    Playback,
    PlaybackError,
    PlaybackEvent,
    PlaybackMoment,
    Skeleton,
    TimeMap,
    VideoTrack,
    principal_curves,
)
from tests.playback.conftest import RNG, A, same, whole


def test_every_field_is_really_compared() -> None:
    playback = whole()
    assert not same(playback.replace(title="other"), playback)
    pair = playback.pairs[0].replace(cost=playback.pairs[0].cost + 1)
    assert not same(playback.replace(pairs=(pair,)), playback)


@given(st.lists(st.tuples(st.floats(0.01, 9), st.floats(0, 9)), min_size=1, max_size=20), st.floats(-5, 200))
def test_a_time_map_is_read_between_its_knots(steps: list[tuple[float, float]], second: float) -> None:
    reference, own = np.cumsum(steps, axis=0).T
    found = float(TimeMap(reference, own)(second))
    assert own[0] - 1e-9 <= found <= own[-1] + 1e-9
    after = int(np.searchsorted(reference, second))
    if 0 < after < len(reference):
        part = (second - reference[after - 1]) / (reference[after] - reference[after - 1])
        assert found == pytest.approx(own[after - 1] + part * (own[after] - own[after - 1]))


TIMES = np.arange(3) / 30
TRACK: dict[str, Any] = {"name": "a", "duration": 1.0, "rate": 30.0, "size": (64, 96), "media": "a.mp4"}
WRONG: list[tuple[str, Callable[[], object]]] = [
    (r"own runs backwards at knot 2 \(2 s, then 1 s\)", lambda: TimeMap(A([0, 1, 2]), A([0, 2, 1]))),
    (r"reference must increase, but entry 1 is 1 s after 1 s", lambda: TimeMap(A([1, 1]), A([0, 1]))),
    (
        r"own must be \[2\], one second for each second of the reference; got \[3\]",
        lambda: TimeMap(A([0, 1]), A([0, 1, 2])),
    ),
    (r"own\[1\] is nan", lambda: TimeMap(A([0, 1]), A([0, np.nan]))),
    (r"probability must be \[3\], one for each time; got \[2\]", lambda: Certainty(TIMES, A([0, 1]), "good", 1.0)),
    (r"probability is from 0 to 1.5: it must be in \[0, 1\]", lambda: Certainty(TIMES, A([0, 1, 1.5]), "good", 1.0)),
    (r"whole is from -1 to -1: it must be in \[0, 1\]", lambda: Certainty(TIMES, A([0, 1, 1]), "good", -1.0)),
    (r"judgment is 'bad': choose one of good, check, do_not_trust", lambda: Certainty(TIMES, A([0, 1, 1]), "bad", 1.0)),
    (r"reference must be a list of seconds", lambda: TimeMap(A([]), A([]))),
    (r"reference must be an array of numbers", lambda: TimeMap(A(["x"]), A([0]))),
    (r"reference\[1\] is None: it must be a finite number", lambda: TimeMap([0, None], [0, 1])),  # type: ignore[arg-type]
    (r"own must be an array of numbers", lambda: TimeMap([0, 1], [0, 10**400])),  # type: ignore[arg-type]
    (r"duration must be a finite number, got 1000", lambda: VideoTrack("a", 10**400, 30, (1, 1), "a.mp4")),
    (r"'up' ends at 1 s, before it starts at 1 s", lambda: Phase(1, 1, "up")),
    (r"start must be a finite number, got nan", lambda: Phase(float("nan"), 1, "up")),
    (r"label must be text, got 3", lambda: Phase(0, 1, 3)),  # type: ignore[arg-type]
    (r"confidence is 1\.5: it must be in \[0, 1\]", lambda: PlaybackEvent(0, "x", 1.5)),
    (r"second must be a finite number, got '1'", lambda: PlaybackEvent("1", "x")),  # type: ignore[arg-type]
    (r"second must be a finite number, got True", lambda: PlaybackEvent(True, "x")),
    (r"values must be \[3, any\]", lambda: Curves(TIMES, np.zeros((2, 2)))),
    (r"values has 9 columns", lambda: Curves(TIMES, np.zeros((3, 9)))),
    (r"names has 1 entries for 2 curves", lambda: Curves(TIMES, np.zeros((3, 2)), ("x",))),
    (r"points must be \[3, 1, any\]", lambda: Keypoints(TIMES, np.zeros((3, 2, 2)), ("head",))),
    (r"points has 4 columns", lambda: Keypoints(TIMES, np.zeros((3, 1, 4)), ("head",))),
    (r"points\[0, 0, 0\] is inf", lambda: Keypoints(TIMES, np.full((3, 1, 2), np.inf), ("head",))),
    (r"the bone \(0, 1\) connects", lambda: Keypoints(TIMES, np.zeros((3, 1, 2)), ("head",), ((0, 1),))),
    (r"bones\[0\] must be a list of 2", lambda: Skeleton("s", TIMES, np.zeros((3, 1, 3)), ("a",), ((0,),))),  # type: ignore[arg-type]
    (r"up is 'w'", lambda: Skeleton("s", TIMES, np.zeros((3, 1, 3)), ("a",), (), up="w")),
    (r"points must be \[3, 1, 3\]", lambda: Skeleton("s", TIMES, np.zeros((3, 1, 2)), ("a",), ())),
    (r"must be positive, got 0, 30", lambda: VideoTrack(**{**TRACK, "duration": 0})),
    (r"neither media nor keypoints", lambda: VideoTrack(**{**TRACK, "media": None})),
    (r"size must be a list of 2", lambda: VideoTrack(**{**TRACK, "size": (1, 2, 3)})),
    (r"phases\[0\] must be a Phase", lambda: VideoTrack(**TRACK, phases=((0, 1, "x"),))),  # type: ignore[arg-type]
    (r"cost must be \[3, 2\]", lambda: Pair(0, 1, np.zeros((2, 3)), TIMES, TIMES[:2], A([[0, 0]]))),
    (r"cost\[0, 1\] is nan", lambda: Pair(0, 1, A([[0, np.nan]]), A([0]), A([0, 1]), A([[0, 0]]))),
    (
        r"cost\[0, 0\] is 1e\+06, too large for float16",
        lambda: Pair(0, 1, A([[1e6]]), A([0]), A([0]), A([[0, 0]])),
    ),
    (r"path must contain indices of a cost of 1 × 1", lambda: Pair(0, 1, A([[0]]), A([0]), A([0]), A([[0, 1]]))),
    (r"path must contain whole numbers", lambda: Pair(0, 1, A([[0]]), A([0]), A([0]), A([[0, 0.5]]))),
    (r"path runs backwards after step 0", lambda: Pair(0, 1, A([[0, 0]]), A([0]), A([0, 1]), A([[0, 1], [0, 0]]))),
    (r"second must not be negative", lambda: PlaybackMoment("m", -1)),
    (r"nothing to show", lambda: Playback("t")),
    (r"10 tracks are too many", lambda: Playback("t", (VideoTrack(**TRACK),) * 10)),
    (r"reference is 1, but there are 1", lambda: Playback("t", (VideoTrack(**TRACK),), reference=1)),
    (
        r"its time_map must be None",
        lambda: Playback("t", (VideoTrack(**TRACK, time_map=TimeMap(A([0, 1]), A([0, 2]))),)),
    ),
    (
        r"pairs\[0\]\.columns is track 1",
        lambda: Playback("t", (VideoTrack(**TRACK),), (Pair(0, 1, A([[0]]), A([0]), A([0]), A([[0, 0]])),)),
    ),
]


@pytest.mark.parametrize(("message", "build"), WRONG, ids=[message for message, _ in WRONG])
def test_wrong_parts_are_refused_by_name(message: str, build: Callable[[], object]) -> None:
    with pytest.raises(PlaybackError, match=message):
        build()


BAD_PATHS = [
    "/etc/a.mp4", "../a.mp4", "x/../../a.mp4", "./a.mp4", "a//b.mp4", "..\\a.mp4", "C:/a.mp4", "", ".", ".hidden.mp4",
    "x/.git/a.mp4", "a\n.mp4", "a\x00.mp4", "a.html", "a.svg", "a.js", "a", "a.avi", "//host/a.mp4",
    "http://host/a.mp4",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_media_lie_in_the_folder_and_are_media(path: str) -> None:
    with pytest.raises(PlaybackError, match="media is "):
        VideoTrack(**{**TRACK, "media": path})


def test_principal_curves_are_those_of_a_singular_value_decomposition() -> None:
    values = RNG.random((40, 6)) * np.array([9, 5, 3, 1, 1, 1])
    (curves,) = principal_curves([values])
    _, _, directions = np.linalg.svd(values - values.mean(0), full_matrices=False)
    expected = (values - values.mean(0)) @ directions[:3].T
    expected *= np.sign(expected[-1] - expected[0])
    np.testing.assert_allclose(curves, expected, atol=1e-5)
    both = principal_curves([values, np.repeat(values, 2, axis=0)])
    np.testing.assert_allclose(both[1][::2], both[0], atol=1e-6)


def test_a_playback_needs_no_torch() -> None:
    code = "import sys, inphase.playback; sys.exit('torch' in sys.modules or 'av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_plain_numbers_and_text_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of 100,000 phases is read in under a second: 0.4 s where this holds, 2.5 s where each is converted."""

    def convert(name: str, *_: object) -> None:
        raise AssertionError(f"{name} was converted")

    monkeypatch.setattr("inphase.playback.part._converted", convert)
    phase = Phase(0.5, 1.5, "up", 0.25)
    assert (phase.start, phase.end, phase.label, phase.confidence) == (0.5, 1.5, "up", 0.25)
    assert Phase(0.5, 1.5, "up").confidence is None
    with pytest.raises(AssertionError, match="start was converted"):
        Phase(float("nan"), 1.0, "up")


def test_principal_curves_of_few_frames_are_those_of_the_same_frames_repeated() -> None:
    values = RNG.random((12, 30)) * np.linspace(5, 1, 30)
    few, many = principal_curves([values])[0], principal_curves([np.repeat(values, 4, axis=0)])[0]
    np.testing.assert_allclose(many[::4], few, atol=1e-5)
